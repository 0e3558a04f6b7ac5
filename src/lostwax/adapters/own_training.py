"""A user-defined training function as a trainer: one model after another."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.exits import exits_refused
from lostwax.fields import shown
from lostwax.games import Cohort, Release, Step
from lostwax.progress import counted
from lostwax.seeds import generator

Function = Callable[[nn.Module, Tensor, Tensor, int], nn.Module | Mapping[str, Tensor]]


@final
@dataclass(frozen=True, repr=False)
class OwnTraining:
    """`function(net, x, y, seed)` trains a net on x (n, ...) and y (n, ...), and returns it or its state_dict.

    It is called once per model, with a fresh copy of the net and the records; the secret record comes last. It may do
    anything (batch norm, dropout, early stopping), but is far slower than the built-in trainers. Random draws should
    derive from `seed`, which differs per model; the global generators of torch, numpy and random are seeded with it.
    """

    function: Function

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"OwnTraining: expected a function(net, x, y, seed) that trains a net, got {shown(self.function)}."
            )
        try:
            signature = inspect.signature(self.function)
        except ValueError:  # written in C, without a signature
            return
        try:
            signature.bind(None, None, None, None)
        except TypeError as error:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            raise TypeError(
                f"OwnTraining: expected a function(net, x, y, seed), got {name}{signature}. Wrap it in a function that "
                "takes these four arguments, in this order."
            ) from error

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort.

        The first is trained again at the end and compared: a function that continues with the net of the previous call
        would put the records of all earlier models into each model.
        """
        every = counted(range(len(cohort)), "training: models", len(cohort))
        models = [self._train(net, cohort, index, seed) for index in every]
        if len(models) > 1:
            _check_same(models[0], self._train(net, cohort, 0, seed))
        return Release({name: torch.stack([model[name] for model in models]) for name in models[0]})  # (m, ...)

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """Not available: the function does not show its steps."""
        raise ValueError(
            "OwnTraining: a training function does not show its steps. If they are published, use a built-in trainer "
            "of lostwax."
        )

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """One: models are trained separately."""
        return 1

    def _train(self, net: nn.Module, cohort: Cohort, index: int, seed: int) -> dict[str, Tensor]:
        """One model's weights and floating-point buffers, which are published with them."""
        shared, own = cohort.shared, cohort.own[index : index + 1]
        x = torch.cat([shared.inputs, own.inputs[0]])  # (n, ...)
        y = torch.cat([shared.y, own.y[0]])
        number = int(cohort.index[index])
        own_seed = int(generator(seed, "own training", number).integers(2**31))
        with all_generators(own_seed), exits_refused(f"OwnTraining: the function, for model {number},"):
            trained = self.function(deepcopy(net).to(x.device), x, y, own_seed)
        return _weights(trained, net, number)

    def __repr__(self) -> str:
        return f"OwnTraining({getattr(self.function, '__qualname__', type(self.function).__name__)})"


def _weights(trained: Any, net: nn.Module, number: int) -> dict[str, Tensor]:
    """The weights that the function returned, checked against the net."""
    refusal = f"OwnTraining: the function, for model {number}, "
    if trained is None:
        raise TypeError(refusal + "returned None. End it with `return net`.")
    state = trained.state_dict() if isinstance(trained, nn.Module) else trained
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise TypeError(refusal + f"returned {type(trained).__name__}. Return the net, or its state_dict.")
    wanted = {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
    for name, value in wanted.items():
        if name not in state:
            raise ValueError(refusal + f"returned weights without {name}. Return the trained net.")
        if state[name].shape != value.shape:
            raise ValueError(
                refusal + f"returned {name} of shape {tuple(state[name].shape)} where the net has "
                f"{tuple(value.shape)}. Return the trained net."
            )
        if not state[name].isfinite().all():
            raise ValueError(refusal + f"returned NaN or infinite values in {name}: its training diverges.")
    return {name: state[name].detach().clone() for name in wanted}  # a copy: the net may be reused


def _check_same(one: Mapping[str, Tensor], again: Mapping[str, Tensor]) -> None:
    for name, value in one.items():
        tolerance = torch.finfo(value.dtype).eps ** 0.5
        if not torch.allclose(value, again[name], rtol=tolerance, atol=tolerance):
            raise ValueError(
                f"OwnTraining: the function trained the same model twice with different results in {name}. Either it "
                "keeps a net from an earlier call (train the net it is given), or it draws random numbers that do not "
                "derive from its seed."
            )


@contextmanager
def all_generators(seed: int) -> Iterator[None]:
    """Seed torch's, numpy's and Python's global generators, and restore them afterwards."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpy_before)  # noqa: NPY002
