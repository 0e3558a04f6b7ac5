"""What an inversion knows of its own answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.coordinates import Coordinates, as_records
from lostwax.attacks.newton.bank import Likely
from lostwax.types import Guess, Records

CERTAIN = 10  # times what rounding alone does to the weights: a residual up to that is explained
DETERMINED = 0.01  # of a blind guess's error: what may be left to rounding


class Inversion(NamedTuple):
    """What is known of one game's guess, without the truth."""

    record: Tensor  # (u,) the k records, one after the other, each with its label where that is a number
    label: Tensor  # (k,) their classes
    residual: float  # |A(z) - theta|
    rounding: float  # what the release's arithmetic, and its defences, do to A(z), as a norm
    variance: Tensor  # (k, d) of each number, foretold
    prior_variance: Tensor  # (k, d) of the records at hand
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights: singular values of the Jacobian
    determined: bool  # does rounding leave less than a hundredth of a blind guess's error?
    jacobians: int  # how many were computed for this game alone; without any, how often training was linearised
    explained_up_to: float = CERTAIN  # times the rounding: what of the residual is explained by it

    @property
    def predicted(self) -> float:
        """Mean squared error of the records' numbers, foretold."""
        return float(self.variance.mean())

    @property
    def blind(self) -> float:
        """The same for the mean of the records at hand."""
        return float(self.prior_variance.mean())

    @property
    def explained(self) -> bool:
        """Do the records explain the release to rounding? There is then nothing more to be had from it."""
        return self.residual <= self.explained_up_to * self.rounding

    @property
    def certified(self) -> bool:
        """Do the records explain the release to rounding, and does the release determine them?

        Then the iteration has converged, and no records nearby explain the weights as well. It is no proof that none
        far away do: a short training of a small net can have several roots (S1 Theorem 8 has two).
        """
        return self.explained and self.determined

    @property
    def undetermined(self) -> int:
        """How many directions of the records move the weights by less than rounding."""
        return int((self.directions < self.rounding).sum())

    @property
    def left_to_the_prior(self) -> Tensor:
        """(k, d) numbers that the release tells less of than the prior does: they are left near the prior's mean."""
        return self.variance > self.prior_variance / 2

    def or_start(self, likely: Likely, coordinates: Coordinates, released: Tensor) -> Inversion:
        """Itself, or where it began if that foretells the lesser error; itself where it explains the release.

        Newton may find nothing: the class is wrong, or training has kinks. The bank's regression alone, which foretells
        its error by records left out, is then the better guess. Of a victim that diverged it is the mean of the class.
        """
        foretold = likely.foretold * float(coordinates.directions.square().sum(0).mean())  # from unknowns to numbers
        start = likely.regressed
        if start is None or not foretold <= self.blind:  # so also where it is NaN
            start, foretold = likely.mean or likely.nearest, self.blind
        # of an answer that does not explain the release and of its start, the one that foretells the lesser error
        if self.explained or self.predicted <= foretold:
            return self
        return self._replace(
            record=coordinates(start.a),
            label=start.label,
            residual=float((start.weights - released).norm()),
            variance=self.prior_variance * (foretold / self.blind),
            determined=False,
        )


def explained_up_to(weights: int) -> float:
    """Times the noise of a defence on so many weights p: a residual that it explains.

    The square of noise drawn again differs from that of the victim's by about 2 / sqrt(p) of it.
    """
    return math.sqrt(1 + 6 / math.sqrt(weights))


def determined(variance: Tensor, prior_variance: Tensor) -> bool:
    """Is every one of k records (k, d) known much better than blindly?"""
    return bool((variance.mean(1) <= DETERMINED * prior_variance.mean(1)).all())


def as_guess(found: Sequence[Inversion], like: Records, device: torch.device) -> Guess:
    """The games' answers, in the shapes and dtypes of the prior's records."""
    m, k = len(found), len(found[0].label)
    z = torch.stack([one.record for one in found]).view(m * k, -1)  # (m k, d + targets)
    records = as_records(z, torch.stack([one.label for one in found]).flatten(), like).to(device)
    x = records.x.view(m, k, *like.x.shape[1:])
    return Guess(
        Records(x, records.y.view(m, k, *like.y.shape[1:])),
        confidence=torch.stack([-one.variance.mean(1) for one in found]).to(device),
        certified=torch.tensor([[one.certified] * k for one in found], device=device),
        undetermined=torch.stack([one.left_to_the_prior for one in found]).to(device).view(x.shape),
    )
