"""Canaries in a real training set, each in or out by a coin, and how one run of the training scores them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.bounds import Sampling
from lostwax.bounds.last_weights import seen_batches
from lostwax.claims.check import records_of
from lostwax.claims.games import Function, Player
from lostwax.claims.one_run import Array, Claim, OneRun, judged
from lostwax.claims.slopes import Loss, Slopes
from lostwax.games import Records
from lostwax.progress import counted, progress
from lostwax.released import LastWeights
from lostwax.seeds import generator

CANARIES = 1000
LOUD = 10.0
COMPARED = 1000  # records, at random, that stand for all others in a step
QUIETEST = 1e-2  # of the variance of a layer's step is noise


@dataclass(frozen=True)
class Planted:
    """A training set with canaries: train on `records`, once, and ask `check` what that gave away.

    `inside` must stay out of the training function's sight, like the canaries that are out.
    """

    records: Records  # the data, and the canaries that are in, in random order
    data: Records
    canaries: Records
    inside: NDArray[np.bool_]

    def by_loss(self, net: nn.Module, start: nn.Module | None = None, *, loss: Loss | None = None) -> Array:
        """Black box: how low the loss of each canary is, or how far it fell, with the net as it was before training."""

        def losses(model: nn.Module) -> Tensor:
            slopes = Slopes.of(model, self.canaries, loss)
            with torch.no_grad():
                values = slopes.loss(slopes.net(self.canaries.x), self.canaries.y)
            return values.double().nan_to_num(nan=math.inf)

        fallen = -losses(net) if start is None else losses(start) - losses(net)
        return fallen.clamp(-1e30, 1e30).numpy()

    def by_steps(self, path: Sequence[Tensor], slopes: Slopes, *, noise: float, rate: float, seed: int = 0) -> Array:
        """White box: each step along each canary's gradient, by the likelihood ratio of the claimed noise and rate.

        A step is lr C / batch times the sum of clipped gradients and noise. The mean gradients of data and canaries are
        taken out of both; the length of what is left of a step tells the unit. Other records that happen to be in the
        batch are more noise, in known directions; a layer may have less of it than is claimed.
        """
        random = generator(seed, "by_steps")
        evidence, weights = torch.zeros(len(self.canaries)), torch.stack([slopes.start, *path])
        half, m, few = rate / 2, len(self.canaries), min(COMPARED, len(self.data))
        drawn = torch.full((m + few,), half * (1 - half))  # variances of who is in a step
        drawn[m:] = rate * (1 - rate) * len(self.data) / few
        for before, after in counted(pairwise(weights), "steps", len(path)):
            some = self.data[torch.from_numpy(random.permutation(len(self.data))[:few])]
            units = _units(slopes, before, Records.together([self.canaries, some]), self.data)  # (m + k, p)
            shared = torch.linalg.qr(torch.stack([units[:m].mean(0), units[m:].mean(0)], 1))[0]  # (p, 2)
            units -= (units @ shared) @ shared.mT
            step = before - after
            step, quiet = _in_units(step - shared @ (shared.mT @ step), drawn @ units.square(), noise, slopes.sizes)
            units /= quiet
            gain = _gain(units @ units.mT, units @ (step / quiet), drawn, m)
            evidence += torch.logaddexp(math.log(rate) + gain, torch.full_like(gain, _log_out(rate)))
        return evidence.double().nan_to_num().numpy()

    def check(
        self,
        *scores: Array,
        noise_multiplier: float | None = None,
        sample_rate: float = 1.0,
        steps: int = 1,
        sampling: Sampling | None = None,
        released: LastWeights | None = None,
        epsilon: float | None = None,
        delta: float = 1e-5,
        confidence: float = 0.95,
    ) -> OneRun:
        """What scores of the canaries prove, the larger the likelier inside: any of yours, `by_loss` or `by_steps`."""
        named = {f"score {number}": np.asarray(values, float) for number, values in enumerate(scores, 1)}
        for values in named.values():
            if values.shape != self.inside.shape or not np.isfinite(values).all():
                raise ValueError(f"check: expected {len(self.inside)} finite scores, one per canary.")
        if not named or (noise_multiplier is None) == (epsilon is None):
            raise ValueError("check: expected scores, and either noise_multiplier or epsilon.")
        batches = seen_batches(sampling, sample_rate, steps, released)
        return judged(
            Claim(noise_multiplier, steps, batches, epsilon, delta), named, self.inside, confidence=confidence
        )


def _units(slopes: Slopes, weights: Tensor, records: Records, others: Records) -> Tensor:
    """(n, p) unit gradients at these weights."""
    gradients = slopes(weights.unsqueeze(0), records, others)[1][0].nan_to_num(0, 0, 0)
    lengths: Tensor = gradients.norm(dim=1, keepdim=True)
    return gradients / lengths.clamp_min(1e-30)


def _in_units(step: Tensor, known: Tensor, noise: float, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """(p,) a step in the unit of gradients, and (p,) the deviation of its noise: in each layer, what the variance that
    is `known` of gradients does not explain."""
    step = step * ((len(step) * noise**2 + known.sum()).sqrt() / step.norm().clamp_min(1e-30))
    seen, explained = (torch.stack([part.mean() for part in torch.split(row, sizes)]) for row in (step.square(), known))
    variance = torch.maximum(seen - explained, QUIETEST * (seen + QUIETEST * noise**2))  # (layers,)
    return step, variance.sqrt().repeat_interleave(torch.tensor(sizes))


def _gain(gram: Tensor, along: Tensor, drawn: Tensor, m: int) -> Tensor:
    """(m,) log-likelihood ratios of the first of n records being in a step, from the products of all gradients (n, n),
    and with the step (n,), in units of the noise; each of the others adds the variance `drawn` along its gradient."""
    gram, along, root = gram.double(), along.double(), drawn.double().sqrt()
    known = torch.linalg.cholesky(torch.eye(len(gram)).double() + gram * root * root.unsqueeze(1))
    both = torch.cat([gram[:, :m], along.unsqueeze(1)], 1) * root.unsqueeze(1)
    half = torch.linalg.solve_triangular(known, both, upper=False)  # (n, m + 1)
    square = gram.diagonal()[:m] - half[:, :m].square().sum(0)
    itself = (1 - drawn[:m] * square).clamp_min(1e-6)  # it is among the others, which is taken back
    gain: Tensor = (along[:m] - half[:, :m].mT @ half[:, m] - square / 2) / itself
    return gain.float()


def _log_out(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def plant(data: Records, canaries: Records | int = CANARIES, *, seed: int = 0) -> Planted:
    """Add each canary to the data if its coin says so.

    A number: that many records of random signs, `LOUD` times as large as the data, with labels of the data at random:
    their gradients are clipped, and nearly orthogonal where there are many features. Records: your own, for instance
    mislabelled ones, if training takes no others.
    """
    random = generator(seed, "plant")
    if isinstance(canaries, int):
        signs = torch.from_numpy(random.integers(2, size=(canaries, *data.x.shape[1:])) * 2 - 1).to(data.x)
        labels = data.y[torch.from_numpy(random.integers(len(data), size=canaries))]
        canaries = Records(LOUD * signs * data.x.std(), labels)
    inside = random.integers(2, size=len(canaries)).astype(bool)
    together = Records.together([data, canaries[torch.from_numpy(np.flatnonzero(inside))]])
    order = torch.from_numpy(random.permutation(len(together)))
    return Planted(together[order], data, canaries, inside)


def check_dp_once(
    net: nn.Module,
    data: Any,
    train: Function,
    *,
    canaries: Records | int = CANARIES,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: Sampling | None = None,
    released: LastWeights | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    loss: Loss | None = None,
    seed: int = 0,
) -> OneRun:
    """A lower bound on epsilon, with confidence, from one run of a training function on data with canaries.

        print(lw.check_dp_once(net, (X, y), train, noise_multiplier=1.0, sample_rate=0.01, steps=1000))

    The arguments are those of `lw.check_dp`, whose games train hundreds of times and find more. Canaries are scored by
    their loss and, unless `released` says that only the last weights go out, by the steps of torch's optimisers that
    lead to what is returned. For a run elsewhere, plant the canaries yourself: `lw.claims.plant`.
    """
    start, records = time.perf_counter(), records_of(net, data)
    planted = plant(records, canaries, seed=seed)
    slopes = Slopes.of(net, records, loss)
    batches = seen_batches(sampling, sample_rate, steps, released)
    claim = Claim(noise_multiplier, steps, batches, None, delta)
    with progress("check_dp_once"):
        player = Player(net, train, slopes, seed, reads_steps=released is None)
        last, path, seen = player.trained(planted.records, int(generator(seed, "check_dp_once").integers(2**31)))
        trained = deepcopy(net)
        trained.load_state_dict(last, strict=False)
        scores = {"losses": planted.by_loss(trained, net, loss=loss)}
        if seen is not None and released is None:
            scores["steps"] = planted.by_steps(path, slopes, noise=noise_multiplier, rate=batches.share(steps))
        result = judged(claim, scores, planted.inside, confidence=confidence)
    return replace(result, seconds=time.perf_counter() - start)
