"""Each transformer as a small value: what comes back of its inputs from its outputs.

`step_of` gives a function from rebuilt outputs (g, D) to inputs (g, d), cell by cell: exact, one of a set, in an
interval, estimated, or lost. Transformers that are not named here go back through their own `inverse_transform`, and
each column counts as exact only if it does so on the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import preprocessing
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import KNNImputer, SimpleImputer

from lostwax.adapters.sklearn.inputs import dense, is_frame
from lostwax.games import Cells, Kept
from lostwax.records.tables import is_missing

Array = NDArray[Any]
CHECKED = 1_000  # rows of the table on which an inverse is checked
TRIED = 20  # ... on which it is tried at all
AGREES = 1e-6  # of a column's spread: two numbers are the same
PLACES = 513  # of a grid on which splines are looked at
HALVINGS = 80  # of the range in which a number is looked for


Back = Callable[[Cells], Cells]


@singledispatch
def step_of(transformer: Any, inputs: Any, outputs: Any) -> Back:
    """How the outputs of a fitted transformer go back to its inputs; `inputs` and `outputs` are those of the table."""
    width, table = inputs.shape[1], _array(_first(inputs))
    again = _inverse(transformer, _first(outputs), table.shape)
    if again is None:
        return _unchanged(table, _array(_first(outputs)))
    least = _agreement(again, table)
    together = not _by_column(transformer, _first(inputs))
    of_numbers = _array(_first(outputs)).dtype == np.float64

    def back(rebuilt: Cells) -> Cells:
        known = np.where(rebuilt.kept == Kept.LOST, 0.0, rebuilt.values)
        cells = _inverse(transformer, known.astype(np.float64) if of_numbers else known, (len(known), width))
        if cells is None:
            return Cells.lost(len(known), width, object)
        kept = rebuilt.kept.min(1, keepdims=True) if together or rebuilt.kept.shape[1] != width else rebuilt.kept
        return Cells(cells, np.broadcast_to(np.minimum(kept, least), cells.shape).astype(np.uint8))

    return back


@step_of.register(preprocessing.FunctionTransformer)
def _(transformer: Any, inputs: Any, outputs: Any) -> Back:
    """A function of each column without an inverse: the adversary has the function."""
    plain = transformer.func is not None and transformer.inverse_func is None and hasattr(inputs, "__array__")
    if not plain or inputs.shape != outputs.shape or object in (_array(inputs).dtype, _array(outputs).dtype):
        return step_of.dispatch(object)(transformer, inputs, outputs)
    if not _by_column(transformer, _first(inputs)):
        return step_of.dispatch(object)(transformer, inputs, outputs)
    return _searched(transformer, inputs, outputs)


@step_of.register(preprocessing.SplineTransformer)
def _(splines: Any, inputs: Any, outputs: Any) -> Back:
    return _searched(splines, inputs, outputs)


def _searched(transformer: Any, inputs: Any, outputs: Any) -> Back:
    """The number whose outputs are nearest, column by column: on a grid, then by thirds of an interval.

    A function that neither rises nor falls comes back as another number, and counts as lost.
    """
    table = _array(inputs)
    width, size = table.shape[1], outputs.shape[1] // max(1, table.shape[1])
    low, high = np.nanmin(table, 0), np.nanmax(table, 0)  # (d,)
    grid = np.linspace(low, high, PLACES)  # (places, d)

    def distance(numbers: Array, blocks: Array) -> Array:
        """(k, d) from numbers (k, d) as they come out to blocks (k, d, size)."""
        like_inputs = type(inputs)(numbers, columns=inputs.columns) if is_frame(inputs) else numbers
        with np.errstate(all="ignore"):
            basis = _array(transformer.transform(like_inputs)).reshape(len(numbers), width, size)
        return np.asarray(np.nan_to_num(np.abs(basis - blocks).sum(-1), nan=np.inf))

    def back(rebuilt: Cells) -> Cells:
        blocks = rebuilt.values.astype(np.float64).reshape(-1, width, size)
        nearest = [distance(grid, np.nan_to_num(block)).argmin(0) for block in blocks]
        place = np.reshape(np.array(nearest, dtype=np.intp), (len(blocks), width))
        step = grid[1] - grid[0]
        start, end = (np.take_along_axis(grid, place, 0) + np.stack([-step, step])[:, None]).clip(low, high)
        for _ in range(HALVINGS):
            first, second = (2 * start + end) / 3, (start + 2 * end) / 3
            left = distance(first, np.nan_to_num(blocks)) < distance(second, np.nan_to_num(blocks))
            start, end = np.where(left, start, first), np.where(left, second, end)
        numbers = np.where(np.isnan(blocks).any(2), np.nan, (start + end) / 2)
        kept = np.minimum(rebuilt.kept.reshape(blocks.shape).min(2), most)
        return Cells(numbers, kept.astype(np.uint8))

    most = np.full(width, Kept.EXACT, dtype=np.uint8)
    seen = _array(_first(outputs))
    again = back(Cells(seen, np.full(seen.shape, Kept.EXACT, dtype=np.uint8)))
    most = np.where(_agreement(again.values, table[:CHECKED]) == Kept.EXACT, Kept.EXACT, Kept.LOST)
    return back


def goes_back(transformer: Any, back: Back, outputs: Any) -> bool:
    """Does something of each input come back from the outputs of the table? What a selection drops does not count."""
    if isinstance(transformer, SelectorMixin | SimpleImputer | KNNImputer):
        return True
    some = _array(_first(outputs, TRIED))
    kept = back(Cells(some, np.full(some.shape, Kept.EXACT, dtype=np.uint8))).kept
    return bool((kept > Kept.LOST).any(0).all())


def _by_columns(width: int, column_back: Callable[[Cells, int], tuple[Array, Any] | None], kind: Any = object) -> Back:
    """Each input by itself: its values (g,) and what is known of them; None: it is lost."""

    def back(rebuilt: Cells) -> Cells:
        table = Cells.lost(len(rebuilt.values), width, kind)
        for column in range(width):
            if (answer := column_back(rebuilt, column)) is not None:
                table.values[:, column], table.kept[:, column] = answer
        return table

    return back


@step_of.register(preprocessing.OneHotEncoder)
def _(encoder: Any, inputs: Any, outputs: Any) -> Back:
    levels = [_levels(encoder, column) for column in range(len(encoder.categories_))]
    shown = [[level for level in range(len(values)) if level != dropped] for values, _, dropped in levels]
    starts = np.cumsum([0, *map(len, shown)])

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any]:
        (values, sets, dropped), names = levels[column], shown[column]
        block = rebuilt.columns(slice(starts[column], starts[column + 1]))
        scores = np.nan_to_num(block.values.astype(np.float64), nan=-np.inf)
        best = np.array(names)[scores.argmax(1)] if names else np.full(len(scores), dropped)
        if dropped is not None and names:  # the nearest corner: all zeros, or one
            best = np.where(scores.max(1) < 0.5, dropped, best)
        least = block.kept.min(1) if names else np.full(len(scores), Kept.EXACT)
        return values[best], np.minimum(least, np.where(sets[best], Kept.SET, Kept.EXACT))

    return _by_columns(len(levels), column_back)


def _levels(encoder: Any, column: int) -> tuple[Array, NDArray[np.bool_], int | None]:
    """The categories of an encoder's column by level, which levels are sets, and which level has no output.

    Rare categories are one level, the last, of which the first category stands for all.
    """
    categories = objects(encoder.categories_[column])
    every_rare, every_dropped = (getattr(encoder, name, None) for name in ("infrequent_categories_", "drop_idx_"))
    rare = None if every_rare is None or every_rare[column] is None else objects(every_rare[column])
    dropped = None if every_dropped is None else every_dropped[column]
    values, sets = list(categories), [False] * len(categories)
    if rare is not None and len(rare):
        is_rare = [any(_equal(value, name) for name in rare) for value in categories]
        values = [value for value, hidden in zip(categories, is_rare, strict=True) if not hidden]
        if dropped is not None:
            dropped = len(values) if is_rare[dropped] else sum(not hidden for hidden in is_rare[:dropped])
        values, sets = [*values, rare[0]], [False] * len(values) + [True]
    return objects(values), np.array(sets), None if dropped is None else int(dropped)


@step_of.register(preprocessing.OrdinalEncoder)
def _(encoder: Any, inputs: Any, outputs: Any) -> Back:
    levels = [_levels(encoder, column) for column in range(len(encoder.categories_))]

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any]:
        values, sets, _ = levels[column]
        numbers = rebuilt.values[:, column].astype(np.float64)
        missing = np.isnan(numbers) | (np.abs(numbers - encoder.encoded_missing_value) < 0.5)
        place = np.clip(np.rint(np.nan_to_num(numbers)), 0, len(values) - 1).astype(int)
        cells = values[place]
        cells[missing] = np.nan
        return cells, np.minimum(rebuilt.kept[:, column], np.where(sets[place] & ~missing, Kept.SET, Kept.EXACT))

    return _by_columns(len(levels), column_back)


@step_of.register(preprocessing.TargetEncoder)
def _(encoder: Any, inputs: Any, outputs: Any) -> Back:
    """From the number to a category whose rows have it; numbers of a single row are not used."""
    table, encoded = _array(inputs), np.asarray(outputs)
    width = table.shape[1]
    blocks = np.split(encoded, width, 1)
    codes = [_codes(table[:, column], block) for column, block in enumerate(blocks)]

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any]:
        size = blocks[column].shape[1]
        return _category(rebuilt.columns(slice(column * size, (column + 1) * size)), *codes[column])

    return _by_columns(width, column_back)


def _codes(cells: Array, numbers: Array) -> tuple[Array, Array]:
    """Categories (k,) of two rows or more, and the numbers (k, outputs) that they became."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for encoded, value in zip(map(tuple, numbers.tolist()), cells, strict=True):
        rows.setdefault((value, *encoded), []).append(encoded)
    often = [(key[0], each[0]) for key, each in rows.items() if len(each) > 1]
    often = often or [(np.nan, (0.0,) * numbers.shape[1])]
    return objects([value for value, _ in often]), np.array([encoded for _, encoded in often])


