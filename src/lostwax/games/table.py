"""One training set that was really used: the adversary of each game knows all its rows but one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lostwax.games.facts import ThreatFacts
from lostwax.games.informed import Informed
from lostwax.games.records import Records


@final
@dataclass(frozen=True, eq=False)
class Table:
    """The third threat, beside Informed and Weak: one release, and as many games as the table has rows.

    There is nothing to deal: in the game about row i the adversary is informed, and what it knows is the rest.
    """

    records: Records
    rows: Tensor | None = None  # those that the release depends on; None: all

    def facts(self) -> ThreatFacts:
        """As in every game: all rows but one are known."""
        return self.without(0).facts()

    @property
    def playable(self) -> Tensor:
        """(n,) the rows that there is a game about."""
        return torch.arange(len(self.records)) if self.rows is None else self.rows

    def draw(self, games: int | None, seed: int) -> Tensor:
        """(m,) which rows are played for, in order; all of them if games is None."""
        rows = self.playable
        if games is None:
            return rows
        return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:games].sort().values]

    def without(self, row: int) -> Informed:
        """The adversary of one game."""
        others = torch.arange(len(self.records)) != row
        return Informed(self.records[others.to(self.records.x.device)])
