"""White-box access to a part of the released model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.types import Release
from lostwax.types.fields import check_fields


@dataclass(frozen=True, init=False)
class Layers:
    """The parameters of some modules, side by side: `Layers("3")` is the last layer of `mlp(64, 10, 10)`.

    A name is a module's, as in `net.named_modules()`, or a single parameter's, as in `net.named_parameters()`.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError("Layers: expected at least one module's name. Use Weights() to see all of the model.")
        object.__setattr__(self, "names", names)
        check_fields(self)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the release whatever the order of the names."""
        for name in self.names:
            if not any(_within(param, name) for param in release.params):
                raise ValueError(
                    f"Layers: no parameter of the release lies in '{name}'. It publishes {', '.join(release.params)}."
                )
        seen = [value for param, value in release.params.items() if any(_within(param, name) for name in self.names)]
        return torch.cat([value.flatten(1) for value in seen], 1)

    @classmethod
    def examples(cls) -> tuple[Layers, ...]:
        """Instances to test, on a net with layers "1" and "3"."""
        return cls("3"), cls("1", "3"), cls("1.weight")


def _within(param: str, name: str) -> bool:
    """Whether a parameter is the named one, or of the named module: "1" holds "1.weight", but not "10.weight"."""
    return param == name or param.startswith(f"{name}.")
