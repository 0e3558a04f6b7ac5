"""Guesses on one scale, so that S2's one threshold for all of them means the same for each.

A typical guess is near a record of any set, and a strange eight near none, so the easiest guesses use up the false
positives. The adversary knows how typical its guess is: within t of it there is one of r random records of its class
with a probability of 1 %, r the class's records in a set, by the records of the prior. Two ways to make t the same:

- Marked: a spot in pixels that are always black adds  reach - t  to the squared error of a guess.
- Contrasted, for pictures without such pixels: a guess is moved away from the mean of its class, or towards it, to
  where t is the reach.

Both act before a guess is judged and for every release, those of the null too; nothing of the secrets enters. They tell
nothing more about a record. They make S2's rate that of a test with one threshold per guess.
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
MOST, HALVINGS = 4.0, 10  # the largest contrast, relative to the guess's own, and how finely it is searched for


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
        added = self.reach - chance_errors(records, self.prior, self.counts).clamp_max(self.reach)  # (m, g)
        low, high = float(self.prior.x.min()), float(self.prior.x.max())
        black = black_pixels(self.prior).to(records.x.device)
        # of p pixels, the b black ones at a distance v from black add  b v^2 / p  to the mean squared error
        away = (added * black.numel() / black.sum()).sqrt().clamp_max(high - low)
        lit = low + away.view(*away.shape, *[1] * black.ndim)  # (m, g, 1, ...)
        return replace(guess, records=replace(records, x=torch.where(black, lit.to(records.x), records.x)))


class Contrasted(NamedTuple):
    """A reconstructor whose guesses have more or less contrast to the mean of their class."""

    plain: TrainedOnHeads
    prior: Records
    counts: Tensor  # (c,) records of each class in a set
    reach: float  # t of all guesses, except of those that are the mean

    @property
    def validation_error(self) -> float:
        """With the contrast that it was trained for."""
        return self.plain.validation_error

    def __call__(self, release: Release) -> Guess:
        """The same guesses, with another contrast."""
        guess = self.plain(release)
        x, y = guess.records.x, guess.records.y
        means = torch.stack([self.prior.x[self.prior.y == label].mean(0) for label in range(len(self.counts))])
        middle = means.to(x)[y]  # (m, g, ...)
        low, high = float(self.prior.x.min()), float(self.prior.x.max())
        least = torch.zeros_like(x.flatten(2)[..., 0])  # (m, g)
        most = torch.full_like(least, MOST)
        for _ in range(HALVINGS):
            contrast = (least + most) / 2
            tried = middle + contrast.view(*y.shape, *[1] * (x.ndim - 2)) * (x - middle)
            tried = replace(guess.records, x=tried.clamp(low, high))
            far = chance_errors(tried, self.prior, self.counts) > self.reach  # (m, g)
            least, most = torch.where(far, least, contrast), torch.where(far, contrast, most)
        return replace(guess, records=tried)


def on_one_scale(plain: TrainedOnHeads, prior: Records, counts: Tensor, reach: float) -> Marked | Contrasted:
    """By a spot, where there is room for one."""
    kind = Marked if bool(black_pixels(prior).any()) else Contrasted
    return kind(plain, prior, counts, reach)


def black_pixels(prior: Records) -> Tensor:
    """Of a picture's shape: where all pictures of the prior are black."""
    return (prior.x == prior.x.min()).all(0)


def chance_errors(guesses: Records, prior: Records, counts: Tensor) -> Tensor:
    """(m, g) t: the mean squared error within which one of r random records lies with probability CHANCE."""
    home = prior.x.device
    found, labels = guesses.x.flatten(2).flatten(0, 1).to(home), guesses.y.flatten().to(home)
    radius = torch.empty(len(found), device=home, dtype=torch.float64)
    for label in labels.unique().tolist():
        among = prior.x[prior.y == label].flatten(1).double()
        share = 1 - (1 - CHANCE) ** (1 / int(counts[label]))  # of single records
        place = max(1, round(share * len(among)))
        for some in torch.split((labels == label).nonzero().flatten(), AT_ONCE):
            radius[some] = torch.cdist(found[some].double(), among).kthvalue(place, dim=1).values
    return (radius.square() / found.shape[1]).view(guesses.y.shape).to(guesses.x)
