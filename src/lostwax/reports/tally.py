"""The counts behind the words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lostwax.reports.numerals import count

if TYPE_CHECKING:
    from lostwax.audits import Audit


class Tally(NamedTuple):
    """The counts that decide what is said."""

    played: int
    rebuilt: int
    low: float
    high: float
    every: bool  # all records were played for: nothing is estimated
    near: int  # nearer than all that the adversary had, but not rebuilt
    without: int  # rebuilt by the better baseline, without the model
    without_name: str
    converged: int  # rebuilt from the same model at its optimum
    attacks: int  # that were played; the counts are the best one's

    @classmethod
    def of(cls, audit: Audit) -> Tally:
        """Count."""
        released, played = audit.findings[0], len(audit.games)
        rebuilt = int(released.rebuilt.sum())
        low, high = audit.interval(rebuilt)
        baselines = {
            name: int((errors[audit.criterion] <= audit.threshold).sum()) for name, errors in audit.baselines.items()
        }
        name = max(baselines, key=lambda one: baselines[one])
        return cls(
            played=played,
            rebuilt=rebuilt,
            low=low,
            high=high,
            every=audit.kind == "this model" and played == audit.population,
            near=int((audit.beats_baselines(released) & ~released.rebuilt).sum()),
            without=baselines[name],
            without_name=name,
            converged=max(int(finding.rebuilt.sum()) for finding in audit.findings),
            attacks=len(audit.findings) if audit.kind == "this procedure" else 1,
        )

    @property
    def records(self) -> str:
        """As a noun with its number."""
        return "1 record" if self.played == 1 else f"{count(self.played)} records"
