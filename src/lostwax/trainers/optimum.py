"""Training a linear layer to the exact optimum of its objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Loss, Records, Release, Stationary, Step, TrainerFacts
from lostwax.games.fitted import rounding
from lostwax.losses import CrossEntropy
from lostwax.nets import linear_layer
from lostwax.trainers.refusals import check_data, check_loss, check_outputs
from lostwax.trainers.sparse_optimum import sparse_optimum
from lostwax.trainers.stacked import Architecture

# Newton's method down to the last bits, where other solvers stop early. Columns may differ in scale by many orders of
# magnitude, so steps are taken in unit-free coordinates: centred features, and a Hessian with a unit diagonal. The
# search ends when every coordinate of the gradient is at its own rounding error: a norm would hide small ones.


DENSE_LIMIT = 3_000  # parameters above which the Hessian is never formed, only multiplied with
BLOCK_NUMBERS = 4_000_000  # numbers in memory at a time while it is formed
ITERATIONS = 100
DAMPING = 1e-13  # of each diagonal entry: flat directions (softmax shifts, collinear columns) do not move
NEARLY = 100  # times its rounding error: a gradient that counts as zero if no step makes it smaller
VISIBLE = 1e3  # times the rounding error of the objective: a decrease that shows in its value


@dataclass(frozen=True)
class Polished:
    """The model at its optimum; `converged` is False if there is none."""

    model: Stationary
    converged: bool
    iterations: int


def polish(model: Stationary, table: Records, weight: Tensor) -> Polished:
    """Minimise until every coordinate of the gradient is rounding error; `converged` is False without an optimum."""
    if model.sparse:
        return Polished(*sparse_optimum(model, table, weight))
    problem = _Problem.of(model, table, weight)
    theta = problem.start
    value, gradient = problem.value(theta), problem.gradient(theta)
    for iteration in range(ITERATIONS):
        noise = problem.rounding(theta)
        excess = _excess(gradient, noise)
        if excess <= 1:
            return Polished(problem.model(theta), True, iteration)
        step = problem.newton_step(theta, gradient, noise)
        slope, size = (gradient * step).sum(), 1.0
        seen = -slope > VISIBLE * torch.finfo(value.dtype).eps * value.abs()  # else compare gradients, not values
        while size > (1e-9 if seen else 0.2):  # so near the optimum the step length is not the problem
            candidate = theta + size * problem.uncentred(step)
            candidate_value, candidate_gradient = problem.value(candidate), problem.gradient(candidate)
            descends = candidate_value <= value + 1e-4 * size * slope
            if descends if seen else _excess(candidate_gradient, noise) < excess / 2:
                break
            size /= 2
        else:  # no step helps: at the optimum up to rounding, or stuck in a flat direction
            return Polished(problem.model(theta), excess <= NEARLY, iteration)
        theta, value, gradient = candidate, candidate_value, candidate_gradient
    return Polished(problem.model(theta), _excess(gradient, problem.rounding(theta)) <= NEARLY, ITERATIONS)


def _excess(gradient: Tensor, rounding: Tensor) -> float:
    """The largest coordinate of the gradient in units of its rounding error; infinite for NaN."""
    return float((gradient.abs() / rounding).nan_to_num(nan=torch.inf).max())


@dataclass(frozen=True)
class _Problem:
    """The objective of `template` as a function of theta = (W, b), (c, d + 1) or (c, d).

    Gradients and steps are those of (W, b + W m), the weights of features centred at their mean m: if a column's mean
    is large compared to its spread, W and b are nearly collinear. Without an intercept m = 0.
    """

    template: Stationary
    table: Records
    weight: Tensor
    centre: Tensor  # (D,) m, with a zero for the column of ones

    @classmethod
    def of(cls, template: Stationary, table: Records, weight: Tensor) -> _Problem:
        """The problem with features centred at their weighted mean."""
        _, f = template.factors(table, weight)  # (n, D)
        centre = torch.zeros_like(f[0])
        if template.bias is not None:
            centre[:-1] = (weight @ f[:, :-1]) / weight.sum()
        return cls(template, table, weight, centre)

    @property
    def start(self) -> Tensor:
        """The model's weights."""
        weight, bias = self.template.weight, self.template.bias
        return weight.clone() if bias is None else torch.cat([weight, bias[:, None]], 1)

    def model(self, theta: Tensor) -> Stationary:
        """The model with these weights."""
        if self.template.bias is None:
            return replace(self.template, weight=theta, stopped_early=False)
        return replace(self.template, weight=theta[:, :-1], bias=theta[:, -1], stopped_early=False)

    def uncentred(self, step: Tensor) -> Tensor:
        """A step in (W, b + W m) as a step in (W, b)."""
        if self.template.bias is None:
            return step
        return torch.cat([step[:, :-1], step[:, -1:] - step @ self.centre[:, None]], 1)

    def penalties(self) -> Tensor:
        """The ridge of each parameter, shaped like theta."""
        ridge = self.template.ridge[:, None].expand_as(self.template.weight)
        return ridge if self.template.bias is None else torch.cat([ridge, self.template.bias_ridge[:, None]], 1)

    def penalised(self, v: Tensor) -> Tensor:
        """The Hessian of ridge |W|^2 / 2 + bias_ridge (b' - W m)^2 / 2 times v, in centred coordinates."""
        image = self.penalties() * self.uncentred(v)
        return image if self.template.bias is None else image - image[:, -1:] * self.centre

    def value(self, theta: Tensor) -> Tensor:
        """The objective."""
        model = self.model(theta)
        losses = model.loss(model.outputs(self.table.x), self.table.y)
        value = (self.weight * losses).sum() + (self.penalties() * theta.square()).sum() / 2
        return torch.nan_to_num(value, nan=torch.inf)

    def gradient(self, theta: Tensor) -> Tensor:
        """Its gradient in centred coordinates, (c, D)."""
        model = self.model(theta)
        (r, f), total = model.factors(self.table, self.weight), model.total()
        if self.template.bias is not None:
            total = total - total[:, -1:] * self.centre
        return r.mT @ (f - self.centre) - total

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient, (c, D).

        The weight of a constant column goes to zero and sets no scale: the initial weight is used instead.
        """
        finfo = torch.finfo(theta.dtype)
        own = rounding(self.model(theta), self.table, self.weight, self.centre)
        return own + finfo.eps * self.penalties() * self.start.abs() + finfo.tiny

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g, in centred coordinates."""
        model = self.model(theta)

        def residual(output: Tensor, y: Tensor) -> Tensor:
            return model.loss.residual(output[None], y[None])[0]

        slopes: Tensor = vmap(jacrev(residual))(model.outputs(self.table.x), self.table.y)
        curvature = slopes * self.weight[:, None, None]  # (n, c, c)
        f = model.factors(self.table, self.weight)[1] - self.centre  # (n, D)
        if theta.numel() <= DENSE_LIMIT:
            return self._dense_step(curvature, f, gradient)
        return self._matrix_free_step(curvature, f, gradient, noise)

    def _dense_step(self, curvature: Tensor, f: Tensor, gradient: Tensor) -> Tensor:
        c, width = gradient.shape
        diagonal = curvature.diagonal(dim1=1, dim2=2)  # (n, c)
        penalties = self._penalty_hessians()
        if (curvature == diagonal.diag_embed()).all():  # separate outputs, each with a (D, D) Hessian
            hessians = torch.stack([f.mT @ (diagonal[:, i, None] * f) for i in range(c)])
            return _damped_solve(hessians + penalties, gradient)
        hessian = f.new_zeros(c * width, c * width)
        own = [slice(i * width, (i + 1) * width) for i in range(c)]
        size = max(1, BLOCK_NUMBERS // (c * width))
        for rows in (slice(start, start + size) for start in range(0, len(f), size)):  # (b, c D) numbers at a time
            for i in range(c):
                weighted = (curvature[rows, i, :, None] * f[rows, None, :]).flatten(1)
                hessian[own[i]] += f[rows].mT @ weighted  # (D, c D)
        for i in range(c):
            hessian[own[i], own[i]] += penalties[i]
        return _damped_solve(hessian[None], gradient.reshape(1, -1)).reshape(c, width)

    def _penalty_hessians(self) -> Tensor:
        """(c, D, D): diag(ridge, 0) + bias_ridge k k^T with k = (-m, 1), for b = k . (W, b')."""
        hessians = self.penalties().diag_embed()
        if self.template.bias is None:
            return hessians
        k = -self.centre
        k[-1] = 1
        hessians[:, -1, -1] = 0
        return hessians + self.template.bias_ridge[:, None, None] * torch.outer(k, k)

    def _matrix_free_step(self, curvature: Tensor, f: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """Conjugate gradients on the Newton equation, preconditioned by the Hessian's diagonal."""
        penalties = self.penalties()
        if self.template.bias is not None:
            penalties = penalties + self.template.bias_ridge[:, None] * self.centre.square()
        diagonal = (curvature.diagonal(dim1=1, dim2=2).mT @ f.square() + penalties).clamp_min(_tiny(f))
        enough = 1e-2 * _excess(gradient, noise)

        def multiply(v: Tensor) -> Tensor:
            pushed = torch.einsum("nij,nj->ni", curvature, f @ v.mT)
            return pushed.mT @ f + self.penalised(v) + DAMPING * diagonal * v

        step, rest = torch.zeros_like(gradient), -gradient
        scaled = rest / diagonal
        direction, power = scaled, (rest * scaled).sum()
        for _ in range(2_000):
            image = multiply(direction)
            length = power / (direction * image).sum()
            step, rest = step + length * direction, rest - length * image
            if _excess(rest, noise) <= enough:
                break
            scaled = rest / diagonal
            power, previous = (rest * scaled).sum(), power
            direction = scaled + power / previous * direction
        return step


def _damped_solve(hessians: Tensor, gradients: Tensor) -> Tensor:
    """-H^-1 g for a stack of problems, scaled to a unit diagonal, with as little damping as Cholesky needs."""
    size = hessians.diagonal(dim1=1, dim2=2).clamp_min(_tiny(hessians)).sqrt()  # (k, D)
    scaled = hessians / size[:, :, None] / size[:, None, :]
    eye = torch.eye(size.shape[1], dtype=size.dtype, device=size.device)
    damping = DAMPING
    while damping <= 10 * size.shape[1]:  # a unit diagonal with entries up to one is positive definite by then
        factors, failed = torch.linalg.cholesky_ex(scaled + damping * eye)
        if not failed.any():
            return -torch.cholesky_solve((gradients / size)[..., None], factors)[..., 0] / size
        damping = 10 * damping
    return torch.zeros_like(gradients)  # the curvature overflows: no step


def _tiny(like: Tensor) -> float:
    """The smallest positive curvature; parameters with less do not move."""
    return float(torch.finfo(like.dtype).tiny)


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The exact minimum of  sum_i loss_i + ridge |W|^2 / 2  of a linear layer; deterministic.

    With `mean=True` the loss is averaged over records. The bias is penalised only with `penalise_bias`; torch's
    weight_decay is `Optimum(ridge=weight_decay, mean=True, penalise_bias=True)`.
    """

    loss: Loss = CrossEntropy()
    ridge: float = 1.0
    mean: bool = False
    penalise_bias: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ridge=at_least(0))
        check_loss("Optimum", self.loss)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Solve one convex problem per model; `seed` is not used."""
        layer = self._layer(net, cohort)
        names = [name for name, _ in net.named_parameters()]
        models = [self._solve(layer, cohort, i) for i in range(len(cohort))]
        weights = [torch.stack([model.weight for model in models])]
        biases = [] if layer.bias is None else [torch.stack([m.bias for m in models if m.bias is not None])]
        return Release(dict(zip(names, weights + biases, strict=True)))

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """A single step: the release itself, with gradient zero."""
        release = self(net, cohort, seed=seed)
        yield Step(0, release.params, {name: torch.zeros_like(value) for name, value in release.params.items()})

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """One: each model is a separate problem."""
        self._layer(net, cohort)
        return 1

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """Deterministic, with an objective that is minimised exactly."""
        return TrainerFacts(deterministic=True, objective=self.objective)

    def objective(self, params: Mapping[str, Tensor], records: int) -> Stationary:
        """The objective that `params` minimise, for a training set of `records`."""
        weight = next(value for name, value in params.items() if name.endswith("weight")).double()
        bias = next((value.double() for name, value in params.items() if name.endswith("bias")), None)
        c, d = weight.shape
        ridge = weight.new_full((c,), self.ridge * (records if self.mean else 1))
        bias_ridge = ridge if self.penalise_bias else torch.zeros_like(ridge)
        return Stationary(weight, bias, self.loss, ridge, bias_ridge, weight.new_zeros(d), weight.new_ones(d))

    def _layer(self, net: nn.Module, cohort: Cohort) -> nn.Linear:
        """The net's only layer, after all checks."""
        if (layer := linear_layer(net)) is None:
            raise ValueError(
                "Optimum: expected net to be one linear layer (nn.Linear, possibly after nn.Flatten), got "
                f"{type(net).__name__}. Use GD, SGD or Adam for other nets."
            )
        if frozen := [name for name, value in net.named_parameters() if not value.requires_grad]:
            raise ValueError(
                f"Optimum: expected a net without frozen parameters, but {' and '.join(frozen)} is frozen "
                "(requires_grad=False). Call net.requires_grad_(True), or use GD, SGD or Adam, which support them."
            )
        check_data(cohort)
        exact = Cohort(cohort.shared.to(torch.float64), cohort.own.to(torch.float64), cohort.index)
        check_outputs(Architecture.of(net, cohort.own.inputs.device, torch.float64), exact, self.loss)
        return layer

    def _solve(self, layer: nn.Linear, cohort: Cohort, i: int) -> Stationary:
        shared, own = cohort.shared, cohort.own[i : i + 1]
        x = torch.cat([shared.inputs.flatten(1), own.inputs[0].flatten(1)]).double()
        table = Records(x, torch.cat([shared.y, own.y[0]]))
        params = {name: x.new_zeros(value.shape) for name, value in layer.named_parameters()}
        result = polish(self.objective(params, len(table)), table, x.new_ones(len(x)))
        if not result.converged:
            raise ValueError(
                f"Optimum: found no finite optimum of model {int(cohort.index[i])} with ridge={self.ridge} and "
                f"penalise_bias={self.penalise_bias}. If its classes are separable, set ridge > 0. If a class has no "
                "records, set penalise_bias=True."
            )
        return result.model
