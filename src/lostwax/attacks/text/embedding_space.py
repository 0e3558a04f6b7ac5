"""The sentence in embedding space: Gauss-Newton on the linear response, then the tokens nearest to the solution.

With a frozen table, what a sentence does to the weights is a smooth function of its embeddings e (length, d). With
more directions than these have numbers, the most probable e is found as in nonlinear least squares,

    min_e  sum_j (target_j - response_j(e))^2 / noise^2 + |e - mean|^2 / variance,

responses in units of their error on models that were trained, mean and variance those of the table. The noise falls to
1 in a few stages: a wide valley first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.text.response import SentenceResponse

STAGES = ((10.0, 12), (3.0, 10), (1.0, 10))  # the noise, and steps
START = 0.3  # deviation of a start from the table's mean, in deviations of the table
TOGETHER = 2  # starts of each label
DAMPING, EASED, RAISED = 1.0, 1 / 3, 4.0  # of Levenberg and Marquardt: at first, after a step that helps, after others


class EmbeddingSpace(NamedTuple):
    """The search in embedding space."""

    response: SentenceResponse  # in units of its error

    def sentence(self, target: Tensor, labels: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The tokens (length,) nearest to the best solution from a few starts with each of some labels; its label."""
        table, length = self.response.embeddings, self.response.bank.inputs.shape[1]
        y = labels.to(table.device).repeat_interleave(TOGETHER)
        drawn = torch.from_numpy(draw.standard_normal((len(y), length, table.shape[1]))).to(table)
        e = table.mean(0) + START * table.std() * drawn
        for noise, steps in STAGES:
            e, left = self._solved(target, y, e, noise, steps)
        best = left.argmin()
        return self.nearest(e[best], y[best], 1)[:, 0], y[best]

    def nearest(self, e: Tensor, y: Tensor, shortlist: int, target: Tensor | None = None) -> Tensor:
        """(length, shortlist) the tokens nearest to embeddings (length, d), in the metric of their precision.

        With a target, nearest to where one step of Gauss-Newton leads; the noise is then what is left, or 1.
        """
        value, jacobian = self.response.linearised(e[None], y.to(e.device)[None])
        length, d = e.shape
        aim = value[0] if target is None else target
        noise = max(1.0, float((aim - value[0]).square().mean().sqrt()))
        precision, gradient = self._normal(e[None], value, jacobian, noise, aim)
        table, place = self.response.embeddings.double(), e.double()
        if target is not None:
            place = place + torch.linalg.solve(precision[0], gradient[0]).view(length, d)
        spread = torch.linalg.inv(precision[0]).view(length, d, length, d)
        found = []
        for position in range(length):
            away = table - place[position]  # (v, d)
            far = (away @ torch.linalg.inv(spread[position, :, position]) * away).sum(1)
            found.append(far.topk(min(shortlist, len(table)), largest=False).indices)
        return torch.stack(found)

    def _solved(self, target: Tensor, y: Tensor, e: Tensor, noise: float, steps: int) -> tuple[Tensor, Tensor]:
        """The embeddings (m, length, d) after some damped steps, and what they leave (m,)."""
        damping = torch.full((len(e), 1), DAMPING, dtype=torch.float64, device=e.device)
        value, jacobian = self.response.linearised(e, y)
        left = self._left(e, value, noise, target)
        for _ in range(steps):
            precision, gradient = self._normal(e, value, jacobian, noise, target)
            damped = precision + torch.diag_embed(damping * precision.diagonal(dim1=1, dim2=2))
            other = e + torch.linalg.solve(damped, gradient).to(e).view_as(e)
            there = self._left(other, self.response.of_embeddings(other, y), noise, target)
            better = there < left
            damping = torch.where(better[:, None], EASED * damping, RAISED * damping).clamp(1e-6, 1e6)
            e, left = torch.where(better[:, None, None], other, e), torch.where(better, there, left)
            value, jacobian = self.response.linearised(e, y)
        return e, left

    def _left(self, e: Tensor, value: Tensor, noise: float, target: Tensor) -> Tensor:
        """(m,) the sum that is minimised."""
        mean, variance = self._prior()
        return ((target - value) / noise).square().sum(1) + (e - mean).square().sum((1, 2)) / variance

    def _normal(
        self, e: Tensor, value: Tensor, jacobian: Tensor, noise: float, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Half of the sum's Hessian (m, n, n) and minus half its gradient (m, n), n = length d, by Gauss-Newton."""
        mean, variance = self._prior()
        whitened = (jacobian.flatten(2) / noise).double()  # (m, r, n)
        one = torch.eye(whitened.shape[2], dtype=torch.float64, device=e.device)
        pulled = whitened.mT @ ((target - value) / noise).double().unsqueeze(2)
        back = ((mean - e) / variance).flatten(1).double()
        return whitened.mT @ whitened + one / float(variance), pulled.squeeze(2) + back

    def _prior(self) -> tuple[Tensor, Tensor]:
        table = self.response.embeddings
        return table.mean(0), table.var(0).mean()
