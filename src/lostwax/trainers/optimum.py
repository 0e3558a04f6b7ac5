"""Training a linear layer to the exact optimum of its objective."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Loss, Records, Release, Stationary, TrainerFacts
from lostwax.games.fitted import blocks, rounding
from lostwax.games.folding import SparseRecords, sparse_factors, sparse_rounding, sparse_sum
from lostwax.losses import CrossEntropy
from lostwax.nets import linear_layer
from lostwax.progress import counted
from lostwax.trainers.minimum import DAMPING, Polished, curvatures, damped_solve, excess, minimum, sparse_optimum
from lostwax.trainers.refusals import check_data, check_loss, check_outputs
from lostwax.trainers.stacked import Architecture

# Columns may differ in scale by many orders of magnitude, so steps are taken in unit-free coordinates: centred
# features, and a Hessian with a unit diagonal.


DENSE_LIMIT = 3_000  # parameters above which the Hessian is never formed, only multiplied with
MAX_CONJUGATE_STEPS = 2_000


def polish(model: Stationary, table: Records, weight: Tensor) -> Polished:
    """Minimise until every coordinate of the gradient is rounding error; `converged` is False without an optimum."""
    if model.sparse:
        return sparse_optimum(model, table, weight)
    return _polished(_Problem.of(model, table, weight))


def polish_sparse(model: Stationary, table: SparseRecords, weight: Tensor) -> Polished:
    """The same for a sparse table."""
    return _polished(SparseProblem(model, table, weight))


def _polished(problem: _Problem | SparseProblem) -> Polished:
    theta, converged = minimum(problem, problem.start)
    return Polished(problem.template.at(theta), converged)


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
        centre = torch.zeros_like(template.total()[0])
        if template.bias is not None:
            sums = (weight[rows] @ template.features(table.x[rows]) for rows in blocks(table))
            centre[:-1] = torch.stack(list(sums)).sum(0) / weight.sum()
        return cls(template, table, weight, centre)

    @property
    def start(self) -> Tensor:
        return self.template.parameters().clone()

    def model(self, theta: Tensor) -> Stationary:
        return self.template.at(theta)

    def uncentred(self, step: Tensor) -> Tensor:
        """A step in (W, b + W m) as a step in (W, b)."""
        if self.template.bias is None:
            return step
        return torch.cat([step[:, :-1], step[:, -1:] - step @ self.centre[:, None]], 1)

    def moved(self, theta: Tensor, step: Tensor, size: float, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return theta + size * self.uncentred(step), size * (gradient * step).sum()

    def slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The objective, and its gradient in centred coordinates (c, D); rows are read once."""
        model = self.model(theta)
        value, total = (self.template.ridges() * theta.square()).sum() / 2, model.total()
        if self.template.bias is not None:
            total = total - total[:, -1:] * self.centre
        gradient = -total
        for outputs, f, y, weight in self._parts(model):
            value = value + (weight * model.loss(outputs, y)).sum()
            gradient = gradient + (weight[:, None] * model.loss.residual(outputs, y)).mT @ f
        return torch.nan_to_num(value, nan=torch.inf), gradient

    def _parts(self, model: Stationary) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Some rows at a time: outputs (b, c), centred features (b, D), labels and weights (b,)."""
        for rows in blocks(self.table):
            f = model.features(self.table.x[rows])
            outputs = f @ model.weight.mT
            if model.bias is not None:
                outputs, f = outputs + model.bias, torch.cat([f, f.new_ones(len(f), 1)], 1)
            yield outputs, f - self.centre, self.table.y[rows], self.weight[rows]

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient, (c, D).

        The weight of a constant column goes to zero and sets no scale: the initial weight is used instead.
        """
        finfo = torch.finfo(theta.dtype)
        data_rounding = rounding(self.model(theta), self.table, self.weight, self.centre)
        return data_rounding + finfo.eps * self.template.ridges() * self.start.abs() + finfo.tiny

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g, in centred coordinates; in many dimensions by conjugate gradients."""
        if theta.numel() <= DENSE_LIMIT:
            return self._dense_step(theta, gradient)
        parts = zip(*self._parts(self.model(theta)), strict=True)
        outputs, f, y, weight = (torch.cat(part) for part in parts)  # (n, c), (n, D), (n, ...), (n,)
        curvature = curvatures(self.template.loss, outputs, y, weight)  # (n, c, c)
        ridges, penalties = self.template.ridges(), self.template.ridges()
        if self.template.bias is not None:
            penalties = ridges + self.template.bias_ridge[:, None] * self.centre.square()
        diagonal = (curvature.diagonal(dim1=1, dim2=2).mT @ f.square() + penalties).clamp_min(_tiny(f))

        def multiply(v: Tensor) -> Tensor:
            pushed = torch.einsum("nij,nj->ni", curvature, f @ v.mT)
            # the Hessian of ridge |W|^2 / 2 + bias_ridge (b' - W m)^2 / 2 times v, in centred coordinates
            penalised = ridges * self.uncentred(v)
            if self.template.bias is not None:
                penalised = penalised - penalised[:, -1:] * self.centre
            return pushed.mT @ f + penalised + DAMPING * diagonal * v

        return conjugate_gradients(multiply, diagonal, gradient, noise)

    def _dense_step(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """With the Hessian: a (D, D) block for each output and each pair of outputs that meet in a record's loss."""
        c, width = gradient.shape
        pairs = {(i, i): penalty for i, penalty in enumerate(self._penalty_hessians())}
        for outputs, f, y, weight in self._parts(self.model(theta)):
            curvature = curvatures(self.template.loss, outputs, y, weight)  # (b, c, c)
            for i, j in itertools.combinations_with_replacement(range(c), 2):
                if (curved := curvature[:, i, j, None]).any():
                    pairs[i, j] = pairs.get((i, j), 0) + f.mT @ (curved * f)
        if len(pairs) == c:  # separate outputs
            return damped_solve(torch.stack([pairs[i, i] for i in range(c)]), gradient)
        hessian = gradient.new_zeros(c, width, c, width)
        for (i, j), block in pairs.items():
            hessian[i, :, j], hessian[j, :, i] = block, block.mT
        return damped_solve(hessian.reshape(1, c * width, c * width), gradient.reshape(1, -1)).reshape(c, width)

    def _penalty_hessians(self) -> Tensor:
        """(c, D, D): diag(ridge, 0) + bias_ridge k k^T with k = (-m, 1), for b = k . (W, b')."""
        hessians = self.template.ridges().diag_embed()
        if self.template.bias is None:
            return hessians
        k = -self.centre
        k[-1] = 1
        hessians[:, -1, -1] = 0
        return hessians + self.template.bias_ridge[:, None, None] * torch.outer(k, k)


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
        models = [self._solve(layer, cohort, i) for i in counted(range(len(cohort)), "training: models", len(cohort))]
        weights = [torch.stack([model.weight for model in models])]
        biases = [] if layer.bias is None else [torch.stack([m.bias for m in models if m.bias is not None])]
        return Release(dict(zip(names, weights + biases, strict=True)))

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        self._layer(net, cohort)
        return 1

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        return TrainerFacts(deterministic=True, objective=self.objective, loss=self.loss)

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
        shared, secrets = cohort.shared, cohort.own[i : i + 1]
        x = torch.cat([shared.inputs.flatten(1), secrets.inputs[0].flatten(1)]).double()
        table = Records(x, torch.cat([shared.y, secrets.y[0]]))
        params = {name: x.new_zeros(value.shape) for name, value in layer.named_parameters()}
        result = polish(self.objective(params, len(table)), table, x.new_ones(len(x)))
        if not result.converged:
            raise ValueError(
                f"Optimum: found no finite optimum of model {int(cohort.index[i])} with ridge={self.ridge} and "
                f"penalise_bias={self.penalise_bias}. If its classes are separable, set ridge > 0. If a class has no "
                "records, set penalise_bias=True."
            )
        return result.model


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor], diagonal: Tensor, gradient: Tensor, noise: Tensor
) -> Tensor:
    """The step s with H s = -g to a hundredth of the gradient's excess, preconditioned by the Hessian's diagonal."""
    enough = 1e-2 * excess(gradient, noise)
    step, residual = torch.zeros_like(gradient), -gradient
    scaled = residual / diagonal
    direction, power = scaled, (residual * scaled).sum()
    for _ in range(MAX_CONJUGATE_STEPS):
        image = multiply(direction)
        length = power / (direction * image).sum()
        step, residual = step + length * direction, residual - length * image
        if excess(residual, noise) <= enough:
            break
        scaled = residual / diagonal
        power, previous = (residual * scaled).sum(), power
        direction = scaled + power / previous * direction
    return step


