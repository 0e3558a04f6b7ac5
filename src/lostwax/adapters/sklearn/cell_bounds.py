"""The way back of bounds: from what trees tell of their inputs to cells of the table.

Each cell is tried *forwards*: a value is possible if the pipeline turns it into inputs that lie within the bounds, in
the precision of the trees. Categories are tried one by one, and the ends of other intervals are found by
bisection. Only inputs that depend on one column of the table, and rise or fall with it, are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lostwax.adapters.sklearn.inputs import is_frame
from lostwax.attacks.trees.cuts import at_rank, middle_rank, rank
from lostwax.games import Cells, Columns, Kept
from lostwax.games.cells import Bools, Bounds, Floats
from lostwax.games.trees import Forest, Ints
from lostwax.records.tables import coded

CHANGED_ROWS = 64  # in which each cell is changed, to see which inputs depend on it
MAX_CHANGED_CELLS = 5_000_000  # of these rows
GRID = 257  # points at which a column is tried, besides its own values
BEYOND = 4  # ranges of a column, below its minimum and above its maximum, within which bounds are looked for
HALVINGS = 64  # of a bisection: down to neighbouring numbers in float64
SLACK = 1e-13  # of an input, which rounding in the steps of a pipeline may change
INSIDE = 1e-4  # of an interval at each end, in which no value is guessed: rounding moved the end
AGREES = 1e-6  # of a column's deviation: an interval as wide is one number
FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

Forward = Callable[[Any], Tensor | None]  # rows of the table -> inputs of the model; None: they are no numbers
Known = tuple[Floats, NDArray[np.uint8], Floats, Floats, Bools]  # (g,) value, kept, low, high, maybe missing


WayBack = tuple[Callable[[Bounds, Cells], Cells], Ints]  # of bounds, and the inputs that it uses


def bounds_to_cells(source: Source, columns: Columns, used: Sequence[int], fitted_on: Tensor) -> WayBack:
    """The way back from bounds of a forest's inputs (g, D) to cells (g, d), the columns `used` of the table.

    The forest was fitted on `fitted_on` (n, D), which the table was turned into. The function is given what is known of
    columns that have no inputs to themselves.
    """
    inputs, cells = source.forest.cast(fitted_on.numpy()), coded(source.X)[0].numpy()
    repeated = source.repeated(inputs)  # (D,)
    most = np.uint8(Kept.EXACT if repeated.all() else Kept.ESTIMATED)  # of what inputs that mix columns tell
    inputs_of = source.inputs_of_columns(repeated, cells)
    listed, measured = dict[int, _Listed](), list[_Measured]()
    for number, column in enumerate(used):
        places = inputs_of.get(column, np.zeros(0, dtype=np.intp))
        if not len(places):
            continue
        values = cells[:, column]
        if columns.categories[number]:
            listed[number] = _Listed.of_values(values, inputs, places)
        elif (levels := source.levels(column, values, inputs, places)) is not None:
            listed[number] = levels
        elif (scale := source.measured(number, column, values, inputs, places)) is not None:
            measured.append(scale)

    def within(bounds: Bounds, others: Cells) -> Cells:
        values, kept, start = others.values.copy(), np.minimum(others.kept, most), others.every_bound()
        low, high, maybe_missing = start.low.copy(), start.high.copy(), start.maybe_missing.copy()
        possible = dict(start.codes)
        known = dict[int, Known]()
        for number, levels in listed.items():
            fits = levels.fits(bounds)
            known[number] = levels.known(fits)
            if count := len(columns.categories[number]):
                possible[number] = levels.codes(fits, count)
        for scale, least, largest in zip(measured, *source.ends(measured, bounds), strict=True):
            known[scale.number] = scale.known(least, largest, bounds)
        for at, column in known.items():
            values[:, at], kept[:, at], low[:, at], high[:, at], maybe_missing[:, at] = column
        return Cells(values, kept, Bounds(low, high, maybe_missing, possible))

    inputs_used = [*(levels.places for levels in listed.values()), *(scale.inputs for scale in measured)]
    return within, np.concatenate([np.zeros(0, dtype=np.intp), *inputs_used])


@dataclass(frozen=True)
class Source:
    """A table, and how it becomes the inputs of a forest."""

    X: Any  # (n, width) frame or array
    forest: Forest
    forward: Forward | None  # None: the forest sees the table itself

    def repeated(self, inputs: Floats) -> Bools:
        """(D,) which inputs the table gives again: not those of a TargetEncoder, which are made by folds."""
        again = inputs if self.forward is None else self._inputs(self.X)
        if again is None or again.shape != inputs.shape:
            return np.zeros(inputs.shape[1], dtype=bool)
        return np.asarray(_equal(again, inputs).all(0))

    def inputs_of_columns(self, repeated: Bools, cells: Floats) -> dict[int, Ints]:
        """The inputs that are `repeated` and depend on one column alone, by the column.

        Seen by changing each cell of some rows to another one of its column. Half of the cells are drawn with every
        value of the column (n, width) equally likely: a product with a rare one is the same nearly everywhere.
        """
        width = self.X.shape[1]
        if self.forward is None:
            return {column: np.array([column]) for column in range(width)}
        draws = np.random.default_rng(0)
        n, rows = len(self.X), int(np.clip(MAX_CHANGED_CELLS // width**2, 4, CHANGED_ROWS))
        base, other = (np.tile(draws.integers(n, size=rows), (width, 1)) for _ in range(2))  # (columns, rows)
        missing = self.X.isna() if is_frame(self.X) else np.asarray(self.X) != np.asarray(self.X)
        gaps = np.flatnonzero(np.asarray(missing).max(1))[: rows // 4]  # rows with a cell that has no value
        base[:, : len(gaps)] = gaps
        for column, values in enumerate(cells.T):
            first = np.unique(values, return_index=True)[1]
            for taken in (base, other):
                taken[column, rows // 2 :] = draws.choice(first, rows - rows // 2)
        takes = np.repeat(base[:, None], width + 1, 1)  # (columns, blocks, rows); the last block is unchanged
        takes[np.arange(width), np.arange(width)] = other
        changed = self._inputs(self._taken(takes.reshape(width, -1)))
        if changed is None or changed.shape[1] != len(repeated):
            return {}
        blocks = changed.reshape(width + 1, rows, -1)
        depends = np.asarray(~_equal(blocks[:-1], blocks[-1:]).all(1))  # (width, D)
        alone = (depends.sum(0) == 1) & repeated
        return {column: np.flatnonzero(depends[column] & alone) for column in range(width)}

    def levels(self, column: int, values: Floats, inputs: Floats, places: Ints) -> _Listed | None:
        """A column of numbers whose values are encoded one by one; None where it has many, or is measured."""
        known = np.unique(values[~np.isnan(values)])
        if self.forward is None or not len(places) or len(known) < 2 or self._of_numbers(column, known) is None:
            return None
        between = np.concatenate([known[:-1] + share * np.diff(known) for share in (1 / 3, 2 / 3)])
        here = self._of_numbers(column, between)
        every = _Listed.of_values(values, inputs, places)
        if here is None:
            return every  # an encoder that refuses other numbers
        other = here[:1][:, every.places]
        is_other = _equal(here[:, every.places], other).all() and not _equal(every.inputs, other).all(1).any()
        return every if is_other else None  # an encoder that has one code for all other numbers

    def measured(self, number: int, column: int, values: Floats, inputs: Floats, places: Ints) -> _Measured | None:
        """A column of numbers with inputs that rise or fall with it."""
        present, points = values[~np.isnan(values)], _grid(values)
        here = self._of_numbers(column, points)
        if here is None or not len(present):
            return None
        here = here[:, places]
        valid = ~np.isnan(here).any(1)
        signs = _monotone(here[valid])
        if not signs.any():
            return None
        is_whole = _dtype(self.X, column).kind in "iu"
        gap = None if is_whole else self._of_numbers(column, np.array([np.nan]))
        unchanged = (here == self.forest.cast(points)[:, None])[:, signs != 0].all(0)
        return _Measured(
            number,
            column,
            inputs=places[signs != 0],
            signs=signs[signs != 0],
            computed=~unchanged,
            sizes=np.nanmedian(np.abs(inputs[:, places[signs != 0]]), 0),
            first=float(points[valid].min()),
            last=float(points[valid].max()),
            spread=float(present.std()),
            is_whole=is_whole,
            places=places,
            gap=None if gap is None else gap[0, places],
            undefined=places[~np.isfinite(here).all(0)],
        )

    def ends(self, measured: Sequence[_Measured], bounds: Bounds) -> tuple[list[Floats], list[Floats]]:
        """The smallest and the largest number (g,) of each column whose inputs lie within the bounds."""
        if not measured:
            return [], []
        starts = np.cumsum([0, *(len(scale.inputs) for scale in measured[:-1])])
        inputs = np.concatenate([scale.inputs for scale in measured])
        rises = np.concatenate([scale.signs for scale in measured]) > 0
        computed = np.concatenate([scale.computed for scale in measured])
        sizes = np.concatenate([scale.sizes for scale in measured])
        low, high = bounds.low[:, inputs], bounds.high[:, inputs]  # (g, inputs)
        first = np.array([scale.first for scale in measured]) + np.zeros((len(low), 1))
        last = np.array([scale.last for scale in measured]) + np.zeros((len(low), 1))

        def tried(x: Floats) -> tuple[Floats, Floats]:
            """The largest and the smallest that inputs may be, rounding included."""
            if self.forward is None:  # one input each, in this order
                return self.forest.cast(x), self.forest.cast(x)
            given = self._numbers(self._with_numbers([scale.column for scale in measured], x))
            seen = np.full((len(x), len(inputs)), np.nan) if given is None else given[:, inputs]  # NaN: not excluded
            slack = SLACK * (np.abs(seen) + sizes) * computed
            return self.forest.cast(seen + slack), self.forest.cast(seen - slack)

        def too_low_and_high(x: Floats, y: Floats) -> tuple[Bools, Bools]:
            (most_x, most_y), (least_x, least_y) = (np.split(ends, 2) for ends in tried(np.concatenate([x, y])))
            under, over = np.where(rises, most_x < low, least_x > high), np.where(rises, least_y > high, most_y < low)
            return np.logical_or.reduceat(under, starts, axis=1), np.logical_or.reduceat(over, starts, axis=1)

        bounded_below, bounded_above = too_low_and_high(first, last)
        below, above = (first, last), (last, first)  # a number that is excluded, and one that is not
        for _ in range(HALVINGS):
            # half-way in the order of all numbers of float64, so that a bisection ends whatever their size
            middles = [at_rank(middle_rank(rank(excluded), rank(possible))) for excluded, possible in (below, above)]
            low_out, high_out = too_low_and_high(*middles)
            below = np.where(low_out, middles[0], below[0]), np.where(low_out, below[1], middles[0])
            above = np.where(high_out, middles[1], above[0]), np.where(high_out, above[1], middles[1])
        lowest, highest = np.where(bounded_below, below[1], -np.inf), np.where(bounded_above, above[1], np.inf)
        return list(lowest.T), list(highest.T)

    def _of_numbers(self, column: int, values: Floats) -> Floats | None:
        """The inputs (g, D) of the first row with other numbers (g,) in a column; None where they are not taken."""
        if self.forward is None:
            rows = np.zeros((len(values), self.X.shape[1]))
            rows[:, column] = values
            return self.forest.cast(rows)
        return self._inputs(self._with_numbers([column], values[:, None]))

    def _with_numbers(self, columns: Sequence[int], values: Floats) -> Any:
        """The first row of the table, several times, with numbers (g, k) in some columns."""
        first_row = np.zeros((self.X.shape[1], len(values)), dtype=np.intp)
        return self._taken(first_row, dict(zip(columns, values.T, strict=True)))

    def _taken(self, takes: Ints, numbers: Mapping[int, Floats] = MappingProxyType({})) -> Any:
        """Rows whose cells are those of the rows `takes` (width, g), column by column; and numbers in some columns."""
        if is_frame(self.X):
            rows = self.X.iloc[takes[0]].reset_index(drop=True)
            for column, take in enumerate(takes):
                kind = np.float32 if _dtype(self.X, column) == np.float32 else np.float64
                cells = numbers[column].astype(kind) if column in numbers else self.X.iloc[take, column].array
                rows.isetitem(column, cells)
            return rows
        plain = np.asarray(self.X)
        is_whole = plain.dtype.kind in "iub"
        rows = np.empty((takes.shape[1], plain.shape[1]), dtype=np.float64 if is_whole and numbers else plain.dtype)
        for column, take in enumerate(takes):
            rows[:, column] = numbers.get(column, plain[take, column])
        return rows

    def _inputs(self, rows: Any) -> Floats | None:
        numbers = self._numbers(rows)
        return None if numbers is None else self.forest.cast(numbers)

    def _numbers(self, rows: Any) -> Floats | None:
        """What the pipeline gives; None where it refuses the rows."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                inputs = None if self.forward is None else self.forward(rows)
        except FAILURES:
            return None
        return None if inputs is None else inputs.numpy()


