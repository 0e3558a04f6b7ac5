"""A user-defined training function as a trainer: one model after another, or in several processes."""

from __future__ import annotations

import inspect
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from itertools import chain, pairwise
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from lostwax.adapters.net_state import (
    SHORT,
    as_real,
    attribute_numbers,
    attribute_texts,
    other_buffers,
    unwrapped,
    without_prefix,
)
from lostwax.bounds import bound
from lostwax.exits import exits_refused
from lostwax.fields import at_least, check_fields, expect, shown
from lostwax.games import Cohort, Mechanism, Records, Release, TrainerFacts
from lostwax.inits import FromNet, Init, public, start_of
from lostwax.progress import counted
from lostwax.seeds import generator, one_thread, seed_torch
from lostwax.trainers.refusals import check_takes

NEGLIGIBLE = 1e-4  # of one record's effect on the weights
HELD_OUT = 0.1  # of the effect of a record elsewhere: one that changes the weights less is held out
PIECES = 4  # per process, so that no process waits long for another
Function = Callable[[nn.Module, Tensor, Tensor, int], nn.Module | Mapping[str, Tensor]]


@final
@dataclass(frozen=True, repr=False)
class OwnTraining:
    """`function(net, x, y, seed)` trains a net on x (n, ...) and y (n, ...), and returns it or its state_dict.

    It is called once per model, with a fresh copy of the net and the records; the secret record comes last, or at
    `place`. An audit puts it elsewhere if it has no effect at the end. The function may do anything (batch norm,
    dropout, early stopping), but is far slower than the built-in trainers. Everything that the returned net holds is
    part of the release: buffers such as the running averages of batch norm, those that training adds or fills, and
    numbers in attributes of its modules and parameters, in objects, functions and hooks. Long texts are refused.
    Parameters that the net freezes (requires_grad=False) are not part of it, and the function must leave them as they
    are. A state_dict that is returned is all that is released.

    Random draws should derive from `seed`; the global generators of torch, numpy and random are seeded with it. Without
    a `seed` every model gets its own, which the adversary does not know; with one, all get that, and the adversary
    knows it. The net starts from its own weights, or from `init`: `lw.inits.Given(state)` sets its buffers and dtypes
    too. A release is rounded to the dtype of the net.

    With `processes`, models are trained in that many processes, each on one thread; results do not depend on their
    number. The function is then copied to other processes, and must not rely on changes to global variables. `noise` is
    measured by `settled`; `labels`, the lowest and highest, are set by an audit whose labels are several whole numbers
    per record: attacks take them for numbers, the function gets them as int64.

    `mechanism` states the noise that the function adds, for a ceiling: what `lw.bound` takes, such as
    `lw.adapters.opacus.mechanism(engine, loader)` or `{"epsilon": 1.0, "delta": 1e-5}`. It is believed; `lw.check_dp`
    checks it.
    """

    function: Function
    seed: int | None = field(default=None, kw_only=True)
    init: Init = field(default=FromNet(), kw_only=True)
    place: int | None = field(default=None, kw_only=True)
    processes: int | None = field(default=None, kw_only=True, metadata={"identity": False})
    noise: float | None = field(default=None, kw_only=True, metadata={"identity": False})
    labels: tuple[int, int] | None = field(default=None, kw_only=True)
    mechanism: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False, metadata={"identity": False})

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"OwnTraining: expected a function(net, x, y, seed) that trains a net, got {shown(self.function)}."
            )
        check_fields(self, seed=at_least(0), place=at_least(0), processes=at_least(1), noise=at_least(0))
        if self.mechanism is not None:
            expect(
                self,
                "seed",
                "None with a mechanism: an adversary who knows the seed knows the noise",
                self.seed is None,
            )
            bound(**self.mechanism, baseline=0.5)  # raises what is wrong with it
        example = "an initialisation, such as lw.inits.Given(state)"
        check_takes("OwnTraining", "init", self.init, example, None, [0], seed=0)
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

        The first of a run is trained again at the end and compared: a function that continues with the net of the
        previous call would put the records of all earlier models into each model.
        """
        models = [model for part in self._parts(net, cohort, seed) for model in part]
        if len(models) > 1 and int(cohort.index[0]) == 0:
            again = self._some(net, cohort[:1], seed)[0]
            for name, value in models[0].items():
                tolerance = torch.finfo(value.dtype).eps ** 0.5
                if not torch.allclose(value, again[name], rtol=tolerance, atol=tolerance):
                    raise ValueError(
                        f"OwnTraining: the function trained the same model twice with different results in {name}. "
                        "Either it keeps a net from an earlier call (train the net it is given), or it draws random "
                        "numbers that do not derive from its seed, or it leaves other numbers in the net, such as "
                        "times: remove them."
                    )
        return Release.together([Release({name: value[None] for name, value in model.items()}) for model in models])

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """Deterministic if its seed and its start are known."""
        private = not self._from_net and not public(self.init, net)
        known = self.seed is not None and not private
        return TrainerFacts(
            deterministic=known,
            private_start=private,
            one_by_one=True,
            noise=self.noise,
            steps=None if self.mechanism is None else self.mechanism.get("steps"),
            mechanism=None if self.mechanism is None else cast(Mechanism, dict(self.mechanism)),
            settled=self.settled,
            where_it_tells=self.where_it_tells,
            with_labels=lambda low, high: replace(self, labels=(low, high)),
        )

    def settled(self, net: nn.Module, cohort: Cohort) -> OwnTraining:
        """This trainer, with what three trainings on the first two sets of a cohort show about its randomness.

        A function that gives the same weights for two seeds, up to a negligible part of one record's effect (rounding
        by another order of sums), is deterministic: it may as well be given one that is known. Otherwise `noise` is how
        far another seed moves the weights, over how far another record does.
        """
        if self.seed is not None or self.noise is not None or self.mechanism is not None:
            return self

        def weights(place: int, number: int) -> Tensor:
            part = replace(cohort[place : place + 1], index=torch.full_like(cohort.index[:1], number))
            (model,) = self._some(net, part, 0)
            return Release({name: value.unsqueeze(0).double() for name, value in model.items()}).flat()

        base, drawn, moved = weights(0, 0), weights(0, 1), weights(1, 0)
        noise = float((drawn - base).norm() / (moved - base).norm().clamp_min(1e-300))
        return replace(self, seed=0) if noise <= NEGLIGIBLE else replace(self, noise=noise)

    def where_it_tells(self, net: nn.Module, cohort: Cohort) -> OwnTraining:
        """This trainer, with the secret first or in the middle if it changes the weights far less when it comes last.

        A function that holds out the last records for validation would never train on a secret that comes last, and no
        attack could find it. The effect is the distance between models of the first two sets of a cohort, with the same
        draws. A `place` that is given stays.
        """
        known = len(cohort.shared)
        if self.place is not None or known < 2:
            return self
        pair = replace(cohort[:2], index=torch.zeros_like(cohort.index[:2]))

        def effect(place: int) -> float:
            first, second = replace(self, place=place)._some(net, pair, 0)
            gaps = [float((value.double() - second[name].double()).norm()) for name, value in first.items()]
            return math.hypot(*gaps)

        last, first = effect(known), effect(0)
        if last > 0 and last >= HELD_OUT * first:
            return self
        effects = {0: first, known // 2: effect(known // 2)}
        best = max(effects, key=effects.__getitem__)
        return replace(self, place=best) if effects[best] > 0 else self

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """As many as there are processes: models are trained separately."""
        return self.processes or 1

    @property
    def _from_net(self) -> bool:
        """Whether training starts from the net as it is."""
        return bool(self.init == FromNet())

    def _parts(self, net: nn.Module, cohort: Cohort, seed: int) -> Iterator[list[dict[str, Tensor]]]:
        """The models, some at a time, in the order of the cohort."""
        if self.processes is None or self.processes == 1 or len(cohort) == 1:
            yield self._some(net, cohort, seed, "training: models")
            return
        pieces = min(len(cohort), PIECES * self.processes)
        cuts = torch.linspace(0, len(cohort), pieces + 1).long().tolist()
        packed, features = _packed(self, net), cohort.own.features

        def part(start: int, end: int) -> Cohort:
            """With a copy of its records: a view would take all of them to another process."""
            some = None if features is None else features[start:end].clone()
            own = Records(cohort.own.x[start:end].clone(), cohort.own.y[start:end].clone(), some)
            return Cohort(cohort.shared, own, cohort.index[start:end].clone())

        work = (delayed(_unpacked)(packed, part(start, end), seed) for start, end in pairwise(cuts))
        done = Parallel(n_jobs=self.processes, return_as="generator")(work)
        yield from counted(done, "training: parts of the models", pieces)

    def _some(self, net: nn.Module, cohort: Cohort, seed: int, stage: str | None = None) -> list[dict[str, Tensor]]:
        """One model after the other; on one thread if there may be several processes."""
        numbers: Iterable[int] = range(len(cohort))
        released, start = _Released.of(net), None
        if hasattr(self.init, "state"):  # the same for all models
            start = start_of(self.init, net, 0, seed=seed)
        with one_thread() if self.processes is not None else nullcontext(), generators_kept():
            every = numbers if stage is None else counted(numbers, stage, len(cohort))
            return [self._train(net, cohort, index, seed, released, start) for index in every]

    def _train(
        self,
        net: nn.Module,
        cohort: Cohort,
        index: int,
        seed: int,
        released: _Released,
        start: Mapping[str, Tensor] | None,
    ) -> dict[str, Tensor]:
        """One model's weights and buffers, which are published with them."""
        shared, secret, number = cohort.shared, cohort.own, int(cohort.index[index])
        place = len(shared.y) if self.place is None else self.place
        x, y = (
            torch.cat([known[:place], missing[index], known[place:]])
            for known, missing in ((shared.inputs, secret.inputs), (shared.y, secret.y))
        )
        own_seed = int(generator(seed, "own training", number).integers(2**31)) if self.seed is None else self.seed
        fresh = deepcopy(net)
        if start is None and not self._from_net:
            start = start_of(self.init, net, number, seed=seed)
        if start is not None:  # in its dtype: a net of half precision may have been trained in more
            for name, value in fresh.state_dict(keep_vars=True).items():
                value.data = start[name].detach().to(value.device, copy=True)
        kinds = {value.dtype for value in fresh.parameters() if value.is_floating_point()}
        if x.is_floating_point() and kinds in ({torch.float16}, {torch.bfloat16}):
            x = x.to(kinds.pop())
        if self.labels is not None:
            y = y.round().clamp(*self.labels).long()
        if released.devices != {x.device}:
            fresh = fresh.to(x.device)
        seed_all(own_seed)
        arguments = f"x {tuple(x.shape)} {x.dtype}, y {tuple(y.shape)} {y.dtype} and seed {own_seed}"
        try:
            with exits_refused(f"OwnTraining: the function, for model {number},"):
                trained = self.function(fresh, x, y, own_seed)
        except Exception as error:
            error.add_note(f"OwnTraining: this came from the training function, which was given {arguments}.")
            raise
        return released.read(trained, number, start or {})

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        init = None if self._from_net else self.init
        settings = {"seed": self.seed, "init": init, "place": self.place, "processes": self.processes}
        return f"OwnTraining({', '.join([name, *(f'{k}={v!r}' for k, v in settings.items() if v is not None)])})"


