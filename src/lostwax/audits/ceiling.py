"""The ceiling beside the success: what no attack on a differentially private victim can exceed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.audits import given
from lostwax.audits.audit import Audit, Finding
from lostwax.audits.membership import MembershipFinding
from lostwax.audits.scoring import Scoring
from lostwax.bounds import Ceiling, bound, kappa_from_samples
from lostwax.bounds import Records as Together
from lostwax.bounds.checks import MOST_RECORDS
from lostwax.bounds.last_weights import seen_batches
from lostwax.games import Hints, Mechanism, Note, Records
from lostwax.games.judges import Judge
from lostwax.numerals import at_most, round_up
from lostwax.seeds import generator

SURE = 0.999  # that the blind guess is no better than what the prior's records say
DELTA = 1e-5  # at which epsilon is stated
OF_TEN = 0.1  # one of ten records
MOST = 1_000  # of the prior's records, drawn at random, are compared with each other


@dataclass(frozen=True)
class Privacy:
    """What the noise in training proves whatever is played: no choice of candidates or prior changes it.

    `membership` is the ceiling for two candidates: which of two records was used? With more candidates no attack gains
    as large a share of what guessing leaves, (gamma(k) - k) / (1 - k): gamma is concave, so that it grows with k.
    """

    membership: Ceiling
    epsilon: float
    delta: float
    adjacency: str  # of epsilon
    reconstruction: Ceiling | None = None  # which of ten records was used? None in files up to 0.3.0

    @property
    def sentence(self) -> str:
        """One line in words."""
        return (
            f"epsilon {round_up(self.epsilon)} at delta {self.delta:g} ({self.adjacency}); which of two records was "
            f"used is told in at most {at_most(self.membership.upper)} of cases, where guessing is right in half"
            + ("" if self.reconstruction is None else f", and which of ten in {at_most(self.reconstruction.upper)}")
        )


def privacy_of(mechanism: Mechanism | None) -> Privacy | None:
    """From the mechanism that the trainer states; None without one."""
    if mechanism is None:
        return None
    two, ten = (bound(**mechanism, baseline=baseline) for baseline in (0.5, OF_TEN))
    if "epsilon" in mechanism:
        stated = mechanism["epsilon"], mechanism.get("delta", 0.0)
        return Privacy(two, *stated, "that of the privacy guarantee", ten)
    steps, noise = mechanism.get("steps", 1), mechanism["noise_multiplier"]
    rate = mechanism.get("sample_rate", 1.0)
    sampling = seen_batches(mechanism.get("sampling"), rate, steps, mechanism.get("released"))
    return Privacy(two, sampling.epsilon(noise, steps, DELTA), DELTA, sampling.adjacency, ten)


def with_mechanism(audit: Audit, mechanism: Mapping[str, Any]) -> Audit:
    """A fitted model whose owner states that noise was added: its optimum, which noise keeps from the release, is left.

    The statement is believed, and noted.
    """
    note = Note("The owner states the noise of training, which this audit does not check.")
    return replace(
        audit,
        privacy=privacy_of(cast(Mechanism, dict(mechanism))),
        findings=audit.findings[:1],
        notes=(*audit.notes, note),
    )


def ceiling_of(
    mechanism: Mechanism | None,
    hints: Hints | None,
    prior: Records,
    scoring: Scoring,
    *,
    secrets: int = 1,
    judge: Judge,
) -> Ceiling | None:
    """From the mechanism that the trainer states; None without one, and where parts of records are given.

    The blind guess names the likeliest candidate. Where there are no candidates, it is the record within the threshold
    of which most others lie, by the prior's records (of the class, where that is given): an upper confidence limit, so
    that the ceiling is not certified.

    Of several secrets of a training set each has one guess if the judge matches them; else a guess may be for any.
    """
    if mechanism is None or (hints is not None and hints.parts is not None):
        return None
    chance = given.chance(hints)
    if chance is not None:
        # The mean over games of the likeliest candidate's chance. In game i no attack is right more often than
        # gamma(kappa_i), and gamma is concave: the mean of gamma(kappa_i) is at most gamma(mean of kappa_i).
        return bound(**mechanism, baseline=chance) if chance < 1 else None
    known_class = hints is not None and hints.labels is not None and not prior.y.is_floating_point()
    groups = [prior[prior.y == y] for y in torch.unique(prior.y)] if known_class else [prior]
    kappa = max(_blind(group, scoring) for group in groups)
    if secrets * kappa >= 1:
        return None
    if judge.matched or secrets == 1:
        # Each of k secrets has one of k guesses to itself. In training without a secret the guesses owe nothing to it,
        # and one of them is right about it with a chance of k kappa at most, by the union bound: gamma(k kappa).
        ceiling = bound(**mechanism, baseline=secrets * kappa)
    else:
        ceiling = _over_any(mechanism, kappa, secrets)
    looked_at = sum(min(len(group), MOST) for group in groups)
    limit = f"the blind guess a limit of {100 * SURE:g} % confidence from {looked_at:,} records of the prior"
    return replace(ceiling, method=f"{ceiling.method}; {limit}", certified=False)


def _over_any(mechanism: Mechanism, kappa: float, k: int) -> Ceiling:
    """A guess is right if it is near any of k secrets (`judges.NearestOfClass`): the lower of two ceilings.

    No secret can be fixed ahead. Either all are taken away at once: a guess is right with k kappa at most, and training
    with the group has gamma of k records at k kappa. Or one is: the guess is right about it with gamma(kappa) at most,
    and about one of k with k times that, by the union bound.
    """
    single, log_kappa = bound(**mechanism, baseline=kappa), math.log(k * kappa)
    log_upper = min(0.0, math.log(k) + single.log_upper + 1e-14)  # rounded up
    method = f"{single.method}, summed over {k} secrets"
    by_one = Ceiling(log_kappa, log_upper, log_kappa, method, assumptions=single.assumptions)
    if k > MOST_RECORDS:
        return by_one
    group = bound(**mechanism, baseline=k * kappa, goal=Together(k))
    together = replace(group, method=f"{group.method}, {k} secrets at once")
    return min(by_one, together, key=lambda ceiling: ceiling.log_upper)


def check_under(ceiling: Ceiling | None, findings: tuple[Finding, ...], *, secrets: int = 1) -> None:
    """Stop where an attack is above its ceiling by more than chance allows (three standard errors).

    The secrets of one training set may all be found, or none: chance is counted by training sets.
    """
    if ceiling is not None:
        for finding in findings:
            _check(ceiling, finding.name, int(finding.rebuilt.sum()) // secrets, len(finding.rebuilt) // secrets)


def check_membership_under(privacy: Privacy | None, membership: MembershipFinding | None) -> None:
    """The same for pairs of records told apart, one of which was trained on."""
    if privacy is not None and membership is not None:
        pairs = membership.pairs_right
        _check(privacy.membership, "was this person in it?", int(pairs.sum()), len(pairs))


def _check(ceiling: Ceiling, name: str, won: int, games: int) -> None:
    if ceiling.broken_by(won, games):
        raise RuntimeError(
            f"audit: {name}: {won} of {games} games won, but no attack wins more than {ceiling.upper:.4g} of them in "
            f"the long run: {ceiling.sentence}. A ceiling is a theorem, so one of its premises is broken: the secrets "
            "are easier to guess than the prior says, the attack saw them, or the trainer adds less noise than it says."
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
