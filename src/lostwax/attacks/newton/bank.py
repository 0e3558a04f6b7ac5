"""Records at hand and the models trained on them: somewhere to begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Records
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.kernel_regression import Regression
from lostwax.seeds import generator

CLASSES_RACED = 3  # of each ranking


FEWEST = 60  # models of a class, by which its regression can foretell an error


MOST_WAYS = 10_000  # in which k secrets can be of classes: each takes a model


Classes = tuple[int, ...]  # of the k secrets


class Entry(NamedTuple):
    """Records to begin with."""

    a: Tensor  # (r,)
    label: Tensor  # (k,)
    weights: Tensor  # (p,) of the model trained on them

    @property
    def classes(self) -> Classes:
        """The label, to look things up by."""
        return tuple(self.label.tolist())


class Likely(NamedTuple):
    """A class that a release may be of, and records of it to begin with, best first."""

    regressed: Entry | None  # what the bank's models, regressed on their records, make of the release
    nearest: Entry  # whose model comes nearest the release
    mean: Entry | None  # unless that is the nearest
    foretold: float  # mean squared error of the regressed, in unknowns; infinite where it cannot be told

    @property
    def entries(self) -> list[Entry]:
        """Those there are."""
        return [entry for entry in (self.regressed, self.nearest, self.mean) if entry is not None]


class Bank(NamedTuple):
    """Models trained on records at hand, the same for all games.

    First the mean records of every class (with k secrets, of every k classes), and then records as they are. They are
    shadow models, if few, and a regression on them (`KernelRidge`) tells classes apart and comes near the record. For
    several secrets they are too few: there the model nearest the release tells.
    """

    a: Tensor  # (b, r)
    label: Tensor  # (b, k)
    weights: Tensor  # (b, p), quickly computed
    classes: tuple[Classes, ...]  # of the first entries, the means
    group: Tensor  # (b,) the number, among these, of each entry's
    regression: Regression | None  # one group for each of them

    @classmethod
    def of(cls, weights: TrainingMap, coordinates: Coordinates, at_hand: Records, size: int, *, seed: int) -> Bank:
        """The means of classes (of all records, where labels are numbers), and `size` draws of k records."""
        k, z = weights.secrets, flat(at_hand)
        y = torch.zeros(len(z), dtype=torch.long, device=z.device) if at_hand.y.is_floating_point() else at_hand.y
        of_class = {int(label): z[y == label] for label in torch.unique(y)}
        # full batches take the secrets in any order, so that (3, 5) is (5, 3)
        in_any_order = weights.trainer.batches.size is None
        classes = tuple(combinations_with_replacement(of_class, k) if in_any_order else product(of_class, repeat=k))
        rows = draws(len(z), size, k, seed).to(z.device)  # (size, k)
        if in_any_order:
            rows = rows.gather(1, y[rows].argsort(dim=1, stable=True))
        parts_of = cache(lambda label, count: _parts(of_class[label], count))  # many ways share them
        means = torch.stack([_means(parts_of, each) for each in classes])  # (classes, u)
        a = coordinates.of_records(torch.cat([means, z[rows].flatten(1)]))
        label = torch.cat([torch.tensor(classes).to(y), y[rows]])
        models = weights(coordinates(a), label)
        number = {each: place for place, each in enumerate(classes)}
        group = torch.tensor([number[tuple(each)] for each in label.tolist()], device=z.device)
        regression = None
        if k == 1 and size and models.isfinite().all():
            rows_of = [(group == place).nonzero()[:, 0] for place in range(len(classes))]
            regression = Regression.fit(models, a.double(), rows_of)
        return cls(a, label, models, classes, group, regression)

    def entry(self, row: int) -> Entry:
        """One of the bank."""
        return Entry(self.a[row], self.label[row], self.weights[row])

    def likeliest(
        self, released: Tensor, told: Tensor | None, weights: TrainingMap, coordinates: Coordinates
    ) -> list[list[Likely]]:
        """For each release (g, p) a few classes, the likeliest first; the one alone that is told (g, k), if it is."""
        ours = released.to(self.weights)
        distance = torch.cdist(self.weights, ours, compute_mode="donot_use_mm_for_euclid_dist").nan_to_num(
            torch.inf
        )  # (b, g)
        least, nearest = self._nearest(distance)
        answers, doubts = (None, least) if self.regression is None else self.regression(ours)
        likely = [
            self._likely((doubts[:, g], least[:, g]), None if told is None else told[g]) for g in range(len(released))
        ]
        pairs = [(c, g) for g, classes in enumerate(likely) for c in classes]
        regressed: list[Entry | None] = [None] * len(pairs)
        if answers is not None:
            means, label = (torch.stack([part[c] for c, _ in pairs]) for part in (self.a, self.label))
            a = coordinates.clamped(torch.stack([answers[pair] for pair in pairs]).to(self.a))
            a = torch.where(a.isfinite(), a, means)  # a victim that diverged
            regressed = [Entry(*each) for each in zip(a, label, weights(coordinates(a), label), strict=True)]
        found: list[list[Likely]] = [[] for _ in likely]
        for (c, g), entry in zip(pairs, regressed, strict=True):
            row = int(nearest[c, g])
            mean = None if row == c else self.entry(c)
            found[g].append(Likely(entry, self.entry(row), mean, self._foretold(c, float(doubts[c, g]))))
        return found

    def _foretold(self, c: int, doubt: float) -> float:
        """The mean squared error of what class c answers, in unknowns; infinite where few models tell it."""
        if self.regression is None or len(self.regression.groups[c].rows) < FEWEST:
            return torch.inf
        return self.regression.error * doubt

    def _nearest(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Of distances (b, g) the least of every class, and the row that has it, the first of several: (classes, g)."""
        group = self.group.unsqueeze(1).expand_as(distance)
        least = distance.new_empty(len(self.classes), distance.shape[1])
        least = least.scatter_reduce(0, group, distance, "amin", include_self=False)
        rows = torch.arange(len(distance), device=distance.device).unsqueeze(1)
        here = torch.where(distance == least.gather(0, group), rows, len(distance))  # (b, g)
        first = torch.zeros_like(least, dtype=torch.long).scatter_reduce(0, group, here, "amin", include_self=False)
        return least, first

    def _likely(self, rankings: Sequence[Tensor], told: Tensor | None) -> list[int]:
        """The numbers of the first classes of each ranking (classes,), least first; of the class that is told (k,).

        A regression on few models of a class is in doubt about the wrong ones: the model that comes nearest then tells.
        """
        orders = [ranking.nan_to_num(torch.inf).argsort(stable=True).tolist() for ranking in rankings]
        if told is None:
            first = (c for order in orders for c in order[:CLASSES_RACED])
            return list(dict.fromkeys(first))  # each once, in this order
        order = orders[0]
        likely = [int(c) for c in order if sorted(self.classes[c]) == sorted(told.tolist())]
        if not likely:
            raise ValueError(
                "Newton: the hints give a secret a label that no known or prior record has. Bring one that does."
            )
        return likely[:CLASSES_RACED]


