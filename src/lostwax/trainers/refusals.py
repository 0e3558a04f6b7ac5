"""Checks of nets, records and losses before training, with messages that say what to do."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lostwax.fields import shown
from lostwax.games import Cohort, Loss
from lostwax.games.facts import loss_facts
from lostwax.inits import trainable
from lostwax.seeds import generator
from lostwax.trainers.stacked import Architecture, batch_norms

_SCALE = "Scale pixels to [0, 1] first, or use records.to(torch.float32)."
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def check_loss(trainer: str, loss: Any) -> None:
    """Raise TypeError unless it is a loss with a derivative; torch losses, names and classes are not."""
    if inspect.isclass(loss) or not callable(loss) or not callable(getattr(loss, "residual", None)):
        raise TypeError(
            f"{trainer}: expected loss to be a lostwax loss, such as lw.losses.CrossEntropy(), got {shown(loss)}. A "
            "user-defined loss needs __call__(outputs, y), per record, and its derivative, residual(outputs, y)."
        )


def check_takes(trainer: str, field: str, value: Any, example: str, *arguments: Any, **named: Any) -> None:
    """Raise TypeError unless it can be called with these arguments; names, classes and torch's own cannot."""
    if not inspect.isclass(value) and callable(value):
        with suppress(TypeError):
            with suppress(ValueError):  # written in C, without a signature
                inspect.signature(value).bind(*arguments, **named)
            return
    raise TypeError(f"{trainer}: expected {field} to be {example}, got {shown(value)}.")


def check_net(net: nn.Module, *, dropout: bool, batch_norm: bool) -> None:
    """Raise ValueError for modules that cannot be trained many at once.

    Plain nn.Dropout can be if `dropout`, and batch norm that keeps no statistics if `batch_norm`.
    """
    if any(isinstance(value, nn.parameter.UninitializedParameter) for value in net.parameters()):
        raise ValueError("net: a lazy module is not initialised yet. Run the net once on a record first.")
    if not trainable(net):
        raise ValueError("net: expected at least one parameter with requires_grad=True to train, got none.")
    for name, module in net.named_modules():
        where = f"net: module '{name or type(net).__name__}' ({type(module).__name__})"
        keeps_statistics = getattr(module, "track_running_stats", False)
        if keeps_statistics or (batch_norms(module) and not batch_norm):
            without = ", track_running_stats=False (the statistics leak too, and are left out)" if batch_norm else ""
            raise ValueError(
                f"{where} mixes the records of a batch{' and keeps running statistics' if keeps_statistics else ''}. "
                f"Use nn.GroupNorm{without}, or your own training function: lw.OwnTraining(train). If only a new last "
                "layer is trained, audit that layer on records.through(backbone)."
            )
        chance = module.p if isinstance(module, _DROPOUTS) else getattr(module, "dropout", 0.0)
        trained = dropout and type(module) is nn.Dropout and module.p < 1
        if isinstance(chance, int | float) and chance > 0 and not trained:
            raise ValueError(
                f"{where} drops values at random with p={chance}. Set p=0 or remove it, or use lw.OwnTraining(train)."
            )


def check_data(cohort: Cohort, *, tokens: bool = False) -> None:
    """Raise an error for records that no net can be trained on; token numbers, in int64, are inputs of some."""
    if len(cohort) == 0:
        raise ValueError("cohort: expected at least one model, got an empty index.")
    if cohort.records == 0:
        raise ValueError("cohort: expected at least one record per model, shared or own, got none.")
    shared, secrets = cohort.shared, cohort.own
    if shared.inputs.dtype != secrets.inputs.dtype or shared.y.dtype != secrets.y.dtype:
        raise TypeError(
            f"cohort: shared and own records differ in dtype: x {shared.inputs.dtype} and {secrets.inputs.dtype}, "
            f"y {shared.y.dtype} and {secrets.y.dtype}. Convert one of them."
        )
    if shared.inputs.device != secrets.inputs.device:
        raise ValueError(
            f"cohort: shared records are on {shared.inputs.device}, own on {secrets.inputs.device}. "
            "Move one of them with Records.to(device)."
        )
    if shared.inputs.shape[1:] != secrets.inputs.shape[2:]:
        raise ValueError(
            f"cohort: shared and own records differ in the shape of the net's inputs: {tuple(shared.inputs.shape[1:])} "
            f"and {tuple(secrets.inputs.shape[2:])}. Give both features, or neither."
        )
    for name, records in (("cohort.shared", shared), ("cohort.own", secrets)):
        if not records.inputs.is_floating_point() and not (tokens and records.inputs.dtype == torch.int64):
            raise TypeError(f"{name}.x: expected floating-point inputs, got {records.inputs.dtype}. {_SCALE}")
        for part, values in ((f"{name}.x", records.inputs), (f"{name}.y", records.y)):
            if values.is_floating_point() and not torch.isfinite(values).all():
                bad = int((~torch.isfinite(values)).sum())
                raise ValueError(f"{part}: {bad} of {values.numel()} values are NaN or infinite. Drop or fill them.")


