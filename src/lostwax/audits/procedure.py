"""Audit of a way of training: games are dealt, victims trained, and an attack that saw neither guesses."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.audits.scoring import Scoring, labels_right
from lostwax.provenance import fingerprint, machine, versions
from lostwax.seeds import generator
from lostwax.types import Access, Attack, Audit, Finding, Knowledge, Records, Release, Threat, Trainer


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
) -> Audit:
    """Train one victim a game on secrets the attack never sees, and score what it makes of the releases."""
    knowledge = Knowledge(net, trainer, threat, access or Weights(), prior)
    if (objection := attack.objection(knowledge)) is not None:
        raise ValueError(f"audit: {objection}")
    _check_alike(secrets, prior)
    # a seed of its own: an attack that trains shadows by the game's seed would draw the victims' private randomness
    reconstruct = attack.prepare(knowledge, seed=int(generator(seed, "adversary").integers(2**62)))
    cohort = threat.deal(secrets, len(secrets) if games is None else games, seed=seed)
    release = trainer(net, cohort, seed=seed)
    start = time.perf_counter()
    hints = threat.hints(cohort)
    guess = reconstruct(release, hints)
    seconds = time.perf_counter() - start
    truth, found = (part.x[:, 0].double().cpu() for part in (cohort.own, guess.records))
    pool = torch.cat([prior.x, cohort.shared.x.to(prior.x.device)]).double().cpu()  # all that the adversary has
    scoring = Scoring.of(pool, threshold)
    errors = scoring.errors(found, truth)
    blind = prior.x.double().cpu().mean(0, keepdim=True).expand_as(truth)
    labels, guessed = cohort.own.y[:, 0].cpu(), guess.records.y[:, 0].cpu()
    return Audit(
        subject=f"{type(net).__name__} trained by {type(trainer).__name__}",
        kind="this procedure",
        threat=f"{type(threat).__name__} adversary, {len(cohort.shared)} records known"
        + ("" if hints is None else ", and the labels of the secrets"),
        attack=f"{type(attack).__name__} through {type(knowledge.access).__name__}",
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=threshold,
        games=cohort.index.cpu().numpy(),
        population=len(secrets),
        truth=Records(truth, labels),
        findings=(
            Finding(
                name="as released",
                guess=guess,
                errors=errors,
                rebuilt=scoring.rebuilt(errors),
                labels_right=labels_right(guessed, labels, prior.y.cpu()),
                seconds=seconds,
            ),
        ),
        oracle="nearest prior or known record",
        baselines={
            "blind guess (mean of the prior)": scoring.errors(blind, truth),
            "nearest prior or known record": scoring.errors(scoring.nearest(truth, pool), truth),
        },
        provenance={
            "versions": versions(),
            "machine": machine(),
            "seed": seed,
            "net": repr(net),
            "trainer": repr(trainer),
            "attack": repr(attack),
            "access": repr(knowledge.access),
            "data": fingerprint(secrets.x, secrets.y, prior.x, prior.y, cohort.shared.x, cohort.shared.y),
        },
        notes=(*_diverged(release), *_overlap(truth, pool)),
    )


def _check_alike(secrets: Records, prior: Records) -> None:
    """Secrets that do not fit would be noticed only after the attack has been prepared."""
    for part in ("x", "y"):
        ours, theirs = getattr(secrets, part), getattr(prior, part)
        for what, got, wanted in (
            ("shape", tuple(ours.shape[1:]), tuple(theirs.shape[1:])),
            ("dtype", ours.dtype, theirs.dtype),
            ("device", ours.device, theirs.device),
        ):
            if got != wanted:
                raise ValueError(
                    f"audit: secrets.{part} and prior.{part} differ in {what}: {got} and {wanted}. "
                    "Convert one of them (Records.to)."
                )


def _diverged(release: Release) -> tuple[str, ...]:
    broken = int((~release.flat().isfinite().all(1)).sum())
    return (f"{broken} of {len(release)} victims diverged (NaN or infinite weights).",) if broken else ()


def _overlap(secrets: Tensor, pool: Tensor) -> tuple[str, ...]:
    """A secret that the adversary has anyway is no secret."""
    had = {row.numpy().tobytes() for row in pool.flatten(1)}
    same = [game for game, row in enumerate(secrets.flatten(1)) if row.numpy().tobytes() in had]
    if not same:
        return ()
    return (
        f"{len(same)} of {len(secrets)} secrets also stand in the prior or among the known, first in game {same[0]}.",
    )
