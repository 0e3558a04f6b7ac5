"""The equations of a whole training set, in the space that its records span where that is seen, and their descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.least_squares import Factored, Point, Rule
from lostwax.attacks.newton.inverter import MANY, WEAKEST, Inversion, Polisher, Posterior, TrainingSearch, noise_of
from lostwax.attacks.newton.misfit import OtherRecords
from lostwax.attacks.newton.training_map import GOOD, NEARLY, Problem, Published, TrainingMap
from lostwax.games import Records, Release
from lostwax.inits import FromNet, trainable
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.decoders import Span
from lostwax.progress import progress

PLAIN_NAMES = {"weight", "bias"}  # of a layer whose weights are not computed from others
RANK_NOISE = 100  # times the rounding of the weights: smaller singular values are none


class RecordSpan(NamedTuple):
    """The affine space of r - 1 dimensions that k records span: [x, 1] = [a, constant] rows."""

    layer: str  # prefix of the parameters
    rows: Tensor  # (r, d + 1) orthonormal; all but the last end with 0
    complete: bool  # r = k, or r = d + 1, which is all of it: no record may have been lost in rounding
    noise: float  # error of a number of a record in the space, for each unit of the length of [x, 1]

    @property
    def constant(self) -> float:
        """What the last row is multiplied with."""
        return 1 / float(self.rows[-1, -1])

    @property
    def points(self) -> Coordinates:
        """a -> x."""
        return Coordinates.anywhere(self.constant * self.rows[-1, :-1], self.rows[:-1, :-1])

    def reduced_map(self, weights: TrainingMap) -> TrainingMap:
        """The same training on inputs [a, constant]: by the rows' orthonormality, with the same steps.

        The first layer then has r inputs instead of d, whatever d is.
        """
        start = {name: value[0].double() for name, value in weights.trainer.init(weights.net, [0], seed=0).items()}
        net = deepcopy(weights.net).double().to(self.rows.device)
        ours = _extended(start, self.layer).to(self.rows) @ self.rows.mT  # (h, r)
        layer = nn.Linear(ours.shape[1], ours.shape[0], bias=False, dtype=ours.dtype, device=ours.device)
        if self.layer:
            place, _, name = self.layer.removesuffix(".").rpartition(".")
            setattr(net.get_submodule(place), name, layer)
        else:
            net = layer
        with torch.no_grad():
            for name, value in trainable(net).items():
                value.copy_(ours if name == f"{self.layer}weight" else start[name])
        known = Records(weights.known.x.new_zeros(0, len(self.rows)), weights.known.y)
        trainer, units = replace(weights.trainer, init=FromNet()), weights.units
        if units is not None:  # a defence's noise has the same size along the rows
            sizes = {name: value.numel() for name, value in trainable(weights.net).items()}
            parts = dict(zip(sizes, torch.split(units, list(sizes.values())), strict=True))
            parts[f"{self.layer}weight"] = parts[f"{self.layer}weight"][:1].expand(ours.numel())
            units = torch.cat([part for name, part in parts.items() if name != f"{self.layer}bias"])
        return replace(weights, net=net, trainer=trainer, known=known, units=units)

    def reduced(self, release: Release) -> Tensor:
        """(1, p') the release of one model, as `reduced_map` gives it: what it has outside is left out."""
        params = {name: value[0].double() for name, value in release.params.items()}
        ours = _extended(params, self.layer).to(self.rows) @ self.rows.mT
        names = [name for name in params if name != f"{self.layer}bias"]
        return torch.cat([(ours if name == f"{self.layer}weight" else params[name]).flatten() for name in names])[None]

    def inputs(self, x: Tensor) -> Tensor:
        """(n, r) those of the reduced map that are nearest to records (n, ...)."""
        a = self.points.of_records(x.double().flatten(1))
        return torch.cat([a, torch.full_like(a[:, :1], self.constant)], 1)


def record_span(weights: TrainingMap, release: Release) -> RecordSpan | None:
    """The space that the k records of a release span; None if it is not seen.

    A linear layer that reads the records moves by outer products, whatever the rest of the net and the steps are:

        [W_T - c W_0,  b_T - c b_0]  =  sum_i a_i [x_i, 1]^T,      c: what weight decay leaves of the start,

    so that the rows span [x_i, 1], if there are at least as many neurons as records; in a linear softmax head, more
    classes than records, for its residuals sum to 0 over the classes. n records of d numbers then have n (n - 1)
    unknowns instead of n d. A record that moved the layer by less than rounding is not seen. Of a defended
    release the space is known only roughly; it is used if all records move the layer by more than the noise does.
    """
    name = first_layer(weights.net, weights.numbers)
    if name is None or not weights.trainer.linear_update:
        return None
    k, start = weights.secrets, weights.trainer.init(weights.net, [0], seed=0)
    released = _extended({key: value[0] for key, value in release.params.items()}, name)  # (h, d + 1)
    begun = _extended({key: value[0].to(released) for key, value in start.items()}, name)
    # c, by training on records of zeros, which do not move the weights of the layer
    zeros = torch.zeros(1, weights.unknowns, device=begun.device)
    labels = torch.zeros(1, k, dtype=torch.long, device=begun.device)
    left = weights.trainer(weights.net, weights.cohort(zeros, labels), seed=0).params[f"{name}weight"][0].double()
    decay = float((left * begun[:, :-1]).sum() / begun[:, :-1].square().sum().clamp_min(1e-300))
    moved = released - decay * begun
    if not moved.isfinite().all():  # training diverged
        return None
    _, sizes, rows = torch.linalg.svd(moved, full_matrices=False)
    steps, eps = weights.trainer.batches.steps(k), torch.finfo(next(iter(release.params.values())).dtype).eps
    rounding = eps * steps**0.5 * float(released.norm())
    seen = max(float(sizes[k]), eps * float(sizes[0])) if len(sizes) > k else rounding  # beyond k there is nothing else
    rank, unit = (
        int((sizes > RANK_NOISE * min(rounding, seen)).sum()),
        rounding / released.numel() ** 0.5,
    )  # of a weight
    if weights.units is not None:
        tensors = {key: value.numel() for key, value in trainable(weights.net).items()}
        before = sum(list(tensors.values())[: list(tensors).index(f"{name}weight")])
        unit = float(weights.units[before])  # of a weight of the layer
        noise = unit * sum(side**0.5 for side in moved.shape)  # its largest singular value
        rank = k if len(sizes) >= k and float(sizes[k - 1]) > 2 * noise else 0
    if not 1 < rank <= k or (rank < k and len(moved) <= k):  # not a sum of k records, or neurons hide some of them
        return None
    # (rank, d + 1): [x, 1] = m basis. Singular vectors may be orthonormal only roughly (on a GPU), Q is to rounding
    basis = torch.linalg.qr(rows[:rank].mT).Q.mT
    last = basis[:, -1:]
    if float(last.norm()) <= RANK_NOISE * torch.finfo(last.dtype).eps:
        return None
    turn = torch.linalg.qr(last, mode="complete").Q.mT  # (rank, rank) the first row along the last column
    turned = torch.cat([turn[1:], turn[:1] * (turn[0] @ last).sign()]) @ basis
    turned[:-1, -1] = 0.0
    complete = rank in (k, moved.shape[1]) and weights.units is None
    return RecordSpan(name, turned, complete, unit / float(sizes[rank - 1]))


def first_layer(net: nn.Module, numbers: int) -> str | None:
    """The prefix of the parameters of a trained linear layer with a bias that reads all numbers of a record."""
    if type(net) is nn.Linear:
        trained = all(part is not None and part.requires_grad for part in (net.weight, net.bias))
        plain = set(dict(net.named_parameters())) == PLAIN_NAMES
        return "" if trained and plain and net.in_features == numbers else None
    for name, layer in net.named_children() if isinstance(net, nn.Sequential) else ():
        if not isinstance(layer, nn.Flatten | nn.Identity):
            inner = first_layer(layer, numbers)
            return None if inner is None else f"{name}.{inner}"
    return None


def _extended(params: Mapping[str, Tensor], name: str) -> Tensor:
    """(h, d + 1) weights and bias of the layer of one model."""
    weight, bias = params[f"{name}weight"], params[f"{name}bias"]
    return torch.cat([weight, bias.unsqueeze(1)], 1).double()


STALLED = 0.999  # of the residual
FIRST_DAMPING = 1e-2  # of the mean curvature
RULE = Rule((0.04, 0.2, 1.0, 5.0, 25.0, 125.0), stalled=STALLED, raised=125.0, damping_range=(1e-15, 1e4))
FINISHED = 1e-5  # of the weights: from here on it is polished
NEAR = 1e-3  # of the weights: from here on a few steps of all records are enough; one wrong label among 100 leaves 0.06
EXACT = 3  # Jacobians in float64, at most
OUTSIDE = 0.02  # of the mean curvature: the price of a number outside its range


class NumberRange(NamedTuple):
    """Numbers of some of the unknown records, and their range: those outside are drawn back."""

    record: Coordinates  # from the unknowns of a record to all its numbers
    low: Tensor  # (d,), -inf for none
    high: Tensor  # (d,)
    records: int  # k; their unknowns come first

    @classmethod
    def of(cls, prior: Records, record: Coordinates, records: int) -> NumberRange:
        """[0, 1] or [-1, 1] for pixels; else any number."""
        span, d = Span.of(prior.x.double()), prior.x.shape[1:].numel()
        high = torch.full_like(record.origin, torch.inf)
        low = -high
        if span.bounded:
            low[:d], high[:d] = float(span.shift[span.scale > 0].min()) if (span.scale > 0).any() else 0.0, 1.0
        return cls(record, low, high, records)

    @property
    def bounded(self) -> bool:
        """True if all numbers are pixels."""
        return bool(self.low.isfinite().all())

    def numbers(self, a: Tensor) -> Tensor:
        """(..., k, d) of unknowns (..., r)."""
        r = len(self.record.directions)
        return self.record(a[..., : self.records * r].reshape(*a.shape[:-1], self.records, r))

    def excess(self, a: Tensor) -> Tensor:
        """(..., k, d) how far the numbers are outside: negative below, positive above, else 0."""
        z = self.numbers(a)
        return (z - self.high).clamp_min(0) - (self.low - z).clamp_min(0)


@dataclass(frozen=True, eq=False)
class SetProblem:
    """Training on k unknown records, and the release that it is to give."""

    problem: Problem[Any]
    released: Tensor  # (1, p')
    prior: Records  # with the inputs of the problem's maps
    inside: NumberRange
    span: RecordSpan | None  # None: not seen, all numbers are unknown

    @classmethod
    def of(
        cls, exact: TrainingMap, quick: TrainingMap, prior: Records, release: Release, span: RecordSpan | None
    ) -> SetProblem:
        """In the space, if it is seen: the training map has r inputs instead of d then."""
        k, d, of_record = exact.secrets, exact.numbers, Coordinates.of(prior)
        if span is None:
            released = exact.in_units(release.flat().double())
            inside = NumberRange.of(prior, of_record, k)
            return cls(Problem(exact, quick, of_record.times(k)), released, prior, inside, None)
        of_label = of_record.directions[of_record.directions[:, d:].any(1)][:, d:]  # (s, e) where labels are numbers

        def labelled(origin: Tensor, directions: Tensor) -> Coordinates:
            """Each record followed by its label."""
            pad, e = nn.functional.pad, of_label.shape[1]
            both = torch.cat([pad(directions, (0, e)), pad(of_label, (len(origin), 0))])
            return Coordinates.anywhere(torch.cat([origin, of_record.origin[d:]]), both)

        inputs = torch.eye(len(span.rows)).to(span.rows)
        ours, record = labelled(span.constant * inputs[-1], inputs[:-1]), labelled(*span.points[:2])
        problem: Problem[Any] = Problem(span.reduced_map(exact), span.reduced_map(quick), ours.times(k))
        released = problem.exact.in_units(span.reduced(release))
        return cls(problem, released, Records(span.inputs(prior.x), prior.y), NumberRange.of(prior, record, k), span)

    def unknowns(self, record: Tensor) -> Tensor:
        """(r,) of all numbers (u,) of k records."""
        coordinates = self.inside.record
        return coordinates.of_records(record.view(self.inside.records, len(coordinates.origin))).flatten()

    def point(self, a: Tensor, label: Tensor) -> Point:
        """Unknowns (r,) of classes (k,), trained on."""
        return self.problem.points(a[None], label[None], self.released)[0]

    def distances(self, a: Tensor, label: Tensor, weights: slice = slice(None)) -> Tensor:
        """(s,) of models quickly trained on unknowns (s, r) of classes (s, k) from the release, in some weights."""
        models = self.problem.quick(self.problem.coordinates(a), label).double()
        far: Tensor = (models - self.released)[:, weights].norm(dim=1)
        return far.nan_to_num(torch.inf)

    def near(self, a: Tensor, label: Tensor) -> bool:
        """True if unknowns (r,) of classes (k,) need no more than a few steps."""
        return self.point(a, label).distance <= NEAR * float(self.released.norm())

    def descend(self, a: Tensor, label: Tensor, jacobians: int) -> TrainingSearch:
        """From unknowns (r,) of classes (k,)."""
        return descend(self.problem, self.inside, self.point(a, label), self.released, jacobians)


@dataclass(frozen=True, eq=False)
class SetPolisher(Polisher):
    """The end of a search for a training set: evidence for all numbers, by training on them."""

    sets: SetProblem
    whole: TrainingMap  # of all numbers

    @classmethod
    def of(cls, sets: SetProblem, whole: TrainingMap, published: Published, jacobians: int) -> SetPolisher:
        """With mean and variance of the prior's unknowns, and that of numbers which they leave out."""
        z = flat(sets.prior).repeat(1, whole.secrets)  # (n, u')
        unknowns = sets.problem.coordinates.of_records(z)  # (n, r)
        left_out = (z - sets.problem.coordinates(unknowns)).square().mean(0)
        variance = unknowns.var(0, correction=0).clamp_min(1e-30)
        others = OtherRecords.of(sets.prior, published.seed)
        return cls(sets.problem, published, unknowns.mean(0), variance, left_out, others, jacobians, sets, whole)

    def solve(self, a: Tensor, label: Tensor, jacobians: int, released: Tensor) -> Inversion:
        """The records, from unknowns (r,) of classes (k,), with at most so many Jacobians until they are near.

        By quick Jacobians, and by factors where these do not explain what is nearly explained; of many unknowns, quick
        Jacobians do not see enough. Residual and rounding are those of all weights (1, p).
        """
        sets, inversion = self.sets, None
        if len(a) > MANY and not self.published.defended and sets.near(a, label):
            inversion = self._by_factors(sets.point(a, label), 0)
        if inversion is None or not inversion.explained:
            (inversion,) = self.finish([sets.descend(a, label, jacobians)])
            nearly = inversion.residual <= FINISHED * float(sets.released.norm()) and not inversion.explained
            if nearly and not self.published.defended:
                point = sets.point(self.problem.coordinates.of_records(inversion.record), inversion.label)
                again = self._by_factors(point, inversion.jacobians)
                inversion = inversion if again is None or again.residual >= inversion.residual else again
        if sets.span is None:
            return inversion
        squares, r, d = sets.inside.record.directions.square(), len(sets.span.rows), self.whole.numbers
        variance, prior = (
            part[:, : r - 1] @ squares[: r - 1, :d] for part in (inversion.variance, inversion.prior_variance)
        )  # (k, d)
        record = sets.inside.numbers(self.problem.coordinates.of_records(inversion.record)).flatten()
        residual = inversion.residual  # of a defended release only what is within the space
        if not self.published.defended:
            residual = float((self.whole(record[None], inversion.label[None]) - released).norm())
        complete = inversion.determined and sets.span.complete
        return inversion._replace(
            record=record, residual=residual, variance=variance, prior_variance=prior, determined=complete
        )

    def _by_factors(self, point: Point, jacobians: int) -> Inversion | None:
        """From records nearby, with Jacobians in float64; None if these do not see all directions either."""
        deviation, rounding = self.prior_variance.sqrt(), float(self._rounding([point]))
        with progress("Newton's method: Jacobians in float64, at most", EXACT) as advance:
            for _ in range(EXACT):
                factored = self._factored(point)
                if not factored.seen:
                    return None
                before, left, jacobians = point.distance, 0.0, jacobians + 1
                while left < GOOD and point.distance > rounding:  # with one Jacobian, while each leaves little
                    a = self.problem.coordinates.clamped(point.a + deviation * factored.step(point.residual))
                    tried = self.sets.point(a, point.label)
                    if not tried.distance < point.distance:
                        break
                    left, point = tried.distance / point.distance, tried
                advance(1)
                if point.distance <= NEARLY * rounding or point.distance > STALLED * before:
                    break
        weakest = factored.weakest_directions(WEAKEST)
        if not self.problem.moves(point, deviation * weakest, factored.jacobian @ weakest.mT):
            factored, jacobians = self._factored(point), jacobians + 1
            if not factored.seen:
                return None
        moved = deviation * factored.step(point.residual)
        variance = factored.variance(noise_of(point, rounding)) * self.prior_variance
        likeliest = Posterior(point.a, variance, factored.directions, moved, deviation * weakest)
        return self._inversion(point, likeliest, rounding, jacobians)

    def _factored(self, point: Point) -> Factored:
        """Training in float64, linearised at a point, in deviations of the prior."""
        return Factored.of(self.problem.exact_tangents(point.a, point.label).double() * self.prior_variance.sqrt())

    def unexplained(self, nearby: Inversion, a: Tensor, label: Tensor, released: Tensor) -> Inversion:
        """Other unknowns (r,), although training on them gives other weights; their errors if `nearby` had its own."""
        record = self.sets.inside.numbers(a).flatten()
        residual = float((self.whole(record[None], label[None]) - released).norm())
        moved = (record - nearby.record).view(self.whole.secrets, -1)[:, : self.whole.numbers]  # (k, d)
        variance = nearby.variance + moved.square()
        return nearby._replace(record=record, label=label, residual=residual, variance=variance, determined=False)

    def _rounding(self, points: list[Point]) -> Tensor:
        z = torch.stack([self.sets.inside.numbers(point.a).flatten() for point in points])
        label, exact = torch.stack([point.label for point in points]), self.whole.computed_in(torch.float64)
        rounding = self.published.rounding(exact, z, label)
        if self.published.defended and self.sets.span is not None:  # noise is the same in all weights, in their units
            weights = sum(value.numel() for value in trainable(self.whole.net).values())
            rounding = rounding * (self.sets.released.numel() / weights) ** 0.5
        return rounding

    def _is_noise(self, point: Point, jacobian: Tensor) -> bool:
        """Within the space of a defended release nothing is certified, so that nothing is tested."""
        return self.sets.span is not None or super()._is_noise(point, jacobian)

    def _compared(self, inversion: Inversion, point: Point, released: Tensor) -> Inversion:
        """Only if the first layer shows no space: one that does is linear in the records, and mirrors none."""
        return inversion if self.sets.span is not None else super()._compared(inversion, point, released)


@dataclass(frozen=True, eq=False)
class RangedProblem(Problem[TrainingSearch]):
    """|A(z) - theta|^2 + w |excess of z|^2,  of one training set.

    The second term is 0 at the records. It keeps the path away from records that no data set has, where it gets stuck.
    """

    inside: NumberRange | None
    scale: float  # the mean curvature at the start

    @property
    def bounds(self) -> None:
        """None: numbers outside have a price."""

    def values(self, searches: Sequence[TrainingSearch], tried: Tensor, residuals: Tensor) -> Tensor:
        """(1, f) the sum."""
        values = residuals.square().sum(2)
        if self.inside is None:
            return values
        return values + OUTSIDE * self.scale * self.inside.excess(tried).square().sum((2, 3))

    def quadratic(self, search: TrainingSearch) -> tuple[Tensor, Tensor, Tensor | float]:
        """With  w P^T P  and  w P^T excess,  P the directions in the numbers outside, which are to stay there."""
        normal, slope, _ = super().quadratic(search)
        if self.inside is not None:
            normal, weight, along = normal.clone(), OUTSIDE * self.scale, self.inside.record.directions
            for record, excess in enumerate(self.inside.excess(search.point.a)):
                if (out := excess != 0).any():
                    part, outward = slice(record * len(along), (record + 1) * len(along)), along[:, out]  # (r, o)
                    normal[part, part] += weight * outward @ outward.mT
                    slope[part] += weight * outward @ excess[out]
        return normal, slope, self.scale


def descend(
    problem: Problem[Any],
    inside: NumberRange | None,
    point: Point,
    released: Tensor,
    jacobians: int,
    solved: Callable[[Point], bool] | None = None,
    enough: float | None = None,
) -> TrainingSearch:
    """From one point to where the release (1, p) is nearly or `enough` explained, or to a point that is `solved`."""
    linear = problem.linear(point.a, point.label)
    enough = FINISHED * float(released.norm()) if enough is None else enough
    scale = float(linear.normal.diagonal().mean())
    search = TrainingSearch(point, linear, released[0], enough, fresh=True, damping=FIRST_DAMPING)
    if jacobians:
        ranged = RangedProblem(problem.exact, problem.quick, problem.coordinates, inside, scale)
        ranged.descend([search], RULE, jacobians, solved)
    return search
