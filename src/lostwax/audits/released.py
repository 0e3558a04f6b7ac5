"""Audit of this very net: one release, its training set, and the game "which record is missing?" for every record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.attacks import Newton, Secant
from lostwax.audits.audit import Audit
from lostwax.audits.checks import widened
from lostwax.audits.choice import predicted
from lostwax.audits.judging import Answer, LeaveOneOut
from lostwax.audits.play import filled, play
from lostwax.audits.procedure import MINUTES
from lostwax.audits.scoring import Scoring
from lostwax.games import Attack, Cohort, Guess, Knowledge, Records, Release, Table, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.inits import FromNet, StartsFrom, start_of, trainable
from lostwax.learning.costs import Rate
from lostwax.progress import progress
from lostwax.provenance import fingerprint

MISS = 0.02  # how far from the release retraining may end, over how far one record moves the weights
REPLACED = 8  # records that are replaced, one after the other, to see how far that is


class _Retrained(NamedTuple):
    """The trainer run on the whole table again, beside the release."""

    release: Release  # (1, ...) where it ends
    released: Release  # (1, ...) the weights of the net, and its buffers if they are published
    seconds: float  # per model
    miss: float  # |where it ends - the released weights|, over the length of the way from the start
    of_effect: float  # the same, over how far the weights move when one record is replaced

    def __str__(self) -> str:
        return f"a relative error of {self.miss:.1g}, or {self.of_effect:.1g} of what one record changes in the weights"


def audit_released(
    net: nn.Module,
    table: Records,
    *,
    trainer: Trainer,
    attack: Attack | None,
    games: int | None,
    seed: int,
    threshold: float,
    max_minutes: float | None = None,
) -> Audit:
    """Play `games` records (all when None), drawn by `seed`, against the weights that the net holds.

    In each the adversary knows all other records and how the net was trained; the attack is prepared anew. Unless named
    it is Newton, or Secant where training cannot be differentiated. Models that are trained one by one take long: as
    many games as fit into `max_minutes` are played then, unless `games` says how many.

    That the trainer, on this very data, ends at these very weights is checked first. A small miss can still hide
    records: each one that is not rebuilt is played for again, against the weights that the trainer does end at, and
    where it is rebuilt from those, the audit is undecided.
    """
    trainer, randomness = _known(trainer, net, table)
    facts = trainer_facts(trainer, net, len(table))
    attack = attack or (Newton(bank=100) if facts.differentiable else Secant())
    rows = Table(table).draw(games, seed)
    retrained = _retrained(net, table, trainer, rows)
    at_start = deepcopy(net)  # what an attack prepares with holds no release
    at_start.load_state_dict(start_of(trainer.init if isinstance(trainer, StartsFrom) else FromNet(), net, 0, seed=0))
    if games is None and facts.one_by_one:
        most = _affordable(attack, _without(at_start, table, trainer, rows[0]), retrained, max_minutes)
        rows = Table(table).draw(min(most, len(table)), seed)
    if (objection := attack.objection(_without(at_start, table, trainer, rows[0]))) is not None:
        raise ValueError(f"audit: {objection}")
    release = retrained.released
    x = table.x.double().cpu()
    blind = (x.sum(0) - x[rows]) / (len(x) - 1)  # (games, ...) mean of the known
    scoring = Scoring.of(x, threshold, with_secrets=True)
    judging = LeaveOneOut(Records(x, table.y.cpu()), rows, scoring, blind, noun="record")
    game = _Released(judging, at_start, table, trainer, release, retrained, seed)
    line = play(game, attack)
    certified = 0 if line.answer.guess.certified is None else int(line.answer.guess.certified.sum())
    kind = type(trainer).__name__
    hidden = (
        f"{game.hidden} of {len(rows)} records are not rebuilt from the released weights, but are from the weights "
        f"that {kind} itself ends at, which miss them by {retrained}. Pass the very trainer (init, lr, steps, "
        "weight_decay, dtype, ...) that made them."
    )
    return filled(
        judging,
        [line],
        subject=f"{type(net).__name__} with these weights, trained by {kind}",
        kind="this model",
        threat="the adversary knows every record but one",
        attack=type(attack).__name__,
        numbers=rows,
        population=len(table),
        seed=seed,
        provenance={
            "net": repr(net),
            "trainer": repr(trainer),
            **({} if facts.steps is None else {"steps": facts.steps}),
            "attack": repr(attack),
            "data": fingerprint(table.x, table.y),
            "weights": fingerprint(*release.params.values()),
        },
        notes=(
            *randomness,
            f"retraining on this data reproduces the released weights to {retrained}.",
            *([f"the attack itself certifies {certified} of {len(rows)} guesses."] if certified else []),
        ),
        unanswered=(*((hidden,) if game.hidden else ()), *sorted(game.unanswered)),
    )


@dataclass(eq=False)
class _Released:
    """One release and its training set; each game has its own adversary, who knows all records but one."""

    judging: LeaveOneOut
    net: nn.Module  # as training starts
    table: Records
    trainer: Trainer
    release: Release
    retrained: _Retrained
    seed: int
    hidden: int = 0  # records that only the retrained weights give away
    unanswered: set[str] = field(default_factory=set)  # what no adversary could have tried

    def answer(self, attack: Attack) -> Answer:
        """Prepare the attack for each game anew, and play it."""
        start, guesses, rows = time.perf_counter(), [], self.judging.rows
        self.hidden, self.unanswered = 0, set()
        with progress("games", len(rows)) as advance:
            for row in rows:
                reconstruct = attack.prepare(_without(self.net, self.table, self.trainer, row), seed=self.seed)
                guesses.append(reconstruct(self.release))
                if self.retrained.miss > 0 and not self._rebuilt(guesses[-1], row):
                    self.hidden += self._rebuilt(reconstruct(self.retrained.release), row)
                self.unanswered |= set(widened(Table(self.table).without(int(row)).known, self.table).unanswered)
                advance(1)
        return Answer(attack, _join(guesses), time.perf_counter() - start)

    def _rebuilt(self, guess: Guess, row: Tensor) -> bool:
        """Is the one guess within the threshold of the record?"""
        scoring, truth = self.judging.scoring, self.judging.table.x[row]
        x = guess.records.x[:, 0].double().cpu().reshape(1, *truth.shape)
        return bool(scoring.rebuilt(scoring.errors(x, truth.unsqueeze(0)))[0])


def _without(net: nn.Module, table: Records, trainer: Trainer, row: Tensor) -> Knowledge:
    """What the adversary of one game knows: in a known order of records, also where the missing one stands."""
    threat, ours = Table(table).without(int(row)), trainer
    if _in_order(trainer) and is_dataclass(trainer) and not isinstance(trainer, type):
        ours = replace(trainer, place=int(row))
    return Knowledge(net, ours, threat, Weights(), widened(threat.known, table).prior)


def _in_order(trainer: Trainer) -> bool:
    """Can the weights depend on the order of the records?"""
    batches = getattr(trainer, "batches", None)
    return batches is None or batches.size is not None


def _known(trainer: Trainer, net: nn.Module, table: Records) -> tuple[Trainer, tuple[str, ...]]:
    """The trainer, with a seed where it needs none, and what is private in it; refused where anything is."""
    kind, measure = type(trainer).__name__, getattr(trainer, "settled", None)
    found: Trainer = trainer if measure is None else measure(net, _replaced_in_order(table, torch.arange(1)))
    facts = trainer_facts(found, net, len(table))
    if facts.private_start:
        raise ValueError(
            "audit: the initialisation is private, so training again does not give these weights. "
            "Name the start, init=lw.inits.Given(state), or audit this way of training."
        )
    if not facts.deterministic:
        moved = "" if facts.noise is None else f", which move the weights {facts.noise:.2g} times as far as one record,"
        known = "order_seed=..." if hasattr(trainer, "order_seed") else "seed=..."
        raise ValueError(
            f"audit: {kind} draws private random numbers{moved} so training again does not give these weights. If the "
            f"seed they were made with is known, pass it: {kind}(..., {known}). Otherwise leave data out and audit "
            "this way of training, with threat, prior and secrets: random draws are then averaged over."
        )
    if measure is None:
        return found, ()
    if found is trainer:
        return found, ("Training is deterministic given its seed, which counts as known to the adversary.",)
    return found, ("Training is deterministic: another seed gives the same weights. Nothing in it is private.",)


def _affordable(attack: Attack, knowledge: Knowledge, retrained: _Retrained, max_minutes: float | None) -> int:
    """How many games fit into the time, at least one."""
    sizes = [part.flat().shape[1] for part in (retrained.release, retrained.release)]
    cost = predicted(attack, knowledge, 1, Rate(retrained.seconds, *sizes)).seconds
    seconds = 60 * (MINUTES if max_minutes is None else max_minutes)
    return max(1, int(seconds / max(cost, 1e-9))) if cost < math.inf else 1


def _retrained(net: nn.Module, table: Records, trainer: Trainer, rows: Tensor) -> _Retrained:
    """Train on the table, and refuse where that ends too far from the weights of the net.

    A miss is compared with how far the weights move when one of `rows` is replaced by the mean record.
    """
    kind = type(trainer).__name__
    init = trainer.init if isinstance(trainer, StartsFrom) else FromNet()
    before = start_of(init, net, 0, seed=0)
    held = {name: before[name] for name in trainable(net)}
    by_itself = init == FromNet() and trainer_facts(trainer, net, 1).one_by_one  # a function may draw its start
    cure = (
        "init=lw.inits.Given(state), with the net's state_dict() before training, or the draw that made them, such "
        "as init=lw.inits.LeCunNormal()."
    )
    if torch.equal(_flat(held), _flat(trainable(net))) and not by_itself:
        raise ValueError(
            f"audit: {kind} starts from the released weights themselves. Name the weights that training started from: "
            f"{cure}"
        )
    cohort = (_replaced_in_order if _in_order(trainer) else _replaced)(table, rows[:REPLACED])
    start = time.perf_counter()
    with progress("retraining"):
        trained = trainer(net, cohort, seed=0)
    seconds = (time.perf_counter() - start) / len(cohort)
    again, *others = (_flat(trained[model]) for model in range(len(trained)))
    if not again.isfinite().all():
        raise ValueError(
            f"audit: {kind} on this data diverges: its weights are NaN or infinite. Pass the very trainer (init, lr, "
            "steps, ...) that made the weights of the net."
        )
    state = net.state_dict()
    weights = {name: state[name].detach().to(value).unsqueeze(0) for name, value in trained[0].items()}
    released = _flat({name: value[0] for name, value in weights.items()})
    miss = float((again - released).norm())
    effect = float(torch.stack([(other - again).norm() for other in others]).median())
    if not miss <= MISS * effect:
        raise ValueError(
            f"audit: {kind} on this data does not end at the weights of the net: it misses them by "
            f"{_over(miss, effect):.2g} of what one record changes in the weights, and {MISS:g} is allowed. Pass the "
            "very trainer (init, lr, steps, weight_decay, dtype, ...) and data, in their order, that made them, and "
            "load the weights into the net (lw.adapters.load_weights)."
            + (f" Training may have to start from other weights than the released ones: {cure}" if by_itself else "")
        )
    release = Release({name: value[:1] for name, value in trained.params.items()})
    way = _over(miss, float((again - _flat({name: before[name] for name in trained.params})).norm()))
    return _Retrained(release, Release(weights), seconds, way, _over(miss, effect))


def _replaced_in_order(table: Records, rows: Tensor) -> Cohort:
    """The same as `_replaced`, where all records keep their places: none is shared."""
    models = len(rows) + 1

    def replaced(part: Tensor) -> Tensor:
        own = part.repeat(models, *(1 for _ in part.shape))  # (1 + r, n, ...)
        own[torch.arange(1, models), rows.to(part.device)] = part.mean(0)
        return own

    y = table.y.repeat(models, *(1 for _ in table.y.shape))
    own = Records(replaced(table.x), y, None if table.features is None else replaced(table.features))
    return Cohort(table[:0], own, torch.zeros(models, dtype=torch.long, device=table.x.device))


def _replaced(table: Records, rows: Tensor) -> Cohort:
    """The table itself, and for each of these r rows the table with the mean record in place of that row."""
    device, places = table.x.device, torch.arange(len(rows))
    others = torch.ones(len(table), dtype=torch.bool)
    others[rows] = False

    def replaced(part: Tensor) -> Tensor:
        own = part[rows.to(device)].repeat(len(rows) + 1, *(1 for _ in part.shape))  # (1 + r, r, ...)
        own[places + 1, places] = part.mean(0)
        return own

    y = table.y[rows.to(device)].repeat(len(rows) + 1, *(1 for _ in table.y.shape))
    own = Records(replaced(table.x), y, None if table.features is None else replaced(table.features))
    number = torch.zeros(len(rows) + 1, dtype=torch.long, device=device)  # all are model 0
    return Cohort(table[others.to(device)], own, number)


def _over(miss: float, whole: float) -> float:
    """miss / whole; no miss is none, however small the whole."""
    return miss / whole if whole > 0 else math.inf if miss > 0 else 0.0


def _flat(params: Mapping[str, Tensor]) -> Tensor:
    """All parameters of one model side by side."""
    return torch.cat([value.double().flatten().cpu() for value in params.values()])


def _join(guesses: list[Guess]) -> Guess:
    """One game each, together."""
    certified = [one.certified for one in guesses if one.certified is not None]
    return Guess(
        Records(torch.cat([one.records.x for one in guesses]), torch.cat([one.records.y for one in guesses])),
        torch.cat([one.confidence for one in guesses]),
        certified=torch.cat(certified) if len(certified) == len(guesses) else None,
    )
