"""Reconstruction used as a membership test (S1 section II-D, end)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lostwax.attacks.candidates import candidates_in, choose, no_candidates
from lostwax.attacks.reconn import RecoNN
from lostwax.decoders import MLPDecoder
from lostwax.metrics import MSE
from lostwax.types import Attack, Guess, Hints, Knowledge, Metric, Reconstructor, Release
from lostwax.types.fields import check_fields


@dataclass(frozen=True)
class NearestCandidate:
    """Rebuild the record by another attack, and answer the candidate nearest to what came out.

    For a metric with the triangle inequality it is right wherever the reconstruction errs by less than half the
    distance between the candidates: accurate reconstruction implies informed membership inference. A distance is no
    likelihood, so chances of the candidates (`Hints.chances`) only decide between equally near ones.
    """

    attack: Attack
    metric: Metric = field(default_factory=MSE)

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game: for its own reason, or for those of the attack inside."""
        return no_candidates(self, knowledge) or self.attack.objection(knowledge)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """What the attack inside needs."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        return _Nearest(self.attack.prepare(knowledge, seed=seed), self.metric)

    @classmethod
    def examples(cls) -> tuple[NearestCandidate, ...]:
        """Instances to test."""
        return (cls(RecoNN(decoder=MLPDecoder(width=16), epochs=3)),)


class _Nearest(NamedTuple):
    reconstruct: Reconstructor
    metric: Metric

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        candidates = candidates_in(hints)  # (m, c, ...)
        rebuilt = self.reconstruct(release, hints).records.x[:, 0].to(candidates.x)  # (m, ...)
        closeness = torch.stack([self.metric(rebuilt, one) for one in candidates.x.unbind(1)], 1)  # (m, c)
        return choose(hints, closeness if self.metric.better == "higher" else -closeness)
