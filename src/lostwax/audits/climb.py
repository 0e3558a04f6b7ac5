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
from lostwax.attacks.closed_form.stored import row_keys
from lostwax.attacks.trees import several_missing
from lostwax.attacks.whole_table import Search, WholeTable
from lostwax.audits.conclusion import Rung
from lostwax.audits.play import Settings
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Columns, Extremes, Fitted, Kept, Part, ReleasedTable
from lostwax.games.cells import Bools, Floats
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
SEARCH = "search of the file"
FEWEST_VALUES = 10  # of a column: the extremes of one with fewer are no news
NAMES = 0.5  # of the rows have a value of a column that no other row has: it names them
BINARY = np.array([0.0, 1.0])


def rung_of_anyone(released: ReleasedTable, threshold: float) -> Rung:
    """What anybody reads who opens the file: every row that it holds, in the units of the table, and its extremes.

    The audits of tables find these by comparing the file with the table (`adapters/sklearn/scan.py`). That they are
    there is a property of the file: whoever opens it sees the same numbers, with the scaler beside them that puts them
    back into their units. A class with a single row is held too: its mean, or its counts, are that row.
    """
    n, sample = len(released.table), released.sample
    attacker = Adversary(0, n if sample is None else sample.population, "row")
    rung = Rung(attacker, Grade.NOT_FOUND, SEARCH, tried=n, games=0 if sample is None else n)
    extremes = sum(_unique_extremes(part, ends) for part in released.parts for ends in part.fitted.extremes)
    if any(part.fitted.stored or part.fitted.sums for part in released.parts):
        cells_held, is_rebuilt = _cells_held(released, threshold)
        won, singles = int(is_rebuilt.sum()), extremes + int(cells_held.sum())
        if won:
            return replace(rung, grade=Grade.EXACT, rebuilt=won, certified=won, cells=extremes)
        if (cells_held > 1).any() or (cells_held > 0).mean() >= NAMES:
            return replace(rung, grade=Grade.RECOGNISABLE, cells=singles)
        extremes = singles
    if extremes:
        return replace(rung, grade=Grade.BETTER_THAN_CHANCE, cells=extremes)
    if unread := (*released.unread, *released.attached):
        return replace(rung, grade=Grade.UNDECIDED, reason=" ".join(unread))
    return rung


def _cells_held(released: ReleasedTable, threshold: float) -> tuple[Ints, Bools]:
    """(n,) how many cells of each row the file holds, and which rows come back from it within the threshold.

    A cell that is guessed can be right by chance: it counts as wrong by a standard deviation.
    """
    table, n = released.table, len(released.table)
    cells = Cells.lost(n, table.x.shape[1])
    for part in released.parts:
        for rows, values in _rows_held(part, n):
            cells = cells.or_else(_at(part.back(values), rows, n))
    blind = released.columns.blind(table.x, torch.arange(n))
    scoring = Scoring.of_cells(table.x, released.columns, threshold)
    errors = scoring.scores(cells.filled(blind), table.x).criterion
    is_held = np.asarray(cells.kept > Kept.LOST)
    guessed = ~is_held & (table.x != table.x[0]).any(0).numpy()
    return is_held.sum(1), is_held.any(1) & (errors <= threshold) & (guessed.mean(1) <= threshold**2)


def _rows_held(part: Part, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each array of stored rows, the rows of the release (k,) that are in it, and their values in this part.

    A list of categories holds a value once, however many rows have it: it tells of rows that are alone with theirs.
    """
    rows = torch.arange(len(part.fitted.table)) if part.rows is None else part.rows
    table, weight = part.fitted.table[rows], part.fitted.weight[rows]
    seen = table.x
    for sums in part.fitted.sums:
        member = sums.membership(table.y, weight) > 0  # (n, groups)
        groups = (member.sum(0) == 1) & (sums.counts > 0)
        rows = member[:, groups].int().argmax(0)
        if len(rows) and len(seen) == n:
            yield rows, (sums.totals / sums.counts[:, None])[groups]
    for stored in part.fitted.stored:
        values = seen.to(stored.x.dtype)
        distinct, key = np.unique(np.concatenate([row_keys(values), row_keys(stored.x)]), return_inverse=True)
        times, times_stored = (np.bincount(of, minlength=len(distinct)) for of in np.split(key, [len(values)]))
        enough = times if stored.x.shape[1] == 1 else 1
        rows = torch.from_numpy(np.flatnonzero((times_stored >= enough)[key[: len(values)]]))
        if len(rows) and len(seen) == n:
            yield rows, values[rows].to(seen.dtype)


def _at(cells: Cells, rows: Tensor, n: int) -> Cells:
    """The cells of some rows among those of all n."""
    every = Cells.lost(n, cells.values.shape[1])
    every.values[rows.numpy()], every.kept[rows.numpy()] = cells.values, cells.kept
    return every


def _unique_extremes(part: Part, extremes: Extremes) -> int:
    """How many values of single rows are the published minimum or maximum of a column that has many values."""
    x = part.fitted.table.x
    alone = ((x == extremes.low.to(x)).sum(0) == 1).long() + ((x == extremes.high.to(x)).sum(0) == 1).long()
    many = torch.tensor([len(torch.unique(column)) >= FEWEST_VALUES for column in x.unbind(1)])
    return int((alone * many).sum())


class Public(NamedTuple):
    """What the adversary is assumed to know of the columns."""

    binary: Bools  # (d,) hold 0 and 1, and nothing else
    one_hot: tuple[tuple[int, ...], ...]  # neighbouring ones, of which each row has exactly one 1

    @classmethod
    def of(cls, x: Floats) -> Public:
        """Of a table."""
        binary: Bools = np.asarray(np.isin(x, BINARY).all(0))
        groups, start = list[tuple[int, ...]](), 0
        while start < x.shape[1]:
            sums = np.cumsum(x[:, start:], axis=1)  # (n, columns from here on)
            ends = np.flatnonzero((sums == 1).all(0) & np.cumprod(binary[start:], dtype=bool))
            width = int(ends[0]) + 1 if len(ends) else 1
            if width > 1:
                groups.append(tuple(range(start, start + width)))
            start += width
        return cls(binary, tuple(groups))

    @property
    def values(self) -> dict[int, Floats]:
        """The values of columns where they are public."""
        return dict.fromkeys(np.flatnonzero(self.binary).tolist(), BINARY)

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """All columns, those of a group together."""
        grouped = {column for group in self.one_hot for column in group}
        return [*self.one_hot, *((column,) for column in range(len(self.binary)) if column not in grouped)]

    def notes(self, columns: Columns) -> list[str]:
        """What is assumed, in words."""
        notes = []
        if self.binary.any():
            notes.append(f"assumed public: these hold 0 or 1: {columns.listed(np.flatnonzero(self.binary).tolist())}.")
        notes += [f"assumed public: exactly one of these is 1: {columns.listed(group)}." for group in self.one_hot]
        if not self.binary.all():
            notes.append("of other columns, trees tell only between which two thresholds a value lies.")
        return notes


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
