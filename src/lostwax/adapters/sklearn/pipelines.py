"""The way through a fitted pipeline: what each part publishes about its inputs, and their way back to the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial, singledispatch
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from torch import Tensor

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.cell_bounds import Source, bounds_to_cells
from lostwax.adapters.sklearn.inputs import columns_at, dense, fewer_rows, is_dropped, is_frame, is_sparse, published
from lostwax.adapters.sklearn.scan import scan
from lostwax.adapters.sklearn.steps import Back, all_lost, goes_back, objects, step_of
from lostwax.games import (
    Cells,
    Columns,
    Fitted,
    Kept,
    Noted,
    Part,
    Present,
    Records,
    ReleasedTable,
    Stored,
    Sums,
)
from lostwax.games.fitted import Transformed
from lostwax.games.folding import SparseFitted, SparseRecords
from lostwax.games.notes import total_of_all_rows
from lostwax.games.trees import Bounds, Ints
from lostwax.records.tables import coded, codes_of

LARGE = 20_000_000  # cells of a sparse matrix that is not made dense: 160 MB in float64
FEW = 5  # rows: a value that fewer have may name people
AGREES = 1e-9  # relative to a column's spread: a mean is that of this table

AT_TRAINING = re.compile(  # of scikit-learn and category_encoders
    r"\b(Target|WOE|LeaveOneOut|CatBoost|MEstimate|JamesStein|GLMM|Quantile)Encoder|sample_posterior=True"
)

Transform = Callable[[Any], Any]


class Units(NamedTuple):
    """The rows at a place as an affine map of the rows of a table of numbers: (x - shift) / scale."""

    table: Tensor  # (n, d)
    shift: Tensor  # (d,)
    scale: Tensor  # (d,)

    def after(self, scaler: Any) -> Units | None:
        """Those after a scaler; None after any other step."""
        centre, spread = torch.zeros_like(self.shift), torch.ones_like(self.scale)
        if isinstance(scaler, MinMaxScaler):
            spread = 1 / torch.from_numpy(published(scaler, "scale_"))
            centre = -torch.from_numpy(published(scaler, "min_")) * spread
        elif isinstance(scaler, StandardScaler):
            centre = torch.from_numpy(published(scaler, "mean_")) if scaler.with_mean else centre
            spread = torch.from_numpy(published(scaler, "scale_")) if scaler.with_std else spread
        else:
            return None
        return self._replace(shift=self.shift + centre * self.scale, scale=self.scale * spread)

    def stated(self, fitted: Fitted) -> Fitted | None:
        """What a part tells of the rows of the table: its equations, and extremes if no scaler rounded them."""
        model, unscaled = fitted.model, bool((self.shift == 0).all() and (self.scale == 1).all())
        if fitted.forest is not None or fitted.hazards is not None:
            return None
        if model is not None:
            model = replace(model, shift=self.shift + model.shift * self.scale, scale=self.scale * model.scale)
        sums = tuple(
            replace(each, totals=each.totals * self.scale + each.counts[:, None] * self.shift) for each in fitted.sums
        )
        table, extremes = Records(self.table, fitted.table.y), fitted.extremes if unscaled else ()
        return replace(fitted, table=table, model=model, sums=sums, extremes=extremes)


@dataclass(frozen=True)
class Place:
    """A place in a pipeline: the rows of the table as they arrive there, and their way back to the table."""

    rows: Any  # (n, D) frame, array or sparse matrix
    back: Back  # rebuilt rows here -> rows of the table
    reads: bool = True  # these are the rows that the next step was fitted on
    forward: Transform | None = None  # rows of the table -> rows here; None: not known
    units: Units | None = None  # where only scalers lie before it

    def through(
        self,
        step: Back,
        outputs: Any,
        *,
        reads: bool = True,
        forward: Transform | None = None,
        units: Units | None = None,
    ) -> Place:
        """The place after a step."""
        before = self.back
        return Place(outputs, lambda values: before(step(values)), self.reads and reads, self._then(forward), units)

    def at(self, indices: Any) -> Place:
        """Some of the columns."""
        chosen, before, width = columns_at(self.rows, indices), self.back, self.rows.shape[1]
        forward = self._then(lambda rows: columns_at(rows, indices))
        return Place(chosen, lambda values: before(values.placed(indices, width)), self.reads, forward)

    def _then(self, step: Transform | None) -> Transform | None:
        before = self.forward
        return None if before is None or step is None else lambda rows: step(before(rows))


@dataclass
class PipelineReader:
    """What was found on the way through the transformers of a release."""

    columns: Columns
    used: list[int]  # the columns of X that these are
    y: Tensor
    weight: Tensor
    parts: list[Part] = field(default_factory=list)
    sparse: list[tuple[SparseFitted, Back, bool]] = field(default_factory=list)  # with the way back, and if labelled
    notes: list[Noted] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    transformers: list[Transformed] = field(default_factory=list)  # that may keep more of the rows
    public: list[str] = field(default_factory=list)  # parts that were fitted on other rows
    fewer_rows: list[str] = field(default_factory=list)  # a sentence on each of them that states fewer rows
    # columns of texts by their number: from the steps on one to the place of its counts, and the steps after those
    text_columns: Mapping[int, Callable[..., tuple[Any, Place]]] = field(default_factory=dict)
    table: Any = None  # X
    labels_back: Callable[[Tensor], Tensor] | None = None  # from `y` to the labels of the table, NaN: not told

    def start(self, X: Any, numbers: Tensor | None = None) -> Place:
        """The table itself; `numbers` (n, d) if these are all its columns."""
        width = max((*self.used, X.shape[1] - 1)) + 1  # words of texts come after its columns
        self.table = X

        def back(values: Cells) -> Cells:
            return values.placed(slice(0, values.values.shape[1]), width).columns(self.used)

        units = None if numbers is None else Units(numbers, torch.zeros_like(numbers[0]), torch.ones_like(numbers[0]))
        return Place(X, back, forward=lambda rows: rows, units=units)

    def released(
        self, name: str, table: Records, *, classes: tuple[object, ...] = (), held_labels: str | None = None
    ) -> ReleasedTable:
        """All that was found about a table."""
        return ReleasedTable(
            name=name,
            table=table,
            weight=self.weight,
            columns=self.columns,
            parts=tuple(self.parts),
            classes=classes,
            notes=tuple(self.notes),
            unread=tuple(dict.fromkeys(self.unread)),
            public=tuple(self.public),
            held_labels=held_labels,
            supervised=True,
            transformers=tuple(self.transformers),
        )

    def through(self, transformer: Any, place: Place) -> Place:
        """The place after a transformer, with what it publishes noted."""
        if transformer is None or isinstance(transformer, str):  # "passthrough"; what is dropped does not come here
            return place
        if isinstance(transformer, FrozenEstimator):
            return self.through(transformer.estimator, place)
        if isinstance(transformer, Pipeline):
            for _, step in transformer.steps:
                place = self.through(step, place)
            return place
        if isinstance(transformer, ColumnTransformer):
            return self._side_by_side(transformer, list(self._of_columns(transformer, place)), place)
        if isinstance(transformer, FeatureUnion):
            branches = [(step, place) for _, step in transformer.transformer_list if step != "drop"]
            return self._side_by_side(transformer, branches, place)
        return self._leaf(transformer, place)

    def publish(self, fitted: Fitted, place: Place, *, labelled: bool = True) -> None:
        """Note a part that was fitted on the rows of a place; `labelled` if on the labels of the table."""
        labelled = labelled and self._labelled(fitted.table.y)
        direct = place.units if labelled and self.labels_back is None else None
        stated, back = None if direct is None else direct.stated(fitted), to_cells(place.back, self.columns)
        part = Part(fitted, back, labelled, labels_back=self.labels_back, stated=stated)
        self.parts.append(part if fitted.forest is None else replace(part, within=self._within(part, place)))

    def _within(self, part: Part, place: Place) -> Callable[[Bounds], Cells] | None:
        """The way back of bounds, of inputs that mix columns only where all of them are known."""
        forest, inputs = part.fitted.forest, part.fitted.table.x
        if forest is None:
            return None
        by_column, name = None, part.fitted.name
        used_inputs: Ints = np.zeros(0, dtype=np.intp)
        if place.forward is not None and place.rows.shape[0] == len(inputs) and not is_sparse(self.table):
            forward = place.forward
            to_inputs = None if place.rows is self.table else lambda rows: as_numbers(forward(rows))
            source = Source(self.table, forest, to_inputs)
            by_column, used_inputs = bounds_to_cells(source, self.columns, self.used, inputs)
        split = forest.columns()
        if len(unused := np.setdiff1d(split, used_inputs)):
            self.unread.append(
                f"{name} was audited only in part: intervals of {len(unused):,} of the {len(split):,} inputs that its "
                "trees split were not used: no way back from them to single columns of the table is known."
            )

        def within(bounds: Bounds) -> Cells:
            cells = part.back(torch.from_numpy(np.where(bounds.exact, bounds.low, np.nan)))
            return cells if by_column is None else by_column(bounds, cells)

        return within

    def _labelled(self, y: Tensor) -> bool:
        """Are these the labels of the table? Else one column of the targets, or transformed ones."""
        return y.shape == self.y.shape and bool((y == self.y).all())

    def note_rare(self, what: str, rare: int) -> None:
        """Note values that are published and that few rows have: nothing is learnt of them from the other rows."""
        if rare:
            values = "1 value" if rare == 1 else f"{rare:,} values"
            self.notes.append(
                f"{what} publish {values} that fewer than {FEW} rows have. Whoever knows all other rows learns nothing "
                "from those of two rows or more; others may recognise people by them."
            )

    def publish_categories(self, name: str, place: Place, listed: Mapping[int, Any]) -> list[Tensor]:
        """Note the categories that a part lists of some columns; of each column, how many rows have each.

        One that no known row has belongs to the missing row. Those that nobody has are left out.
        """
        codes, columns = coded(place.rows)
        counts = []
        for column, known in listed.items():
            here, names = place.at([column]), columns.categories[column]
            own = codes_of(Columns((), (names,)), objects(known)[:, None])
            stored = Stored(f"{name}'s categories", own[~own.isnan().any(1)])
            cells = codes[:, column : column + 1].nan_to_num(nan=-1.0)
            fitted = Fitted(name, Records(cells, self.y), self.weight, None, stored=(stored,))
            self.publish(fitted, here.through(partial(named, names=names), codes), labelled=False)
            counts.append(torch.unique(cells, return_counts=True)[1])
        self.note_rare(f"{name}'s categories", sum(int((rows < FEW).sum()) for rows in counts))
        return counts

    def publish_sparse(self, fitted: SparseFitted, place: Place, *, labelled: bool = True) -> None:
        """Note a part that was fitted on a large sparse matrix."""
        self.sparse.append(
            (fitted, place.back, labelled and self.labels_back is None and self._labelled(fitted.table.y))
        )

    def scanned(self, part: Any, place: Place, y: Tensor, weight: Tensor) -> float:
        """Note the rows and sums that a part holds; the share of the rows that these tell of."""
        if is_large(place.rows):
            return float(place.reads and self._scanned_sparse(part, place, y, weight))
        x = as_numbers(place.rows)
        if x is None or not place.reads:
            return 0.0
        found = scan(part, x, y, weight)
        name = type(part).__name__
        if found.sums or found.extremes or found.stored:
            self.publish(Fitted(name, Records(x, y), weight, None, found.sums, found.extremes, found.stored), place)
        for sums, groups in found.grouped:
            self.publish(Fitted(name, Records(x, groups), weight, None, (sums,)), place, labelled=False)
        self.notes += [note for note in found.notes if note not in self.notes]
        if not found.complete:
            self.unread.append(f"{name} holds more objects than were searched for rows of the table.")
        if found.fitted_elsewhere:
            self.public.append(name)
            fewer = fewer_rows(part, len(x)) if bool((weight == 1).all()) else None
            self.fewer_rows += [] if fewer is None else [fewer]
        if found.sums:
            return 1.0
        told = [len(one.x) for one in found.stored] or [int(bool(found.extremes))]
        return max(*told, *(int((groups >= 0).sum()) for _, groups in found.grouped), 0) / len(x)

    def _scanned_sparse(self, part: Any, place: Place, y: Tensor, weight: Tensor) -> bool:
        """Of a large sparse matrix only sums by class are looked for: naive Bayes."""
        counts = [attributes(part).get(name) for name in ("feature_count_", "class_count_")]
        if any(each is None for each in counts):
            return False
        totals, number = (torch.from_numpy(np.asarray(each, dtype=np.float64)) for each in counts)
        name = type(part).__name__
        sums = Sums(f"{name}'s feature_count_", totals, number, by_label=True, weighted=True)
        table = SparseRecords(place.rows.tocsr().astype(np.float64), y)
        gap = totals - table.summed(sums.membership(y, weight))
        if float(gap.abs().max()) > 1e-6 * float(totals.abs().max()):
            return False
        self.publish_sparse(SparseFitted(name, table, weight, sums=(sums,)), place)
        return True

    def _leaf(self, transformer: Any, place: Place) -> Place:
        if not hasattr(transformer, "transform"):  # a sampler of imbalanced-learn
            self.scanned(transformer, place, self.y, self.weight)
            name = type(transformer).__name__
            self.unread.append(f"what comes after {name} was not audited: it was fitted on rows that {name} made.")
            return replace(place, reads=False)
        outputs, reads = self._outputs(transformer, place)
        if place.rows.ndim == 1:
            self.unread.append(
                f"{type(transformer).__name__} was not audited: it reads one column as texts, and keeps no vocabulary."
            )
            return place.through(all_lost(1), outputs)
        if place.reads:
            before, others = len(self.parts), (self.public, self.sparse, self.unread)
            settled = [len(each) for each in others]
            self.scanned(transformer, place, self.y, self.weight)
            own_facts(transformer, self, place)
            parts = tuple(self.parts[before:])
            every_row = any(not sums.by_label for part in parts for sums in part.fitted.sums)
            if [len(each) for each in others] == settled and not every_row:  # a sum of all rows tells each of them
                self.transformers.append(Transformed(transformer, place.rows, self.y, self.weight, parts))
        units = None if place.units is None else place.units.after(transformer)
        step = cache(lambda: step_of(transformer, place.rows, outputs))  # few audits need that of a scaler

        def back(values: Cells) -> Cells:
            return step()(values)

        if units is None and not goes_back(transformer, back, outputs):
            self.unread.append(
                f"what comes after {type(transformer).__name__} was not fully audited: it has no inverse_transform "
                "that gives its inputs back."
            )
        return place.through(back, outputs, reads=reads, forward=transformer.transform, units=units)

    def _outputs(self, transformer: Any, place: Place) -> tuple[Any, bool]:
        """What the next step was fitted on, and whether that is known: a TargetEncoder's own folds may be random."""
        name = type(transformer).__name__
        if not gives_another_at_training(transformer):
            return transformed(transformer, place.rows), True
        first, second = (clone(transformer).fit_transform(place.rows, self.y.numpy()) for _ in range(2))
        known = bool((np.asarray(first) == np.asarray(second)).all())
        if not known:
            self.unread.append(
                f"what comes after {name} was not audited: what it gave at training was drawn at random, and cannot be "
                "repeated."
            )
        return first, known

    def _of_columns(self, transformer: Any, place: Place) -> Iterator[tuple[Any, Place]]:
        """The transformers of a ColumnTransformer, each with its columns."""
        for name, step, columns in transformer.transformers_:
            indices = transformer._transformer_to_input_indices.get(name, [])
            if is_dropped(step) or not len(indices):
                continue
            own = place.at(list(indices))
            if isinstance(columns, str | int):  # the step takes a series: a vectoriser of texts
                own = replace(own, rows=columns_at(own.rows, 0))
                if (read := self.text_columns.get(int(indices[0]))) is not None:
                    step, own = read(self, step)
            yield step, own

    def _side_by_side(self, transformer: Any, branches: list[tuple[Any, Place]], place: Place) -> Place:
        """The place after several transformers of the same rows, whose outputs lie side by side."""
        outputs, again, ends = transformed(transformer, place.rows), True, list[Place]()
        for step, own in branches:
            again &= not gives_another_at_training(step)
            ends.append(self.through(step, own))
        starts = np.cumsum([0, *(end.rows.shape[1] for end in ends)])
        reads = all(end.reads for end in ends)

        def back(values: Cells) -> Cells:
            cells = Cells.lost(len(values.values), len(self.used), object)
            for end, (start, stop) in zip(ends, pairwise(starts), strict=True):
                cells = cells.or_else(end.back(values.columns(slice(start, stop))))
            return cells

        if not (reads and again):
            outputs = np.concatenate([np.asarray(dense(end.rows), dtype=np.float64) for end in ends], 1)
        return Place(outputs, back, reads, place.through(back, outputs, forward=transformer.transform).forward)


