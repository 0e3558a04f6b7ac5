"""Known and prior records with the models trained on them: where Newton starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import Point
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Records
from lostwax.learning.coordinates import Coordinates, classes_of, flat
from lostwax.learning.kernel_regression import Regression
from lostwax.seeds import generator

CLASSES_RACED = 3  # of each ranking
FEWEST = 60  # models of a class for its regression to predict an error
MOST_WAYS = 10_000  # combinations of classes of k secrets: each takes a model

Classes = tuple[int, ...]  # of the k secrets


class Entry(NamedTuple):
    """Records to start from."""

    a: Tensor  # (r,)
    label: Tensor  # (k,)
    weights: Tensor  # (p,) of the model trained on them

    @property
    def classes(self) -> Classes:
        """The label as a key."""
        return tuple(self.label.tolist())

    def point(self, released: Tensor) -> Point:
        """Its distance from a release (p,)."""
        return Point(self.a, self.label, self.weights.double() - released)


class Likely(NamedTuple):
    """A likely class of a release, with records of it to start from, best first."""

    regressed: Entry | None  # the bank's regression, applied to the release
    nearest: Entry  # whose model is closest to the release
    mean: Entry | None  # unless that is the nearest
    predicted_error: float  # mean squared error of `regressed`, in unknowns; infinite if unknown

    @property
    def entries(self) -> list[Entry]:
        """All that exist."""
        return [entry for entry in (self.regressed, self.nearest, self.mean) if entry is not None]


class Bank(NamedTuple):
    """A few shadow models, shared by all games.

    They are trained on the mean record of every class (with k secrets, of every combination of k classes), then on
    known and prior records. For one secret a regression on them ranks classes and estimates the record; for several
    their distance from the release ranks classes.
    """

    a: Tensor  # (b, r)
    label: Tensor  # (b, k)
    weights: Tensor  # (b, p), quickly computed
    classes: tuple[Classes, ...]  # of the first entries, the means
    group: Tensor  # (b,) the position of each entry's classes among these
    regression: Regression | None  # one group for each of them; for one secret and more models than the means

    @classmethod
    def of(cls, weights: TrainingMap, coordinates: Coordinates, available: Records, size: int, *, seed: int) -> Bank:
        """The means of classes (of all records, where labels are numbers), and `size` draws of k records."""
        k, z, y = weights.secrets, flat(available), classes_of(available.y)
        labels = torch.unique(y).tolist()
        # full batches take the secrets in any order, so that (3, 5) is (5, 3)
        in_any_order = weights.trainer.batches.size is None
        classes = tuple(combinations_with_replacement(labels, k) if in_any_order else product(labels, repeat=k))
        rows = draws(len(z), size, k, seed).to(z.device)  # (size, k)
        if in_any_order:
            rows = rows.gather(1, y[rows].argsort(dim=1, stable=True))
        a = coordinates.of_records(torch.cat([means_of(z, y, classes), z[rows].flatten(1)]))
        label = torch.cat([torch.tensor(classes).to(y), y[rows]])
        models = weights(coordinates(a), label)
        number = {each: place for place, each in enumerate(classes)}
        group = torch.tensor([number[tuple(each)] for each in label.tolist()], device=z.device)
        regression = None
        if k == 1 and len(a) > len(classes) and models.isfinite().all():
            rows_of = [(group == place).nonzero()[:, 0] for place in range(len(classes))]
            regression = Regression.fit(models, a.double(), rows_of)
        return cls(a, label, models, classes, group, regression)

    def entry(self, row: int) -> Entry:
        """One entry."""
        return Entry(self.a[row], self.label[row], self.weights[row])

    def likeliest(
        self, released: Tensor, labels: Tensor | None, weights: TrainingMap, coordinates: Coordinates
    ) -> list[list[Likely]]:
        """For each release (g, p) a few classes, the likeliest first; only those of the labels (g, k), if given."""
        ours = released.to(self.weights)
        distance = torch.cdist(self.weights, ours, compute_mode="donot_use_mm_for_euclid_dist")  # (b, g)
        least, nearest = self._nearest(distance.nan_to_num(torch.inf))
        answers, doubts = (None, least) if self.regression is None else self.regression(ours)
        each = [None] * len(released) if labels is None else labels
        likely = [self._likely((doubts[:, g], least[:, g]), label) for g, label in enumerate(each)]
        pairs = [(c, g) for g, classes in enumerate(likely) for c in classes]
        regressed: list[Entry | None] = [None] * len(pairs)
        if answers is not None:
            means, label = (torch.stack([part[c] for c, _ in pairs]) for part in (self.a, self.label))
            a = coordinates.clamped(torch.stack([answers[pair] for pair in pairs]).to(self.a))
            a = torch.where(a.isfinite(), a, means)  # a victim that diverged
            regressed = [Entry(*each) for each in zip(a, label, weights(coordinates(a), label), strict=True)]
        starts: list[list[Likely]] = [[] for _ in likely]
        for (c, g), entry in zip(pairs, regressed, strict=True):
            row, error = int(nearest[c, g]), torch.inf
            if self.regression is not None and len(self.regression.groups[c].rows) >= FEWEST:
                error = self.regression.error * float(doubts[c, g])
            starts[g].append(Likely(entry, self.entry(row), None if row == c else self.entry(c), error))
        return starts

    def _nearest(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest of the distances (b, g) in every class, and its first row: (classes, g) twice."""
        group = self.group.unsqueeze(1).expand_as(distance)
        least = distance.new_empty(len(self.classes), distance.shape[1])
        least = least.scatter_reduce(0, group, distance, "amin", include_self=False)
        rows = torch.arange(len(distance), device=distance.device).unsqueeze(1)
        here = torch.where(distance == least.gather(0, group), rows, len(distance))  # (b, g)
        first = torch.zeros_like(least, dtype=torch.long).scatter_reduce(0, group, here, "amin", include_self=False)
        return least, first

    def _likely(self, rankings: Sequence[Tensor], labels: Tensor | None) -> list[int]:
        """The first classes of each ranking (classes,), least first; only those of the labels (k,), if given.

        The doubts of a regression on few models per class are unreliable: distances are the second ranking.
        """
        orders = [ranking.nan_to_num(torch.inf).argsort(stable=True).tolist() for ranking in rankings]
        if labels is None:
            return list(dict.fromkeys(c for order in orders for c in order[:CLASSES_RACED]))  # each once
        likely = [int(c) for c in orders[0] if sorted(self.classes[c]) == sorted(labels.tolist())]
        if not likely:
            raise ValueError(
                "Newton: the hints give a secret a label that no known or prior record has. Add some to the prior."
            )
        return likely[:CLASSES_RACED]


