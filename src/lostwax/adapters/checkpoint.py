"""Weights of nets: from files that cannot run code, and under the names that wrappers give them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lostwax import files
from lostwax.fields import shown
from lostwax.files import read_tensors
from lostwax.nets import check_values

MAX_LISTED_NAMES = 5  # in a message


WRAPPERS = {  # the class that wraps a net, and the attribute that holds it
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "GradSampleModule": "_module",
}


def unwrapped(net: nn.Module) -> nn.Module:
    """The net inside DataParallel, torch.compile or Opacus' GradSampleModule."""
    while isinstance(inside := getattr(net, WRAPPERS.get(type(net).__name__, ""), None), nn.Module):
        net = inside
    return net


def without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state_dict with the names of the net inside, where all names begin with that of a wrapper."""
    tensors, prefixes = dict(state), [f"{attribute}." for attribute in WRAPPERS.values()]
    while tensors and (
        shared := [prefix for prefix in prefixes if all(str(name).startswith(prefix) for name in tensors)]
    ):
        tensors = {name.removeprefix(shared[0]): value for name, value in tensors.items()}
    return tensors


def load_weights(net: nn.Module, path: str | Path, *, entry: str | None = None) -> nn.Module:
    """Return a copy of the net with weights from a safetensors file or a state_dict saved by `torch.save`.

    `entry` names the state_dict inside a larger checkpoint: `entry="model"`. Files that would run code when read, such
    as a pickled net, are refused. Names that DataParallel, torch.compile and Opacus give are understood. To fine-tune
    victims from published weights:
    `lw.audit(lw.adapters.load_weights(net, path), trainer=lw.GD(...), ...)`.
    """
    if not isinstance(net, nn.Module):
        raise TypeError(
            f"load_weights: expected a torch nn.Module, the net that the weights were saved from, got {shown(net)}. "
            "Build it first: a file of weights does not hold the architecture."
        )
    source = files.named("load_weights", path)
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise FileNotFoundError(f"load_weights: {source} {what}. Name a file of weights.")
    check_values("load_weights", net)
    net, state = unwrapped(net), _tensors(source, _content(source), entry)
    state = state if state.keys() >= net.state_dict().keys() else without_prefix(state)
    _check_fits(net, state, source)
    loaded = deepcopy(net)
    loaded.load_state_dict(state)
    _check_finite(loaded, state, source)
    return loaded


def _content(path: Path) -> Any:
    """The contents; the format is recognised by the first bytes, not by the file's name."""
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise ValueError(f"load_weights: {path} is empty. Download it again.")
    if head[8:] == b"{":  # eight bytes that give the length of a JSON header
        return read_tensors("load_weights", path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_weights: {path} holds more than tensors, or is damaged: reading it could run code, so it is "
            "refused. If you trust it, load it yourself and save only its weights: "
            "safetensors.torch.save_file(net.state_dict(), ...)."
        ) from error
    except Exception as error:  # a damaged file makes torch fail in any way
        cause = next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")
        raise ValueError(
            f"load_weights: {path} is neither a safetensors file nor one that torch.save wrote, or is truncated "
            f"({cause}). Download it again."
        ) from error


def _tensors(path: Path, content: Any, entry: str | None) -> dict[str, Tensor]:
    if entry is not None:
        if not isinstance(content, Mapping) or entry not in content:
            entries = _listed(content) if isinstance(content, Mapping) else type(content).__name__
            raise ValueError(f'load_weights: {path} has no entry "{entry}"; it holds {entries}.')
        content = content[entry]
    if isinstance(content, Mapping) and content and all(isinstance(value, Tensor) for value in content.values()):
        return {str(name): value for name, value in content.items()}
    if not isinstance(content, Mapping) or not content:
        got = "nothing" if isinstance(content, Mapping) else type(content).__name__
        raise ValueError(f"load_weights: expected a state_dict, tensors by name, in {path}, got {got}.")
    inner = [str(name) for name, value in content.items() if isinstance(value, Mapping)]
    cure = f' Name the one with the weights: entry="{inner[0]}".' if inner and entry is None else ""
    raise ValueError(f"load_weights: {path} holds more than tensors: {_listed(content)}.{cure}")


def _check_fits(net: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    wanted = net.state_dict()
    if odd := [
        name for name, value in state.items() if value.layout != torch.strided or value.is_meta or value.is_quantized
    ]:
        raise ValueError(f"load_weights: {_listed(odd)} of {path} are not dense tensors with values. Save them dense.")
    pairs = {name: (state[name], value) for name, value in wanted.items() if name in state}
    wrong = [
        f"{name} has shape {tuple(ours.shape)} where the net has {tuple(value.shape)}"
        for name, (ours, value) in pairs.items()
        if ours.shape != value.shape
    ]
    kinds = [
        f"{name} is {_kind(ours)} where the net has {_kind(value)}"
        for name, (ours, value) in pairs.items()
        if not torch.can_cast(ours.dtype, value.dtype)
    ]
    missing, extra = [name for name in wanted if name not in state], [name for name in state if name not in wanted]
    misfits = (("missing ", missing), ("unexpected ", extra), ("", wrong), ("", kinds))
    if problems := [f"{word}{_listed(names)}" for word, names in misfits if names]:
        raise ValueError(
            f"load_weights: the weights in {path} do not fit this net: {'; '.join(problems)}. Build the net that they "
            "were saved from."
        )


def _check_finite(loaded: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse values that are NaN or infinite in the net's dtype, even if only the cast made them so."""
    values = {name: value for name, value in loaded.state_dict().items() if name in state}
    broken = {name: value for name, value in values.items() if not value.isfinite().all()}
    if not broken:
        return
    if any(not state[name].double().isfinite().all() for name in broken if not state[name].is_complex()):
        raise ValueError(f"load_weights: NaN or infinite values in {_listed(broken)} of {path}: training diverged.")
    raise ValueError(
        f"load_weights: values in {_listed(broken)} of {path} overflow {_kind(next(iter(broken.values())))}, the dtype "
        "of the net. Load them into net.double()."
    )


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _listed(names: Iterable[Any]) -> str:
    texts = list(map(str, names))
    more = len(texts) - MAX_LISTED_NAMES
    return ", ".join(texts[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
