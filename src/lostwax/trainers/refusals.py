"""What cannot be trained many at once, refused with the reason and the cure."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from lostwax.fields import shown
from lostwax.games import Cohort, Loss, Records
from lostwax.games.facts import loss_facts
from lostwax.inits import trainable
from lostwax.seeds import generator
from lostwax.trainers.stacked import Architecture

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def check_loss(trainer: str, loss: Any) -> None:
    """Refuse what does not tell the derivative of its loss: torch's own losses, names, classes."""
    if inspect.isclass(loss) or not callable(loss) or not callable(getattr(loss, "residual", None)):
        raise TypeError(
            f"{trainer}: expected loss to be a lostwax loss, such as lw.losses.CrossEntropy(), got {shown(loss)}. One "
            "of your own needs a loss of each record, __call__(outputs, y), and its derivative, residual(outputs, y)."
        )


def check_takes(trainer: str, field: str, value: Any, example: str, *arguments: Any, **named: Any) -> None:
    """Refuse a start or a schedule that cannot be called as ours are: names, classes, torch's own."""
    if not inspect.isclass(value) and callable(value):
        try:
            inspect.signature(value).bind(*arguments, **named)
        except TypeError:
            pass
        except ValueError:  # written in C: it says nothing of its arguments
            return
        else:
            return
    raise TypeError(f"{trainer}: expected {field} to be {example}, got {shown(value)}.")


def check_net(net: nn.Module) -> None:
    """Refuse what can be told from the modules alone."""
    if any(isinstance(value, nn.parameter.UninitializedParameter) for value in net.parameters()):
        raise ValueError("net: a lazy module does not know its sizes yet; run the net once on a record first.")
    if not trainable(net):
        raise ValueError("net: expected at least one parameter with requires_grad=True to train, got none.")
    for name, module in net.named_modules():
        where = f"net: module '{name or type(net).__name__}' ({type(module).__name__})"
        if isinstance(module, _BATCH_NORMS) or getattr(module, "running_mean", None) is not None:
            raise ValueError(
                f"{where} mixes the records of a batch and keeps running statistics: a model is then "
                "more than a function of its training set. Use nn.GroupNorm instead, or train it by a function of your "
                "own: lw.OwnTraining(train). Where only a new last layer is trained, audit that layer on "
                "records.through(backbone)."
            )
        chance = module.p if isinstance(module, _DROPOUTS) else getattr(module, "dropout", 0.0)
        if isinstance(chance, int | float) and chance > 0:
            raise ValueError(
                f"{where} drops values at random with p={chance}. Set p=0 or remove it, or use lw.OwnTraining(train)."
            )


def check_data(cohort: Cohort) -> None:
    """Refuse records that no net could be trained on."""
    if len(cohort) == 0:
        raise ValueError("cohort: expected at least one model, got an empty index.")
    if cohort.records == 0:
        raise ValueError("cohort: expected at least one record a model, got none, shared or own.")
    shared, own = cohort.shared, cohort.own
    if shared.inputs.dtype != own.inputs.dtype or shared.y.dtype != own.y.dtype:
        raise TypeError(
            "cohort: shared and own records differ in dtype: "
            f"x {shared.inputs.dtype} and {own.inputs.dtype}, y {shared.y.dtype} and {own.y.dtype}. "
            "Convert one of them."
        )
    if shared.inputs.device != own.inputs.device:
        raise ValueError(
            f"cohort: shared records are on {shared.inputs.device}, own on {own.inputs.device}. "
            "Move one of them with Records.to(device)."
        )
    if shared.inputs.shape[1:] != own.inputs.shape[2:]:
        raise ValueError(
            "cohort: shared and own records differ in what the net trains on: "
            f"{tuple(shared.inputs.shape[1:])} and {tuple(own.inputs.shape[2:])}. "
            "Give both features, or neither."
        )
    for name, records in (("shared", shared), ("own", own)):
        _check_values(f"cohort.{name}", records)


