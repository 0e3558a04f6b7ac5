"""Does training on the same data end at the released weights? The miss is compared with what one record changes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.adapters.net_state import as_real, released_state
from lostwax.audits.choice import available_bytes, in_bytes
from lostwax.games import Cohort, Records, Release, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.inits import FromNet, Params, StartsFrom, start_of, trainable
from lostwax.learning.costs import Rate
from lostwax.progress import progress
from lostwax.trainers.stacked import drops

MISS = 0.02  # how far from the release retraining may end, over how far one record moves the weights
APART = 1.5  # the same with private draws, over how far retrainings end from each other
NAME_THE_START = (
    "init=lw.inits.Given(state), with the net's state_dict() before training, or the draw that made them, such as "
    "init=lw.inits.LeCunNormal()."
)
REPLACED, FEWEST_REPLACED = 8, 3  # records that are replaced, one after the other, to see how far that is


class Retrained(NamedTuple):
    """The trainer run on the whole table again, beside the release."""

    release: Release  # (1, ...) where it ends
    released: Release  # (1, ...) the weights of the net, and its buffers if they are published
    start: Params  # the state_dict before training
    seconds: float  # per model
    miss: float  # |where it ends - the released weights|, over the length of the way from the start
    note: str  # how well the released weights come out
    private: str | None = None  # which of them depend on private draws, if any are drawn

    @property
    def rate(self) -> Rate:
        """How fast models are trained, and their size."""
        size = self.release.flat().shape[1]
        return Rate(self.seconds, size, size)


def known_draws(trainer: Trainer, net: nn.Module, table: Records) -> tuple[Trainer, tuple[str, ...]]:
    """The trainer, with a seed where it needs none, and what is private in it; a private start is refused."""
    measure = trainer_facts(trainer, net, len(table)).settled
    found: Trainer = trainer if measure is None else measure(net, _replaced(table, torch.arange(1), ordered=True))
    facts = trainer_facts(found, net, len(table))
    if facts.private_start:
        raise ValueError(
            "audit: the initialisation is private, so training again does not give these weights. "
            "Name the start, init=lw.inits.Given(state), or audit this way of training."
        )
    if not facts.deterministic:
        seeded = facts.private_order and not drops(net)
        worse = f"{type(trainer).__name__}(..., order_seed=...)" if seeded else "OwnTraining(train, seed=...)"
        return found, (
            "Training draws private random numbers, and attacks average over them. If the adversary may know the seed, "
            f"audit the worse case: {worse}.",
        )
    if measure is None:
        return found, ()
    if found is trainer:
        return found, ("Training is deterministic given its seed, which counts as known to the adversary.",)
    return found, ("Training is deterministic: another seed gives the same weights. Nothing in it is private.",)


def retrained(net: nn.Module, table: Records, trainer: Trainer, rows: Tensor, seconds: float) -> Retrained:
    """Train on the table, and refuse where that ends too far from the weights of the net.

    A miss is compared with how far the weights move when one of `rows` is replaced by the mean record; with private
    draws, with how far other draws move them. About as many models are trained as there are `seconds` for.
    """
    kind, facts = type(trainer).__name__, trainer_facts(trainer, net, len(table))
    init = trainer.init if isinstance(trainer, StartsFrom) else FromNet()
    start = start_of(init, net, 0, seed=0)
    weights = trainable(net) or dict(net.named_parameters())  # all may be frozen for use
    by_itself = init == FromNet() and facts.one_by_one  # a function may draw its start
    if not by_itself and torch.equal(_flat({name: start[name] for name in weights}), _flat(weights)):
        raise ValueError(
            f"audit: {kind} starts from the released weights themselves. Name the weights that training started from: "
            f"{NAME_THE_START}"
        )
    runs = _Runs.of(net, table, trainer, rows, seconds, deterministic=facts.deterministic)
    again = _ends(runs.first)[0]
    effects = (_ends(runs.others) - again).norm(dim=1)  # (r,)
    if not again.isfinite().all():
        raise ValueError(
            f"audit: {kind} on this data diverges: its weights are NaN or infinite. Pass the very trainer (init, lr, "
            "steps, ...) that made the weights of the net."
        )
    if not effects.any():
        raise ValueError(
            f"audit: the weights do not depend on the records: {kind} ends at the same weights when each of "
            f"{len(effects)} records is replaced by the mean record, so there is nothing to attack. Check that the "
            "net is trained on x and y, and that no rounding hides single records."
        )
    state = released_state(net)
    if added := [name for name in runs.first.params if name not in state]:
        raise ValueError(
            f"audit: {kind} leaves {added[0]} in the net, which the net that was passed does not hold. Pass the net as "
            "training returns it."
        )
    released = Release({name: state[name].detach().to(value).unsqueeze(0) for name, value in runs.first[0].items()})
    miss = float((again - _ends(released)[0]).norm())
    before = {name: as_real(start[name]) if name in start else torch.zeros_like(state[name]) for name in runs.first[0]}
    way = _over(miss, float((again - _flat(before)).norm()))
    elsewhere = (
        f" Training may have to start from other weights than the released ones: {NAME_THE_START}" if by_itself else ""
    )
    if runs.draws is not None:
        ends, r = _ends(runs.draws), len(runs.draws)
        mean = ends.mean(0)
        farthest = float(((ends - mean).norm(dim=1) * r / (r - 1)).max())  # each from the mean of the others
        ratio = _over(float((_ends(released)[0] - mean).norm()), farthest)
        if not ratio <= APART:
            raise ValueError(
                f"audit: {kind} on this data does not end near the weights of the net: they are {ratio:.2g} times as "
                "far from the retrained weights as those are from each other. Pass the very trainer and data that made "
                f"them.{elsewhere}"
            )
        note = (
            f"The released weights are {ratio:.2g} times as far from the mean of {len(runs.draws)} retrainings as the "
            "farthest of these is from the mean of the others."
        )
        return Retrained(runs.first, released, start, runs.seconds, way, note, _private(runs.draws, *runs[:2]))
    effect = float(effects.median())
    over = _over(miss, effect)
    if not miss <= MISS * effect:
        raise ValueError(
            f"audit: {kind} on this data does not end at the weights of the net: it misses them by {over:.2g} of what "
            f"one record changes in the weights, and {MISS:g} is allowed. Pass the very trainer (init, lr, steps, "
            "weight_decay, dtype, ...) and data, in their order, that made them, and load the weights into the net "
            f"(lw.adapters.load_weights).{elsewhere}"
        )
    note = (
        f"retraining on this data reproduces the released weights to a relative error of {way:.1g}, or {over:.1g} of "
        "what one record changes in the weights."
    )
    return Retrained(runs.first, released, start, runs.seconds, way, note)


class _Runs(NamedTuple):
    """Models that the trainer made of the table."""

    first: Release  # (1, ...)
    others: Release  # (r, ...) each with one record replaced by the mean record
    draws: Release | None  # of the table itself, with other private draws
    seconds: float  # per model

    @classmethod
    def of(
        cls, net: nn.Module, table: Records, trainer: Trainer, rows: Tensor, seconds: float, *, deterministic: bool
    ) -> _Runs:
        """As many as there is time for, within limits."""
        ordered, begin = trainer_facts(trainer, net, len(table)).ordered, time.perf_counter()
        one = _replaced(table, rows[:1], ordered)[:1]
        with progress("retraining"):
            first = trainer(net, one, seed=0)
            taken = time.perf_counter() - begin
            several = min(len(rows), REPLACED, max(FEWEST_REPLACED, int(seconds / taken)))
            size, device = first.flat().shape[1], first.flat().device
            # models are in memory twice while they are put together, and once more in double precision
            needed, free = 4 * 8.0 * size * (several + 1), available_bytes(device)
            if needed > free:
                raise ValueError(
                    f"audit: retraining {several} times, with {size:,} released numbers each, would need about "
                    f"{in_bytes(needed)} of memory, and {in_bytes(free)} are free. Freeze all layers but the last ones "
                    "(requires_grad=False), in the net and in its training."
                )
            others = trainer(net, _replaced(table, rows[:several], ordered)[1:], seed=0)
            each = min(taken, (time.perf_counter() - begin - taken) / several)
            draws = None
            if not deterministic:  # models of other numbers
                numbers = torch.arange(1, max(several, FEWEST_REPLACED) + 1, device=one.index.device)
                same = Cohort(one.shared, one.own[torch.zeros_like(numbers)], numbers)
                draws = trainer(net, same, seed=0)
        return cls(first, others, draws, each)


def _private(draws: Release, first: Release, others: Release) -> str:
    """How far private draws move the weights, beside what one record does, and which of them they leave as they are."""
    base = _ends(first)[0]
    noise, effect = (float((_ends(models) - base).norm(dim=1).median()) for models in (draws, others))
    said = f"Private draws move the weights {_over(noise, effect):.2g} times as far as one record does."
    moved = [name for name, value in others.params.items() if bool((value != first.params[name]).any())]
    same = [name for name in moved if bool((draws.params[name] == first.params[name]).all())]
    return said + (f" Deterministic are {', '.join(same[:5])}{' and others' if len(same) > 5 else ''}." if same else "")


def _replaced(table: Records, rows: Tensor, ordered: bool) -> Cohort:
    """The table itself, and for each of these r rows the table with the mean record in place of that row.

    If the order matters, all records keep their places, and none is shared.
    """
    models, device = len(rows) + 1, table.x.device
    own, places = (torch.arange(len(table)), rows) if ordered else (rows, torch.arange(len(rows)))
    shared = torch.ones(len(table), dtype=torch.bool)
    shared[own] = False

    def repeated(part: Tensor) -> Tensor:
        return part[own.to(device)].repeat(models, *(1 for _ in part.shape))  # (1 + r, own, ...)

    def replaced(part: Tensor) -> Tensor:
        copies = repeated(part)
        mean = part.mean(0) if part.is_floating_point() else part.mode(0).values  # of tokens the most frequent
        copies[torch.arange(1, models), places.to(device)] = mean
        return copies

    features = None if table.features is None else replaced(table.features)
    number = torch.zeros(models, dtype=torch.long, device=device)  # all are model 0
    return Cohort(table[shared.to(device)], Records(replaced(table.x), repeated(table.y), features), number)


def _over(miss: float, whole: float) -> float:
    """miss / whole; no miss is none, however small the whole."""
    return miss / whole if whole > 0 else math.inf if miss > 0 else 0.0


def _ends(models: Release) -> Tensor:
    """(m, p) where training ended."""
    return models.flat().double().cpu()


def _flat(params: Mapping[str, Tensor]) -> Tensor:
    """All parameters of one model side by side."""
    return torch.cat([value.double().flatten().cpu() for value in params.values()])