def ways(classes: int, secrets: int, *, in_any_order: bool) -> int:
    """The number of combinations of classes of this many secrets."""
    return math.comb(classes + secrets - 1, secrets) if in_any_order else classes**secrets


def means_of(z: Tensor, y: Tensor, combinations: Sequence[Classes]) -> Tensor:
    """(c, u) the mean records of combinations of classes, among records z (n, d) of classes y (n,).

    For a class that occurs k times, the means of k parts of it, cut along its first principal component if it has as
    many records: by symmetry, Newton's steps would keep two equal records equal.
    """

    @cache
    def means(label: int, count: int) -> list[Tensor]:
        records = z[y == label]
        if count == 1 or len(records) < count:
            return [records.mean(0)] * count
        along = torch.linalg.svd(records - records.mean(0), full_matrices=False).U[:, 0]  # (n,)
        return [part.mean(0) for part in records[along.argsort()].tensor_split(count)]

    rows = []
    for classes in combinations:
        parts = {label: iter(means(label, classes.count(label))) for label in set(classes)}
        rows.append(torch.cat([next(parts[label]) for label in classes]))
    return torch.stack(rows)


def draws(count: int, size: int, k: int, seed: int) -> Tensor:
    """(size, k) rows, without replacement in a draw; for one secret, without replacement at all."""
    random = generator(seed, "adversary", "bank")
    if k == 1:
        return torch.from_numpy(random.permutation(count)[:size]).unsqueeze(1)
    drawn = [random.choice(count, k, replace=False) for _ in range(size)]
    return torch.tensor([row.tolist() for row in drawn], dtype=torch.long).view(-1, k)
