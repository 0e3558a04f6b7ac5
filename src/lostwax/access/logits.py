"""Black-box access: what the released model answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.provenance import fingerprint
from lostwax.trainers.stacked import Architecture
from lostwax.types import Release
from lostwax.types.fields import check_fields

MODELS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False, repr=False)
class Logits:
    """The model's outputs on fixed public inputs, side by side: `Logits(public.inputs[:200])`.

    The queries are chosen before the model is seen, and are the same for every model (S1 section VI-B).
    """

    queries: Tensor  # (q, ...) what the net takes

    def __post_init__(self) -> None:
        check_fields(self)
        if self.queries.ndim < 2 or len(self.queries) == 0 or not self.queries.is_floating_point():
            raise ValueError(
                "Logits: expected queries of shape (q, ...), one floating-point input of the net a row, "
                f"got {self.queries.dtype} of shape {tuple(self.queries.shape)}."
            )

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, q c)."""
        like = next(iter(release.params.values()))
        ours = Architecture.of(net, like.device, like.dtype)
        answer = torch.func.vmap(ours, in_dims=(0, None), chunk_size=MODELS_AT_A_TIME)
        with torch.no_grad():
            outputs: Tensor = answer(dict(release.params), self.queries.to(like))  # (m, q, c)
        return outputs.flatten(1)

    def __repr__(self) -> str:
        """By the queries' fingerprint: a reconstructor belongs to its very queries."""
        return f"Logits({len(self.queries)} queries, {fingerprint(self.queries)})"

    @classmethod
    def examples(cls) -> tuple[Logits, ...]:
        """Instances to test, on a net of four inputs."""
        return (cls(torch.eye(4)),)
