"""Audit of this very net: one release, its training set, and the game "which record is missing?" for every record."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.attacks import Newton
from lostwax.audits.audit import Audit
from lostwax.audits.fitted import draw
from lostwax.audits.scoring import Scoring
from lostwax.inits import trainable
from lostwax.progress import progress
from lostwax.provenance import fingerprint, machine, versions
from lostwax.threats import Informed
from lostwax.trainers.descent import Descent
from lostwax.types import Attack, Cohort, Guess, Knowledge, Records, Release

REPRODUCED = 1e-3  # how far from the release training may end, over how far it goes


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

    In each the adversary knows all other records and how the net was trained, and has nothing else to learn from; the
    attack (Newton unless named) is prepared anew, for it knows other records. That the trainer, on this very data, ends
    at these very weights is checked first: an attack on another way of training would find nothing, and prove nothing.
    """
    attack = Newton(bank=100) if attack is None else attack
    distance = _check_reproduced(net, table, trainer)
    rows = draw(len(table), games, seed)
    if (objection := attack.objection(_without(net, table, trainer, rows[0]))) is not None:
        raise ValueError(f"audit: {objection}")
    release = Release({name: value.to(table.x).unsqueeze(0) for name, value in trainable(net).items()})
    start = time.perf_counter()
    guesses = []
    with progress("games", len(rows)) as advance:
        for row in rows:
            guesses.append(attack.prepare(_without(net, table, trainer, row), seed=seed)(release))
            advance(1)
    seconds = time.perf_counter() - start
    guess = _join(guesses)
    truth = Records(table.x[rows].double().cpu(), table.y[rows].cpu())
    x = table.x.double().cpu()
    scoring = Scoring.of(x, threshold, with_secrets=True)
    blind = (x.sum(0) - truth.x) / (len(x) - 1)  # (games, ...) mean of the known
    nearest = x[torch.from_numpy(scoring.oracle(truth.x, x, not_row=rows).nearest)]
    certified = 0 if guess.certified is None else int(guess.certified.sum())
    return Audit(
        subject=f"{type(net).__name__} with these weights, trained by {type(trainer).__name__}",
        kind="this model",
        threat="the adversary knows every record but one",
        attack=type(attack).__name__,
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=threshold,
        games=rows.numpy(),
        population=len(table),
        truth=truth,
        findings=(scoring.finding("as released", guess, truth, labels=table.y, seconds=seconds),),
        oracle="nearest known record",
        baselines={
            "blind guess (mean of the known)": scoring.errors(blind, truth.x),
            "nearest known record": scoring.errors(nearest, truth.x),
        },
        provenance={
            "versions": versions(),
            "machine": machine(),
            "seed": seed,
            "net": repr(net),
            "trainer": repr(trainer),
            "steps": trainer.batches.steps(len(table)),
            "attack": repr(attack),
            "data": fingerprint(table.x, table.y),
            "weights": fingerprint(*release.params.values()),
        },
        notes=(
            f"training on this data again ends at the released weights, but for {distance:.1g} of the way it goes.",
            *([f"the attack itself certifies {certified} of {len(rows)} guesses."] if certified else []),
        ),
    )


def _without(net: nn.Module, table: Records, trainer: Descent, row: Tensor) -> Knowledge:
    """What the adversary of one game knows."""
    others = torch.arange(len(table)) != row
    known = table[others.to(table.x.device)]
    return Knowledge(net, trainer, Informed(known), Weights(), known)


def _check_reproduced(net: nn.Module, table: Records, trainer: Descent) -> float:
    """Train on the table, and refuse where that does not end at the weights of the net: the distance left."""
    kind = type(trainer).__name__
    if trainer.batches.size is not None:
        raise ValueError(
            f"audit: {kind} takes batches, so that the weights depend on each record's place in the order, which a "
            "game about one missing record does not keep. Leave data out and audit this way of training, or train by "
            "full batches (lw.GD)."
        )
    if not trainer.public_start(net):
        raise ValueError(
            "audit: the initialisation is drawn anew for every model, so that these very weights cannot be trained "
            "again. Name the start, init=lw.inits.Given(state), or audit this way of training."
        )
    last = table[len(table) - 1 :]
    own = Records(
        last.x.unsqueeze(0), last.y.unsqueeze(0), None if last.features is None else last.features.unsqueeze(0)
    )
    cohort = Cohort(table[: len(table) - 1], own, torch.zeros(1, dtype=torch.long, device=table.x.device))
    again = trainer(net, cohort, seed=0)[0]
    start = trainer.init(net, [0], seed=0)
    released = trainable(net)
    off = _norm({name: again[name] - value.to(again[name]) for name, value in released.items()})
    way = _norm({name: again[name].double().cpu() - start[name][0] for name in released})
    distance = off / way if way > 0 else float(off > 0)
    if not distance <= REPRODUCED:
        raise ValueError(
            f"audit: {kind} on this data does not end at the weights of the net: it misses them by {distance:.2g} of "
            "the way it goes. Pass the very trainer (init, lr, steps, dtype, ...) and data that made them, and load "
            "the weights into the net (lw.load_weights)."
        )
    return distance


def _norm(parts: dict[str, Tensor]) -> float:
    return float(torch.cat([part.double().flatten().cpu() for part in parts.values()]).norm())


def _join(guesses: list[Guess]) -> Guess:
    """One game each, together."""
    certified = [one.certified for one in guesses if one.certified is not None]
    return Guess(
        Records(torch.cat([one.records.x for one in guesses]), torch.cat([one.records.y for one in guesses])),
        torch.cat([one.confidence for one in guesses]),
        certified=torch.cat(certified) if len(certified) == len(guesses) else None,
    )
