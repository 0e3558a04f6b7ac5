"""Climb the ladder of a fitted model: everybody who has less than the insider of its games.

Insiders who miss several rows solve the equations with as many rows missing, or the counts of the trees. Each rung is
small work beside the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom
from torch import Tensor

from lostwax.attacks.closed_form.missing_rows import missing_rows, most_missing
from lostwax.attacks.trees import several_missing
from lostwax.attacks.whole_table import Search, WholeTable
from lostwax.audits.ladder import Rung
from lostwax.audits.opened_trees import Public
from lostwax.audits.play import Settings
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Fitted, Kept, Part, ReleasedTable
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
EQUATIONS, TREES = "ClosedForm, several rows missing", "TreeConstraints, several rows missing"
# of the search for rows with the counts of all trees, and as long again to prove that they are the only ones, where it
# is asked for, and elsewhere
SECONDS, FEW_SECONDS, PLACES = 2.0, 0.2, 2_000
# numbers in equations, and nodes of trees: more take long, and are solved in many games, or solved, or tried only where
# that is asked for
NUMBERS, NODES = (300, 2_000, 20_000), (0, 8_000, 1_000_000)


class SolvableTable(NamedTuple):
    """A table of which any rows may be missing, and the attack that solves for them."""

    attack: str
    x: Tensor  # (n, d)
    rows: Ints  # that may be missing
    worst_fitted: Ints
    most: int  # missing rows that it should find
    size: int
    sizes: tuple[int, int, int]
    solve: Callable[[Tensor], tuple[Tensor, Bools]]  # games (g, k) -> rows (g, k, d) in no order, which are certified

    @classmethod
    def of_equation(cls, fitted: Fitted, settings: Settings) -> SolvableTable:
        """Equations of a linear model, of sums, or of both."""
        numbers = sum(sums.total().numel() for sums in fitted.sums)
        numbers += 0 if fitted.model is None else fitted.model.total().numel()
        rows, is_feasible = np.flatnonzero((fitted.weight > 0).numpy()), numbers <= NUMBERS[-1]
        worst, most = (_worst_fitted(fitted, rows), most_missing(fitted)) if is_feasible else (rows[:0], 1)

        def solve(games: Tensor) -> tuple[Tensor, Bools]:
            answer = missing_rows(fitted, games, seed=settings.seed)
            return answer.records.x, answer.certified.numpy()

        return cls(EQUATIONS, fitted.table.x, rows, worst, most, numbers, NUMBERS, solve)

    @classmethod
    def of_trees(cls, released: ReleasedTable, part: Part, settings: Settings) -> SolvableTable | None:
        """Counts of trees; columns that hold 0 and 1, and nothing else, are public. None without a way to the table."""
        forest, within, x = part.fitted.forest, part.within, released.table.x
        if forest is None or within is None or released.sample is not None:
            return None
        public, varies = Public.of(part.fitted.table.x.numpy()), (x.nan_to_num() != x[0].nan_to_num()).any(0).numpy()
        solver = WholeTable(Search(SECONDS if _asked_for(settings) else FEW_SECONDS, 1), PLACES)

        def solve(games: Tensor) -> tuple[Tensor, Bools]:
            guesses, certified = [], []
            for rows in games:
                numbers = rows if part.rows is None else part.rows[rows]
                bounds, proven = several_missing(
                    part.fitted,
                    numbers.numpy(),
                    public.values,
                    public.one_hot,
                    solver=solver,
                )
                known = x.clone()
                known[rows] = torch.nan
                cells = released.columns.likeliest(within(bounds), known, rows)
                guesses.append(cells.filled(released.columns.blind(known, rows)))
                certified.append(proven & (cells.kept == Kept.EXACT)[:, varies].all(1))
            return torch.stack(guesses), np.stack(certified)

        rows, size = np.flatnonzero((released.weight > 0).numpy()), sum(len(tree.feature) for tree in forest.trees)
        return cls(TREES, x, rows, rows[:0], 1, size, NODES, solve)


def rungs_of_insiders(solvable: SolvableTable, scoring: Scoring, settings: Settings, population: int) -> Iterator[Rung]:
    """Insiders who miss 2, 4, 8, ... rows: as many as there are equations for, then more until none comes back.

    Beyond the count a row can still come back that stands out: its share of the sum is nearly all. So where nothing
    comes back in random games, these are continued, and the rows that the model fits worst are tried.
    """
    is_asked = _asked_for(settings)
    size, (many_games, quick, feasible), most = solvable.size, solvable.sizes, solvable.most
    if size > (feasible if is_asked else quick):
        what = "equations are" if solvable.attack == EQUATIONS else "trees are"
        reason = "" if is_asked else f'Its {what} large: allow max_minutes, or name attackers=["insider"].'
        yield Rung(Adversary.insider(population, "row", missing=2), None, solvable.attack, reason=reason)
        return
    enough = ENOUGH if is_asked or size <= many_games else GAMES
    for missing in _numbers(most):
        if 2 * missing > len(solvable.rows):
            return
        attacker = Adversary.insider(population, "row", missing=missing)
        draws = [
            generator(settings.seed, "missing rows", missing, game).permutation(solvable.rows)[:missing]
            for game in range(enough)
        ]
        random = torch.from_numpy(np.stack(draws))  # (g, k)
        chosen = [np.append(row, np.setdiff1d(draws[0], row)[: missing - 1]) for row in solvable.worst_fitted]
        try:
            with progress(f"{missing} rows missing"):
                played = _Played.of(solvable, random[:GAMES], scoring)
                if enough > GAMES and not played.beats_luck(scoring):
                    played = played.and_more(_Played.of(solvable, random[GAMES:], scoring))
                counts, standing_out = played.beats_luck(scoring), 0
                if len(chosen) and not counts:
                    worst = _Played.of(solvable, torch.from_numpy(np.stack(chosen)), scoring).back[:, 0]
                    standing_out = 0 if played.chance(scoring) * len(worst) > LEVEL else int(worst.sum())
        except ValueError as error:
            yield Rung(attacker, None, solvable.attack, reason=str(error))
            return
        rebuilt = int(played.back.sum()) if counts else 0
        rung = Rung(
            attacker,
            Grade.EXACT if rebuilt or standing_out else Grade.NOT_FOUND,
            solvable.attack,
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


def _asked_for(settings: Settings) -> bool:
    return settings.attackers is not None or settings.max_minutes is not None


class _Played(NamedTuple):
    """Games in which several rows were missing."""

    x: Tensor  # (n, d) of the table
    games: Tensor  # (g, k) its rows
    guesses: Tensor  # (g, k, d)
    back: Bools  # (g, k)
    certified: Bools  # (g, k)

    @classmethod
    def of(cls, solvable: SolvableTable, games: Tensor, scoring: Scoring) -> _Played:
        guesses, certified = solvable.solve(games)
        back = _rebuilt(guesses, games, solvable.x, scoring)
        return cls(solvable.x, games, guesses, back, back & certified)

    def and_more(self, more: _Played) -> _Played:
        """These games, and more about the same table."""
        games, guesses = torch.cat([self.games, more.games]), torch.cat([self.guesses, more.guesses])
        back, certified = np.concatenate([self.back, more.back]), np.concatenate([self.certified, more.certified])
        return _Played(self.x, games, guesses, back, certified)

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
