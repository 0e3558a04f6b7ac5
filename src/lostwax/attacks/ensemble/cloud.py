"""Candidate records: around a point, or like the prior's."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Cloud(NamedTuple):
    """A Gaussian cloud, told by deviations rather than by a covariance: theirs is  deviations^T deviations / s."""

    centre: Tensor  # (q,)
    deviations: Tensor  # (s, q)

    @property
    def variance(self) -> float:
        """Of a coordinate, on average."""
        return float(self.deviations.square().mean())

    def no_wider_than(self, variance: float) -> Cloud:
        """The cloud shrunk, where it must be: what the models do not tell would otherwise grow from round to round."""
        if self.variance <= variance:
            return self
        return self._replace(deviations=self.deviations * math.sqrt(variance / self.variance))

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """(count, q) random sums of deviations: their covariance, without a matrix of it."""
        s = len(self.deviations)
        weights = torch.from_numpy(random.standard_normal((count, s))).to(self.deviations)
        return self.centre + weights @ self.deviations / math.sqrt(s)


def inflation(novelty: float, margin: float) -> float:
    """What the covariance of the errors on members left out is multiplied by, to draw the next cloud.

    A constant cannot serve: at 1 some clouds close beside the record and never find it, at 6 all close slowly. The
    novelty of the release makes of the members' errors its own: a cloud that missed the record is followed by a larger
    one, one that has it in its middle by a smaller (`benchmarks/ensemble_inflation.py`).
    """
    return margin * novelty


def like_the_prior(own: Tensor, pooled: Tensor, count: int, random: np.random.Generator) -> Tensor:
    """(count, q) records of one class: as many of its own (n, q) as there are, and then draws.

    These scatter around the mean of the class as all records do around the means of theirs, by the deviations `pooled`
    (s, q): the few records of a small class would span too little.
    """
    chosen, scattered = (
        part[torch.from_numpy(random.permutation(len(part))[:count]).to(part.device)] for part in (own, pooled)
    )
    more = Cloud(own.mean(0), scattered).draw(count - len(chosen), random)
    return torch.cat([chosen, more])
