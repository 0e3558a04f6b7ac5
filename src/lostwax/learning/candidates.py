"""Choosing among given candidates (Balle et al. 2022, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lostwax.games import Guess, Hints, Knowledge, Records

CURE = "Use threat=Informed(known, candidates=2)."


def no_candidates(knowledge: Knowledge) -> str | None:
    """Why an attack that chooses among candidates is not applicable: there are none."""
    if knowledge.facts.given.candidates is not None:
        return None
    return (
        f"it chooses among candidates of which one is the secret, and this {type(knowledge.threat).__name__} adversary "
        f"is given none. {CURE}"
    )


def candidates_in(hints: Hints | None) -> Records:
    """(m, c, ...) the given candidates; raises if there are none."""
    if hints is None or hints.candidates is None:
        raise ValueError(f"hints: expected candidates to choose among, got none. {CURE}")
    return hints.candidates


def side_by_side(candidates: Records) -> Records:
    """(m, c, ...) -> (m c, ...), game by game."""
    features = None if candidates.features is None else candidates.features.flatten(0, 1)
    return Records(candidates.x.flatten(0, 1), candidates.y.flatten(0, 1), features)


def distinct(records: Records) -> tuple[Tensor, Tensor]:
    """A row of each different record, label included, (r,), and which of them every record is, (n,)."""
    both = torch.cat([records.x.flatten(1).double(), records.y.reshape(len(records), -1).double()], 1).cpu()
    values, number = torch.unique(both, dim=0, return_inverse=True)
    rows = torch.full((len(values),), len(records)).scatter_reduce(0, number, torch.arange(len(records)), "amin")
    return rows, number


def scored_once(candidates: Records, score: Callable[[Records], Tensor]) -> Tensor:
    """(m, c) scores of candidates (m, c, ...), from those (m, r) of each different record."""
    flat = side_by_side(candidates)
    rows, number = distinct(flat)  # (r,), (m c,)
    return score(flat[rows]).gather(1, number.view(candidates.x.shape[:2]))


def choose(hints: Hints | None, scores: Tensor) -> Guess:
    """Rank the candidates by score (m, c), then by `Hints.chances`; confidence is the lead of the first.

    Where the label is given, candidates of other labels come last.
    """
    candidates, (m, c) = candidates_in(hints), scores.shape
    scores = torch.where(scores.isnan(), -torch.inf, scores)  # a candidate whose model diverged
    chances = torch.ones_like(scores) if hints is None or hints.chances is None else hints.chances.to(scores)
    if hints is not None and hints.labels is not None:
        of_another = (candidates.y != hints.labels.to(candidates.y)).view(m, c, -1).any(2)  # labels (m, 1, ...)
        scores = torch.where(of_another.to(scores.device), -torch.inf, scores)
        chances = torch.where(of_another.to(scores.device), 0.0, chances)
    order = chances.argsort(dim=1, descending=True, stable=True)  # (m, c)
    order = order.gather(1, scores.gather(1, order).argsort(dim=1, descending=True, stable=True))
    best, second = scores.gather(1, order[:, :2]).unbind(1)  # (m,) twice
    lead = torch.where(best == second, 0.0, best - second)  # equal infinities have no difference
    ranked = side_by_side(candidates)[c * torch.arange(m, device=order.device).unsqueeze(1) + order]  # (m, c, ...)
    return Guess(Records(ranked.x[:, :1], ranked.y[:, :1]), lead.unsqueeze(1), alternatives=ranked)


def weighed(hints: Hints | None, likelihoods: Tensor) -> Tensor:
    """(m, c) log-likelihoods plus log chances: log posteriors up to a constant."""
    if hints is None or hints.chances is None:
        return likelihoods
    return likelihoods + hints.chances.to(likelihoods).log()
