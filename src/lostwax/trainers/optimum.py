"""Training a linear layer to the optimum of its objective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.losses import CrossEntropy
from lostwax.nets.linear import linear_layer
from lostwax.trainers.newton_polish import polish
from lostwax.trainers.refusals import check_data, check_loss, check_outputs
from lostwax.trainers.stacked import Architecture
from lostwax.types import Cohort, Loss, Records, Release, Stationary, Step
from lostwax.types.fields import at_least, check_fields


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Minimise  sum_i loss_i + ridge |W|^2 / 2  to the last bit, whatever algorithm got there.

    With `mean=True` the loss is averaged over records instead of summed. The bias is not penalised unless
    `penalise_bias`; torch's weight_decay does penalise it: `Optimum(ridge=weight_decay, mean=True,
    penalise_bias=True)`. A bias that is not penalised has no optimum where none of the records is of some class. No
    randomness: the optimum is what it is.
    """

    loss: Loss = CrossEntropy()
    ridge: float = 1.0
    mean: bool = False
    penalise_bias: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ridge=at_least(0))
        check_loss("Optimum", self.loss)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """One convex problem a model; `seed` is not used."""
        layer = self._layer(net, cohort)
        names = [name for name, _ in net.named_parameters()]
        models = [self._solve(layer, cohort, i) for i in range(len(cohort))]
        weights = [torch.stack([model.weight for model in models])]
        biases = [] if layer.bias is None else [torch.stack([m.bias for m in models if m.bias is not None])]
        return Release(dict(zip(names, weights + biases, strict=True)))

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """The optimum has no history: the one step is the release itself, where the gradient is zero."""
        release = self(net, cohort, seed=seed)
        yield Step(0, release.params, {name: torch.zeros_like(value) for name, value in release.params.items()})

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """One: each model is a problem of its own."""
        self._layer(net, cohort)
        return 1

    def objective(self, params: Mapping[str, Tensor], records: int) -> Stationary:
        """The problem that `params` of a net trained on so many records solve."""
        weight = next(value for name, value in params.items() if name.endswith("weight")).double()
        bias = next((value.double() for name, value in params.items() if name.endswith("bias")), None)
        c, d = weight.shape
        ridge = weight.new_full((c,), self.ridge * (records if self.mean else 1))
        bias_ridge = ridge if self.penalise_bias else torch.zeros_like(ridge)
        return Stationary(weight, bias, self.loss, ridge, bias_ridge, weight.new_zeros(d), weight.new_ones(d))

    def _layer(self, net: nn.Module, cohort: Cohort) -> nn.Linear:
        """The one layer of the net, after all that can be refused has been."""
        layer = linear_layer(net)
        if layer is None:
            raise ValueError(
                "Optimum: expected net to be one linear layer (nn.Linear, perhaps after nn.Flatten), whose objective "
                f"has one optimum; got {type(net).__name__}. Use GD, SGD or Adam for other nets."
            )
        if frozen := [name for name, value in net.named_parameters() if not value.requires_grad]:
            raise ValueError(
                f"Optimum: expected net to train all of its layer, but {' and '.join(frozen)} is frozen "
                "(requires_grad=False). Call net.requires_grad_(True), or use GD, SGD or Adam, which leave alone what "
                "is frozen."
            )
        check_data(cohort)
        exact = Cohort(cohort.shared.to(torch.float64), cohort.own.to(torch.float64), cohort.index)
        check_outputs(Architecture.of(net, cohort.own.inputs.device, torch.float64), exact, self.loss)
        return layer

    def _solve(self, layer: nn.Linear, cohort: Cohort, i: int) -> Stationary:
        shared, own = cohort.shared, cohort.own[i : i + 1]
        x = torch.cat([shared.inputs.flatten(1), own.inputs[0].flatten(1)]).double()
        table = Records(x, torch.cat([shared.y, own.y[0]]))
        params = {name: x.new_zeros(value.shape) for name, value in layer.named_parameters()}  # where the records lie
        result = polish(self.objective(params, len(table)), table, x.new_ones(len(x)))
        if not result.converged:
            raise ValueError(
                f"Optimum: model {int(cohort.index[i])} has no finite optimum that can be reached, with ridge="
                f"{self.ridge} and penalise_bias={self.penalise_bias}. Its classes may be separable, and nothing hold "
                "back the weights. Set ridge > 0. Or none of its records is of some class, and nothing holds back the "
                "bias. Set penalise_bias=True."
            )
        return result.model

    @classmethod
    def examples(cls) -> tuple[Optimum, ...]:
        """Instances to test."""
        return cls(), cls(ridge=1e-2, mean=True, penalise_bias=True)
