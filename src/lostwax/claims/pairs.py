"""Pairs of training sets that differ in one record: each brings out other faults."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.claims.slopes import Slopes
from lostwax.games import Records

FAR = 1000.0  # an outlier, in units of a record
LOUD = 30.0  # its gradient is clipped by most norms
SCALES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)  # of records whose gradients oppose each other
TRIED_RECORDS, TRIED_CLASSES = 32, 6
COMPARED_LABELS = 500
QUIET = 1e-3  # of the canary's gradient: no longer seen
OPPOSED = 0.95  # of the largest distance between two gradients

NOISE = "noise that is too small, more steps or a higher rate than claimed (gradient accumulation), clipping too late"
MIXED = "layers that mix the records of a batch (batch norm), and clipping after averaging instead of before"
FIXED = "shuffled batches, or batches of a fixed size, where the claim says that records are drawn independently"


class CanaryPair(NamedTuple):
    """Two training sets: the others and one of two canaries. A training function gets one of them; which?"""

    name: str
    others: Records  # (n - 1, ...)
    canaries: Records  # (2, ...)
    look_for: str  # the usual faults, if this pair is told apart too often


def pairs(data: Records, slopes: Slopes, *, bounded: bool = False) -> list[CanaryPair]:
    """A claim of differential privacy holds for all of them, unless records are bounded.

    The last record of `data` is the canary of the first two, with its label or another one. Quiet records have no
    gradient or a small one, so that only the canary moves most weights.
    """
    record, labels = data.x[-1], _two_labels(data, bounded=bounded)
    both = Records(torch.stack([record, record]), labels)
    loud = Records(LOUD * both.x, labels)
    quiet = _quiet(data, both, slopes, bounded=bounded)
    blank = Records(torch.zeros_like(data.x[:-1]), labels[:1].expand_as(data.y[:-1]).clone())
    outlier = Records(torch.stack([0 * record, FAR * record]), labels)
    opposed = _opposed(data, both, slopes, bounded=bounded)
    copies = _copies(opposed[:1], len(data) - 1)
    every = [
        CanaryPair("the canary's label is changed, other records are quiet", quiet, both, NOISE),
        CanaryPair("the label of a large canary is changed, other records are quiet", quiet, loud, NOISE),
        CanaryPair("one of many blank records is replaced by an outlier", blank, outlier, MIXED),
        CanaryPair("one of many copies of a record gets another label", copies, opposed, FIXED),
    ]
    return [every[0], every[-1]] if bounded else every


def _two_labels(data: Records, *, bounded: bool) -> Tensor:
    """(2, ...) the label of the last record, and another one; of bounded numbers two that occur, far apart."""
    if data.y.is_floating_point() and bounded:
        few = data.y if data.y.ndim == 1 else data.y[:COMPARED_LABELS]
        first = (few - few.mean(0)).flatten(1).norm(dim=1).argmax() if few.ndim > 1 else few.argmin()
        second = (few - few[first]).flatten(1).norm(dim=1).argmax() if few.ndim > 1 else few.argmax()
        return few[torch.stack([first, second])]
    if data.y.is_floating_point():
        far = 3 * data.y.std(0) + 1
        return torch.stack([data.y[-1] - far, data.y[-1] + far])
    others = data.y[data.y != data.y[-1]]
    if len(others) == 0:
        raise ValueError(f"check_dp: expected records of two classes or more, got only class {int(data.y[-1])}.")
    return torch.stack([data.y[-1], others[0]])


def _copies(one: Records, number: int) -> Records:
    """The same record many times."""
    return Records(one.x.expand(number, *one.x.shape[1:]).clone(), one.y.expand(number, *one.y.shape[1:]).clone())


def _crossed(x: Tensor, labels: Tensor) -> Records:
    """Each of x with each label: (x, labels) flattened."""
    many = labels.repeat(len(x), *[1] * (labels.ndim - 1))
    return Records(x.repeat_interleave(len(labels), 0), many)


def _quiet(data: Records, canaries: Records, slopes: Slopes, *, bounded: bool) -> Records:
    """Copies of a record that the net is sure of, whose loss has no slope; blank ones if there is none."""
    blank = torch.zeros_like(data.x[:1])
    if data.y.is_floating_point():
        return Records(torch.zeros_like(data.x[:-1]), data.y[:-1])
    x = blank if bounded else torch.cat([blank, FAR * data.x[:TRIED_RECORDS]])
    tried = _crossed(x, torch.unique(data.y)[:TRIED_CLASSES])
    start = slopes.start.unsqueeze(0)
    lengths = slopes(start, tried, data)[1][0].norm(dim=1).nan_to_num(torch.inf)
    usual = slopes(start, canaries, data)[1][0].norm(dim=1).max()
    of_blank = lengths[: len(tried) // len(x)].argmin()
    best = lengths.argmin() if lengths.min() < QUIET * usual else of_blank
    return _copies(tried[int(best) : int(best) + 1], len(data) - 1)


def _opposed(data: Records, canaries: Records, slopes: Slopes, *, bounded: bool) -> Records:
    """(2, ...) a record with two labels, whose gradients point in opposite directions for as long as possible.

    If all other records are copies of the first, all steps of shuffled batches are the same, except those with the
    second one, which are two units off: the pair of Chua et al. 2024. Both gradients must stay longer than the clipping
    norm while the net learns the copies. Each step of length s changes the difference m of both losses by s J, J being
    the length of its gradient; so (m + 1) / J is about the number of steps that it takes.
    """
    if data.y.is_floating_point():
        return canaries
    scales = [scale for scale in SCALES if scale <= 1 or not bounded]
    x = torch.cat([data.x[:1] * 0, *(scale * data.x[-TRIED_RECORDS:] for scale in scales if scale)])
    labels = torch.unique(data.y)[:TRIED_CLASSES]
    tried = _crossed(x, labels)
    losses, gradients = (value[0] for value in slopes(slopes.start.unsqueeze(0), tried, data))
    losses, gradients = losses.view(len(x), len(labels)), gradients.view(len(x), len(labels), -1)
    lengths = gradients.norm(dim=2)  # (x, labels)
    products = gradients @ gradients.mT  # (x, labels, labels)
    squares = lengths.square()
    between = (squares.unsqueeze(2) + squares.unsqueeze(1) - 2 * products).clamp_min(0).sqrt()  # J
    distances = (2 - 2 * products / (lengths.unsqueeze(2) * lengths.unsqueeze(1)).clamp_min(1e-30)).clamp_min(0).sqrt()
    time = (losses.unsqueeze(2) - losses.unsqueeze(1) + 1) / between.clamp_min(1e-30)
    long = lengths.unsqueeze(1) >= lengths.unsqueeze(2) / 2  # the second gradient is not much shorter
    fine = long & (lengths.unsqueeze(2) > QUIET) & torch.isfinite(time)
    if not fine.any():
        return canaries
    distances = torch.where(fine, distances, -torch.inf)
    best = torch.where(distances >= OPPOSED * distances.max(), time, -torch.inf).argmax()
    place, first, second = (int(value) for value in torch.unravel_index(best, time.shape))
    return Records(torch.stack([x[place], x[place]]), labels[[first, second]])
