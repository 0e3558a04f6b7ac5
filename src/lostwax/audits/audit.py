"""What an audit found: every guess with its error, and the numbers a person asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from sys import float_info
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax import files
from lostwax.audits.conclusion import Conclusion, Ladder, Rung, conclude
from lostwax.audits.luck import Luck
from lostwax.audits.membership import MembershipFinding
from lostwax.audits.saved import as_json, from_plain, read_plain
from lostwax.audits.tabled import as_csv, games_frame, kept, line_rows
from lostwax.audits.text import as_card, as_table
from lostwax.games import Adversary, Cells, Guess, Kept, Note, Records
from lostwax.games.attackers import NOT_STATED
from lostwax.games.cells import Bounds
from lostwax.grades import Grade
from lostwax.metrics import ByClass, Estimate, Null, TruePositives
from lostwax.metrics.estimate import spread_interval, success_rate, true_positives, true_positives_by_class
from lostwax.numerals import percent

if TYPE_CHECKING:
    from lostwax.audits.ceiling import Privacy
    from lostwax.audits.tabled import Frame
    from lostwax.bounds import Ceiling
    from lostwax.reports.figures import Plots


AGREES = 1e-6  # of a column's standard deviation: two numbers are the same
SINGLE = 2 * torch.finfo(torch.float32).eps  # ... or of their size: trees compare in single precision


class Verdict(StrEnum):
    """Can this record be rebuilt from this release, and if not, what stands in the way?"""

    RECOVERABLE = "recoverable"
    SOLVER_LIMITED = "solver-limited"  # only at the optimum of these rows and weights, which the release misses
    INFORMATION_LIMITED = "information-limited"  # the release holds too little of it, whatever the solver
    ATTACK_LIMITED = "attack-limited"  # what the attack uses of the release leaves several values
    UNDECIDED = "undecided"  # not from this release, and no optimum was reached that would tell the two apart


class CellsKept(NamedTuple):
    """How many cells of all games are known, and how well, in columns that vary."""

    exact: int
    certified: int  # ... of which no other value agrees with the model
    several: int  # one of a few values
    within: int  # in an interval
    estimated: int
    unknown: int
    width: float  # of these intervals, their mean in standard deviations; 0 where there are none
    each: Cells | None = None  # (games, d) all of them; None in an audit that was read without its records

    @classmethod
    def of(cls, cells: Cells, certified: Cells | None, truth: Tensor, table: Tensor) -> CellsKept:
        """Of cells (games, d) that were rebuilt, and those that trees tell: what is exact must be the truth."""
        deviation = (table - table.nanmean(0)).square().nanmean(0).sqrt().nan_to_num()
        varies = ((table != table[0]) & ~(table.isnan() & table[0].isnan())).any(0).numpy()
        values = torch.from_numpy(cells.values)
        near = (values - truth).abs() <= AGREES * deviation + SINGLE * truth.abs()
        same = (near | (values.isnan() & truth.isnan())).numpy()
        kept = np.where((cells.kept == Kept.EXACT) & ~same, np.uint8(Kept.ESTIMATED), cells.kept)
        proven = np.zeros_like(same) if certified is None else (certified.kept == Kept.EXACT) & same
        counted = {kind: int((kept == kind)[:, varies].sum()) for kind in Kept}
        return cls(
            exact=counted[Kept.EXACT],
            certified=int(proven[:, varies].sum()),
            several=counted[Kept.SET],
            within=counted[Kept.INTERVAL],
            estimated=counted[Kept.ESTIMATED],
            unknown=counted[Kept.LOST],
            width=_mean_width(cells.bounds, kept, table, deviation),
            each=cells._replace(kept=kept),
        )

    def with_target(self, target: TargetRead | None) -> CellsKept:
        """The same with the targets, which are cells of the table too; unchanged where they were not attacked."""
        if target is None:
            return self
        exact, certified = int(target.read.sum()), int(target.certain.sum())
        return self._replace(
            exact=self.exact + exact,
            certified=self.certified + certified,
            estimated=self.estimated + target.read.size - exact,
        )

    @property
    def total(self) -> int:
        """All cells in columns that vary."""
        return self.exact + self.several + self.within + self.estimated + self.unknown

    @property
    def exact_share(self) -> float:
        """The share of cells that come back exactly."""
        return self.exact / max(1, self.total)

    def __str__(self) -> str:
        width = f" (mean width {self.width:.2g} deviations)" if self.width else ""
        total = max(1, self.total)
        certain = f" ({percent(self.certified / total)} certain: no other value agrees with the model)"
        said = {
            f"exact{certain if 0 < self.certified < self.exact else ''}": self.exact,
            "one of several values": self.several,
            f"within an interval{width}": self.within,
            "estimated": self.estimated,
            "unknown": self.unknown,
        }
        return ", ".join(f"{percent(number / total)} {what}" for what, number in said.items() if number)


class TargetRead(NamedTuple):
    """The targets that come back, beside those that a guess from the other columns gives without the model."""

    read: NDArray[np.bool_]  # (games, targets) the class is right, or the number within a thousandth of its deviation
    guessed: NDArray[np.bool_]  # (games, targets) the same of the guess
    certain: NDArray[np.bool_]  # (games, targets) read, and no other value agrees with the model
    different: NDArray[np.bool_]  # (games,) the first game of each record: equal ones are no further evidence

    @property
    def worst(self) -> int:
        """The target that is read most often beyond guessing."""
        return int((self.read.sum(0) - self.guessed.sum(0)).argmax())


def _mean_width(bounds: Bounds | None, kept: NDArray[np.uint8], table: Tensor, deviation: Tensor) -> float:
    """Of intervals in standard deviations; one without an end ends where the table does."""
    if bounds is None:
        return 0.0
    low, high = torch.from_numpy(bounds.low), torch.from_numpy(bounds.high)
    counts = torch.from_numpy(kept == Kept.INTERVAL) & (low.isfinite() | high.isfinite()) & (deviation > 0)
    low = torch.maximum(low, table.nan_to_num(nan=torch.inf).amin(0))
    high = torch.minimum(high, table.nan_to_num(nan=-torch.inf).amax(0))
    widths = ((high - low).clamp_min(0) / deviation)[counts]
    return float(widths.mean()) if len(widths) else 0.0


@dataclass(frozen=True)
class Finding:
    """One line of an audit: one release, attacked in every game."""

    name: str  # "as released", "as converged"
    guess: Guess
    errors: Mapping[str, NDArray[np.float64]]  # by metric, (games,) each
    rebuilt: NDArray[np.bool_]  # (games,) error within the audit's threshold; among candidates: the right one is named
    labels_right: NDArray[np.bool_]  # (games,)
    seconds: float  # wall time of the attack on all games
    predicted: NDArray[np.float64] | None = None  # (games,) size of the error as the auditor predicts it
    verdicts: tuple[Verdict, ...] = ()  # one per game, where the attack can give reasons
    stationarity: float | None = None  # |gradient| over the sum of the rows' |gradients|: 0 at the optimum
    label_errors: NDArray[np.float64] | None = None  # (games,) in deviations of the label; None where it is a class
    # the headline error of guesses that can owe nothing to the release
    null_errors: Mapping[Null, NDArray[np.float64]] = field(default_factory=dict)
    luck: Luck | None = None  # what guesses reach that owe nothing to their secret; None: not known
    cells: CellsKept | None = None  # what is known of the cells of a table; None where records are compared as a whole
    target: TargetRead | None = None  # which targets come back; None where they were not attacked, or are given

    def with_verdicts(self, at_best: NDArray[np.bool_], otherwise: NDArray[np.object_] | Verdict) -> Finding:
        """Rebuilt from this release; or only at its optimum, `at_best`; or not even there, and why."""
        why = np.broadcast_to(np.array(otherwise, dtype=object), self.rebuilt.shape)
        verdicts = np.select([self.rebuilt, at_best], [Verdict.RECOVERABLE, Verdict.SOLVER_LIMITED], why)
        return replace(self, verdicts=tuple(map(Verdict, verdicts)))


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of `lw.audit`: printed as a table, kept by `to_json`."""

    subject: str  # what was audited
    kind: Literal["this model", "this procedure"]
    threat: str  # what the adversary knows, in words
    attack: str
    metric: str  # the headline metric, a key of every finding's errors
    criterion: str  # the metric that decides whether a record counts as rebuilt ...
    threshold: float  # ... and how small its error must be; 0 among candidates, of which one is named or not
    games: NDArray[np.int64]  # (games,) which rows, or which models
    population: int  # how many games there could have been
    truth: Records  # (games, ...)
    findings: tuple[Finding, ...]  # the first is the release as it is
    baselines: Mapping[str, Mapping[str, NDArray[np.float64]]]  # name -> metric -> (games,)
    oracle: str  # the baseline that is the nearest record the adversary has anyway (Balle et al. 2022, section V-B)
    provenance: Mapping[str, Any]
    adversary: Adversary = NOT_STATED  # who attacks, as a value: `threat` and `provenance` say it in words
    rungs: tuple[Rung, ...] = ()  # what other attackers reached, who have less or something else
    notes: tuple[Note, ...] = ()
    left_out: tuple[str, ...] = ()  # attacks that are not applicable, each with the reason, where none was named
    # what should have been tried and has no answer, each with the reason: attacks that were too slow or failed, where
    # none was named; an optimum that could not be reached. A gate does not pass over it.
    unanswered: tuple[str, ...] = ()
    classes: tuple[object, ...] = ()  # the user's own names of class numbers 0, 1, ...; empty for regressions
    columns: tuple[str, ...] = ()  # ... and of the features, where the data brings them
    categories: tuple[tuple[object, ...], ...] = ()  # values by code of each column, () for numbers; not in audit.json
    columns_are_words: bool = False  # of texts: then `columns` is kept in no file either
    # percentile over all records that the adversary has -> their squared error, mean over games; the oracle is the 0th
    # (Balle et al. 2022, Fig. 3)
    oracle_percentiles: Mapping[float, float] = field(default_factory=dict)
    chance: float | None = None  # of naming the secret among candidates; None where it has to be rebuilt
    chance_by_victims: float | None = None  # the same where games of one group count as one; None: as `chance`
    # (games,) games with one number are not independent: guesses from one release, or equal secrets; None: `games`
    groups: NDArray[np.int64] | None = None
    # how far the log-odds of success differ between splits of the table (standard deviation), where all games share one
    split_spread: float = 0.0
    labels_given: bool = False  # the adversary knows the labels, and no guess of them counts
    membership: MembershipFinding | None = None  # "was this person in it?", where that was asked
    ceiling: Ceiling | None = None  # on the success of any attack, where training is differentially private
    privacy: Privacy | None = None  # what that proves in any game; None also in files up to 0.2.0

    @property
    def guess(self) -> Guess:
        """What was rebuilt in every game from the model as released."""
        return self.findings[0].guess

    @property
    def predicted(self) -> NDArray[np.float64] | None:
        """The predicted error of every game, for the model as released."""
        return self.findings[0].predicted

    @property
    def errors(self) -> NDArray[np.float64]:
        """The headline error of every game, for the model as released."""
        return self.findings[0].errors[self.metric]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict of every game, for the model as released."""
        return self.findings[0].verdicts

    @property
    def victim_of_game(self) -> NDArray[np.int64]:
        """(games,) guesses from one release, or for equal secrets, have one number."""
        return self.games if self.groups is None else self.groups

    @property
    def victims(self) -> int:
        """How many of the games are independent."""
        return len(np.unique(self.victim_of_game))

    @property
    def complete(self) -> bool:
        """Was every record of this very model tried? Then nothing is estimated, unless candidates were drawn for it."""
        return self.kind == "this model" and len(self.games) == self.population and self.chance is None

    def interval(self, won: int) -> tuple[float, float]:
        """The 95 % interval of the share of games that was won, counted by victims; over splits, if games share one."""
        return spread_interval(won * self.victims / len(self.games), self.victims, self.split_spread)

    def ends(self, won: int) -> tuple[float, float]:
        """The same, and the share itself twice where every record was tried: then nothing is estimated."""
        share = won / len(self.games)
        return (share, share) if self.complete else self.interval(won)

    @cached_property
    def conclusion(self) -> Conclusion:
        """The grade of the audit and its evidence: what print, page, file and gate all say."""
        return conclude(self)

    @property
    def grade(self) -> Grade:
        """How bad it is, in one word."""
        return self.conclusion.grade

    @property
    def attackers(self) -> Ladder:
        """Who can do it: every attacker with a grade, the weakest first."""
        return self.conclusion.ladder

    def had_anyway(self) -> NDArray[np.bool_]:
        """(games,) is the record rebuilt without the model, by one of the baselines?"""
        within = [errors[self.criterion] <= self.threshold for errors in self.baselines.values()]
        return np.asarray(np.logical_or.reduce(within))

    def beats_baselines(self, finding: Finding) -> NDArray[np.bool_]:
        """(games,) is the guess nearer than every record the adversary had anyway, and than a blind guess?

        Where records have many independent numbers, their mean is nearer to a new one than any of them: both count.
        """
        best = np.minimum.reduce([errors[self.metric] for errors in self.baselines.values()])
        return np.asarray(finding.errors[self.metric] < best)

    def success(self, threshold: float | None = None, *, confidence: float = 0.95) -> Estimate:
        """The share of games with a headline error of at most the threshold, with its Clopper-Pearson interval.

        None: the mean error of the nearest record that the adversary has (Balle et al. 2022, section V-B).
        A guess that is infinitely wrong is never a success.
        """
        limit = min(self.oracle_error if threshold is None else threshold, float_info.max)
        return success_rate(self.errors, limit, confidence=confidence, victims=self.victims, spread=self.split_spread)

    def fpr(
        self, threshold: float | None = None, *, null: Null = Null.OTHER_SECRETS, confidence: float = 0.95
    ) -> Estimate:
        """The share of guesses that can owe nothing to a release, and are as near: what `success` comes to by chance.

        None: the same threshold; with the weak adversary it is the tau of Maciazek and Allison 2025.
        """
        limit = min(self.oracle_error if threshold is None else threshold, float_info.max)
        scores = self._chance("fpr", null)
        return success_rate(scores, limit, confidence=confidence, victims=min(self.victims, len(scores)))

    @property
    def oracle_error(self) -> float:
        """The oracle's headline error, mean over the games in which it is finite; infinite where it is in none."""
        errors = self.baselines[self.oracle][self.metric]
        finite = np.isfinite(errors)
        return float(errors[finite].mean()) if finite.any() else math.inf

    def tpr(self, at_fpr: float = 0.01, *, null: Null = Null.OTHER_SECRETS, confidence: float = 0.95) -> TruePositives:
        """The share of games with a headline error below what chance alone gives in a share `at_fpr` of games.

        Chance is what `null` says; 1 % takes 99 games or more. The interval holds the uncertainty of both rates.
        """
        return true_positives(self.errors, self._chance("tpr", null), null=null, fpr=at_fpr, confidence=confidence)

    def tpr_by_class(
        self, at_fpr: float = 0.01, *, null: Null = Null.OTHER_SECRETS, confidence: float = 0.95
    ) -> ByClass:
        """The same with a threshold for every class that guesses are made of: 1 % takes 99 guesses of each."""
        scores, labels = self._chance("tpr_by_class", null), self.guess.records.y.flatten().cpu().numpy()
        if not len(labels) == len(scores) == len(self.errors):
            raise ValueError(
                "Audit.tpr_by_class: expected a label and a null score for every guess, got "
                f"{len(labels)} and {len(scores)} for {len(self.errors)}. Audits of a weak adversary have them, until "
                "they are read from a file, which holds no labels."
            )
        return true_positives_by_class(self.errors, scores, labels, null=null, fpr=at_fpr, confidence=confidence)

    def _chance(self, asked: str, null: Null) -> NDArray[np.float64]:
        """The headline errors that chance alone gives."""
        scores = self.findings[0].null_errors.get(null)
        if scores is None:
            nulls = ", ".join(f"Null.{kind.name}" for kind in self.findings[0].null_errors) or "none"
            raise ValueError(
                f"Audit.{asked}: this audit of {self.kind} holds no scores of Null.{null.name} ({null}); it holds "
                f"{nulls}. Audits of a way of training, with two different secrets or more, hold Null.OTHER_SECRETS, "
                "and those of a weak adversary Null.GAUSSIAN_WEIGHTS too."
            )
        return scores

    def finding(self, name: str) -> Finding:
        """The line of that name: `audit.finding("as converged")`."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        names = ", ".join(f'"{finding.name}"' for finding in self.findings)
        raise KeyError(f'Audit.finding: expected one of {names}, got "{name}".')

    def summary(self) -> dict[str, dict[str, float]]:
        """The headline numbers of every line and baseline."""
        lines: dict[str, dict[str, float]] = {}
        for finding in self.findings:
            reasons = {str(kind): finding.verdicts.count(kind) / len(self.games) for kind in Verdict}
            lines[finding.name] = {
                "games": len(self.games),
                "rebuilt": float(finding.rebuilt.mean()),
                "beats_baselines": float(self.beats_baselines(finding).mean()),
                "labels_right": float(finding.labels_right.mean()),
                **({} if finding.label_errors is None else {"label_error": float(finding.label_errors.mean())}),
                "median_error": float(np.median(finding.errors[self.metric])),
                "milliseconds_per_record": 1e3 * finding.seconds / len(self.games),
                **(reasons if finding.verdicts else {}),
            }
        for name, errors in self.baselines.items():
            rebuilt, median = (errors[self.criterion] <= self.threshold).mean(), np.median(errors[self.metric])
            lines[name] = {"games": len(self.games), "rebuilt": float(rebuilt), "median_error": float(median)}
        return lines

    def closer(self, first: str, second: str, *, confidence: float = 0.95) -> Estimate:
        """The share of games in which one line's error is smaller than another's: both attacked the same victims.

        Games with equal errors count for neither. `audit.closer("Newton", "RecoNN")`.
        """
        ours, theirs = (self.finding(name).errors[self.metric] for name in (first, second))
        wins = np.where(ours < theirs, 0.0, 1.0)
        return success_rate(wins, 0.5, confidence=confidence, victims=self.victims, spread=self.split_spread)

    def to_frame(self) -> Frame:
        """A pandas DataFrame with one row per line and game: errors, and what came of it as booleans.

        `error` is by the metric `audit.metric`; baselines and further metrics have separate columns. No records.
        """
        return games_frame({"": self}).drop(columns="audit")

    def to_csv(self, path: str | Path | None = None) -> str:
        """A table for a paper, one row per line, shares with their 95 % intervals; written to `path` too, if given."""
        return kept(as_csv(line_rows(self)), path, "Audit.to_csv")

    @property
    def plot(self) -> Plots:
        """Matplotlib figures: `audit.plot()`, `audit.plot.errors()`, `.roc()`, `.pairs()`, `.ceiling()`."""
        from lostwax.reports.figures import Plots

        return Plots(self)

    def to_json(self, path: str | Path) -> Path:
        """Write everything but the records themselves: an audit that is passed around must not leak them."""
        target = files.named("Audit.to_json", path)
        if not target.parent.is_dir():
            raise FileNotFoundError(
                f"Audit.to_json: the folder {target.parent} of path={path} does not exist. Create it first."
            )
        if target.is_dir():
            raise IsADirectoryError(
                f"Audit.to_json: path={path} is a folder. Name a file in it: {target / 'audit.json'}."
            )
        return files.write(target, as_json(self), source="Audit.to_json")

    @classmethod
    def from_json(cls, path: str | Path) -> Audit:
        """Read what `to_json` wrote. The records are not in it: `truth.x` and the guesses have shape (games, 0)."""
        source = files.named("Audit.from_json", path)
        return from_plain(read_plain(source), f"Audit.from_json: {source}")

    def __repr__(self) -> str:
        """The table, never the records: a notebook prints what its last line evaluates to."""
        return as_table(self)

    def _repr_html_(self) -> str:
        """The first screen, for notebooks."""
        return as_card(self)
