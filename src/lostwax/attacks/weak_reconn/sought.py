"""Which secrets of a training set a guess is for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NEIGHBOURS = (1, -1, 2, -2, 3, -3, 4, -4)  # so many places before a head are those that its guesses are held against


class Sought(NamedTuple):
    """The secrets by which each of g guesses is judged: those of its class, or all of the set."""

    places: Tensor  # (g, r) in the set; guesses for fewer than r have some twice ...
    counted: Tensor  # (g, r) ... that do not count

    @classmethod
    def of(cls, y: Tensor, classes: tuple[int, ...]) -> Sought:
        """From the labels (k,) of a set, and the class of each guess; one guess for all without."""
        groups = [(y == label).nonzero().flatten() for label in classes] or [torch.arange(len(y), device=y.device)]
        most = max(len(group) for group in groups)
        places = [torch.cat([group, group[:1].expand(most - len(group))]) for group in groups]
        counted = [torch.arange(most, device=y.device) < len(group) for group in groups]
        return cls(torch.stack(places), torch.stack(counted))

    def of_each(self, secrets: Tensor) -> Tensor:
        """(m, k, ...) -> (m, g, r, ...)."""
        return secrets[:, self.places]


def softmin(errors: Tensor, counted: Tensor, alpha: float) -> Tensor:
    """(m, g, r) -> (m, g): about the least of the errors, but one that all of them push (S2 Eq. 3).

    sum_i l_i exp(-alpha l_i) / sum_i exp(-alpha l_i)
    """
    shares = (-alpha * errors).masked_fill(~counted, -torch.inf).softmax(-1)
    return (shares * errors).sum(-1)


def of_others(wanted: Tensor) -> Tensor:
    """(m, g, r, ...) twice: for each guess those of another head, which are to it what any others are.

    It is the head before; where that has some of the very records that the guess is for, the nearest that has none.
    """
    heads, guesses = (torch.arange(size, device=wanted.device) for size in wanted.shape[:2])
    marks = wanted.flatten(3).double().view(torch.int64).sum(-1)  # (m, g, r) exact sums: equal records have equal ones
    others = torch.stack([heads.roll(places) for places in NEIGHBOURS], 1)  # (m, neighbours)
    apart = (marks[:, None, :, :, None] != marks[others].unsqueeze(3)).flatten(3).all(3)  # (m, neighbours, g)
    first = apart.int().argmax(1)  # (m, g), the head before where no neighbour will do
    return wanted[others.gather(1, first), guesses]


def nearest(errors: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, r) -> (m, g) twice: the least error, and its place among the r."""
    least, place = errors.masked_fill(~counted, torch.inf).min(-1)
    return least, place


def mean_errors(answers: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, ...) and (m, g, r, ...) -> mean squared and mean absolute errors, (m, g, r) each."""
    wrong = (answers.unsqueeze(2) - wanted).flatten(3)
    return wrong.square().mean(-1), wrong.abs().mean(-1)
