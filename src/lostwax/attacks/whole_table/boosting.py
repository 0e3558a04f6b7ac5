"""Rebuild a whole table from boosted trees that were grown on it, with no row known.

Before the first tree all rows of a class are alike. A tree shares them among its leaves; the sums of derivatives of the
leaves tell how many go where (`subsets.py`). Rows of one class that reached the same leaves stay alike, and their
derivatives before the next tree follow. So it goes tree by tree, and the box of each row shrinks.

All solutions of a tree are kept: the sums of later trees refute the wrong ones. What all of them share is *proven*.
Where they cannot be listed any more, proof ends. What follows is a guess: solutions that have the sums of more trees,
although there may be others, then a table whose sums come close to those of all trees (`annealing.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.annealing import annealed
from lostwax.attacks.whole_table.attack import Followed, RebuiltTable
from lostwax.attacks.whole_table.guesses import values_of
from lostwax.attacks.whole_table.places import Boxes, CodedLeaves, Grid
from lostwax.attacks.whole_table.subsets import Knapsacks, Shares, shares
from lostwax.fields import above, check_fields
from lostwax.games.boosting import SUMMING, BoostedSums, BoostedTree, SumInterval
from lostwax.games.trees import LEAF, Floats, Forest, Ints

MAX_TABLES = 256  # partial tables that are followed at once, while it is proven that there are no others
MAX_LIKELY = 32  # ... and after that
PROOF_SHARE = 0.75  # of the time, before the guess
TREE_SHARE = 0.7  # of the time that is left, for one tree
NEAR_WHOLE = 0.1  # of a number of rows


class Places(NamedTuple):
    """Rows that all trees so far treat alike."""

    boxes: Boxes  # (p, d)
    label: Ints  # (p,) class numbers
    margins: Floats  # (p, k) before the trees of this iteration, one for each output
    moved: Floats  # (p, k) after those of them that were followed
    rows: Ints  # (p,) how many
    origin: Ints  # (p,) their place where proof ended

    @classmethod
    def first(cls, sums: BoostedSums, rows: int, grid: Grid) -> Places:
        """Before the first tree; raises if its sums are not those of so many rows."""
        count = class_counts(sums, rows)
        boxes = grid.tightened(grid.all_cells())[0].at(np.zeros(len(count), dtype=np.intp))
        margins = np.tile(sums.start, (len(count), 1))
        return cls(boxes, np.arange(len(count)), margins, margins, count, np.arange(len(count)))

    def split(self, numbers: Ints, leaves: CodedLeaves, grid: Grid, *, single: bool) -> Places:
        """The rows of each place in each leaf."""
        place, leaf = np.nonzero(numbers)
        boxes, _ = leaves.within(self.boxes.at(place), leaf, grid)
        moved = self.moved[place].copy()
        added = moved[:, leaves.output] + leaves.step[leaf]
        moved[:, leaves.output] = added.astype(np.float32) if single else added
        margins = moved if leaves.output == moved.shape[1] - 1 else self.margins[place]
        return Places(boxes, self.label[place], margins, moved, numbers[place, leaf], self.origin[place])

    @property
    def keys(self) -> list[bytes]:
        """(p,) equal for places of one label in one box."""
        table = np.concatenate([self.boxes.low, self.boxes.high, self.label[:, None]], axis=1)
        return [row.tobytes() for row in np.ascontiguousarray(table, dtype=np.int64)]


class Proof(NamedTuple):
    """What is proven of the rows of some places."""

    boxes: Boxes  # (q, d) `sure` rows of each are in these
    sure: Ints  # (q,)
    older: Boxes  # (q, d) and the others are in these


def knapsacks(boosted: BoostedTree, leaves: CodedLeaves, places: Places, sums: BoostedSums, grid: Grid) -> Knapsacks:
    """The equations of one tree: counts, sums of second derivatives, and of first ones or of both with a weight."""
    first, second, error, error_of_second = sums.loss.derivatives(places.margins, places.label, leaves.output)
    if np.isnan(boosted.curvature).all() and np.isfinite(boosted.weight[1:]).all() and np.isfinite(error).all():
        of_first = SumInterval(float(places.rows @ first), float(places.rows @ error))
        total = float(places.rows @ second)
        of_second = SumInterval(total, float(places.rows @ error_of_second) + SUMMING * total)
        boosted = boosted.with_curvatures(of_first, of_second, sums.ridge)
    ends, one = leaves.nodes, np.ones(len(first))
    size = np.where(np.isfinite(boosted.tree.rounding), boosted.tree.size, np.nan)[ends]
    w, h = boosted.weight[ends], boosted.curvature[ends]
    w_error, h_error = boosted.weight_error[ends], boosted.curvature_error[ends]
    known = np.isfinite(h_error) & np.isfinite(h)
    # G = -w (H + ridge); or  sum_i (g_i + w h_i) = -w ridge  where H is not known
    tilt = np.where(known, 0.0, w)
    gradient = np.where(known, -w * (np.where(known, h, 0.0) + sums.ridge), -w * sums.ridge)
    slack = w_error * (np.where(known, h, places.rows @ second) + sums.ridge) + np.where(known, np.abs(w) * h_error, 0)
    slack = slack + np.abs(w) * sums.ridge_error
    shape = (len(ends), len(first))
    values = [np.broadcast_to(one, shape), np.broadcast_to(second, shape), first + tilt[:, None] * second]
    errors = [0 * values[0], np.broadcast_to(error_of_second, shape), error + np.abs(tilt[:, None]) * error_of_second]
    totals, rounding = np.stack([size, h, gradient], 1), np.stack([0 * size + 1e-6, h_error, slack], 1)
    usable = np.isfinite(totals) & np.isfinite(rounding)
    if not np.isfinite(error).all():  # labels are not known
        usable[:, 2] = False
        errors[2] = np.zeros(shape)
    return Knapsacks(
        places.rows,
        leaves.possible(places.boxes, grid),
        np.stack(values, 2),
        np.stack(errors, 2),
        np.where(usable, totals, 0.0),
        np.where(usable, rounding, np.inf),
    )


class SolvedPlaces(NamedTuple):
    """A table as boxes; rows in any order."""

    boxes: Boxes  # (n, d) of each row, a guess beyond what is proven
    proof: Boxes  # (n, d) as many rows are in these, proven
    label: Ints  # (n,) class numbers, proven
    margins: Floats  # (n, k) what the trees that were followed predict for the row
    proven: int  # how many trees were solved with proof
    fits: int  # how many trees have the sums of these rows
    consistent: bool  # no tree has sums that no table has; otherwise nothing is proven


@dataclass(frozen=True)
class BoostedTable:
    """A table from boosted trees, one tree after the other."""

    seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic  # of them; with time.process_time other work does not shorten them

    def __post_init__(self) -> None:
        check_fields(self, seconds=above(0))

    def __call__(
        self,
        sums: BoostedSums,
        shape: tuple[int, int],
        *,
        values: Mapping[int, Floats] | None = None,
        one_hot: Sequence[Sequence[int]] = (),
        ends: tuple[Floats, Floats],
        seed: int = 0,
    ) -> RebuiltTable:
        """A table (n, d); `values`, `one_hot` and `ends`, about the range of each column, are public.

        Raises NotTheseRowsError if the trees were grown on other rows.
        """
        forest = Forest(tuple(boosted.tree for boosted in sums.trees), strict=sums.strict)
        grid = Grid.of(forest, shape[1], values, one_hot)
        until, random = self.clock() + self.seconds, np.random.default_rng(seed)
        solved = self.solve(sums, shape[0], grid)
        boxes, margins = solved.boxes, solved.margins
        if solved.fits < len(sums.trees):
            boxes, margins = annealed(sums, grid, boxes, solved.label, random, until, self.clock)
        low, high = grid.bounds(boxes)
        proven_low, proven_high = grid.bounds(solved.proof)
        certain = np.isfinite(proven_low) | np.isfinite(proven_high)
        labels: Ints | Floats = solved.label
        if sums.by_sign:
            labels = (margins[:, 0] > 0).astype(np.int64)
        elif not sums.loss.classes:
            labels = margins[:, 0]
        return RebuiltTable(
            values_of(sums, grid, boxes, ends, random),
            np.where(certain, proven_low, low),
            np.where(certain, proven_high, high),
            labels,
            certain,
            np.full(shape[0], bool(sums.loss.classes) and solved.consistent),
            ordered=False,
            solves=solved.fits == len(sums.trees),
            proven=solved.proven == len(sums.trees),
            valued=True,
            trees=Followed(solved.proven, solved.fits, solved.consistent),
        )

    def solve(self, sums: BoostedSums, rows: int, grid: Grid) -> SolvedPlaces:
        """The boxes of all rows, by trees that were solved exactly."""
        until = self.clock() + PROOF_SHARE * self.seconds
        chain = _Chain(sums, grid, Places.first(sums, rows, grid), until, self.clock)
        for boosted in sums.trees:
            chain.follow(boosted)
        return chain.solved()


class _Chain:
    """Tables that have the sums of all trees so far."""

    def __init__(self, sums: BoostedSums, grid: Grid, first: Places, until: float, clock: Callable[[], float]) -> None:
        self.sums, self.grid, self.until, self.clock = sums, grid, until, clock
        self.tables, self.proofs = [first], list[Proof]()  # one proof for each table, once it has ended
        self.older = first.boxes  # where all tables were one for the last time
        self.trees = self.proven = self.fits = 0
        self.consistent = True

    def follow(self, boosted: BoostedTree) -> None:
        """Share the rows of all tables among the leaves of one more tree."""
        if self.fits == self.trees:
            self._exactly(boosted, CodedLeaves.of(boosted, self.grid))
        self.trees += 1

    def _exactly(self, boosted: BoostedTree, leaves: CodedLeaves) -> None:
        """Follow all tables that have the sums of this tree too, and count it as fitting."""
        start, results = self.clock(), list[Shares]()
        until = start + TREE_SHARE * max(self.until - start, 0.0)
        for table, places in enumerate(self.tables):
            problem, now = knapsacks(boosted, leaves, places, self.sums, self.grid), self.clock()
            end = now + max(until - now, 0.0) / (len(self.tables) - table)
            results.append(shares(problem, MAX_TABLES, end, self.clock))
        choices = [(table, numbers) for table, result in enumerate(results) for numbers in result.solutions]
        complete = all(result.complete for result in results) and len(choices) <= MAX_TABLES
        if not choices and complete and not self.proofs:  # no table has these sums: they are not what they seem
            if not self.trees:
                raise NotTheseRowsError
            self.consistent, complete = False, False
        certain = None
        if not self.proofs:
            if choices and complete:
                self._split(choices, leaves)
                self.proven = self.fits = self.trees + 1
                return
            if len(self.tables) == 1:
                certain = results[0]
            else:
                self._prove_what_all_share()
        if choices:
            self._split(choices[:MAX_LIKELY], leaves, certain)
            self.fits = self.trees + 1
        elif certain is not None and self.consistent:
            self._split_certain(leaves, certain)

    def _split(self, choices: Sequence[tuple[int, Ints]], leaves: CodedLeaves, certain: Shares | None = None) -> None:
        """Go on with some tables; `certain` says how many rows are, where proof ends with this tree."""
        tables, proofs = [], []
        for table, numbers in choices:
            before = self.tables[table]
            places = before.split(numbers, leaves, self.grid, single=self.sums.loss.margins_in_float32)
            if certain is not None:
                place, leaf = np.nonzero(numbers)
                others = leaves.hulls(before.boxes, certain.low < certain.high, self.grid).at(place)
                proofs.append(Proof(places.boxes, np.minimum(certain.low[place, leaf], places.rows), others))
                places = places._replace(origin=np.arange(len(place)))
            elif self.proofs:
                proofs.append(self.proofs[table])
            tables.append(places)
        self.tables, self.proofs = tables, proofs
        if not proofs and len(tables) == 1:
            self.older = tables[0].boxes
            self.tables = [tables[0]._replace(origin=np.arange(len(tables[0].rows)))]

    def _split_certain(self, leaves: CodedLeaves, certain: Shares) -> None:
        """End the proof within a tree: rows that are certain are in their leaves, the others in what is open."""
        before, single = self.tables[0], self.sums.loss.margins_in_float32
        others = before._replace(
            boxes=leaves.hulls(before.boxes, certain.low < certain.high, self.grid),
            rows=before.rows - certain.low.sum(1),
        )
        parts = (before.split(certain.low, leaves, self.grid, single=single), others)
        places = Places(
            Boxes(*(np.concatenate(ends) for ends in zip(*(part.boxes for part in parts), strict=True))),
            *(np.concatenate(fields) for fields in zip(*(part[1:] for part in parts), strict=True)),
        )
        places = places._replace(origin=np.arange(len(places.rows)))
        self.tables, self.proofs = [places], [Proof(places.boxes, places.rows, places.boxes)]

    def _prove_what_all_share(self) -> None:
        """End the proof: as many rows as all tables have in a box, of those that were in one box before."""
        keys = [list(zip(places.origin.tolist(), places.keys, strict=True)) for places in self.tables]
        counts = [
            dict(zip(each, places.rows.tolist(), strict=True)) for each, places in zip(keys, self.tables, strict=True)
        ]
        shared = counts[0]
        for count in counts[1:]:
            shared = {key: min(rows, count[key]) for key, rows in shared.items() if key in count}
        for table, places in enumerate(self.tables):
            sure = np.array([shared.get(key, 0) for key in keys[table]])
            self.proofs.append(Proof(places.boxes, sure, self.older.at(places.origin)))
            self.tables[table] = places._replace(origin=np.arange(len(places.rows)))

    def solved(self) -> SolvedPlaces:
        """The first table, its rows one by one."""
        if not self.proofs:
            self._prove_what_all_share()
        places, proof = self.tables[0], self.proofs[0]
        number = np.repeat(np.arange(len(places.rows)), places.rows)
        number = number[np.argsort(places.origin[number], kind="stable")]
        origin = places.origin[number]
        rank = np.arange(len(origin)) - np.searchsorted(origin, origin)  # among the rows of one origin
        sure = (rank < proof.sure[origin])[:, None]
        newer, older = proof.boxes.at(origin), proof.older.at(origin)
        if not self.consistent:
            sure, older = np.zeros_like(sure), self.grid.all_cells().at(np.zeros_like(origin))
        proven = Boxes(np.where(sure, newer.low, older.low), np.where(sure, newer.high, older.high))
        boxes, label, margins = places.boxes.at(number), places.label[number], places.margins[number]
        proofs = self.proven if self.consistent else 0
        return SolvedPlaces(boxes, proven, label, margins, proofs, self.fits, self.consistent)


class NotTheseRowsError(ValueError):
    """The first tree was not grown on as many rows, each with weight one."""


def class_counts(sums: BoostedSums, rows: int) -> Ints:
    """(classes,) how many rows of each class there are, by the root of the first tree of each."""
    loss = sums.loss
    if not loss.classes:
        return np.array([rows])
    counts = []
    for output in range(loss.outputs):
        boosted = next(boosted for boosted in sums.trees if boosted.output == output)
        labels = np.array([0, 1] if loss.classes == 2 else [(output + 1) % loss.classes, output])
        (other, of_class), second, *_ = loss.derivatives(np.tile(sums.start, (2, 1)), labels, output)
        gradient = 0.0
        if not sums.starts_at_mean:
            leaves, known = boosted.tree.feature == LEAF, bool(np.isfinite(boosted.curvature).any())
            at = leaves if known else np.arange(len(leaves)) == 0
            curvature = boosted.curvature[at] if known else rows * second[0]
            gradient = float((-boosted.weight[at] * (curvature + sums.ridge)).sum())
        counts.append((rows * other - gradient) / (other - of_class))  # G = (n - m) g_other + m g_class
    numbers = np.array([rows - counts[0], counts[0]] if loss.classes == 2 else counts)
    if not np.isfinite(numbers).all() or np.abs(np.rint(numbers) - numbers).max() > NEAR_WHOLE:
        raise NotTheseRowsError
    whole = np.rint(numbers).astype(np.int64)
    if whole.sum() != rows or (whole < 0).any():
        raise NotTheseRowsError
    return np.asarray(whole)
