"""Poisson sampling: every record enters every step on its own, with the same probability."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lostwax import philox
from lostwax.seeds import key
from lostwax.trainers.batches import Pool, together
from lostwax.trainers.clipping import Sample
from lostwax.trainers.stacked import Batch
from lostwax.types import Cohort

TOGETHER, MOST = 8, 1 << 24  # steps that are drawn for at once; draws, of 8 bytes, for which they are fewer
GATHERED = 0.2  # up to this rate, to copy the records drawn is cheaper than to compute with all of them


def draws(cohort: Cohort, rate: float, steps: int, *, seed: int) -> Iterator[Tensor | None]:
    """Every step's (m, n) draws, shared records first, private to the model's number; None where all are drawn."""
    if rate == 1:
        for _ in range(steps):
            yield None
        return
    ours, models = key(seed, "sample"), cohort.index.to(cohort.own.inputs.device)
    at_once = max(1, min(TOGETHER, MOST // (len(cohort) * cohort.records)))
    for first in range(0, steps, at_once):
        turns = min(at_once, steps - first)
        yield from philox.happens(ours, models, cohort.records, rate, turn=first, turns=turns).unbind(1)


def sample(cohort: Cohort, drawn: Tensor | None, rate: float) -> Sample:
    """The records that were drawn: gathered where they are few, else all of them, the others not counted."""
    if drawn is None or rate > GATHERED:
        batch = together(cohort, slice(None), slice(None))
        if drawn is None:
            return Sample.whole(batch, len(cohort))
        counted = torch.split(drawn.to(cohort.own.inputs.dtype), [len(cohort.shared), cohort.secrets], dim=1)
        return Sample(batch, tuple(part for part in counted if part.shape[1]))
    pool = Pool.of(cohort)
    slab = computed(cohort, rate)[0]
    model, record = drawn.nonzero(as_tuple=True)
    place = drawn.cumsum(1)[model, record] - 1
    slabs = 1 + int(place.max()) // slab if len(place) else 1
    positions = record.new_zeros(len(drawn), slabs * slab)  # what is not filled is record 0, and does not count
    positions[model, place] = record
    included = cohort.own.inputs.new_zeros(len(drawn), slabs * slab)
    included[model, place] = 1
    parts = [pool(some) for some in torch.split(positions, slab, dim=1)]
    return Sample(Batch((), tuple(parts)), torch.split(included, slab, dim=1))


def computed(cohort: Cohort, rate: float) -> tuple[int, int]:
    """How many records a model computes with at a time, and how many of them are not shared.

    What is gathered comes in slabs of so many: a second one is rare, and adds zeros to all models that need none, so
    that the company a model is trained in changes no byte of it.
    """
    if rate > GATHERED:
        return cohort.records, cohort.secrets
    mean = rate * cohort.records
    few = min(int(mean + 4 * mean**0.5) + 1, cohort.records)
    return few, few
