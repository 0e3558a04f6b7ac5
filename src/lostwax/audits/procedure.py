"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from lostwax.access import Weights
from lostwax.audits import told
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.checks import check_alike, check_ranges, check_trainable, overlap_notes
from lostwax.audits.scoring import Scoring, all_metrics, label_errors, labels_right
from lostwax.defences import Defended
from lostwax.provenance import fingerprint, machine, versions
from lostwax.seeds import generator
from lostwax.shadows import Local
from lostwax.types import Access, Attack, Guess, Knowledge, Metric, Records, Release, Threat, Trainer


def audit_procedure(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    attack: Attack,
    prior: Records,
    secrets: Records,
    games: int | None,
    seed: int,
    threshold: float,
    access: Access | None = None,
    metrics: Sequence[Metric] = (),
) -> Audit:
    """Train one victim a game on secrets the attack never sees, and score what it makes of the releases.

    All that can be refused is refused before the attack is prepared, which may take hours.
    """
    knowledge = Knowledge(net, trainer, threat, access or Weights(), prior)
    if (objection := attack.objection(knowledge)) is not None:
        raise ValueError(f"audit: {objection}")
    check_alike(secrets, prior)
    cohort = threat.deal(secrets, len(secrets) if games is None else games, seed=seed)
    hints = threat.hints(cohort, secrets, seed=seed)
    known = cohort.shared
    check_trainable(net, trainer, threat, prior, secrets, seed=seed)
    check_ranges(known, prior, secrets)
    overlaps = overlap_notes(known, prior, secrets)
    more = all_metrics(prior.x, metrics)
    # a seed of its own: an attack that trains shadows by the game's seed would draw the victims' private randomness
    reconstruct = attack.prepare(knowledge, seed=int(generator(seed, "adversary").integers(2**62)))
    release = _victims(net, trainer, threat, secrets, games=len(cohort), seed=seed)
    start = time.perf_counter()
    guess = reconstruct(release, hints)
    seconds = time.perf_counter() - start
    truth = Records(cohort.own.x[:, 0].double().cpu(), cohort.own.y[:, 0].cpu())
    found = Records(guess.records.x[:, 0].double().cpu().reshape(truth.x.shape), guess.records.y[:, 0].cpu())
    pool = torch.cat([prior.x, known.x]).double().cpu()  # all that the adversary has
    scoring = Scoring.of(pool, threshold, more)
    errors = scoring.errors(found.x, truth.x)
    blind = told.filled(prior.x.double().cpu().mean(0).expand_as(truth.x), hints)
    oracle = scoring.oracle(told.sought(truth.x, hints), told.sought(pool, hints))
    baselines = {
        "blind guess (mean of the prior)": blind,
        "nearest prior or known record": told.filled(pool[torch.from_numpy(oracle.nearest)], hints),
    }
    chance, any_candidate = told.chance(hints), told.any_candidate(hints)
    if any_candidate is not None:  # it has the secret before it, among others: the nearest record is no measure then
        baselines = {"a candidate at random": any_candidate}
    sought = replace(truth, x=told.sought(truth.x, hints))
    return Audit(
        subject=f"{type(net).__name__} trained by {_in_words(trainer)}",
        kind="this procedure",
        threat=f"{type(threat).__name__} adversary, {len(known)} records known{told.in_words(hints)}",
        attack=f"{type(attack).__name__} through {type(knowledge.access).__name__}",
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=threshold,
        games=cohort.index.cpu().numpy(),
        population=len(secrets),
        truth=truth,
        findings=(
            Finding(
                name="as released",
                guess=guess,
                errors=errors,
                rebuilt=scoring.rebuilt(errors),
                labels_right=labels_right(found.y, truth.y, prior.y.cpu()),
                seconds=seconds,
                label_errors=label_errors(found.y, truth.y, prior.y.cpu()),
                null_errors={} if chance else scoring.null_errors(told.sought(found.x, hints), sought),
            ),
        ),
        oracle=list(baselines)[-1],
        baselines={name: scoring.errors(guesses, truth.x) for name, guesses in baselines.items()},
        oracle_percentiles={} if chance else oracle.percentiles,
        chance=chance,
        provenance={
            "versions": versions(),
            "machine": machine(),
            "seed": seed,
            "net": repr(net),
            "trainer": repr(trainer),
            "attack": repr(attack),
            "access": repr(knowledge.access),
            "data": {
                name: fingerprint(*(part for part in (records.x, records.y, records.features) if part is not None))
                for name, records in (("known", known), ("prior", prior), ("secrets", secrets))
            },
        },
        notes=(*told.notes(hints), *_certified(guess), *_diverged(release), *overlaps),
    )


def _victims(net: nn.Module, trainer: Trainer, threat: Threat, secrets: Records, *, games: int, seed: int) -> Release:
    """One victim a game, in as many chunks as memory asks for: it is trained as shadows are."""
    chunks = Local()(trainer, net, threat, secrets, models=games, seed=seed)
    releases = [release for _, release in chunks]
    if len(releases) == 1:
        return releases[0]
    return Release({name: torch.cat([part.params[name] for part in releases]) for name in releases[0].params})


def _in_words(trainer: Trainer) -> str:
    if isinstance(trainer, Defended):
        return f"{_in_words(trainer.trainer)}, defended by {trainer.by!r}"
    return type(trainer).__name__


def _certified(guess: Guess) -> tuple[str, ...]:
    if guess.certified is None:
        return ()
    sure = int(guess.certified.sum())
    return (
        f"the attack itself certifies {sure} of {len(guess.certified)} guesses: they explain the weights to rounding.",
    )


def _diverged(release: Release) -> tuple[str, ...]:
    broken = int((~release.flat().isfinite().all(1)).sum())
    return (f"{broken} of {len(release)} victims diverged (NaN or infinite weights).",) if broken else ()
