"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.audits import told
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.ceiling import ceiling_of, check_under
from lostwax.audits.checks import check_alike, check_ranges, check_trainable, overlap_notes
from lostwax.audits.choice import Played, Tried, before_attacks, try_all
from lostwax.audits.clock import Clock
from lostwax.audits.judged import Judged, in_the_best_order, nearest_of_class
from lostwax.audits.neurons import neuron_shares
from lostwax.audits.scoring import Scoring, all_metrics
from lostwax.defences import Defended
from lostwax.provenance import fingerprint, machine, versions
from lostwax.seeds import generator
from lostwax.shadows import Game, Local, gaussian_weights
from lostwax.threats import Weak
from lostwax.trainers import DPSGD
from lostwax.trainers.descent import Descent
from lostwax.types import Access, Attack, Cohort, Hints, Knowledge, Metric, Records, Release, Threat, Trainer


def audit_procedure(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    attack: Attack | None,
    prior: Records,
    secrets: Records,
    games: int | None,
    seed: int,
    threshold: float,
    access: Access | None = None,
    metrics: Sequence[Metric] = (),
    max_minutes: float | None = None,
) -> Audit:
    """Train one victim a game on secrets the attack never sees, and score what it makes of the releases.

    Without an attack, all that can play do (`choice`), against the same victims, within `max_minutes`.
    All that can be refused is refused before an attack is prepared, which may take hours.
    """
    clock = Clock.started(max_minutes)
    knowledge = Knowledge(net, trainer, threat, access or Weights(), prior)
    if attack is not None and (objection := attack.objection(knowledge)) is not None:
        raise ValueError(f"audit: {objection}")
    check_alike(secrets, prior)
    k = threat.deal(secrets, 1, seed=seed).secrets
    cohort = threat.deal(secrets, len(secrets) // k if games is None else games, seed=seed)
    hints = threat.hints(cohort, secrets, seed=seed)
    known = cohort.shared
    check_trainable(net, trainer, threat, prior, secrets, seed=seed)
    check_ranges(known, prior, secrets)
    overlaps = overlap_notes(known, prior, secrets)
    more = all_metrics(prior.x, metrics)
    table, rate = before_attacks(
        lambda: _Table(knowledge, cohort, hints, _victims(knowledge, secrets, games=len(cohort), seed=seed), seed),
        knowledge,
        games=len(cohort),
        clock=clock,
    )
    tried = (
        try_all(knowledge, table.play, games=len(cohort), clock=clock, rate=rate)
        if attack is None
        else Tried((table.play(attack),))
    )
    pool = torch.cat([prior.x, known.x]).double().cpu()  # all that the adversary has
    scoring = Scoring.of(pool, threshold, more)
    lines = [(one, judged := table.judged(one), _finding(one, judged, scoring, prior, hints)) for one in tried.played]
    lines.sort(key=lambda line: (-line[2].rebuilt.mean(), np.median(line[2].errors[scoring.headline.name])))
    played, (best, *_), findings = zip(*lines, strict=True)
    if attack is not None:
        findings = (replace(findings[0], name="as released"),)
    ceiling = ceiling_of(trainer, hints, prior, scoring, secrets=k, matched=table.untrained is None)
    check_under(ceiling, findings, hints, scoring, secrets=best.each)
    baselines, percentiles = _baselines(best.truth.x, pool, prior, hints, scoring)
    return Audit(
        subject=f"{type(net).__name__} trained by {_in_words(trainer)}",
        kind="this procedure",
        threat=(
            f"{type(threat).__name__} adversary, knows {len(known)} of {cohort.records} records{told.in_words(hints)}"
        ),
        attack=f"{_best_of(played)} through {type(knowledge.access).__name__}",
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=threshold,
        games=cohort.index.repeat_interleave(best.each).cpu().numpy(),
        # sets of a weak game are dealt without end
        population=len(secrets) if table.untrained is None else len(best.truth),
        truth=best.truth,
        findings=findings,
        oracle=list(baselines)[-1],
        baselines={name: scoring.errors(guesses, best.truth.x) for name, guesses in baselines.items()},
        oracle_percentiles=percentiles,
        chance=told.chance(hints),
        ceiling=ceiling,
        provenance=_provenance(knowledge, cohort, secrets, played, seed),
        notes=(
            *told.notes(hints),
            *(f"{one.name}: {note}" for one, found in zip(played, findings, strict=True) for note in _certified(found)),
            *_several(len(cohort), best.each),
            *_diverged(table.release),
            *overlaps,
        ),
        unanswered=tried.unanswered,
        left_out=tried.left_out,
    )


class _Table:
    """Where attacks play, one after the other: the same victims, and the same adversary, who has a seed of its own.

    An attack that trains shadows by the game's seed would draw the victims' private randomness.
    """

    def __init__(self, knowledge: Knowledge, cohort: Cohort, hints: Hints | None, release: Release, seed: int) -> None:
        self.knowledge, self.secrets, self.hints, self.release = knowledge, cohort.own, hints, release
        self.seed = int(generator(seed, "adversary").integers(2**62))
        self.untrained = _untrained(knowledge, len(cohort), self.seed)

    def play(self, attack: Attack) -> Played:
        """All games, by this attack."""
        reconstruct = attack.prepare(self.knowledge, seed=self.seed)
        start = time.perf_counter()
        guess = reconstruct(self.release, self.hints)
        seconds = time.perf_counter() - start
        held = neuron_shares(
            attack, reconstruct, self.knowledge, self.release, guess, self.secrets, self.hints, seed=self.seed
        )
        untrained = None if self.untrained is None else reconstruct(self.untrained, self.hints)
        return Played(attack, guess, seconds, held, untrained)

    def judged(self, played: Played) -> Judged:
        """Each guess beside the secret it is held against."""
        if played.untrained is None:
            return in_the_best_order(played.guess, self.secrets)
        return nearest_of_class(played.guess, self.secrets, played.untrained)


def _untrained(knowledge: Knowledge, games: int, seed: int) -> Release | None:
    """For games of the weak adversary, as many models that owe nothing to a training set; None for others."""
    if not isinstance(knowledge.threat, Weak):
        return None
    own_seed = int(generator(seed, "untrained").integers(2**62))
    shadows = Game(knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior, own_seed)
    return gaussian_weights(shadows, games)


def _finding(played: Played, judged: Judged, scoring: Scoring, prior: Records, hints: Hints | None) -> Finding:
    """One attack's guesses, scored."""
    guess, truth, each, chance = judged
    found = scoring.finding(played.name, guess, truth, labels=prior.y, seconds=played.seconds, neurons=played.neurons)
    if chance is not None:
        return replace(found, null_errors=scoring.chance_errors(chance))
    if told.chance(hints) is not None:  # chance is known among candidates
        return found
    guesses = guess.records.x[:, 0].double().cpu().reshape(truth.x.shape)
    sought = replace(truth, x=told.sought(truth.x, hints))
    return replace(found, null_errors=scoring.null_errors(told.sought(guesses, hints), sought, each))


def _baselines(
    truth: Tensor, pool: Tensor, prior: Records, hints: Hints | None, scoring: Scoring
) -> tuple[dict[str, Tensor], dict[float, float]]:
    """Guesses (games, ...) that need no release, by name, the oracle last; and how near other records come."""
    any_candidate = told.any_candidate(hints)
    if any_candidate is not None:  # it has the secret before it, among others: the nearest record is no measure then
        return {"a candidate at random": any_candidate}, {}
    oracle = scoring.oracle(told.sought(truth, hints), told.sought(pool, hints))
    return {
        "blind guess (mean of the prior)": told.filled(prior.x.double().cpu().mean(0).expand_as(truth), hints),
        "nearest prior or known record": told.filled(pool[torch.from_numpy(oracle.nearest)], hints),
    }, oracle.percentiles


def _provenance(
    knowledge: Knowledge, cohort: Cohort, secrets: Records, played: Sequence[Played], seed: int
) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "versions": versions(),
        "machine": machine(),
        "seed": seed,
        "net": repr(knowledge.net),
        "trainer": repr(knowledge.trainer),
        **_steps(knowledge.trainer, cohort.records),
        "attack": ", ".join(repr(one.attack) for one in played),
        "access": repr(knowledge.access),
        "data": {
            name: fingerprint(*(part for part in (records.x, records.y, records.features) if part is not None))
            for name, records in (("known", cohort.shared), ("prior", knowledge.prior), ("secrets", secrets))
        },
    }


