"""Guesses on one scale: a spot in always black pixels shows how near chance alone comes to each guess.

S2's rates have one threshold for all guesses. But a typical one is near a record of any set, and a strange eight near
none, so the easiest guesses use up the false positives. The adversary knows how typical its guess is: within t of it
there is one of r random records of its class with a probability of 1 %, r the class's records in a set, by the records
of the prior. A spot that adds  reach - t  to the squared error of a guess makes the same threshold mean the same for
all. It is added before a guess is judged and for every release, those of the null too; nothing of the secrets enters.
It tells nothing more about a record. It makes S2's rate that of a test with one threshold per guess.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.weak import TrainedOnHeads
from lostwax.games import Guess, Records, Release

CHANCE = 0.01
AT_ONCE = 2_048  # guesses


class Marked(NamedTuple):
    """A reconstructor whose guesses have a spot."""

    plain: TrainedOnHeads
    prior: Records
    counts: Tensor  # (c,) records of each class in a set
    reach: float  # the largest t that is told from others

    @property
    def validation_error(self) -> float:
        """Without the spot."""
        return self.plain.validation_error

    def __call__(self, release: Release) -> Guess:
        """The same guesses, marked."""
        guess = self.plain(release)
        records = guess.records
        added = self.reach - self.chance_errors(records).clamp_max(self.reach)  # (m, g)
        low, high = float(self.prior.x.min()), float(self.prior.x.max())
        black = (self.prior.x == low).all(0).to(records.x.device)  # of a picture's shape
        if not bool(black.any()):
            raise ValueError("s2_marks: no pixel is black in all pictures of the prior. Run the row without --marked.")
        # of p pixels, the b black ones at a distance v from black add  b v^2 / p  to the mean squared error
        away = (added * black.numel() / black.sum()).sqrt().clamp_max(high - low)
        lit = low + away.view(*away.shape, *[1] * black.ndim)  # (m, g, 1, ...)
        return replace(guess, records=replace(records, x=torch.where(black, lit.to(records.x), records.x)))

    def chance_errors(self, guesses: Records) -> Tensor:
        """(m, g) t: the mean squared error within which one of r random records lies with probability CHANCE."""
        home = self.prior.x.device
        found, labels = guesses.x.flatten(2).flatten(0, 1).to(home), guesses.y.flatten().to(home)
        radius = torch.empty(len(found), device=home)
        for label in labels.unique().tolist():
            among = self.prior.x[self.prior.y == label].flatten(1)
            share = 1 - (1 - CHANCE) ** (1 / int(self.counts[label]))  # of single records
            place = max(1, round(share * len(among)))
            for some in torch.split((labels == label).nonzero().flatten(), AT_ONCE):
                far = torch.cdist(found[some], among, compute_mode="donot_use_mm_for_euclid_dist")  # exact
                radius[some] = far.kthvalue(place, dim=1).values
        return (radius.square() / found.shape[1]).view(guesses.y.shape).to(guesses.x)