def gives_another_at_training(step: Any) -> bool:
    """Whether `fit_transform` gives what `transform` does not: encoders by target leave out folds, or add noise."""
    return AT_TRAINING.search(repr(step)) is not None


@singledispatch
def own_facts(transformer: Any, reader: PipelineReader, place: Place) -> None:
    """Note what a transformer publishes in its special form: means over the rows that have a value."""
    x = as_numbers(place.rows)
    facts = attributes(transformer)
    if "initial_imputer_" in facts:  # of an IterativeImputer
        own_facts(facts["initial_imputer_"], reader, place)
    means = facts.get("statistics_", facts.get("mean_"))
    if x is None or not bool(x.isnan().any()) or means is None or np.shape(means) != (x.shape[1],):
        return
    means = torch.from_numpy(np.asarray(means, dtype=np.float64))
    own = x.nanmean(0)
    means = torch.where(own.isnan(), torch.nan, means)  # of an empty column an imputer may keep any number
    deviation = (x - own).square().nanmean(0).sqrt() + 1e-6 * own.abs()
    if not bool((((means - own).abs() <= AGREES * deviation * len(x) ** 0.5) | means.isnan()).all()):
        return
    name = type(transformer).__name__
    fitted = Fitted(name, Records(x, reader.y), reader.weight, None, present=(Present(f"{name}'s means", means),))
    reader.publish(fitted, place, labelled=False)
    reader.notes.append(total_of_all_rows(f"{name}'s means", "include the secret row and reveal it by themselves"))