class SparseProblem(NamedTuple):
    """As a function of theta = (W, b), (c, d + 1) or (c, d)."""

    template: Stationary
    table: SparseRecords
    weight: Tensor

    @property
    def start(self) -> Tensor:
        return self.template.parameters().clone()

    def moved(self, theta: Tensor, step: Tensor, size: float, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return theta + size * step, size * (gradient * step).sum()

    def slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        model = self.template.at(theta)
        outputs, r = sparse_factors(model, self.table, self.weight)
        value = self.weight @ model.loss(outputs, self.table.y) + model.penalty()
        return torch.nan_to_num(value, nan=torch.inf), self._summed(r) - model.total()

    def rounding(self, theta: Tensor) -> Tensor:
        finfo = torch.finfo(theta.dtype)
        data_rounding = sparse_rounding(self.template.at(theta), self.table, self.weight)[0]
        return data_rounding + finfo.eps * self.template.ridges() * self.start.abs() + finfo.tiny

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g by conjugate gradients."""
        model = self.template.at(theta)
        outputs, _ = sparse_factors(model, self.table, self.weight)
        curvature, ridges = curvatures(model.loss, outputs, self.table.y, self.weight), model.ridges()  # (n, c, c)
        by_output, squared = curvature.diagonal(dim1=1, dim2=2), self.table.each(np.square)
        squares = sparse_sum(squared, by_output, bias=model.bias is not None)
        diagonal = (squares + ridges).clamp_min(_tiny(theta))

        def multiply(v: Tensor) -> Tensor:
            moved = self.table.times(v if model.bias is None else v[:, :-1].contiguous())
            moved = moved if model.bias is None else moved + v[:, -1]
            return self._summed(torch.einsum("nij,nj->ni", curvature, moved)) + ridges * v + DAMPING * diagonal * v

        return conjugate_gradients(multiply, diagonal, gradient, noise)

    def _summed(self, r: Tensor) -> Tensor:
        return sparse_sum(self.table, r, bias=self.template.bias is not None)
