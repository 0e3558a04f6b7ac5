"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from lostwax.access import Weights
from lostwax.audits import told
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.ceiling import ceiling_of, check_under
from lostwax.audits.checks import check_alike, check_ranges, check_trainable, overlap_notes
from lostwax.audits.choice import Played, Tried, try_all
from lostwax.audits.judged import Judged, in_the_best_order, nearest_of_class
from lostwax.audits.neurons import neuron_shares
from lostwax.audits.scoring import Scoring, all_metrics, label_errors, labels_right
from lostwax.defences import Defended
from lostwax.provenance import fingerprint, machine, versions
from lostwax.seeds import generator
from lostwax.shadows import Game, Local, gaussian_weights
from lostwax.threats import Weak
from lostwax.trainers import DPSGD
from lostwax.trainers.descent import Descent
from lostwax.types import Access, Attack, Guess, Hints, Knowledge, Metric, Records, Release, Threat, Trainer


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
    end = None if max_minutes is None else time.monotonic() + 60 * max_minutes
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
    release = _victims(net, trainer, threat, secrets, games=len(cohort), seed=seed)
    # a seed of its own: an attack that trains shadows by the game's seed would draw the victims' private randomness
    own_seed = int(generator(seed, "adversary").integers(2**62))
    untrained = _untrained(knowledge, len(cohort), own_seed)

    def play(one: Attack) -> Played:
        reconstruct = one.prepare(knowledge, seed=own_seed)
        start = time.perf_counter()
        guess = reconstruct(release, hints)
        seconds = time.perf_counter() - start
        held = neuron_shares(one, reconstruct, knowledge, release, guess, cohort.own, hints, seed=own_seed)
        return Played(one, guess, seconds, held, None if untrained is None else reconstruct(untrained, hints))

    tried = try_all(knowledge, play, games=len(cohort), end=end) if attack is None else Tried((play(attack),), ())
    pool = torch.cat([prior.x, known.x]).double().cpu()  # all that the adversary has
    scoring = Scoring.of(pool, threshold, more)
    judged = [_judged(one, cohort.own) for one in tried.played]
    pairs = zip(tried.played, judged, strict=True)
    scored = [(_finding(one, pair, scoring, prior, hints), pair, one) for one, pair in pairs]
    scored.sort(key=lambda one: (-one[0].rebuilt.mean(), np.median(one[0].errors[scoring.headline.name])))
    findings, (best, *_), played = zip(*scored, strict=True)
    truth = best.truth
    if attack is not None:
        findings = (replace(findings[0], name="as released"),)
    ceiling = ceiling_of(trainer, hints, prior, scoring, secrets=k)
    check_under(ceiling, findings, hints, scoring, secrets=best.each)
    blind = told.filled(prior.x.double().cpu().mean(0).expand_as(truth.x), hints)
    oracle = scoring.oracle(told.sought(truth.x, hints), told.sought(pool, hints))
    baselines = {
        "blind guess (mean of the prior)": blind,
        "nearest prior or known record": told.filled(pool[torch.from_numpy(oracle.nearest)], hints),
    }
    chance, any_candidate = told.chance(hints), told.any_candidate(hints)
    if any_candidate is not None:  # it has the secret before it, among others: the nearest record is no measure then
        baselines = {"a candidate at random": any_candidate}
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
        population=len(secrets) if untrained is None else len(truth),  # sets of a weak game are dealt without end
        truth=truth,
        findings=findings,
        oracle=list(baselines)[-1],
        baselines={name: scoring.errors(guesses, truth.x) for name, guesses in baselines.items()},
        oracle_percentiles={} if chance else oracle.percentiles,
        chance=chance,
        ceiling=ceiling,
        provenance={
            "versions": versions(),
            "machine": machine(),
            "seed": seed,
            "net": repr(net),
            "trainer": repr(trainer),
            **_steps(trainer, cohort.records),
            "attack": ", ".join(repr(one.attack) for one in played),
            "access": repr(knowledge.access),
            "data": {
                name: fingerprint(*(part for part in (records.x, records.y, records.features) if part is not None))
                for name, records in (("known", known), ("prior", prior), ("secrets", secrets))
            },
        },
        notes=(
            *told.notes(hints),
            *(
                f"{one.name}: {note}"
                for one, pair in zip(played, findings, strict=True)
                for note in _certified(pair.guess)
            ),
            *_several(len(cohort), best.each),
            *_diverged(release),
            *overlaps,
        ),
        left_out=tried.left_out,
    )


def _untrained(knowledge: Knowledge, games: int, seed: int) -> Release | None:
    """For games of the weak adversary, as many models that owe nothing to a training set; None for others."""
    if not isinstance(knowledge.threat, Weak):
        return None
    own_seed = int(generator(seed, "untrained").integers(2**62))
    shadows = Game(knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior, own_seed)
    return gaussian_weights(shadows, games)


def _judged(played: Played, secrets: Records) -> Judged:
    """Each guess beside the secret it is held against."""
    if played.untrained is None:
        return in_the_best_order(played.guess, secrets)
    return nearest_of_class(played.guess, secrets, played.untrained)


def _finding(played: Played, judged: Judged, scoring: Scoring, prior: Records, hints: Hints | None) -> Finding:
    """One attack's guesses, scored."""
    guess, truth, each, chance = judged
    found = Records(guess.records.x[:, 0].double().cpu().reshape(truth.x.shape), guess.records.y[:, 0].cpu())
    errors = scoring.errors(found.x, truth.x)
    sought = replace(truth, x=told.sought(truth.x, hints))
    if chance is not None:
        nulls = scoring.chance_errors(chance)
    else:
        candidates = told.chance(hints) is not None  # chance is known then
        nulls = {} if candidates else scoring.null_errors(told.sought(found.x, hints), sought, each)
    return Finding(
        name=played.name,
        guess=guess,
        errors=errors,
        rebuilt=scoring.rebuilt(errors),
        labels_right=labels_right(found.y, truth.y, prior.y.cpu()),
        seconds=played.seconds,
        label_errors=label_errors(found.y, truth.y, prior.y.cpu()),
        null_errors=nulls,
        neurons=played.neurons,
    )


def _best_of(played: Sequence[Played]) -> str:
    return played[0].name if len(played) == 1 else f"{played[0].name}, the best of {len(played)},"


def _victims(net: nn.Module, trainer: Trainer, threat: Threat, secrets: Records, *, games: int, seed: int) -> Release:
    """One victim a game, in as many chunks as memory asks for: it is trained as shadows are."""
    chunks = Local()(trainer, net, threat, secrets, models=games, seed=seed)
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


def _certified(guess: Guess) -> tuple[str, ...]:
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
        "not independent, so that intervals are too narrow.",
    )


def _diverged(release: Release) -> tuple[str, ...]:
    broken = int((~release.flat().isfinite().all(1)).sum())
    return (f"{broken} of {len(release)} victims diverged (NaN or infinite weights).",) if broken else ()
