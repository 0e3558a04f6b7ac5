"""Newton's method for a whole training set of which no record is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.attacks.newton.bank import Classes, means_of
from lostwax.attacks.newton.corners import Corners, corners
from lostwax.attacks.newton.inverter import MANY, Inversion, Inverting
from lostwax.attacks.newton.record_span import record_span
from lostwax.attacks.newton.set_problem import SetPolisher, SetProblem
from lostwax.attacks.newton.soft_labels import Soft, soft_labels
from lostwax.attacks.newton.training_map import Published, TrainingMap
from lostwax.games import Hints, Records, Release
from lostwax.learning.coordinates import flat
from lostwax.progress import progress
from lostwax.seeds import generator

RACED, RACING = 16, 3  # combinations of labels that take this many steps, where labels are unknown
LABELLINGS = 4  # of them that are followed to the end
STARTS, FEW_STARTS = 5, 2  # for each of them, at most; the same for large sets that corners show most of
MOST_NUMBERS = 20_000  # unknown: a square table of them takes 3 GB
DRAWN, AVERAGED = 256, 3  # starts that are compared, and prior records that one averages for each secret
BLURRED = 3e-2  # of the range: the most noise in which corners are looked for
EXPLAINED = 0.1  # of the residual: if labels leave more of it, a corner is no record, and far from any
FOUND = 0.5  # of the records: the fewest corners that a search begins with


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
        games = len(release.flat())
        given = [None] * games if hints is None or hints.labels is None else list(hints.labels)
        found = []
        with progress("Newton's method: training sets", games) as advance:
            for number in range(games):
                one = Release({name: value[number : number + 1] for name, value in release.params.items()})
                found.append(self._inverted(one, given[number]))
                advance(1)
        return found

    def _inverted(self, release: Release, labels: Tensor | None) -> Inversion:
        """From one start after another, until one explains the release."""
        device = self.prior.x.device
        release = Release({name: value.to(device) for name, value in release.params.items()})
        released = self.exact.in_units(release.flat().double())  # (1, p)
        if labels is not None and not self.prior.y.is_floating_point():
            self._check_given(labels)
        if not released.isfinite().all():
            return self._blind(labels)
        span = record_span(self.exact, release)
        if span is None and self.exact.unknowns > MOST_NUMBERS:
            raise ValueError(
                f"Newton: the first layer does not show the space of the records, and {self.exact.unknowns} unknown "
                "numbers are too many for its tables. Use a smaller training set."
            )
        sets = SetProblem.of(self.exact, self.quick, self.prior, release, span)
        polisher = SetPolisher.of(sets, self.exact, self.published, self.jacobians)
        shown_by_space = self._corners(sets)
        found = shown_by_space.sure  # (f, r)
        nearly = self._nearly_shown(shown_by_space)
        best: Inversion | None = None
        shown: Inversion | None = None  # corners, where there is one for every record
        for a, classes in self._tries(sets, shown_by_space, labels):
            label = torch.tensor(classes, device=device)
            first = best is None and len(found) == self.exact.secrets  # all corners: few steps lead to the records
            one = polisher.solve(a, label, RACING if first or nearly else self.jacobians, released)
            if one.explained:
                return one
            best = one if best is None or one.residual < best.residual else best
            if first:
                shown = polisher.unexplained(one, a, label, released)
                if labels is None and (mended := self._mended(sets, polisher, shown, released, RACING)):
                    return mended
        assert best is not None  # there is a first start
        if labels is None and not nearly and (mended := self._mended(sets, polisher, best, released, self.jacobians)):
            return mended
        if shown is not None:  # training may have been another; of tables, a corner may be no record
            return shown
        if len(found):
            a = sets.unknowns(best.record).view(self.exact.secrets, -1)
            rows, places = linear_sum_assignment(torch.cdist(found, a).cpu().numpy())
            a[torch.from_numpy(places).to(a.device)] = found[torch.from_numpy(rows).to(a.device)]
            best = polisher.unexplained(best, a.flatten(), best.label, released)
        return best

    def _mended(
        self, sets: SetProblem, polisher: SetPolisher, near: Inversion, released: Tensor, jacobians: int
    ) -> Inversion | None:
        """From these records with one label changed, if that explains the release."""
        if self.prior.y.is_floating_point():
            return None
        a = sets.unknowns(near.record)
        for classes in self._relabelled(sets, a, near.label):
            one = polisher.solve(a, torch.tensor(classes, device=a.device), jacobians, released)
            if one.explained:
                return one
        return None

    def _blind(self, labels: Tensor | None) -> Inversion:
        """Class means, for a victim whose training diverged."""
        z, y, k = flat(self.prior), self._classes(), self.exact.secrets
        classes: Classes = (int(y.mode().values),) * k
        if labels is not None and not self.prior.y.is_floating_point():
            classes = tuple(labels.tolist())
        variance = z.var(0, correction=0)[: self.exact.numbers].expand(k, -1)
        return Inversion(
            record=means_of(z, y, classes),
            label=torch.tensor(classes, device=z.device),
            residual=torch.inf,
            rounding=0.0,
            variance=variance,
            prior_variance=variance,
            directions=z.new_zeros(1),
            determined=False,
            jacobians=0,
        )

    def _corners(self, sets: SetProblem, found: Corners | None = None, near: Tensor | None = None) -> Corners:
        """Records that their space and the range of their numbers give away; or, near guesses (g, d), more of them."""
        none = sets.released.new_zeros(0, len(sets.inside.one.directions))
        if sets.span is None or not sets.inside.bounded:
            return Corners(none, none)
        length = (1 + self.prior.x.double().flatten(1).square().sum(1)).sqrt()  # of [x, 1]
        noise = sets.span.noise * float(length.mean())
        low, high = sets.inside.low, sets.inside.high
        if noise > BLURRED:
            return Corners(none, none)
        return corners(sets.inside.one, low, high, self._shuffled(), self.exact.secrets, noise, found, near)

    def _nearly_shown(self, found: Corners) -> bool:
        """True for a large set that corners show most of: labels and the rest are solved for first, or never."""
        k = self.exact.secrets
        return len(found.sure) >= FOUND * k and k * (k - 1) > MANY

    def _shuffled(self) -> Tensor:
        """(n, d) the prior's records."""
        order = generator(self.seed, "adversary", "corners").permutation(len(self.prior))
        return self.prior.x.double().flatten(1)[torch.from_numpy(order).to(self.prior.x.device)]

    def _tries(self, sets: SetProblem, found: Corners, labels: Tensor | None) -> Iterator[tuple[Tensor, Classes]]:
        """Starts (r,) and their classes: from corners, if there are many, then from means."""
        if len(found.sure) >= FOUND * self.exact.secrets:
            yield from self._completed(sets, found, labels)
        if self._nearly_shown(found):
            return
        for classes in self._labellings(sets, labels):
            for start in self._starts(sets, classes):
                yield sets.problem.coordinates.of_records(start), classes

    def _completed(self, sets: SetProblem, found: Corners, labels: Tensor | None) -> Iterator[tuple[Tensor, Classes]]:
        """Corners, with means of a few prior records in place of those that are missing, and their classes.

        Doubtful corners come before means. If there are enough of them, they are first taken for records: a corner that
        is none is often close to one, and a few steps lead there. Where the records that training is solved for lead to
        corners, it starts again with these.
        """
        free, templates = self.exact.secrets - len(found.sure), self._shuffled()
        present = torch.unique(self.prior.y).tolist()
        ordered = self.exact.trainer.batches.size is not None and labels is not None
        if 0 < free <= len(found.doubtful) and not ordered:
            soft = soft_labels(sets, torch.cat([found.sure, found.doubtful[:free]]), present, 0, self.jacobians)
            if soft.left < EXPLAINED:
                yield self._labelled(soft, labels)
        starts = FEW_STARTS if self._nearly_shown(found) else STARTS
        for turn in range(starts if free else 1):
            rows = torch.arange(AVERAGED * free, device=found.sure.device) + turn * AVERAGED * free
            others = templates[rows % len(templates)].view(free, AVERAGED, templates.shape[1]).sum(1) / AVERAGED
            a = torch.cat([found.sure, sets.inside.one.of_records(others)])  # (k, r)
            if turn == 0:
                likely = found.doubtful[:free]
                a[len(found.sure) : len(found.sure) + len(likely)] = likely
            if ordered:
                assert labels is not None
                yield self._in_order(sets, a, labels), tuple(labels.tolist())
                continue
            soft = soft_labels(sets, a, present, free, self.jacobians)
            if free:  # what training gives of the others may lead to their corners
                more = self._corners(sets, found, sets.inside.one(soft.a[:free]))
                if len(more.sure) > len(found.sure):
                    yield from self._completed(sets, more, labels)
                    return
            yield self._labelled(soft, labels)

    @staticmethod
    def _labelled(soft: Soft, labels: Tensor | None) -> tuple[Tensor, Classes]:
        """The records (r,) with their labels, or in the order of those that are given."""
        start, label = soft.labelled() if labels is None else (soft.ordered(labels), labels)
        return start, tuple(label.tolist())

    def _in_order(self, sets: SetProblem, a: Tensor, labels: Tensor) -> Tensor:
        """(k r,) unknowns (k, r) of records, each in the place of a label whose mean is near."""
        means = torch.stack([self.prior.x[self.prior.y == one].double().mean(0).flatten() for one in labels])
        places = linear_sum_assignment(torch.cdist(means, sets.inside.one(a)).square().cpu().numpy())[1]
        return a[torch.from_numpy(places).to(a.device)].flatten()

    def _relabelled(self, sets: SetProblem, a: Tensor, label: Tensor) -> list[Classes]:
        """The labels of these records with one changed, whose models are closest to the release first."""
        here, present = label.tolist(), torch.unique(self.prior.y).tolist()
        changed = [
            (*here[:place], other, *here[place + 1 :])
            for place in range(len(here))
            for other in present
            if other != here[place]
        ]
        if not changed:  # of one class
            return []
        z = sets.problem.coordinates(a).expand(len(changed), -1)
        models = sets.problem.quick(z, torch.tensor(changed, device=a.device))
        far = (models.double() - sets.released).norm(dim=1).nan_to_num(torch.inf)
        return [changed[row] for row in far.argsort()[:LABELLINGS].tolist()]

    def _starts(self, sets: SetProblem, classes: Classes) -> Tensor:
        """(s, u) the means of the classes or of a few drawn records each, those whose models are closest first."""
        z, y, coordinates = flat(sets.prior), self._classes(), sets.problem.coordinates
        random = generator(self.seed, "adversary", "sets")
        rows = [(y == label).nonzero()[:, 0].cpu().numpy() for label in classes]
        drawn = [
            torch.cat([z[random.choice(mine, min(AVERAGED, len(mine)), replace=False)].mean(0) for mine in rows])
            for _ in range(DRAWN)
        ]
        starts = torch.stack([means_of(z, y, classes), *drawn])
        label = torch.tensor(classes, device=z.device).expand(len(starts), -1)
        models = sets.problem.quick(coordinates(coordinates.of_records(starts)), label).double()
        far = (models - sets.released).norm(dim=1).nan_to_num(torch.inf)
        return starts[far.argsort()[:STARTS]]

    def _classes(self) -> Tensor:
        y = self.prior.y
        return torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y

    def _check_given(self, labels: Tensor) -> None:
        if not set(labels.tolist()) <= set(torch.unique(self.prior.y).tolist()):
            raise ValueError("Newton: the hints give a secret a label that no prior record has. Add some to the prior.")

    def _labellings(self, sets: SetProblem, labels: Tensor | None) -> list[Classes]:
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
            near = {
                tuple(sorted((*here[:place], other, *here[place + 1 :])))
                for place in range(len(here))
                for other in present
            }
            distances |= self._distances(sets, sorted(near - distances.keys()))
            closest = min(distances, key=lambda one: distances[one])
            if closest == here:
                break
            here = closest
        raced = {}
        for classes in sorted(distances, key=lambda one: distances[one])[:RACED]:
            start = sets.problem.coordinates.of_records(self._starts(sets, classes)[0])
            raced[classes] = sets.descend(start, torch.tensor(classes, device=start.device), RACING).point.distance
        return sorted(raced, key=lambda one: raced[one])[:LABELLINGS]

    def _distances(self, sets: SetProblem, labellings: list[Classes]) -> dict[Classes, float]:
        """How far the last layers of models trained on class means are from that of the release."""
        if not labellings:
            return {}
        z, label, coordinates = flat(sets.prior), torch.tensor(labellings), sets.problem.coordinates
        means = torch.stack([means_of(z, self.prior.y, one) for one in labellings])
        trained = sets.problem.quick(coordinates(coordinates.of_records(means)), label.to(z.device)).double()
        sizes = [value.numel() for value in self.exact.net.parameters() if value.requires_grad]
        last = slice(-sum(sizes[-2:]), None)  # its bias moves by the counts of the labels, less the predictions
        far = (trained - sets.released)[:, last].norm(dim=1).nan_to_num(torch.inf)
        return dict(zip(labellings, far.tolist(), strict=True))