def _check_values(name: str, records: Records) -> None:
    if not records.inputs.is_floating_point():
        raise TypeError(
            f"{name}.x: expected floating-point inputs, got {records.inputs.dtype}. "
            "Scale pixels to [0, 1] first, or pass records.to(torch.float32)."
        )
    for part, values in (("x", records.inputs), ("y", records.y)):
        if values.is_floating_point() and not torch.isfinite(values).all():
            bad = int((~torch.isfinite(values)).sum())
            raise ValueError(f"{name}.{part}: {bad} of {values.numel()} values are NaN or infinite. Drop or fill them.")


def check_outputs(net: Architecture, cohort: Cohort, loss: Loss) -> None:
    """Run the net on two made-up records, together and alone, and refuse what it or the loss cannot take."""
    inputs = cohort.own.inputs
    made_up = generator(0, "probe").random((2, *inputs.shape[2:]))
    records = torch.from_numpy(made_up).to(inputs.device, inputs.dtype)
    untouched, params = records.clone(), net.initial(records)
    with torch.no_grad():
        before = _random_state(records.device)
        try:
            together = net(params, records)
            again = net(params, records)
            alone = [net(params, records[:1]), net(params, records[1:])]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise ValueError(
                f"net: it cannot take records of shape {tuple(records.shape[1:])}, which come to it as a "
                f"batch (n, ...): {error}"
            ) from error
    if not isinstance(together, Tensor) or together.ndim != 2 or len(together) != 2:
        got = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
        raise ValueError(
            f"net: expected outputs of shape (n, c), one row a record, got {got} for n = 2. "
            "Keep the last axis where there is one output, and flatten others."
        )
    if not torch.equal(records, untouched):
        raise ValueError(
            "net: it writes over the records that it is given, in place, and would over yours. Let its forward make a "
            "new tensor first: x + 1 for x += 1, x.relu() for x.relu_()."
        )
    # The state tells of torch's own draws, which may come out alike; the outputs tell of draws from elsewhere.
    if not torch.equal(before, _random_state(records.device)) or not _close(together, again):
        raise ValueError("net: it draws random numbers, so that no training can be run again. Remove them.")
    if not _close(together, torch.cat(alone)):
        raise ValueError(
            "net: it mixes records: two records together and each alone gave different outputs, so that the "
            "loss is no mean over records. Normalise within a record (nn.GroupNorm, nn.LayerNorm) instead."
        )
    try:
        torch.func.vmap(net, in_dims=(0, None))({name: value[None] for name, value in params.items()}, records)
    except RuntimeError as error:
        raise ValueError(f"net: torch.func.vmap cannot run it for many models at once: {error}") from error
    for name, y in (("cohort.shared.y", cohort.shared.y), ("cohort.own.y", cohort.own.y.flatten(0, 1))):
        if len(y):
            check_labels(name, y, together.shape[1], loss)


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _close(one: Tensor, other: Tensor) -> bool:
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_labels(name: str, y: Tensor, outputs: int, loss: Loss) -> None:
    """Refuse labels that the loss cannot take from a net of so many outputs."""
    kind = type(loss).__name__
    facts = loss_facts(loss, outputs)
    if facts is None:  # a third-party loss that does not say what labels it takes
        return
    if outputs < facts.fewest_outputs:
        raise ValueError(f"net: {kind} needs two outputs or more, got {outputs}. Use BinaryCrossEntropy with one.")
    if facts.classes is not None:
        if outputs > 1 and (y.is_floating_point() or y.ndim != 1):
            raise TypeError(f"{name}: {kind} expects one whole class number a record, got {y.dtype} {tuple(y.shape)}.")
        most = facts.classes - 1
        outside = ((y < 0) | (y > most)).flatten()
        if outside.any():
            raise ValueError(
                f"{name}: {kind} on a net of {outputs} outputs expects labels from 0 to {most}, and "
                f"{int(outside.sum())} of {len(outside)} are not, the first in row {int(outside.int().argmax())}. Give "
                "the net one output a class, or number the classes from 0."
            )
    elif y.numel() != len(y) * outputs:
        raise ValueError(
            f"{name}: {kind} expects a target for each of the net's {outputs} outputs, got shape {tuple(y.shape)}."
        )
