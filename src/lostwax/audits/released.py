"""Audit of this very net: one release, its training set, and the game "which record is missing?" for every record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.attacks import Newton
from lostwax.audits.audit import Audit
from lostwax.audits.checks import widened
from lostwax.audits.judging import Answer, LeaveOneOut
from lostwax.audits.play import filled, play
from lostwax.audits.scoring import Scoring
from lostwax.games import Attack, Cohort, Guess, Knowledge, Records, Release, Table
from lostwax.games.facts import trainer_facts
from lostwax.inits import trainable
from lostwax.progress import progress
from lostwax.provenance import fingerprint
from lostwax.trainers.descent import Descent

MISS = 0.02  # how far from the release retraining may end, over how far one record moves the weights
REPLACED = 8  # records that are replaced, one after the other, to see how far that is


class _Retrained(NamedTuple):
    """The trainer run on the whole table again, beside the release."""

    release: Release  # (1, ...) where it ends
    miss: float  # |where it ends - the released weights|, over the length of the way from the start
    of_effect: float  # the same, over how far the weights move when one record is replaced

    def __str__(self) -> str:
        return f"a relative error of {self.miss:.1g}, or {self.of_effect:.1g} of what one record changes in the weights"


def audit_released(
    net: nn.Module,
    table: Records,
    *,
    trainer: Descent,
    attack: Attack | None,
    games: int | None,
    seed: int,
    threshold: float,
) -> Audit:
    """Play `games` records (all when None), drawn by `seed`, against the weights that the net holds.

    In each the adversary knows all other records and how the net was trained; the attack (Newton unless named) is
    prepared anew. That the trainer, on this very data, ends at these very weights is checked first. A small miss can
    still hide records: each one that is not rebuilt is played for again, against the weights that the trainer does end
    at, and where it is rebuilt from those, the audit is undecided.
    """
    attack = Newton(bank=100) if attack is None else attack
    rows = Table(table).draw(games, seed)
    retrained = _retrained(net, table, trainer, rows)
    at_start = deepcopy(net)  # what an attack prepares with holds no release
    at_start.load_state_dict({name: value[0] for name, value in trainer.init(net, [0], seed=0).items()}, strict=False)
    if (objection := attack.objection(_without(at_start, table, trainer, rows[0]))) is not None:
        raise ValueError(f"audit: {objection}")
    release = Release({name: value.to(table.x).unsqueeze(0) for name, value in trainable(net).items()})
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
            "steps": trainer_facts(trainer, net, len(table)).steps,
            "attack": repr(attack),
            "data": fingerprint(table.x, table.y),
            "weights": fingerprint(*release.params.values()),
        },
        notes=(
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
    trainer: Descent
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


def _without(net: nn.Module, table: Records, trainer: Descent, row: Tensor) -> Knowledge:
    """What the adversary of one game knows."""
    threat = Table(table).without(int(row))
    return Knowledge(net, trainer, threat, Weights(), widened(threat.known, table).prior)


def _retrained(net: nn.Module, table: Records, trainer: Descent, rows: Tensor) -> _Retrained:
    """Train on the table, and refuse where that ends too far from the weights of the net.

    A miss is compared with how far the weights move when one of `rows` is replaced by the mean record.
    """
    kind = type(trainer).__name__
    if trainer.batches.size is not None:
        raise ValueError(
            f"audit: {kind} takes batches, so that the weights depend on each record's place in the order, which a "
            "game about one missing record does not keep. Leave data out and audit this way of training, or train by "
            "full batches (lw.GD)."
        )
    if not trainer.public_start(net):
        raise ValueError(
            "audit: the initialisation is private, so training again does not give these weights. "
            "Name the start, init=lw.inits.Given(state), or audit this way of training."
        )
    released = _flat(trainable(net))
    start = _flat({name: value[0] for name, value in trainer.init(net, [0], seed=0).items()})
    if torch.equal(start, released):
        raise ValueError(
            f"audit: {kind} starts from the released weights themselves. Name the weights that training started from: "
            "init=lw.inits.Given(state), with the net's state_dict() before training, or the draw that made them, such "
            "as init=lw.inits.LeCunNormal()."
        )
    with progress("retraining"):
        trained = trainer(net, _replaced(table, rows[:REPLACED]), seed=0)
    again, *others = (_flat(trained[model]) for model in range(len(trained)))
    if not again.isfinite().all():
        raise ValueError(
            f"audit: {kind} on this data diverges: its weights are NaN or infinite. Pass the very trainer (init, lr, "
            "steps, ...) that made the weights of the net."
        )
    miss = float((again - released).norm())
    effect = float(torch.stack([(other - again).norm() for other in others]).median())
    if not miss <= MISS * effect:
        raise ValueError(
            f"audit: {kind} on this data does not end at the weights of the net: it misses them by "
            f"{_over(miss, effect):.2g} of what one record changes in the weights, and {MISS:g} is allowed. Pass the "
            "very trainer (init, lr, steps, weight_decay, dtype, ...) and data that made them, and load the weights "
            "into the net (lw.adapters.load_weights)."
        )
    release = Release({name: value[:1] for name, value in trained.params.items()})
    return _Retrained(release, _over(miss, float((again - start).norm())), _over(miss, effect))


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