@own_facts.register(OneHotEncoder)
@own_facts.register(OrdinalEncoder)
@own_facts.register(TargetEncoder)
def _(transformer: Any, reader: PipelineReader, place: Place) -> None:
    """Its categories, unless the user gave them, who need not have seen them."""
    if not isinstance(transformer.categories, str):
        return
    name = type(transformer).__name__
    fewest, most = (attributes(transformer).get(name) for name in ("min_frequency", "max_categories"))
    for rows in reader.publish_categories(name, place, dict(enumerate(transformer.categories_))):
        limit = 0.0 if fewest is None else float(fewest if isinstance(fewest, Integral) else fewest * int(rows.sum()))
        kept = rows[rows >= limit].sort(descending=True).values
        # a category that would not be kept if it had one row less
        at_fewest = limit > 1 and bool((kept - 1 < limit).any())
        if at_fewest or (most is not None and 1 < most <= len(kept) and bool(kept[most - 2] - 1 <= kept[most - 1])):
            reader.unread.append(
                f"{name} was not read completely: a category has only just enough rows to be kept (min_frequency, "
                "max_categories), which tells who has it, and that was not attacked."
            )


def to_cells(back: Back, columns: Columns) -> Any:
    """From rebuilt numbers (g, D), NaN where nothing is known and infinity where a value is missing, to cells."""

    def cells(x: Tensor) -> Cells:
        missing = x.isinf()
        kept = np.where(x.isnan().numpy(), Kept.LOST, Kept.EXACT).astype(np.uint8)
        rebuilt = back(Cells(torch.where(missing, torch.nan, x).numpy(), kept))
        return Cells(codes_of(columns, rebuilt.values).numpy(), rebuilt.kept.astype(np.uint8))

    return cells


