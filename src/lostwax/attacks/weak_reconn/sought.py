"""Which secrets of a training set a guess is for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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


def of_others(secrets: Tensor) -> Tensor:
    """(m, k, ...) -> (m, k, ...): those of the next head, which are to this one what any others are."""
    return secrets.roll(1, 0)


def nearest(errors: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, r) -> (m, g) twice: the least error, and its place among the r."""
    least, place = errors.masked_fill(~counted, torch.inf).min(-1)
    return least, place


def mean_errors(answers: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, ...) and (m, g, r, ...) -> mean squared and mean absolute errors, (m, g, r) each."""
    wrong = (answers.unsqueeze(2) - wanted).flatten(3)
    return wrong.square().mean(-1), wrong.abs().mean(-1)
