"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lostwax.access import Weights
from lostwax.audits import told
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.ceiling import ceiling_of, check_under
from lostwax.audits.checks import check_alike, check_ranges, check_trainable, check_varied, overlap_notes
from lostwax.audits.choice import Played, Tried, before_attacks, try_all
from lostwax.audits.clock import Clock
from lostwax.audits.cost import Rate
from lostwax.audits.judged import chosen, nearest_of_class, one_to_one
from lostwax.audits.judging import Judging, needs_strangers, strangers_for
from lostwax.audits.neurons import OF_TIME_LEFT, SECONDS, neuron_shares
from lostwax.audits.scoring import Scoring, all_metrics
from lostwax.audits.support import widened
from lostwax.defences import Defended
from lostwax.games import Access, Attack, Cohort, Hints, Knowledge, Metric, Records, Release, Threat, Trainer, Weak
from lostwax.inits import trainable
from lostwax.provenance import fingerprint, machine, versions
from lostwax.seeds import generator
from lostwax.shadows import Game, Local, gaussian_weights
from lostwax.trainers import DPSGD
from lostwax.trainers.descent import Descent


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
    own_seed = victims_seed(seed)
    k = threat.deal(secrets, 1, seed=own_seed).secrets
    cohort = threat.deal(secrets, len(secrets) // k if games is None else games, seed=own_seed)
    hints = threat.hints(cohort, secrets, seed=own_seed)
    known, chance, unknown = cohort.shared, told.chance(hints), told.unknown(hints)
    check_trainable(net, trainer, threat, prior, secrets, seed=own_seed)
    check_ranges(known, prior, secrets)
    copies = check_varied(known, prior, secrets)
    overlaps = overlap_notes(known, prior, secrets)
    support = widened(prior, secrets)
    knowledge = replace(knowledge, prior=support.prior)
    more = all_metrics(prior.x, metrics, whole=unknown is None)
    table, rate = before_attacks(
        lambda: _Table(
            knowledge, cohort, hints, _victims(knowledge, secrets, games=len(cohort), seed=own_seed), seed, clock
        ),
        knowledge,
        games=len(cohort),
        clock=clock,
    )
    tried = (
        try_all(
            knowledge,
            table.play,
            games=len(cohort),
            clock=clock,
            rate=rate or Rate.unknown(knowledge, table.release),
        )
        if attack is None
        else Tried((table.play(attack),))
    )
    pool = Records(torch.cat([prior.x, known.x]), torch.cat([prior.y, known.y]))  # all that the adversary has
    threshold = threshold if chance is None else 0.0  # a candidate is named or not
    population, hidden = (part.double().cpu() for part in (pool.x, secrets.x))
    scoring = Scoring.of(population, threshold, more, unknown=unknown, secrets=hidden)
    judge = one_to_one if table.untrained is None else nearest_of_class
    judging = Judging(cohort.own, pool, prior, hints, scoring, judge)
    lines = [(one, judging.finding(one)) for one in tried.played]
    lines.sort(key=lambda line: (-line[1].rebuilt.mean(), np.median(line[1].errors[scoring.headline.name])))
    played, findings = zip(*lines, strict=True)
    pairs = judging.pairs(played[0].guess)
    truth, each = chosen(cohort.own, pairs.secret), pairs.secret.shape[1]
    if attack is not None:
        findings = (replace(findings[0], name="as released"),)
    ceiling = ceiling_of(trainer, hints, prior, scoring, secrets=k, matched=table.untrained is None)
    check_under(ceiling, findings, secrets=each)
    baselines = judging.baselines(truth)
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
        games=cohort.index.repeat_interleave(each).cpu().numpy(),
        groups=judging.groups(each),
        # sets of a weak game are dealt without end
        population=len(secrets) if table.untrained is None else len(truth),
        truth=truth,
        findings=findings,
        oracle=list(baselines)[-1],
        baselines={name: scoring.errors(guesses, truth.x) for name, guesses in baselines.items()},
        oracle_percentiles=judging.oracle_percentiles(truth),
        chance=chance,
        ceiling=ceiling,
        labels_given=hints is not None and hints.labels is not None,
        provenance=_provenance(knowledge, cohort, secrets, played, seed),
        notes=(
            *support.notes,
            *told.notes(hints),
            *(f"{one.name}: {note}" for one, found in zip(played, findings, strict=True) for note in _certified(found)),
            *_several(len(cohort), each),
            *overlaps,
        ),
        unanswered=(*_diverged(table.release), *copies, *support.unanswered, *tried.unanswered),
        left_out=tried.left_out,
    )


