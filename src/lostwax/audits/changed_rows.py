"""Games about the rows in which two training sets differ, judged beside rows that did not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.audits.audit import Finding, TargetRead
from lostwax.audits.conclusion import DOUBTFUL, LEVEL
from lostwax.audits.luck import Luck, Scores, among_other_rows
from lostwax.audits.play import Answer, OneGamePerRow, Played, judged
from lostwax.audits.scoring import Scoring, targets_right
from lostwax.games import Guess, Records

TESTS = 3  # of a line without a target: rebuilt, nearer, a smaller error


@dataclass(frozen=True, eq=False)
class ChangedRows(OneGamePerRow):
    """One game per changed row; rows that did not change show what chance gives."""

    secrets: Records  # (k, ...) the changed rows
    others: Records  # (s, ...) rows that both releases were trained on, or other records
    blind: Tensor  # (...) a guess for every row
    public: Records | None  # (m, ...)
    scoring: Scoring
    table: Records  # (n, ...) for the scale of labels
    noun: str = "row"

    @property
    def labels(self) -> Tensor:
        """Of the whole table."""
        return self.table.y

    def without_model(self) -> dict[str, Tensor]:
        """A blind guess; and the nearest public row, where there are any."""
        return self._without_model(self.secrets.x)

    def _without_model(self, x: Tensor) -> dict[str, Tensor]:
        source = "other" if self.public is None else "public"
        guesses = {f"blind guess (mean of the {source} {self.noun}s)": self.blind.expand_as(x)}
        if self.public is not None:
            nearest = self.scoring.oracle(x, self.public.x).nearest
            guesses[f"nearest public {self.noun}"] = self.public.x[torch.from_numpy(nearest)]
        return guesses

    def line(self, name: str, answer: Answer, known: Tensor | None = None, proven: Tensor | None = None) -> Played:
        """One line of the audit. Labels count where they are `known` (k, ...), and are certain where `proven`."""
        line = judged(self, answer)
        return line._replace(finding=self._with_target(replace(line.finding, name=name), known, proven))

    def luck(self, guess: Guess) -> Luck:
        """What the guesses come to with rows that did not change."""
        x = guess.records.x[:, 0].double().reshape(self.secrets.x.shape)

        def scored(guess: Tensor, truth: Tensor) -> tuple[Scores, NDArray[np.float64]]:
            guesses = self._without_model(truth).values()
            errors = [self.scoring.errors(blind, truth)[self.scoring.headline.name] for blind in guesses]
            return self.scoring.scores(guess, truth), np.asarray(np.minimum.reduce(errors))

        return among_other_rows(scored, x, self.secrets.x, self.others.x, self.scoring.threshold, self.blind)

    def _with_target(self, finding: Finding, known: Tensor | None, proven: Tensor | None) -> Finding:
        """The finding with the targets that come back, beside the most common one of the other rows."""
        y, k = self.others.y, len(self.secrets)
        if known is None or bool((y == y[0]).all()):
            return finding
        if not bool(known.any()):
            return replace(finding, labels_right=np.zeros_like(finding.labels_right), label_errors=None)
        read = targets_right(finding.guess.records.y[:, 0].cpu(), self.secrets.y, y) & known.reshape(k, -1).numpy()
        common = y.double().mean(0) if y.is_floating_point() else y.mode().values
        guessed = targets_right(common.to(y).expand_as(self.secrets.y), self.secrets.y, y)
        certain = np.zeros_like(read) if proven is None else read & proven.reshape(k, -1).numpy()
        target = TargetRead(read, guessed, certain, np.ones(k, dtype=np.bool_))
        cells = None if finding.cells is None else finding.cells.with_target(target)
        return replace(finding, target=target, labels_right=read.all(1), cells=cells)

    def too_few(self, played: Sequence[Played]) -> list[str]:
        """That a guess may be a likeness of its row, and that there are too few other rows for a test of all lines."""
        targets = (line.finding.target for line in played)
        tests = sum(TESTS + (0 if target is None else target.read.shape[1]) for target in targets)
        lucks = [line.finding.luck for line in played]
        near = any(luck is not None and (luck.nearer > 0 or luck.farther > 1 - DOUBTFUL) for luck in lucks)
        needed = math.ceil(tests / LEVEL)
        if len(self.others) >= needed or not near:
            return []
        return [
            f"{len(self.others):,} other {self.noun}s are in both releases; {needed:,} are needed to tell a likeness "
            "of a changed one from chance."
        ]