def transformed(transformer: Any, rows: Any) -> Any:
    """What a fitted transformer makes of the rows. Its own errors are not shown, since they may quote cells."""
    try:
        return transformer.transform(rows)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        names = getattr(transformer, "feature_names_in_", None)
        cure = "in the form in which fit had it"
        if names is not None and not is_frame(rows):
            cure = f"as a data frame with the columns {names[0]!r}, ..."
        raise ValueError(
            f"audit: {type(transformer).__name__} cannot transform X ({type(error).__name__}). Pass the data the model "
            f"was fitted on, {cure}."
        ) from None


def is_large(rows: Any) -> bool:
    """A sparse matrix that is not made dense."""
    return is_sparse(rows) and rows.shape[0] * rows.shape[1] > LARGE


def as_numbers(rows: Any) -> Tensor | None:
    """(n, D) float64, sparse ones dense; None where they are not numbers, or where they would be too many."""
    if is_large(rows):
        return None
    plain = np.asarray(dense(rows))
    if plain.ndim != 2 or plain.dtype.kind not in "iufbO":
        return None
    try:
        if plain.dtype.kind == "O" and is_frame(rows):  # pandas' own numbers, which may be pandas.NA
            plain = rows.to_numpy(np.float64, na_value=np.nan)
        return torch.from_numpy(np.require(plain, np.float64, ["C", "W"]))
    except (TypeError, ValueError):
        return None


def named(values: Cells, *, names: tuple[object, ...]) -> Cells:
    """Codes of one column as its categories; numbers stay what they are."""
    if not names:
        return values
    known = np.empty(len(names) + 1, dtype=object)
    known[:] = [*names, np.nan]
    numbers = values.values.astype(np.float64)
    place = np.where(np.isnan(numbers), len(names), np.nan_to_num(numbers)).astype(int)
    return Cells(known[place.clip(0, len(names))], values.kept)