@dataclass(frozen=True)
class _Listed:
    """A column of few values: each with its inputs."""

    values: Floats  # (k,) numbers or codes; NaN: missing
    inputs: Floats  # (k, places)
    places: Ints  # which inputs these are

    @classmethod
    def of_values(cls, values: Floats, inputs: Floats, places: Ints) -> _Listed:
        """Every value of a column, with the inputs of the rows that have it."""
        each, first, place = np.unique(values, return_index=True, return_inverse=True)
        places = places[_equal(inputs[:, places], inputs[first][place][:, places]).all(0)]  # by the value alone
        return cls(each, inputs[first][:, places], places)

    def fits(self, bounds: Bounds) -> Bools:
        """(g, k) which values have inputs within the bounds; all of them where none has."""
        fits = np.ones((len(bounds.low), len(self.values)), dtype=bool)
        for number, inputs in zip(self.places, self.inputs.T, strict=True):
            fits &= _within(bounds, number, inputs)
        return fits | ~fits.any(1, keepdims=True)

    def known(self, fits: Bools) -> Known:
        """The values that are left: the one in their middle, and the limits of all."""
        left = fits & ~np.isnan(self.values)
        counts, gaps = left.sum(1), np.asarray((fits & np.isnan(self.values)).any(1))
        low = np.where(left, self.values, np.inf).min(1)
        high = np.where(left, self.values, -np.inf).max(1)
        middle = ((left.cumsum(1) == (counts[:, None] + 1) // 2) & left).argmax(1)
        exact = (counts == 0) | ((counts == 1) & ~gaps)
        kept = np.select([fits.all(1), exact], [Kept.LOST, Kept.EXACT], Kept.SET)
        none = (kept == Kept.LOST) | (counts == 0)
        values = np.where(none, np.nan, self.values[middle])
        return values, kept.astype(np.uint8), np.where(none, -np.inf, low), np.where(none, np.inf, high), gaps

    def codes(self, fits: Bools, count: int) -> Bools:
        """(g, codes) which categories are possible."""
        possible, has_code = np.zeros((len(fits), count), dtype=bool), ~np.isnan(self.values)
        possible[:, self.values[has_code].astype(int)] = fits[:, has_code]
        return possible


@dataclass(frozen=True)
class _Measured:
    """A column of numbers, with inputs that rise (1) or fall (-1) with it."""

    number: int  # of the column among those of the cells
    column: int  # ... of the table
    inputs: Ints
    signs: Ints
    computed: Bools  # which are computed, with rounding; the others are the number itself
    sizes: Floats  # of each input, for its rounding
    first: float  # numbers between which it is looked for
    last: float
    spread: float
    is_whole: bool  # it holds whole numbers
    places: Ints  # all inputs that depend on it alone
    gap: Floats | None  # ... and what they are without a value
    undefined: Ints  # ... and those that some numbers have no value of: the logarithm of a negative one

    def known(self, low: Floats, high: Floats, bounds: Bounds) -> Known:
        """The number between two others (g,): exact if the forest sees it exactly, and it can tell it from others."""
        missing = np.full(len(low), self.gap is not None)
        if self.gap is not None:
            for number, value in zip(self.places, self.gap, strict=True):
                missing &= _within(bounds, number, np.array([value]))[:, 0]
        if self.is_whole:
            low, high = np.ceil(low), np.floor(high)
        undefined = bounds.maybe_missing[:, self.undefined].any(1)
        none = (low > high) & ~undefined  # only a missing value is left
        low, high = np.where(none | undefined, -np.inf, low), np.where(none | undefined, np.inf, high)
        size = np.maximum(np.abs(low), np.abs(high))
        with np.errstate(invalid="ignore"):
            narrow = high - low <= AGREES * self.spread + 2 * np.finfo(np.float32).eps * size
        seen = (bounds.low[:, self.inputs] == bounds.high[:, self.inputs]).any(1)
        single = low == high if self.is_whole else narrow & seen & np.isfinite(size)
        kept = np.select(
            [none & missing, single & ~missing, single, np.isfinite(low) | np.isfinite(high)],
            [Kept.EXACT, Kept.EXACT, Kept.SET, Kept.INTERVAL],
            Kept.LOST,
        )
        return np.where(none, np.nan, _shortest(low, high)), kept.astype(np.uint8), low, high, missing


def _within(bounds: Bounds, number: int, values: Floats) -> Bools:
    """(g, k) which values of an input are within its bounds."""
    codes = bounds.codes.get(number)
    if codes is None:
        with np.errstate(invalid="ignore"):
            fits = (values >= bounds.low[:, number, None]) & (values <= bounds.high[:, number, None])
    else:
        place = np.nan_to_num(values).astype(int)
        inside = (place >= 0) & (place < codes.shape[1])
        fits = codes[:, np.where(inside, place, 0)] | ~inside
    return np.where(np.isnan(values), bounds.maybe_missing[:, number, None], fits)


def _grid(values: Floats) -> Floats:
    """Points at which a column is tried: its values, and others up to some ranges beyond them."""
    known = np.unique(values[~np.isnan(values)])
    if not len(known):
        return known
    size = (known[-1] - known[0]) or max(1.0, abs(known[0]))
    some = known[np.linspace(0, len(known) - 1, min(len(known), 1_000)).astype(int)]
    beyond = np.linspace(known[0] - BEYOND * size, known[-1] + BEYOND * size, GRID)
    return np.unique(np.concatenate([some, np.linspace(known[0], known[-1], GRID), beyond]))


def _monotone(inputs: Floats) -> Ints:
    """(own,) 1 where an input rises along the points (k, own), -1 where it falls, 0 where it does neither."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(inputs, axis=0)
        up, down = (inputs[1:] >= inputs[:-1]).all(0), (inputs[1:] <= inputs[:-1]).all(0)
    return np.where(up & (steps > 0).any(0), 1, np.where(down & (steps < 0).any(0), -1, 0))


def _shortest(low: Floats, high: Floats) -> Floats:
    """(g,) the number with the fewest decimals between two others; their middle where it takes too many."""
    with np.errstate(invalid="ignore", over="ignore"):
        middle = (low + high) / 2
        low, high = low + INSIDE * (high - low), high - INSIDE * (high - low)
        shortest = np.where(np.isfinite(middle), middle, np.where(np.isfinite(low), low, high))
        for decimals in range(17, -4, -1):
            rounded = np.round(middle, decimals)
            shortest = np.where((rounded >= low) & (rounded <= high), rounded, shortest)
    return np.where(np.isinf(shortest), np.nan, shortest)


def _equal(left: Floats, right: Floats) -> Bools:
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))


def _dtype(X: Any, column: int) -> Any:
    return X.dtypes.iloc[column] if is_frame(X) else np.asarray(X).dtype
