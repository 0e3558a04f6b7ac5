"""Newton's method for a whole training set of which no record is known.

Labels are unknown numbers at first: each record has a share of every class, for which training is solved, then one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.attacks.least_squares import Point
from lostwax.attacks.newton.bank import Classes, means_of
from lostwax.attacks.newton.corners import Corners, corners
from lostwax.attacks.newton.inverter import MANY, Inversion, Inverting
from lostwax.attacks.newton.set_problem import SetPolisher, SetProblem, descend, record_span
from lostwax.attacks.newton.set_products import ProductPolisher, ProductSets
from lostwax.attacks.newton.training_map import Problem, Published, TrainingMap
from lostwax.games import Hints, Loss, Records, Release
from lostwax.inits import trainable
from lostwax.learning.coordinates import Coordinates, classes_of, flat
from lostwax.progress import counted
from lostwax.seeds import generator

RACED, RACING = 16, 3  # combinations of labels that take this many steps, where labels are unknown
LABELLINGS = 4  # of them that are followed to the end
STARTS, FEW_STARTS = 5, 2  # for each of them, at most; the same for large sets that corners show most of
MOST_NUMBERS = 20_000  # unknown: a square table of them takes 3 GB
DRAWN, AVERAGED = 256, 3  # starts that are compared, and prior records that one averages for each secret
BLURRED = 3e-2  # of the range: the most noise in which corners are looked for
EXPLAINED = 0.1  # of the residual: if labels leave more of it, a corner is no record, and far from any
FOUND = 0.5  # of the records: the fewest corners that a search begins with


@dataclass(frozen=True)
class Mixed:
    """The mean loss over classes, each with a weight: y (..., n, classes)."""

    loss: Loss
    classes: tuple[int, ...]

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        each = self.loss(*self._repeated(outputs))  # (..., n c)
        return (each.reshape(*outputs.shape[:-1], len(self.classes)) * y).sum(-1)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Its derivative by the outputs."""
        n, c, o = outputs.shape[-2], len(self.classes), outputs.shape[-1]
        each = self.loss.residual(*self._repeated(outputs)).reshape(*outputs.shape[:-2], n, c, o)
        return (each * y.unsqueeze(-1)).sum(-2)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """As that of the classes."""
        return self.loss.label(outputs, residual)

    def _repeated(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Each record with every class, (..., n c, outputs) and (n c,)."""
        label = torch.tensor(self.classes, device=outputs.device).repeat(outputs.shape[-2])
        return outputs.repeat_interleave(len(self.classes), -2), label


class Soft(NamedTuple):
    """Unknowns of k records, and the shares of their classes."""

    a: Tensor  # (k, r)
    shares: Tensor  # (k, c) of `classes`; each row sums to 1
    classes: tuple[int, ...]
    left: float  # of the residual: 0 where the release is nearly explained

    def labelled(self, labels: Tensor | None) -> tuple[Tensor, Classes]:
        """Unknowns (k r,), sorted by class, and the classes; or in the order of labels that are given."""
        if labels is not None:
            return self.ordered(labels), tuple(labels.tolist())
        label = torch.tensor(self.classes, device=self.shares.device)[self.shares.argmax(1)]
        order = label.argsort(stable=True)
        return self.a[order].flatten(), tuple(label[order].tolist())

    def ordered(self, label: Tensor) -> Tensor:
        """(k r,) the unknowns, in an order in which their classes are these (k,)."""
        places = [self.classes.index(each) for each in label.tolist()]
        _, rows = linear_sum_assignment(-self.shares[:, places].mT.cpu().numpy())
        return self.a[torch.from_numpy(rows).to(self.a.device)].flatten()


def soft_labels(sets: SetProblem, a: Tensor, classes: Sequence[int], free: int, jacobians: int) -> Soft:
    """Solve training for the classes of records a (k, r), and for the last `free` of the records themselves.

    From equal shares of all classes. The release has many more equations than there are shares.
    """
    k, r = a.shape
    assert sets.span is not None  # it is what corners are found in
    c, inputs, constant = len(classes), len(sets.span.rows), sets.span.constant
    if c == 1 and not free:  # nothing is unknown
        near = sets.near(a.flatten(), torch.tensor(classes, device=a.device).expand(k))
        return Soft(a, a.new_ones(k, 1), tuple(classes), 0.0 if near else 1.0)
    exact, quick = (
        replace(
            part,
            trainer=replace(part.trainer, loss=Mixed(part.trainer.loss, tuple(classes))),
            known=Records(part.known.x, part.known.x.new_zeros(0, c)),
        )
        for part in (sets.problem.exact, sets.problem.quick)
    )
    a = torch.cat([a[k - free :], a[: k - free]])  # those that are free come first
    origin = torch.cat([a, torch.full_like(a[:, :1], constant), a.new_full((k, c), 1 / c)], 1)
    contrasts = torch.linalg.svd(torch.ones(1, c).to(a), full_matrices=True).Vh[1:]  # (c - 1, c) that sum to 0
    moves = a.new_zeros(free, r, k, inputs + c)
    shares = a.new_zeros(k, c - 1, k, inputs + c)
    for record in range(k):
        if record < free:
            moves[record, :, record, :r] = torch.eye(r)
        shares[record, :, record, inputs:] = contrasts
    directions = torch.cat([moves.view(free * r, origin.numel()), shares.view(k * (c - 1), origin.numel())])
    origin[:free, :r] = 0.0
    problem: Problem[Any] = Problem(exact, quick, Coordinates.anywhere(origin.flatten(), directions))
    start = torch.cat([a[:free].flatten(), a.new_zeros(k * (c - 1))])
    label = torch.zeros(k, dtype=torch.long, device=a.device)
    (point,) = problem.points(start[None], label[None], sets.released)
    inside = sets.inside._replace(records=free) if free else None

    def solved(here: Point) -> bool:
        """True if records of the likeliest classes nearly explain the release."""
        shares = problem.coordinates(here.a).view(k, inputs + c)[:, inputs:]
        label = torch.tensor(classes, device=a.device)[shares.argmax(1)]
        return sets.near(a.flatten(), label)

    stop = None if free else solved  # what is not a record yet explains nothing
    ended = descend(problem, inside, point, sets.released, jacobians, stop).point
    left = 0.0 if stop is not None and stop(ended) else ended.distance / max(point.distance, 1e-300)
    z = problem.coordinates(ended.a).view(k, inputs + c)
    return Soft(z[:, :r], z[:, inputs:], tuple(classes), left)


@dataclass(frozen=True, eq=False)
class WholeSets(Inverting):
    """A prepared Newton against an adversary who knows no record."""

    exact: TrainingMap
    quick: TrainingMap
    prior: Records
    like: Records  # one record, for shapes, dtypes and devices
    published: Published
    jacobians: int
    seed: int

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        games, labels = len(release.flat()), None if hints is None else hints.labels
        release = Release({name: value.to(self.prior.x.device) for name, value in release.params.items()})
        numbers = counted(range(games), "Newton's method: training sets", games)
        return [
            self._inverted(release.chosen(torch.tensor([number])), None if labels is None else labels[number])
            for number in numbers
        ]

    def _inverted(self, release: Release, labels: Tensor | None) -> Inversion:
        """From one start after another, until one explains the release."""
        released = self.exact.in_units(release.flat().double())  # (1, p)
        classes = None if labels is None or self.prior.y.is_floating_point() else set(labels.tolist())
        if classes is not None and not classes <= set(torch.unique(self.prior.y).tolist()):
            raise ValueError("Newton: the hints give a secret a label that no prior record has. Add some to the prior.")
        if not released.isfinite().all():
            return self.blind(labels)
        span = record_span(self.exact, release)
        sets: SetProblem
        if span is None and self.exact.unknowns > MOST_NUMBERS:
            sets = ProductSets.of_numbers(self.exact, self.quick, self.prior, release)
            polisher: SetPolisher = ProductPolisher.of(sets, self.exact, self.published, self.jacobians)
        else:
            sets = SetProblem.of(self.exact, self.quick, self.prior, release, span)
            polisher = SetPolisher.of(sets, self.exact, self.published, self.jacobians)
        shown_by_space = self._corners(sets)
        sure = shown_by_space.sure  # (f, r)
        nearly = self._nearly_shown(shown_by_space)
        best: Inversion | None = None
        shown: Inversion | None = None  # corners, where there is one for every record
        for a, start_classes in self._tries(sets, shown_by_space, labels):
            label = torch.tensor(start_classes, device=a.device)
            first = best is None and len(sure) == self.exact.secrets  # all corners: few steps lead to the records
            inversion = polisher.solve(a, label, RACING if first or nearly else self.jacobians, released)
            if inversion.explained:
                return inversion
            best = inversion if best is None or inversion.residual < best.residual else best
            if first:
                shown = polisher.unexplained(inversion, a, label, released)
                if labels is None and (mended := self._mended(sets, polisher, shown, released, RACING)):
                    return mended
        assert best is not None  # there is a first start
        if labels is None and not nearly and (mended := self._mended(sets, polisher, best, released, self.jacobians)):
            return mended
        if shown is not None:  # training may have been another; of tables, a corner may be no record
            return shown
        if len(sure):
            a = sets.unknowns(best.record).view(self.exact.secrets, -1)
            rows, places = linear_sum_assignment(torch.cdist(sure, a).cpu().numpy())
            a[torch.from_numpy(places).to(a.device)] = sure[torch.from_numpy(rows).to(a.device)]
            best = polisher.unexplained(best, a.flatten(), best.label, released)
        return best

    def _mended(
        self, sets: SetProblem, polisher: SetPolisher, near: Inversion, released: Tensor, jacobians: int
    ) -> Inversion | None:
        """From these records with one label changed, whose models are closest first, if one explains the release."""
        changed = self._one_changed(tuple(near.label.tolist()))
        if self.prior.y.is_floating_point() or not changed:  # of one class
            return None
        a = sets.unknowns(near.record)
        labels = torch.tensor(changed, device=a.device)
        for row in sets.distances(a.expand(len(changed), -1), labels).argsort()[:LABELLINGS].tolist():
            inversion = polisher.solve(a, labels[row], jacobians, released)
            if inversion.explained:
                return inversion
        return None

    def _one_changed(self, classes: Classes) -> list[Classes]:
        """The same with one class changed."""
        present = torch.unique(self.prior.y).tolist()
        return [
            (*classes[:place], other, *classes[place + 1 :])
            for place, before in enumerate(classes)
            for other in present
            if other != before
        ]

    def blind(self, labels: Tensor | None) -> Inversion:
        """Class means, for a victim whose training diverged."""
        z, y, k = flat(self.prior), classes_of(self.prior.y), self.exact.secrets
        classes: Classes = (int(y.mode().values),) * k
        if labels is not None and not self.prior.y.is_floating_point():
            classes = tuple(labels.tolist())
        variance, label = z.var(0, correction=0)[: self.exact.numbers].expand(k, -1), torch.tensor(classes).to(y)
        (means,), unseen = means_of(z, y, [classes]), z.new_zeros(1)
        return Inversion(means, label, torch.inf, 0.0, variance, variance, unseen, determined=False, jacobians=0)

    def _corners(self, sets: SetProblem, before: Corners | None = None, near: Tensor | None = None) -> Corners:
        """Records that their space and the range of their numbers give away; or, near guesses (g, d), more of them."""
        length = (1 + self.prior.x.double().flatten(1).square().sum(1)).sqrt()  # of [x, 1]
        noise = 0.0 if sets.span is None else sets.span.noise * float(length.mean())
        if sets.span is None or not sets.inside.bounded or noise > BLURRED:
            none = sets.released.new_zeros(0, len(sets.inside.record.directions))
            return Corners(none, none)
        space, low, high, _ = sets.inside
        return corners(space, low, high, self._shuffled(), self.exact.secrets, noise, before, near)

    def _nearly_shown(self, found: Corners) -> bool:
        """True for a large set that corners show most of: labels and the rest are solved for first, or never."""
        k = self.exact.secrets
        return len(found.sure) >= FOUND * k and k * (k - 1) > MANY

    def _shuffled(self) -> Tensor:
        """(n, d) the prior's records."""
        order = generator(self.seed, "adversary", "corners").permutation(len(self.prior))
        return self.prior.x.double().flatten(1)[torch.from_numpy(order).to(self.prior.x.device)]

    def _tries(self, sets: SetProblem, shown: Corners, labels: Tensor | None) -> Iterator[tuple[Tensor, Classes]]:
        """Starts (r,) and their classes: from corners, if there are many, then from means."""
        if len(shown.sure) >= FOUND * self.exact.secrets:
            yield from self._completed(sets, shown, labels)
        if not self._nearly_shown(shown):
            for classes in self.labellings(sets, labels):
                for start in self.starts(sets, classes):
                    yield sets.problem.coordinates.of_records(start), classes

    def _completed(self, sets: SetProblem, shown: Corners, labels: Tensor | None) -> Iterator[tuple[Tensor, Classes]]:
        """Corners, with means of a few prior records in place of those that are missing, and their classes.

        Doubtful corners come before means. If there are enough of them, they are first taken for records: a corner that
        is none is often close to one, and a few steps lead there. Where the records that training is solved for lead to
        corners, it starts again with these.
        """
        sure, doubtful = shown
        free, templates = self.exact.secrets - len(sure), self._shuffled()
        present = torch.unique(self.prior.y).tolist()
        ordered = self.exact.trainer.batches.size is not None and labels is not None
        if 0 < free <= len(doubtful) and not ordered:
            soft = soft_labels(sets, torch.cat([sure, doubtful[:free]]), present, 0, self.jacobians)
            if soft.left < EXPLAINED:
                yield soft.labelled(labels)
        starts = FEW_STARTS if self._nearly_shown(shown) else STARTS
        for turn in range(starts if free else 1):
            rows = torch.arange(AVERAGED * free, device=sure.device) + turn * AVERAGED * free
            others = templates[rows % len(templates)].view(free, AVERAGED, templates.shape[1]).sum(1) / AVERAGED
            a = torch.cat([sure, sets.inside.record.of_records(others)])  # (k, r)
            if turn == 0:
                likely = doubtful[:free]
                a[len(sure) : len(sure) + len(likely)] = likely
            if ordered:  # each in the place of a label whose mean is near
                assert labels is not None
                means = torch.stack([self.prior.x[self.prior.y == y].double().mean(0).flatten() for y in labels])
                places = linear_sum_assignment(torch.cdist(means, sets.inside.record(a)).square().cpu().numpy())[1]
                yield a[torch.from_numpy(places).to(a.device)].flatten(), tuple(labels.tolist())
                continue
            soft = soft_labels(sets, a, present, free, self.jacobians)
            if free:  # what training gives of the others may lead to their corners
                more = self._corners(sets, shown, sets.inside.record(soft.a[:free]))
                if len(more.sure) > len(sure):
                    yield from self._completed(sets, more, labels)
                    return
            yield soft.labelled(labels)

    def starts(self, sets: SetProblem, classes: Classes) -> Tensor:
        """(s, u) the means of the classes or of a few drawn records each, those whose models are closest first."""
        z, y = flat(sets.prior), classes_of(self.prior.y)
        random = generator(self.seed, "adversary", "sets")
        rows = [(y == label).nonzero()[:, 0].cpu().numpy() for label in classes]
        drawn = [
            torch.cat([z[random.choice(mine, min(AVERAGED, len(mine)), replace=False)].mean(0) for mine in rows])
            for _ in range(DRAWN)
        ]
        starts = torch.cat([means_of(z, y, [classes]), torch.stack(drawn)])
        label = torch.tensor(classes, device=z.device).expand(len(starts), -1)
        return starts[sets.distances(sets.problem.coordinates.of_records(starts), label).argsort()[:STARTS]]

    def labellings(self, sets: SetProblem, labels: Tensor | None) -> list[Classes]:
        """The labels, if given; else the likeliest.

        Labels change one at a time, while the last layers of models trained on class means come closer to the release;
        of the closest, those are the likeliest that explain most of it after a few steps.
        """
        if self.prior.y.is_floating_point():
            return [(0,) * self.exact.secrets]
        if labels is not None:
            return [tuple(labels.tolist())]
        present = torch.unique(self.prior.y).tolist()
        here: Classes = tuple(sorted(present[place % len(present)] for place in range(self.exact.secrets)))
        distances = self._distances(sets, [here])
        while True:
            near = {tuple(sorted(classes)) for classes in self._one_changed(here)}
            distances |= self._distances(sets, sorted(near - distances.keys()))
            closest = min(distances, key=distances.__getitem__)
            if closest == here:
                break
            here = closest
        raced = {}
        for classes in sorted(distances, key=distances.__getitem__)[:RACED]:
            start = sets.problem.coordinates.of_records(self.starts(sets, classes)[0])
            raced[classes] = sets.descend(start, torch.tensor(classes, device=start.device), RACING).point.distance
        return sorted(raced, key=raced.__getitem__)[:LABELLINGS]

    def _distances(self, sets: SetProblem, labellings: list[Classes]) -> dict[Classes, float]:
        """How far the last layers of models trained on class means are from that of the release."""
        if not labellings:
            return {}
        z, sizes = flat(sets.prior), [value.numel() for value in trainable(self.exact.net).values()]
        a = sets.problem.coordinates.of_records(means_of(z, self.prior.y, labellings))
        last = slice(-sum(sizes[-2:]), None)  # its bias moves by the counts of the labels, less the predictions
        far = sets.distances(a, torch.tensor(labellings, device=a.device), last)
        return dict(zip(labellings, far.tolist(), strict=True))