def _category(block: Cells, categories: Array, numbers: Array) -> tuple[Array, Any]:
    """The category whose numbers are nearest, and whether it is the only one that has them."""
    seen = np.nan_to_num(block.values.astype(np.float64))
    distance = np.abs(seen[:, None] - numbers).max(2)  # (g, k)
    near = distance <= distance.min(1, keepdims=True) + AGREES * (np.ptp(numbers) + 1e-300)
    several = np.array([len({*map(repr, categories[row])}) > 1 for row in near])
    return categories[distance.argmin(1)], np.minimum(block.kept.min(1), np.where(several, Kept.SET, Kept.EXACT))


def _unchanged(table: Array, outputs: Array) -> Back:
    """Without an inverse: columns whose values come out as they went in, and categories that became a number each.

    Whether a number was filled in is not known where a column has missing values.
    """
    width = table.shape[1]
    if outputs.shape != table.shape:
        return all_lost(width)
    missing = np.array([[is_missing(value) for value in row] for row in table]).reshape(table.shape)
    codes = dict[int, tuple[Array, Array]]()
    most = np.full(width, Kept.LOST, dtype=np.uint8)
    for column, (cells, encoded) in enumerate(zip(table.T, outputs.T, strict=True)):
        here = ~missing[:, column]
        if here.any() and _agreement(encoded[here, None], cells[here, None])[0] == Kept.EXACT:
            most[column] = Kept.EXACT if here.all() else Kept.ESTIMATED
        elif encoded.dtype.kind == "f" and cells.dtype == object and len({*map(repr, cells)}) < len(cells):
            codes[column], most[column] = _codes(cells, encoded[:, None]), Kept.EXACT

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any] | None:
        if column in codes:
            return _category(rebuilt.columns(slice(column, column + 1)), *codes[column])
        return rebuilt.values[:, column], np.minimum(rebuilt.kept[:, column], most[column])

    return _by_columns(width, column_back)