def _best_of(played: Sequence[Played]) -> str:
    return played[0].name if len(played) == 1 else f"{played[0].name}, the best of {len(played)},"


def _victims(knowledge: Knowledge, secrets: Records, *, games: int, seed: int) -> Release:
    """One victim a game, in as many chunks as memory asks for: it is trained as shadows are."""
    chunks = Local()(knowledge.trainer, knowledge.net, knowledge.threat, secrets, models=games, seed=seed)
    releases = [release for _, release in chunks]
    if len(releases) == 1:
        return releases[0]
    return Release.together(releases)


def _steps(trainer: Trainer, records: int) -> dict[str, int]:
    """How many steps a training takes, where it goes by steps."""
    if isinstance(trainer, Defended):
        return _steps(trainer.trainer, records)
    if isinstance(trainer, DPSGD):
        return {"steps": trainer.steps}
    return {"steps": trainer.batches.steps(records)} if isinstance(trainer, Descent) else {}


def _in_words(trainer: Trainer) -> str:
    if isinstance(trainer, Defended):
        return f"{_in_words(trainer.trainer)}, defended by {trainer.by!r}"
    return type(trainer).__name__


def _certified(found: Finding) -> tuple[str, ...]:
    guess = found.guess
    if guess.certified is None:
        return ()
    sure = int(guess.certified.sum())
    notes = [
        f"it certifies {sure} of {len(guess.certified)} guesses: training on them gives the released weights, to "
        "rounding."
    ]
    if guess.undetermined is not None and guess.undetermined.any():
        left = guess.undetermined.flatten(1).double()  # (games, numbers)
        notes.append(
            f"of the {left.shape[1]} numbers of a record the release leaves {left.sum(1).mean():.3g} undetermined, "
            f"mean over guesses, and {int(left.all(0).sum())} in all: they are near the mean of the records at hand."
        )
    return tuple(notes)


def _several(victims: int, each: int) -> tuple[str, ...]:
    if each == 1:
        return ()
    return (
        f"{victims} victims were trained, and each counts as {each} games, one a guess: guesses from one release are "
        "not independent. Intervals of shares go by victims; those of true positives at a false positive rate take "
        "guesses for independent, and are too narrow.",
    )


def _diverged(release: Release) -> tuple[str, ...]:
    broken = int((~release.flat().isfinite().all(1)).sum())
    return (f"{broken} of {len(release)} victims diverged (NaN or infinite weights).",) if broken else ()