def check_outputs(net: Architecture, cohort: Cohort, loss: Loss) -> None:
    """Run the net on two random records, together and separately, and raise an error for what cannot be trained."""
    records = _probes(cohort)
    untouched, params = records.clone(), net.initial(records)
    with torch.no_grad():
        before = _random_state(records.device)
        try:
            together, again = net(params, records), net(params, records)
            alone = [] if batch_norms(net.net) else [net(params, records[:1]), net(params, records[1:])]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise ValueError(
                f"net: it cannot take records of shape {tuple(records.shape[1:])} as a batch (n, ...): {error}"
                + ("" if records.is_floating_point() else f" Whole numbers are taken for tokens. {_SCALE}")
            ) from error
    if not isinstance(together, Tensor) or together.ndim != 2 or len(together) != 2:
        got = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
        raise ValueError(
            f"net: expected outputs of shape (n, c), one row per record, got {got} for n = 2. "
            "Keep the last axis if there is one output, and flatten the others. For an output per pixel, or several "
            "outputs, use your own training function: lw.OwnTraining(train)."
        )
    if not torch.equal(records, untouched):
        raise ValueError(
            "net: it changes its input in place, which would overwrite your records. Create a new tensor in its "
            "forward: x + 1 for x += 1, x.relu() for x.relu_()."
        )
    # The random state reveals torch's draws, whose results may be equal; the outputs reveal draws from elsewhere.
    if not torch.equal(before, _random_state(records.device)) or not _close(together, again):
        raise ValueError("net: it draws random numbers, so training cannot be repeated. Remove them.")
    if alone and not _close(together, torch.cat(alone)):
        raise ValueError(
            "net: it mixes records: two records together and each alone gave different outputs. Normalise within a "
            "record (nn.GroupNorm, nn.LayerNorm) instead."
        )
    try:
        torch.func.vmap(net, in_dims=(0, None))({name: value[None] for name, value in params.items()}, records)
    except RuntimeError as error:
        raise ValueError(f"net: torch.func.vmap cannot run it for many models at once: {error}") from error
    for name, y in (("cohort.shared.y", cohort.shared.y), ("cohort.own.y", cohort.own.y.flatten(0, 1))):
        if len(y):
            check_labels(name, y, together.shape[1], loss)


def _probes(cohort: Cohort) -> Tensor:
    """(2, ...) random inputs; token numbers up to the largest one that is there."""
    like, draw = cohort.own.inputs, generator(0, "probe")
    shape = (2, *like.shape[2:])
    if like.is_floating_point():
        return torch.from_numpy(draw.random(shape)).to(like)
    largest = max((int(part.max()) for part in (cohort.shared.inputs, like) if part.numel()), default=0)
    return torch.from_numpy(draw.integers(largest + 1, size=shape)).to(like)


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _close(first: Tensor, second: Tensor) -> bool:
    tolerance = torch.finfo(first.dtype).eps ** 0.5
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)


def check_labels(name: str, y: Tensor, outputs: int, loss: Loss) -> None:
    """Raise an error for labels that do not fit the loss and the number of outputs."""
    kind, facts = type(loss).__name__, loss_facts(loss, outputs)
    if facts is None:  # a third-party loss that does not say what labels it takes
        return
    if outputs < facts.fewest_outputs:
        cure = suggested_loss(y, outputs) or "Use BinaryCrossEntropy with one."
        raise ValueError(f"net: {kind} needs two outputs or more, got {outputs}. {cure}")
    if facts.classes is not None:
        if outputs > 1 and (y.is_floating_point() or y.ndim != 1):
            got = f"{y.dtype} {tuple(y.shape)}"
            cure = suggested_loss(y, outputs)
            raise TypeError(f"{name}: {kind} expects one class number per record, got {got}. {cure}".rstrip())
        most = facts.classes - 1
        outside = ((y < 0) | (y > most)).flatten()
        if outside.any():
            raise ValueError(
                f"{name}: {kind} on a net of {outputs} outputs expects labels from 0 to {most}, but "
                f"{int(outside.sum())} of {len(outside)} are not, the first in row {int(outside.int().argmax())}. Give "
                "the net one output per class, or number the classes from 0."
            )
    elif y.numel() != len(y) * outputs:
        raise ValueError(
            f"{name}: {kind} expects one target for each of the net's {outputs} outputs, got shape {tuple(y.shape)}."
        )


def suggested_loss(y: Tensor, outputs: int) -> str:
    """What may fit labels that are not one class per record; nothing where they are."""
    if not y.is_floating_point() and y.ndim == 1:
        return ""
    fits = y.numel() == len(y) * outputs
    if fits and outputs > 1 and bool(((y == 0) | (y == 1)).all()):
        conversion = "" if y.is_floating_point() else ", with y.float()"
        return f"For several labels per record use loss=lw.losses.MultiLabel(){conversion}."
    if fits and y.is_floating_point():
        return "For regression use loss=lw.losses.SquaredError()."
    return "For other labels, such as one per pixel, use your own training function: lw.OwnTraining(train)."