def _packed(trainer: OwnTraining, net: nn.Module) -> bytes:
    """A trainer and a net for other processes, with the code of modules that could not be imported there."""
    import cloudpickle

    names = {getattr(trainer.function, "__module__", None), *(type(part).__module__ for part in net.modules())}
    homes = [sys.modules[name] for name in names if name in sys.modules and not _importable(name)]
    before = cloudpickle.list_registry_pickle_by_value()
    added = [home for home in homes if home.__name__ not in before]
    try:
        for home in added:
            cloudpickle.register_pickle_by_value(home)
        packed: bytes = cloudpickle.dumps((trainer, net))
        return packed
    finally:
        for home in added:
            cloudpickle.unregister_pickle_by_value(home)


def _importable(name: str) -> bool:
    """Whether another process can import a module by its name: not one that was read from a file under that name."""
    top = name.partition(".")[0]
    return top in sys.builtin_module_names or top == "__main__" or PathFinder.find_spec(top) is not None


def _unpacked(packed: bytes, cohort: Cohort, seed: int) -> list[dict[str, Tensor]]:
    trainer: OwnTraining
    trainer, net = pickle.loads(packed)
    return trainer._some(net, cohort, seed)


class _Released(NamedTuple):
    """What is released of a net: its weights and buffers, without frozen parameters."""

    wanted: Mapping[str, Tensor]
    frozen: Mapping[str, Tensor]
    devices: frozenset[torch.device]  # of all parameters and buffers
    buffers: Mapping[str, Tensor]  # that are not persistent, before training
    texts: Mapping[str, str]  # in attributes, before training

    @classmethod
    def of(cls, net: nn.Module) -> _Released:
        state = {name: value for name, value in net.state_dict().items() if is_released(value)}
        still = {name for name, value in net.named_parameters() if not value.requires_grad}
        if not any(value.requires_grad for value in net.parameters()):  # frozen after training, for use
            still = set()
        wanted = {name: value for name, value in state.items() if name not in still}
        devices = frozenset(value.device for value in chain(net.parameters(), net.buffers()))
        frozen = {name: value for name, value in state.items() if name in still}
        return cls(wanted, frozen, devices, other_buffers(net), attribute_texts(net))

    def read(self, trained: Any, number: int, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights that the function returned, checked against the net."""
        refusal = f"OwnTraining: the function, for model {number}, "
        if trained is None:
            raise TypeError(refusal + "returned None. End it with `return net`.")
        state, attributes = trained, dict[str, Tensor]()
        if isinstance(trained, nn.Module):
            trained = unwrapped(trained)
            attributes = attribute_numbers(trained)
            if texts := [name for name, text in attribute_texts(trained).items() if self.texts.get(name) != text]:
                raise ValueError(
                    refusal
                    + f"left a text of more than {SHORT} characters, many texts or hashes in the net's {texts[0]}, "
                    "which is released with it, and no attack reads it. Remove it before the net is returned, or "
                    "return net.state_dict()."
                )
            masks = {name: value for name, value in self.buffers.items() if not value.isfinite().all()}
            buffers = {
                name: value
                for name, value in other_buffers(trained).items()
                if name not in masks or not torch.equal(value, masks[name].to(value.device))
            }
            state = {**trained.state_dict(), **buffers}
        if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError(refusal + f"returned {type(trained).__name__}. Return the net, or its state_dict.")
        state = state if state.keys() >= self.wanted.keys() else without_prefix(state)
        for name, value in self.wanted.items():
            if name not in state:
                raise ValueError(refusal + f"returned weights without {name}. Return the trained net.")
            if state[name].shape != value.shape:
                raise ValueError(
                    refusal + f"returned {name} of shape {tuple(state[name].shape)} where the net has "
                    f"{tuple(value.shape)}. Return the trained net."
                )
            if not _finite(state[name]):
                raise ValueError(refusal + f"returned NaN or infinite values in {name}: its training diverges.")
        for name, value in self.frozen.items():
            before = start.get(name, value)
            if name in state and not torch.equal(state[name].to(before), before):
                raise ValueError(
                    refusal + f"changed {name}, which the net freezes (requires_grad=False). Set requires_grad=True "
                    "for all that it trains before the audit: other parameters are not attacked."
                )
        weights = {name: _published(state[name], value.dtype) for name, value in self.wanted.items()}
        like = next(iter(weights.values()), torch.empty(0))
        added = {name: value for name, value in state.items() if name not in weights and name not in self.frozen}
        added = {name: as_real(value) for name, value in added.items() if is_released(value) or value.is_complex()}
        for name, value in {**added, **attributes}.items():
            if not _finite(value):
                raise ValueError(refusal + f"left NaN or infinite values in {name}, which is released with the net.")
            weights[name] = value.detach().to(like, copy=True)
        return weights


def is_released(value: Tensor) -> bool:
    """Whether an entry of a state_dict is attacked: all but single whole numbers, such as batch norm's step counter."""
    return value.is_floating_point() or (value.dim() > 0 and not value.is_quantized and not value.is_complex())


def _finite(value: Tensor) -> bool:
    """Whether all values are finite: if their sum is, they are; a sum that is not may be an overflow."""
    return math.isfinite(abs(value.detach().sum().item())) or bool(value.isfinite().all())


def _published(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy, since the net may be reused, rounded to a coarser dtype of the net; whole numbers as floats."""
    if not value.is_floating_point() or not dtype.is_floating_point:
        return value.detach().float()
    if value.dtype == dtype:
        return value.detach().clone()
    finer = torch.finfo(value.dtype).eps < torch.finfo(dtype).eps
    return value.detach().to(dtype if finer else value.dtype, copy=True)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore torch's, numpy's and Python's global generators afterwards."""
    before, numpy_before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=None if torch.accelerator.is_available() else []):
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numpy_before)  # noqa: NPY002


def seed_all(seed: int) -> None:
    """Seed torch's, numpy's and Python's global generators."""
    seed_torch(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
