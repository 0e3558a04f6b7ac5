"""The sentence in embedding space: Gauss-Newton on the linear response, then the tokens nearest to the solution.

With a frozen table, what a sentence does to the weights is a smooth function of its embeddings e (length, d). With
more directions than these have numbers, the most probable e is found as in nonlinear least squares,

    min_e  sum_j (target_j - response_j(e))^2 / noise^2 + |e - mean|^2 / variance,

responses in units of their error on models that were trained, mean and variance those of the table. The noise falls to
1 in a few stages: a wide valley first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.newton.least_squares import Dense, Linearised, Point, Rule, Search
from lostwax.attacks.text.response import SentenceResponse

STAGES = ((10.0, 12), (3.0, 10), (1.0, 10))  # the noise, and steps
START = 0.3  # deviation of a start from the table's mean, in deviations of the table
TOGETHER = 2  # starts of each label
DAMPING = 1.0  # of Levenberg and Marquardt, at first
RULE = Rule((1.0,), stalled=1.0, raised=4.0, eased=1 / 3, damping_range=(1e-6, 1e6))


@dataclass(frozen=True, eq=False)
class EmbeddingSpace(Dense[Search[Linearised]]):
    """The search in embedding space; unknowns are the n = length d numbers of a sentence's embeddings."""

    response: SentenceResponse  # in units of its error
    noise: float = 1.0

    def sentence(self, target: Tensor, labels: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The tokens (length,) nearest to the best solution from a few starts with each of some labels; its label."""
        table, length = self.response.embeddings, self.response.bank.inputs.shape[1]
        y = labels.to(table.device).repeat_interleave(TOGETHER)
        drawn = torch.from_numpy(draw.standard_normal((len(y), length, table.shape[1]))).to(table)
        e = table.mean(0) + START * table.std() * drawn
        value, jacobian = self.response.linearised(e, y)
        searches = [
            Search(Point(*each[:3]), Linearised.of(each[3]), target, fresh=True)
            for each in zip(e.flatten(1), y, value - target, jacobian.flatten(2), strict=True)
        ]
        for noise, steps in STAGES:
            stage = replace(self, noise=noise)
            self.linearise([search for search in searches if not search.fresh])
            for search in searches:
                search.damping = DAMPING
            stage.descend(searches, RULE, steps - 1)
        a, residual = (torch.stack([search.point[place] for search in searches]).unsqueeze(1) for place in (0, 2))
        best = searches[int(stage.values(searches, a, residual).argmin())].point
        return self.nearest(best.a.view(length, -1).to(table), best.label, 1)[:, 0], best.label

    def nearest(self, e: Tensor, y: Tensor, shortlist: int, target: Tensor | None = None) -> Tensor:
        """(length, shortlist) the tokens nearest to embeddings (length, d), in the metric of their precision.

        With a target, nearest to where one step of Gauss-Newton leads; the noise is then what is left, or 1.
        """
        value, jacobian = self.response.linearised(e[None], y.to(e.device)[None])
        length, d = e.shape
        residual = torch.zeros_like(value[0]) if target is None else value[0] - target
        point = Point(e.flatten(), y, residual)
        here = replace(self, noise=max(1.0, float(residual.square().mean().sqrt())))
        precision, slope, _ = here.quadratic(Search(point, Linearised.of(jacobian[0].flatten(1)), residual))
        table, place = self.response.embeddings.double(), e.double()
        if target is not None:
            place = place - torch.linalg.solve(precision, slope).view(length, d)
        spread = torch.linalg.inv(precision).view(length, d, length, d)
        tokens = []
        for position in range(length):
            away = table - place[position]  # (v, d)
            far = (away @ torch.linalg.inv(spread[position, :, position]) * away).sum(1)
            tokens.append(far.topk(min(shortlist, len(table)), largest=False).indices)
        return torch.stack(tokens)

    def residuals(self, searches: Sequence[Search[Linearised]], tried: Tensor) -> Tensor:
        """(g, f, r) the response at embeddings (g, f, n), less the target."""
        y = torch.stack([search.point.label for search in searches]).repeat_interleave(tried.shape[1])
        value = self.response.of_embeddings(self._embeddings(tried.flatten(0, 1)), y).view(*tried.shape[:2], -1)
        return value - torch.stack([search.released for search in searches]).unsqueeze(1)

    def values(self, searches: Sequence[Search[Linearised]], tried: Tensor, residuals: Tensor) -> Tensor:
        """(g, f) the sum that is minimised."""
        mean, variance = self._prior(tried)
        return (residuals / self.noise).square().sum(2) + (tried - mean).square().sum(2) / variance

    def linearise(self, searches: Sequence[Search[Linearised]]) -> None:
        """At all points together."""
        if searches:
            e = self._embeddings(torch.stack([search.point.a for search in searches]))
            _, jacobian = self.response.linearised(e, torch.stack([search.point.label for search in searches]))
            for search, each in zip(searches, jacobian.flatten(2), strict=True):
                search.linear, search.fresh, search.jacobians = Linearised.of(each), True, search.jacobians + 1

    def quadratic(self, search: Search[Linearised]) -> tuple[Tensor, Tensor, Tensor]:
        """Half of the sum's Hessian (n, n) and half its gradient (n,), by Gauss-Newton; damped as by Marquardt."""
        mean, variance = self._prior(search.point.a)
        jacobian, normal = search.linear
        unit = torch.eye(len(normal), dtype=torch.float64, device=normal.device)
        pulled = jacobian.double().mT @ search.point.residual.double()
        slope = pulled / self.noise**2 + ((search.point.a - mean) / variance).double()
        precision = normal / self.noise**2 + unit / float(variance)
        return precision, slope, precision.diagonal()

    def _embeddings(self, a: Tensor) -> Tensor:
        """(m, length, d) of unknowns (m, n)."""
        table = self.response.embeddings
        return a.to(table).view(len(a), -1, table.shape[1])

    def _prior(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (n,) and variance of the unknowns."""
        table = self.response.embeddings
        return table.mean(0).repeat(a.shape[-1] // table.shape[1]), table.var(0).mean()
