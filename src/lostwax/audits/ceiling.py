"""The ceiling beside the success: what no attack on a differentially private victim can exceed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.audits import told
from lostwax.audits.audit import Finding
from lostwax.audits.scoring import Scoring
from lostwax.bounds import Ceiling, bound, kappa_from_samples
from lostwax.defences import Defended
from lostwax.seeds import generator
from lostwax.trainers import DPSGD
from lostwax.types import Hints, Records, Trainer

SURE = 0.999  # that the blind guess is no better than what the prior's records say
MOST = 1_000  # of the prior's records, drawn at random, are compared with each other


def ceiling_of(
    trainer: Trainer, hints: Hints | None, prior: Records, scoring: Scoring, *, secrets: int = 1
) -> Ceiling | None:
    """For DP-SGD with noise, also behind further defences; None for others, and where parts of records are told.

    The blind guess names the likeliest candidate. Where there are no candidates, it is the record within the threshold
    of which most others lie, by the prior's records (of the class, where that is told). Several secrets of one training
    set come with as many guesses, and each is held against all of them.
    """
    while isinstance(trainer, Defended):  # what is done to a release afterwards tells nothing more
        trainer = trainer.trainer
    if (
        not isinstance(trainer, DPSGD)
        or trainer.noise_multiplier == 0
        or (hints is not None and hints.parts is not None)
    ):
        return None
    kappa = told.chance(hints)
    if kappa is None:
        known_class = hints is not None and hints.labels is not None and not prior.y.is_floating_point()
        groups = [prior[prior.y == y] for y in torch.unique(prior.y)] if known_class else [prior]
        kappa = secrets * max(_blind(group, scoring) for group in groups)
    return bound(**trainer.mechanism(), baseline=kappa) if kappa < 1 else None


def successes(finding: Finding, hints: Hints | None, scoring: Scoring) -> NDArray[np.bool_]:
    """(games,) the right candidate named, which is more than one that looks alike; else the record rebuilt."""
    if told.chance(hints) is None:
        return finding.rebuilt
    return np.asarray(finding.errors[scoring.criterion.name] == 0)


def check_under(
    ceiling: Ceiling | None, findings: tuple[Finding, ...], hints: Hints | None, scoring: Scoring, *, secrets: int = 1
) -> None:
    """Stop where an attack is above its ceiling by more than chance allows (three standard errors).

    The secrets of one training set may all be found, or none: chance is counted by training sets.
    """
    if ceiling is None:
        return
    for finding in findings:
        won, games = int(successes(finding, hints, scoring).sum()), len(finding.rebuilt)
        if ceiling.broken_by(won // secrets, games // secrets):
            raise RuntimeError(
                f"audit: {finding.name}: {won} of {games} games won, but no attack wins more than "
                f"{ceiling.upper:.4g} of them in the long run: {ceiling}. A ceiling is a theorem, so that one of its "
                "premises is broken: the secrets are easier to guess than the prior says, the attack saw them, or the "
                "trainer adds less noise than it says."
            )


def _blind(records: Records, scoring: Scoring) -> float:
    """The success of the best blind guess, or more, from records of the prior."""
    some = generator(0, "blind guess").permutation(len(records))[:MOST]
    x = records.x[torch.from_numpy(some).to(records.x.device)].double().cpu().flatten(1)
    if len(x) < 2:
        return 1.0

    def distances(samples: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
        ours = torch.from_numpy(samples)
        far: NDArray[np.float64] = scoring.criterion(torch.from_numpy(centre).expand_as(ours), ours).numpy()
        return far

    return kappa_from_samples(x.numpy(), distances, scoring.threshold, confidence=SURE)
