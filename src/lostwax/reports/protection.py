"""What protects: the noise that keeps every attack below a success, for three of them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from lostwax.bounds import Plan, calibrate

if TYPE_CHECKING:
    from lostwax.audits import Audit

BASELINE = 0.1  # where a record has to be rebuilt: as if it were one of ten that the adversary can think of (S3)
ADVANTAGES = (0.05, 0.1, 0.5)  # of what a blind guess leaves to win, how much any attack may win
DELTA = 1e-5


class Protection(NamedTuple):
    """Plans of growing success, and what they assume."""

    baseline: float
    candidates: bool  # the baseline is the game's own, not an assumption
    steps: int
    steps_known: bool
    plans: tuple[tuple[float, Plan], ...]  # success that no attack exceeds, and the noise for it


def protection(audit: Audit) -> Protection:
    """Plans for this audit's number of steps in full batches, or for one step where it is not known."""
    baseline = BASELINE if audit.chance is None else audit.chance
    steps = int(audit.provenance.get("steps", 1))
    return Protection(baseline, audit.chance is not None, steps, "steps" in audit.provenance, _plans(baseline, steps))


@cache  # epsilon takes a third of a second
def _plans(baseline: float, steps: int) -> tuple[tuple[float, Plan], ...]:
    targets = [baseline + advantage * (1 - baseline) for advantage in ADVANTAGES]
    return tuple((one, calibrate(max_success=one, baseline=baseline, steps=steps, delta=DELTA)) for one in targets)
