"""torch: a linear layer at the optimum of a known objective, the training set of any net, and samplers of batches.

The samplers are for torch's DataLoader, and have a certified ceiling: balls-in-bins and Poisson.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler

from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.inputs import check_finite
from lostwax.adapters.sklearn.same_data import of_this_table
from lostwax.adapters.sklearn.scan import Scanned, scan
from lostwax.bounds import BallsInBins, Poisson, Sampling, checks
from lostwax.games import Fitted, Records
from lostwax.games.facts import loss_facts, trainer_facts
from lostwax.nets import check_values, linear_layer
from lostwax.trainers.refusals import check_labels

MAX_SCANNED_CELLS = 5_000_000  # cells of a table that a net is compared with
ROUNDING = 1e-5  # of labels, relative
MAX_CLASSES = 100_000  # that are counted


def check_finite_net(net: nn.Module) -> None:
    """Raise if a weight or buffer is NaN or infinite, or has no values."""
    check_values("audit", net)
    for name, value in net.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            check_finite(name, value)


def scan_net(state: Mapping[str, Tensor], records: Tensor) -> Scanned:
    """Which arrays of a net hold its training records (n, ...), their sums or their extremes, found by value.

    Of a large table some columns are compared; what is found is then not `complete`.
    """
    x = records.detach().flatten(1)
    width = x.shape[1]
    some = slice(0, max(1, MAX_SCANNED_CELLS // len(x)))
    arrays = {}
    for name, value in state.items():
        rows = value.detach().cpu().reshape(-1, width) if value.numel() % width == 0 else value.detach().cpu()
        arrays[name] = rows[:, some] if rows.shape[-1:] == (width,) and rows.dim() == 2 else rows
    scanned = scan(arrays, x[:, some].double().cpu(), None, torch.ones(len(x), dtype=torch.float64))
    return scanned._replace(complete=scanned.complete and some.stop >= width)


def labels_in_net(state: Mapping[str, Tensor], y: Tensor) -> tuple[str, ...]:
    """Sentences about arrays that equal all labels (n, ...), how often each class occurs, or sums and means of targets.

    What a constant may equal is not looked for: classes that are equally frequent, a single round number.
    """
    labels = y.detach().double().cpu()
    is_classes = y.dim() == 1 and not y.is_floating_point() and int(y.min()) >= 0
    notes = []
    for name, value in state.items():
        if value.numel() > max(MAX_CLASSES, y.numel()):
            continue
        numbers = value.detach().double().cpu().flatten()
        statistics = {"the sum of all targets": labels.sum(0), "the mean of all targets": labels.mean(0)}
        if is_classes:
            counts = torch.bincount(y.cpu().long(), minlength=min(numbers.numel(), MAX_CLASSES)).double()
            shares = counts / len(y)
            statistics = {
                "the number of records of each class": counts,
                "the share of each class": shares,
                "the logarithm of the share of each class": shares.log(),
            }
        for what, statistic in {**statistics, "the labels of all training records": labels}.items():
            expected = statistic.flatten()
            if numbers.shape == expected.shape and torch.allclose(numbers, expected, ROUNDING, 0):
                single = len(expected) == 1 and not bool(expected.eq((100 * expected).round() / 100))
                if single or bool((expected != expected[0]).any()):
                    notes.append(f"{name} holds {what}: the label of a record follows from those of all others.")
    return tuple(notes)


def taken_by(net: nn.Module) -> torch.dtype:
    """The dtype in which a training function gets the records: the net's, or float32 for one of half precision."""
    kinds = {value.dtype for value in net.parameters() if value.is_floating_point()}
    return torch.float64 if kinds == {torch.float64} else torch.float32


def read_table(data: Any, dtype: torch.dtype, *, tokens: bool = False) -> Records:
    """The training set (X, y) in the trainer's dtype, `tokens` in int64; integers in y are classes."""
    kind = torch.int64 if tokens else dtype
    if isinstance(data, Records):
        plain = data.detached().to(dtype)
        return replace(plain, x=plain.x.to(kind)) if not plain.x.is_floating_point() else plain
    X, y = inputs.unpack(data)
    x = torch.from_numpy(inputs.features(X)).to(kind)
    labels = inputs.targets(y, len(x))
    if labels.dtype.kind not in "iubf":
        got = labels.dtype
        raise TypeError(f"audit: expected class numbers or targets in y, got {got}. Number the classes from 0.")
    target = torch.from_numpy(labels.astype("float64" if labels.dtype.kind == "f" else "int64"))
    return Records(x, target).to(dtype)