def ways(classes: int, secrets: int, *, in_any_order: bool) -> int:
    """In how many ways so many secrets can be of so many classes."""
    return math.comb(classes + secrets - 1, secrets) if in_any_order else classes**secrets


def _means(parts_of: Callable[[int, int], Sequence[Tensor]], classes: Classes) -> Tensor:
    """(u,) the mean record of each class; of a class that comes c times, those of c parts of it.

    From two equal records Newton's steps would keep them equal: what is exchanged there for the other is the same.
    """
    parts = {label: iter(parts_of(label, classes.count(label))) for label in set(classes)}
    return torch.cat([next(parts[label]).mean(0) for label in classes])


def _parts(records: Tensor, count: int) -> Sequence[Tensor]:
    """Records (n, d), cut across the direction in which they vary most; whole where they are too few."""
    if count == 1 or len(records) < count:
        return [records] * count
    along = torch.linalg.svd(records - records.mean(0), full_matrices=False).U[:, 0]  # (n,)
    return records[along.argsort()].tensor_split(count)


def draws(count: int, size: int, k: int, seed: int) -> Tensor:
    """(size, k) rows, none twice in a draw; a single secret's are none twice at all."""
    random = generator(seed, "adversary", "bank")
    if k == 1:
        return torch.from_numpy(random.permutation(count)[:size]).unsqueeze(1)
    drawn = [random.choice(count, k, replace=False) for _ in range(size)]
    return torch.tensor([row.tolist() for row in drawn], dtype=torch.long).view(-1, k)
