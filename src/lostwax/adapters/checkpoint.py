"""Load published weights into a net, only from files that cannot run code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lostwax import files
from lostwax.adapters.wrappers import unwrapped, without_prefix
from lostwax.fields import shown
from lostwax.files import read_tensors
from lostwax.nets import check_values

SHOWN = 5  # names in a message


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
        raise ValueError(
            f"load_weights: {path} is neither a safetensors file nor one that torch.save wrote, or is truncated "
            f"({_first_line(error)}). Download it again."
        ) from error


def _tensors(path: Path, content: Any, entry: str | None) -> dict[str, Tensor]:
    """The state_dict, either the whole content or one entry."""
    if entry is not None:
        if not isinstance(content, Mapping) or entry not in content:
            held = _listed(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
            raise ValueError(f'load_weights: {path} has no entry "{entry}"; it holds {held}.')
        content = content[entry]
    if isinstance(content, Mapping) and content and all(isinstance(value, Tensor) for value in content.values()):
        return {str(name): value for name, value in content.items()}
    if not isinstance(content, Mapping) or not content:
        held = "nothing" if isinstance(content, Mapping) else type(content).__name__
        raise ValueError(f"load_weights: expected a state_dict, tensors by name, in {path}, got {held}.")
    inner = [str(name) for name, value in content.items() if isinstance(value, Mapping)]
    cure = f' Name the one with the weights: entry="{inner[0]}".' if inner and entry is None else ""
    raise ValueError(f"load_weights: {path} holds more than tensors: {_listed(map(str, content))}.{cure}")


def _check_fits(net: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    wanted = net.state_dict()
    if odd := [name for name, one in state.items() if one.layout != torch.strided or one.is_meta or one.is_quantized]:
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
    missing, extra = ([name for name in one if name not in other] for one, other in ((wanted, state), (state, wanted)))
    found = (("missing ", missing), ("unexpected ", extra), ("", wrong), ("", kinds))
    if problems := [f"{word}{_listed(names)}" for word, names in found if names]:
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


def _listed(names: Any) -> str:
    shown = list(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")
