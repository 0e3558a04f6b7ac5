"""The removed row of a model with one output: every residual is tried, and given it the row is normal.

With v = r (x, 1) + e, the noise e normal and the row x normal before, the row given r is normal too. The residual is a
function of the model's output where the label is known, and the output a linear function of x: one more equation. So
the posterior is an integral over one number, done on a grid that is refined where the weight is.

The noise is no constant. v = R d + H d for the step d = theta' - theta, and what is not known is H, the sum over the
other rows: as of a Wishart matrix, H d is s times its estimate with a factor s near 1, and further noise across d with
a variance in proportion to s. A row with a small residual would need a small s, and cannot explain a large step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.stats import gamma
from torch import Tensor

POINTS, FACTORS = 128, 24  # of the grid in r, and of s
ROUNDS = 20  # of refinement
NEGLIGIBLE = 30.0  # nats below the best point
FULL = 0.25  # of the points carry weight: fine enough
ALONG = 1e-6  # of the variance along the step, which s stands for, that is left


class NormalRow(NamedTuple):
    """A normal law."""

    mean: Tensor  # (d,)
    covariance: Tensor  # (d, d)


class OutputLine(NamedTuple):
    """Rows of one label: the output w x + b, and the residual as a function of it."""

    weight: Tensor  # (d,)
    bias: Tensor  # ()
    residual: Callable[[Tensor], Tensor]  # (g,) -> (g,)
    deviation: float = 0.0  # of r itself, where the target is unknown and so r is no function of the output


class ScaledEquation(NamedTuple):
    """r (x, 1) = sure + s (moved + noise), with a factor s that is 1 on average."""

    sure: Tensor  # (d + 1,)
    moved: Tensor  # (d + 1,)
    noise: Tensor  # (d + 1, d + 1) covariance, without that of s
    factors: Tensor  # (f,) of s, as probable as each other

    @classmethod
    def of(cls, sure: Tensor, moved: Tensor, covariance: Tensor, step: Tensor) -> ScaledEquation:
        """With the covariance of `moved`: what varies along the step (d + 1,) varies with s."""
        along = covariance @ step
        variance, size = float(step @ along), float(step @ moved)
        if variance <= 0 or size == 0:
            return cls(sure, moved, covariance, torch.ones(1).to(moved))
        noise = covariance - (1 - ALONG) * along[:, None] * along / variance
        shape = size**2 / variance
        quantiles = (torch.arange(FACTORS, dtype=torch.float64) + 0.5) / FACTORS
        factors = torch.from_numpy(gamma.ppf(quantiles.numpy(), shape, scale=1 / shape))
        return cls(sure, moved, noise, factors.to(moved).clamp_min(1e-6))


class RowPosterior(NamedTuple):
    """What is known of the row."""

    mean: Tensor  # (d,)
    variance: Tensor  # (d,)
    residual: Tensor  # () its mean
    evidence: float  # the logarithm of the probability of the equation


def posterior(equation: ScaledEquation, prior: NormalRow, around: OutputLine) -> RowPosterior:
    """Of the row, for one label."""
    noise = equation.noise
    last, across = noise[-1, -1], noise[:-1, -1] / noise[-1, -1]
    # units in which the noise of the first part given its last is 1, and cells are independent
    factor = torch.linalg.cholesky(noise[:-1, :-1] - last * across[:, None] * across)
    inner = torch.linalg.solve_triangular(factor, prior.covariance, upper=False)
    inner = torch.linalg.solve_triangular(factor, inner.mT, upper=False)
    spread, turn = torch.linalg.eigh((inner + inner.mT) / 2)
    spread, basis = spread.clamp_min(0), factor @ turn  # (d,) and (d, d): x = mean + basis z
    values = equation.sure + equation.factors[:, None] * equation.moved  # (f, d + 1)

    def at(grid: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Logarithms of weights (f g,), residuals, means and variances of z (f g, d), and a (f g, d) taken off them."""
        r = around.residual(grid)
        r, s = r.repeat(len(values)), equation.factors.repeat_interleave(len(grid))
        grid, value = grid.repeat(len(values)), values.repeat_interleave(len(r) // len(values), 0)
        seen = value[:, :-1] - across * (value[:, -1] - r)[:, None] - r[:, None] * prior.mean
        seen = torch.linalg.solve_triangular(factor, seen.mT, upper=False).mT @ turn
        gain = 1 + (r.square() / s)[:, None] * spread
        z, variance = (r / s)[:, None] * spread * seen / gain, spread / gain
        weight = -((value[:, -1] - r).square() / (s * last) + (seen.square() / (s[:, None] * gain) + gain.log()).sum(1))
        if around.deviation:
            weight = (weight - (r / around.deviation).square()) / 2
            return weight, r, z, variance, torch.zeros_like(z)
        slope = around.weight @ basis  # (d,)
        pulled = variance * slope
        line = (pulled @ slope).clamp_min(1e-300)
        off = grid - around.bias - around.weight @ prior.mean - z @ slope
        weight = (weight - off.square() / line - line.log() - math.log(2 * math.pi)) / 2
        return weight, r, z + pulled * (off / line)[:, None], variance, pulled / line.sqrt()[:, None]

    middle = float(around.weight @ prior.mean + around.bias)
    width = 8 * float((around.weight @ prior.covariance @ around.weight).sqrt()) + 1e-12
    if around.deviation:
        middle, width = 0.0, 8 * around.deviation + float(values[:, -1].abs().max())
    low, high = middle - width, middle + width
    for _ in range(ROUNDS):
        grid = torch.linspace(low, high, POINTS, dtype=noise.dtype, device=noise.device)
        weight, r, z, variance, taken = at(grid)
        best = weight.reshape(-1, POINTS).amax(0)
        heavy = grid[best > best.max() - NEGLIGIBLE]
        if len(heavy) >= FULL * POINTS:
            break
        step = (high - low) / (POINTS - 1)
        low, high = float(heavy[0]) - step, float(heavy[-1]) + step
    share = weight.softmax(0)
    some = share > 1e-7 * share.max()
    share, z, taken = share[some], z[some], taken[some]
    share = share / share.sum()
    means, mean = z @ basis.mT, share @ z @ basis.mT
    spreads = (share @ variance[some]) @ basis.square().mT - share @ (taken @ basis.mT).square()
    spreads = spreads.clamp_min(0) + share @ (means - mean).square()
    evidence = float(weight.logsumexp(0)) + math.log((high - low) / len(weight))
    return RowPosterior(prior.mean + mean, spreads, share @ r[some], evidence)
