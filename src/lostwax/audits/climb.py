"""Climb the ladder of a fitted model: everybody who has less than the insider of its games.

Insiders who miss several rows solve the equations with as many rows missing. Each rung is small work beside the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom
from torch import Tensor

from lostwax.attacks.closed_form.missing_rows import missing_rows, most_missing
from lostwax.audits.ladder import Rung
from lostwax.audits.play import Settings
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Columns, Fitted
from lostwax.games.cells import Bools
from lostwax.games.trees import Ints
from lostwax.grades import Grade
from lostwax.progress import progress
from lostwax.seeds import generator

GAMES = 5  # for each number of missing rows
ENOUGH = 30  # of games, to find nothing
SHIFTS = 5  # of games against each other, to see what luck gives
LEVEL = 0.01  # probability by luck of what counts
WORST_FITTED = 2  # rows that are tried where nothing comes back of others
MOST = 64  # missing rows
# numbers in the equations: more take long, and are solved, or solved in many games, only where that is asked for
MANY_GAMES, QUICK, FEASIBLE = 300, 2_000, 20_000
EQUATIONS = "ClosedForm, several rows missing"


def rungs_of_insiders(fitted: Fitted, columns: Columns, settings: Settings, population: int) -> Iterator[Rung]:
    """Insiders who miss 2, 4, 8, ... rows: as many as there are equations for, then more until none comes back.

    Beyond the count a row can still come back that stands out: its share of the sum is nearly all. So where nothing
    comes back in random games, these are continued, and the rows that the model fits worst are tried.
    """
    table, seed = fitted.table, settings.seed
    is_asked = settings.attackers is not None or settings.max_minutes is not None
    numbers = sum(sums.total().numel() for sums in fitted.sums)
    numbers += 0 if fitted.model is None else fitted.model.total().numel()
    if numbers > (FEASIBLE if is_asked else QUICK):
        reason = "" if is_asked else 'Its equations are large: allow max_minutes, or name attackers=["insider"].'
        yield Rung(Adversary.insider(population, "row", missing=2), None, EQUATIONS, reason=reason)
        return
    most, scoring = most_missing(fitted), Scoring.of_cells(table.x, columns, settings.threshold)
    playable = np.flatnonzero((fitted.weight > 0).numpy())
    worst_fitted = _worst_fitted(fitted, playable)
    enough = ENOUGH if is_asked or numbers <= MANY_GAMES else GAMES
    for missing in _numbers(most):
        if 2 * missing > len(playable):
            return

        draws = [
            generator(seed, "missing rows", missing, game).permutation(playable)[:missing] for game in range(enough)
        ]
        random = torch.from_numpy(np.stack(draws))  # (g, k)
        chosen = [np.append(row, np.setdiff1d(draws[0], row)[: missing - 1]) for row in worst_fitted]
        with progress(f"{missing} rows missing"):
            played = _Played.of(fitted, random[:GAMES], seed, scoring)
            if enough > GAMES and not played.beats_luck(scoring):
                played = _Played.of(fitted, random, seed, scoring)
            counts, standing_out = played.beats_luck(scoring), 0
            if len(chosen) and not counts:
                worst = _Played.of(fitted, torch.from_numpy(np.stack(chosen)), seed, scoring).back[:, 0]
                standing_out = 0 if played.chance(scoring) * len(worst) > LEVEL else int(worst.sum())
        rebuilt = int(played.back.sum()) if counts else 0
        rung = Rung(
            Adversary.insider(population, "row", missing=missing),
            Grade.EXACT if rebuilt or standing_out else Grade.NOT_FOUND,
            EQUATIONS,
            rebuilt,
            played.back.size,
            int(played.certified.sum()) if counts else 0,
            games=len(played.back),
            worst_fitted=standing_out,
            reason=f"{played.back.sum()} rows are as near as luck brings some."
            if played.back.any() and not counts
            else "",
        )
        if not rung.leaks and rung.games < ENOUGH:
            few = f'{rung.games} games are too few to find nothing: allow max_minutes, or name attackers=["insider"].'
            rung = replace(rung, grade=Grade.UNDECIDED, reason=few)
        yield rung
        if missing > most and not rung.leaks:
            return


class _Played(NamedTuple):
    """Games in which several rows were missing."""

    x: Tensor  # (n, d) of the table
    games: Tensor  # (g, k) its rows
    guesses: Tensor  # (g, k, d)
    back: Bools  # (g, k)
    certified: Bools  # (g, k)

    @classmethod
    def of(cls, fitted: Fitted, games: Tensor, seed: int, scoring: Scoring) -> _Played:
        answer, x = missing_rows(fitted, games, seed=seed, rehearsals=0), fitted.table.x
        back = _rebuilt(answer.records.x, games, x, scoring)
        return cls(x, games, answer.records.x, back, back & answer.certified.numpy())

    def chance(self, scoring: Scoring) -> float:
        """How often luck brings a guess near a row: the guesses of other games, in which the row is not missing."""
        lucky, tried = 1, 1
        for shift in range(1, min(SHIFTS, len(self.games) - 1) + 1):
            others = self.games.roll(shift, 0)
            is_known = ~(self.games[:, :, None] == others[:, None]).any(2).numpy()
            lucky += int((_rebuilt(self.guesses.roll(shift, 0), self.games, self.x, scoring) & is_known).sum())
            tried += int(is_known.sum())
        return lucky / tried

    def beats_luck(self, scoring: Scoring) -> bool:
        """Whether more rows come back than luck may bring; one that is certified is enough."""
        if self.certified.any() or not self.back.any():
            return bool(self.certified.any())
        return bool(binom.sf(self.back.sum() - 1, self.back.size, self.chance(scoring)) <= LEVEL)


def _worst_fitted(fitted: Fitted, playable: Ints) -> Ints:
    """The rows with the largest residuals, of which several missing rows' sum shows most."""
    rows = torch.from_numpy(playable)
    if fitted.model is None:
        return playable[:0]
    r, _ = fitted.model.factors(fitted.table[rows], fitted.weight[rows])
    worst: Ints = playable[r.norm(dim=1).argsort(descending=True)[:WORST_FITTED].numpy()]
    return worst


def _numbers(most: int) -> Iterator[int]:
    """2, 4, 8, ..., as many rows as there are equations for, one more, and on."""
    yield from (2**power for power in range(1, most.bit_length()) if 2**power < most)
    if most > 1:
        yield most
    yield most + 1
    yield from (2**power for power in range((most + 1).bit_length(), MOST.bit_length()))


def _rebuilt(guesses: Tensor, games: Tensor, x: Tensor, scoring: Scoring) -> Bools:
    """(g, k) which missing rows come back, by the best pairing of guesses (g, k, d), and are near no other row."""
    k, won = games.shape[1], []
    for guess, rows in zip(guesses, games, strict=True):
        errors = scoring.scores(guess.repeat(k, 1), x[rows].repeat_interleave(k, 0)).criterion.reshape(k, k)
        won.append(errors[linear_sum_assignment(errors)] <= scoring.threshold)  # (k,) of the rows, in their order
    nearest = torch.from_numpy(scoring.nearest_known(x, games.flatten()).rows)
    had = scoring.scores(x[nearest], x[games.flatten()]).criterion <= scoring.threshold
    return np.asarray(np.stack(won) & ~had.reshape(games.shape))