@step_of.register(SimpleImputer)
def _(imputer: Any, inputs: Any, outputs: Any) -> Back:
    """A value equal to the statistic was missing, or is that value: whichever is more frequent in the table."""
    table, statistics = _array(inputs), imputer.statistics_
    valid = [column for column, value in enumerate(statistics) if imputer.keep_empty_features or not is_missing(value)]
    indicated = [] if imputer.indicator_ is None else imputer.indicator_.features_.tolist()
    missing = np.array([[is_missing(value) for value in row] for row in table]).reshape(table.shape)

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any] | None:
        if column not in valid:
            return None
        place, statistic, present = valid.index(column), statistics[column], table[~missing[:, column], column]
        cells, kept = rebuilt.values[:, place], rebuilt.kept[:, place]
        if column in indicated:
            was_missing = rebuilt.values[:, len(valid) + indicated.index(column)].astype(np.float64) > 0.5
        else:
            spread = _spread(present)
            was_missing = _same_as(cells, statistic, spread)
            equal, absent = int(_same_as(present, statistic, spread).sum()), int(missing[:, column].sum())
            kept = np.where(was_missing & (equal > 0) & (absent > 0), np.minimum(kept, Kept.SET), kept)
            was_missing &= absent > equal
        cells = cells.astype(object)
        cells[was_missing] = np.nan
        return cells, kept

    return _by_columns(len(statistics), column_back)


@step_of.register(preprocessing.PolynomialFeatures)
def _(expansion: Any, inputs: Any, outputs: Any) -> Back:
    """Each input is one of the outputs, unless the lowest degree is above one."""
    powers = expansion.powers_  # (outputs, inputs)
    place_of = {int(row.argmax()): place for place, row in enumerate(powers) if row.sum() == 1}

    def column_back(rebuilt: Cells, column: int) -> tuple[Array, Any] | None:
        place = place_of.get(column)
        return None if place is None else (rebuilt.values[:, place], rebuilt.kept[:, place])

    return _by_columns(powers.shape[1], column_back, np.float64)


@step_of.register(SelectorMixin)
def _(selector: Any, inputs: Any, outputs: Any) -> Back:
    support, width = selector.get_support(indices=True), inputs.shape[1]
    return lambda rebuilt: rebuilt.placed(support, width)