def read(net: nn.Module, data: Any, trainer: Any) -> Fitted:
    """A trained linear layer and its table; `trainer` states the objective it minimises."""
    layer = linear_layer(net)
    if layer is None:
        raise TypeError(
            f"audit: the closed form applies to one nn.Linear (optionally after nn.Flatten), not to "
            f"{type(net).__name__}. For a head on a frozen backbone, pass the head and the backbone's features. "
            "For a net trained by your own code, pass trainer=lw.OwnTraining(train), with a function "
            "train(net, x, y, seed); for one trained by plain gradient steps, trainer=lw.GD(...), SGD, Adam or AdamW."
        )
    facts = trainer_facts(trainer, net, 1)
    if facts.objective is None:
        raise TypeError(
            f"audit: expected a trainer that states an objective, got {type(trainer).__name__}. Pass what the layer "
            "minimises, trainer=lw.Optimum(loss=..., ridge=...), or its gradient steps, trainer=lw.GD(...)."
        )
    X, y = inputs.unpack(data)
    x = torch.from_numpy(inputs.features(X)).flatten(1)
    if x.shape[1] != layer.in_features:
        raise ValueError(f"audit: X has {x.shape[1]} features, but the layer takes {layer.in_features}.")
    labels = inputs.targets(y, len(x))
    model = facts.objective({name: value.detach() for name, value in layer.named_parameters()}, len(x))
    stated = loss_facts(model.loss, layer.out_features)
    if stated is not None and stated.classes is not None:
        if labels.dtype.kind not in "iub":
            raise TypeError(f"audit: {type(model.loss).__name__} expects class numbers in y, got {labels.dtype}.")
        target = torch.from_numpy(labels.astype("int64"))
    else:
        target = inputs.regression_targets(labels, layer.out_features)
    check_labels("y", target, layer.out_features, model.loss)
    name = f"nn.Linear({layer.in_features}, {layer.out_features})"
    return of_this_table(Fitted(name, Records(x, target), torch.ones(len(x), dtype=torch.float64), model))


class _Batches(Sampler[list[int]]):
    """Batches of the numbers of records, `steps` per epoch."""

    def __init__(self, records: int, steps: int, *, generator: torch.Generator | None = None) -> None:
        self.records = checks.whole(
            "records", records, "It is the number of records: len(data).", highest=checks.MAX_COUNT
        )
        self.steps = checks.whole("steps", steps, "It is the number of batches per epoch.")
        self.generator = generator

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.steps


class BallsInBinsSampler(_Batches):
    """Each record is in one of `steps` batches, chosen uniformly and independently; drawn anew in every epoch.

    `DataLoader(data, batch_sampler=BallsInBinsSampler(len(data), steps=100))` is as convenient as `shuffle=True`, every
    record is seen once per epoch, and `lw.bound(..., sampling=lw.bounds.BallsInBins(epochs))` holds, with
    steps = 100 epochs. Batch sizes vary around n / steps: divide the noisy sum by that, not by the actual size. A batch
    may be empty; it is a step of noise alone, and `collate_fn` must accept it. Whoever knows the draws of `generator`
    knows the batches: seed it secretly.
    """

    def sampling(self, epochs: int) -> Sampling:
        """For `lw.bound`, after this many epochs."""
        return BallsInBins(epochs)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of one epoch."""
        bins = torch.randint(self.steps, (self.records,), generator=self.generator)
        order = torch.argsort(bins, stable=True)
        for batch in torch.split(order, torch.bincount(bins, minlength=self.steps).tolist()):
            yield batch.tolist()


class PoissonSampler(_Batches):
    """Each record is in each of `steps` batches with probability `rate`, independently.

    `lw.bound(..., sampling=lw.bounds.Poisson(rate))` holds. Batch sizes vary around rate n, and a batch may be empty,
    as for `BallsInBinsSampler`.
    """

    def __init__(
        self, records: int, steps: int, *, rate: float | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(records, steps, generator=generator)
        self.rate = 1 / self.steps if rate is None else checks.sample_rate(rate, "rate")

    def sampling(self, epochs: int) -> Sampling:
        """For `lw.bound`: the number of epochs does not enter."""
        return Poisson(self.rate)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of one epoch."""
        for _ in range(self.steps):
            drawn = torch.rand(self.records, generator=self.generator, dtype=torch.float64) < self.rate
            yield drawn.nonzero()[:, 0].tolist()