def victims_seed(seed: int) -> int:
    """What victims are dealt and trained by: shadow models of `lw.simulate` with the same seed are others."""
    return int(generator(seed, "victims").integers(2**62))


class _Table:
    """Where attacks play, one after the other: the same victims, and the same adversary, who has a seed of its own.

    An attack that trains shadows by the game's seed would draw the victims' private randomness.
    """

    def __init__(
        self, knowledge: Knowledge, cohort: Cohort, hints: Hints | None, release: Release, seed: int, clock: Clock
    ) -> None:
        self.knowledge, self.secrets, self.hints, self.release = knowledge, cohort.own, hints, release
        self.clock = clock
        self.seed = int(generator(seed, "adversary").integers(2**62))
        self.untrained = _untrained(knowledge, len(cohort), self.seed)

    def play(self, attack: Attack) -> Played:
        """All games, by this attack."""
        reconstruct = attack.prepare(self.knowledge, seed=self.seed)
        start = time.perf_counter()
        guess = reconstruct(self.release, self.hints)
        seconds = time.perf_counter() - start
        untrained = None if self.untrained is None else reconstruct(self.untrained, self.hints)
        strangers = None
        if self.hints is not None and needs_strangers(self.hints):
            games, others = strangers_for(self.secrets)
            if len(games):
                strangers = reconstruct(self.release.chosen(others), self.hints[games])
        held = neuron_shares(
            attack,
            reconstruct,
            self.knowledge,
            self.release,
            guess,
            self.secrets,
            self.hints,
            seed=self.seed,
            seconds=min(SECONDS, OF_TIME_LEFT * self.clock.left),
        )
        return Played(attack, guess, seconds, held, untrained, strangers)


def _untrained(knowledge: Knowledge, games: int, seed: int) -> Release | None:
    """For games of the weak adversary, as many models that owe nothing to a training set; None for others."""
    if not isinstance(knowledge.threat, Weak):
        return None
    own_seed = int(generator(seed, "untrained").integers(2**62))
    shadows = Game(knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior, own_seed)
    return gaussian_weights(shadows, games)


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
        "weights of the net": fingerprint(*trainable(knowledge.net).values()),
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
        f"{sure} of {len(guess.certified)} guesses reproduce the released weights to rounding, which determine them."
    ]
    if guess.undetermined is not None and guess.undetermined.any():
        left = guess.undetermined.flatten(1).double()  # (games, numbers)
        notes.append(
            f"The weights do not determine {left.sum(1).mean():.3g} of {left.shape[1]} features, mean over guesses "
            f"({int(left.all(0).sum())} in every guess); these were set near the prior mean."
        )
    return tuple(notes)


def _several(victims: int, each: int) -> tuple[str, ...]:
    if each == 1:
        return ()
    return (
        f"{victims} victims were trained, and each counts as {each} games, one per guess: guesses from one release are "
        "not independent. Intervals of shares count victims; those of true positives at a false-positive rate take "
        "guesses for independent, and are too narrow.",
    )


def _diverged(release: Release) -> tuple[str, ...]:
    broken = int((~release.flat().isfinite().all(1)).sum())
    if not broken:
        return ()
    return (f"{broken} of {len(release)} victims diverged (NaN or infinite weights), and show nothing.",)