@step_of.register(preprocessing.KBinsDiscretizer)
def _(discretiser: Any, inputs: Any, outputs: Any) -> Back:
    """A bin is an interval: its middle."""
    to_bins = step_of(discretiser._encoder, inputs, outputs) if discretiser.encode != "ordinal" else None

    def column_back(bins: Cells, column: int) -> tuple[Array, Any] | None:
        edges = discretiser.bin_edges_[column]
        middles = (edges[1:] + edges[:-1]) / 2
        if not len(middles):  # all bins were too narrow for scikit-learn and removed
            return None
        place = np.rint(np.nan_to_num(bins.values[:, column].astype(np.float64))).clip(0, len(middles) - 1)
        return middles[place.astype(int)], np.minimum(bins.kept[:, column], Kept.INTERVAL)

    back = _by_columns(len(discretiser.bin_edges_), column_back, np.float64)
    return back if to_bins is None else lambda rebuilt: back(to_bins(rebuilt))


def all_lost(width: int) -> Back:
    """Nothing comes back."""
    return lambda rebuilt: Cells.lost(len(rebuilt.values), width, object)


def _inverse(transformer: Any, outputs: Any, shape: tuple[int, ...]) -> Array | None:
    """What its own `inverse_transform` gives; None where it has none, fails, or gives another shape."""
    try:
        cells = _array(transformer.inverse_transform(outputs))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None
    return cells if cells.shape == shape else None


def _by_column(transformer: Any, inputs: Any) -> bool:
    """Does each output depend on one input, the one in its place? Checked by changing one row cell by cell.

    The new value of a cell is another one of its column.
    """
    plain, width = dense(inputs), inputs.shape[1]
    same = [0] * (width + 1)
    several = plain.iloc[same].reset_index(drop=True) if is_frame(plain) else plain[same]
    old, new = (plain.iloc, several.iloc) if is_frame(plain) else (plain, several)
    others = (_array(plain) != _array(plain)[0]).argmax(0)  # (d,) the first row with another value
    for column, row in enumerate(others.tolist()):
        new[column, column] = old[row, column]
    try:
        outputs = _array(transformer.transform(several))
    except (TypeError, ValueError):
        return False
    if outputs.shape != (width + 1, width):
        return False
    changed = outputs[:-1] != outputs[-1]
    return not bool((changed & ~np.eye(len(changed), dtype=bool)).any())


def _first(inputs: Any, rows: int = CHECKED) -> Any:
    return inputs.iloc[:rows] if is_frame(inputs) else inputs[:rows]


def _array(rows: Any) -> Array:
    """Rows as a plain array: float64 where they are numbers, else objects."""
    plain = np.asarray(dense(rows))
    return plain.astype(np.float64) if plain.dtype.kind in "iuf" else plain.astype(object)


def _agreement(again: Array, table: Array) -> NDArray[np.uint8]:
    """(d,) how far an inverse gives the table back, column by column.

    Exact where numbers are equal to rounding and values are equal; estimates are nearer to the numbers than their mean.
    """
    kept = np.full(table.shape[1], Kept.LOST, dtype=np.uint8)
    for column, (ours, theirs) in enumerate(zip(again.T, table.T, strict=True)):
        try:
            numbers = theirs.astype(np.float64)
            off = ours.astype(np.float64) - numbers
        except (TypeError, ValueError):
            equal = all(_equal(a, b) for a, b in zip(ours, theirs, strict=True))
            kept[column] = Kept.EXACT if equal else Kept.LOST
            continue
        if ((np.abs(off) <= AGREES * _spread(numbers)) | (np.isnan(off) & np.isnan(numbers))).all():
            kept[column] = Kept.EXACT
        elif np.sqrt(np.square(off).mean()) < numbers.std():
            kept[column] = Kept.ESTIMATED
    return kept


def _same_as(cells: Array, value: Any, spread: float) -> NDArray[np.bool_]:
    """(n,) which cells are this value."""
    try:
        return np.asarray(np.abs(cells.astype(np.float64) - float(value)) <= AGREES * spread)
    except (TypeError, ValueError):
        return np.array([_equal(cell, value) for cell in cells], dtype=bool)


def _spread(cells: Array) -> float:
    """The standard deviation of numbers, with a part of their size; 1 for all else."""
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        return 1.0
    held = numbers[~np.isnan(numbers)]
    return float(held.std() + 1e-6 * np.abs(held).max() + 1e-300) if len(held) else 1.0


def _equal(one: Any, other: Any) -> bool:
    return (is_missing(one) and is_missing(other)) or bool(one == other)


def objects(values: Sequence[Any] | Array) -> Array:
    """(k,) of any kind of value; times in microseconds, as Python has them: nanoseconds would be bare numbers."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[us]")
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
