"""What every defence can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from lostwax.types import Release


@runtime_checkable
class Defence(Protocol):
    """A change to a model between training and release, as a value.

    Everybody knows which one it is. What `seed` draws is private, and belongs to the model's number alone.
    """

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """The same models, those of these numbers (m,), as they are published: names, shapes and dtypes are kept."""
        ...


def final_weights(defence: Defence, release: Release) -> Mapping[str, Tensor]:
    """The release's parameters, refused where they are not all that is published."""
    if release.steps is not None:
        raise ValueError(
            f"{type(defence).__name__}: it changes the weights that training ends with, but this release publishes "
            "the steps of training too, and they give those weights away. Release the final weights alone."
        )
    return release.params
