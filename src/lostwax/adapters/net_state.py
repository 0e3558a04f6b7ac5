"""What a net holds: weights, from files that cannot run code and under the names of wrappers, and all else.

Beside its parameters a net holds buffers, and attributes and hooks of its modules, as pickle would store them: numbers
to attack, texts to refuse.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from lostwax import files
from lostwax.adapters.objects import TEXT, Walk, bytes_of, fingerprint, numbers_of
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
SHORT = 64  # characters of a text, and whole numbers of a list, that are a setting
LONG = 1_000  # bytes of many short texts
HASH = 2**32  # whole numbers from here on are neither settings nor measured
SIMPLE = (bool, int, str, type(None))  # values of a mapping whose keys may be what it is for
VALUES = (Tensor, np.ndarray, Sequence, Set, Mapping, FunctionType, MethodType, partial)
ENTERED = (*VALUES, nn.Module, Optimizer, LRScheduler, Dataset, DataLoader, Sampler, Distribution)  # of any library
# Whose other objects are not looked into: handles of the process, trainers, loggers and progress bars.
LIBRARIES = {"logging", "threading", "_thread", "multiprocessing", "concurrent", "asyncio", "weakref", "_weakref"}
LIBRARIES |= {"socket", "subprocess", "ctypes", "_ctypes", "torch", "torchvision", "torchmetrics", "tqdm", "wandb"}
LIBRARIES |= {"lightning", "lightning_fabric", "lightning_utilities", "pytorch_lightning", "accelerate", "tensorboard"}
LIBRARIES |= {"transformers", "peft", "timm", "opacus", "mlflow"}
OF_OPACUS = {"grad_sample", "summed_grad", "_forward_counter"}  # of parameters, until the next step


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
    pairs = [(name, state[name], value) for name, value in wanted.items() if name in state]
    shapes = [
        f"{name} has shape {tuple(ours.shape)} where the net has {tuple(value.shape)}"
        for name, ours, value in pairs
        if ours.shape != value.shape
    ]
    kinds = [
        f"{name} is {_kind(ours)} where the net has {_kind(value)}"
        for name, ours, value in pairs
        if not torch.can_cast(ours.dtype, value.dtype)
    ]
    missing, extra = [name for name in wanted if name not in state], [name for name in state if name not in wanted]
    misfits = (("missing ", missing), ("unexpected ", extra), ("", shapes), ("", kinds))
    if problems := [f"{word}{_listed(names)}" for word, names in misfits if names]:
        raise ValueError(
            f"load_weights: the weights in {path} do not fit this net: {'; '.join(problems)}. Build the net that they "
            "were saved from."
        )


def _check_finite(loaded: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Refuse values that are NaN or infinite in the net's dtype, even if only the cast made them so."""
    broken = {name: value for name, value in loaded.state_dict().items() if not value.isfinite().all()}
    if any(not state[name].double().isfinite().all() for name in broken if not state[name].is_complex()):
        raise ValueError(f"load_weights: NaN or infinite values in {_listed(broken)} of {path}: training diverged.")
    if broken:
        raise ValueError(
            f"load_weights: values in {_listed(broken)} of {path} overflow {_kind(next(iter(broken.values())))}, the "
            "dtype of the net. Load them into net.double()."
        )


def _kind(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _listed(names: Iterable[Any]) -> str:
    texts = list(map(str, names))
    more = len(texts) - MAX_LISTED_NAMES
    return ", ".join(texts[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")


def released_state(net: nn.Module) -> dict[str, Tensor]:
    """All numbers that a net holds: state_dict, complex numbers as two, other buffers, and those in attributes."""
    buffers = {name: value for name, value in other_buffers(net).items() if value.isfinite().all()}  # no masks
    state = {**net.state_dict(), **buffers}
    return {
        **{name: as_real(value) for name, value in state.items() if isinstance(value, Tensor)},
        **attribute_numbers(net),
    }


def as_real(value: Tensor) -> Tensor:
    """Complex numbers as two arrays of real ones."""
    return torch.stack([value.real, value.imag]) if value.is_complex() else value


def other_buffers(net: nn.Module) -> dict[str, Tensor]:
    """Non-persistent buffers, which `state_dict` leaves out."""
    return {
        f"{path}.{name}".removeprefix("."): value
        for path, module in net.named_modules()
        for name, value in module._buffers.items()
        if name in module._non_persistent_buffers_set and value is not None
    }


def attribute_numbers(net: nn.Module) -> dict[str, Tensor]:
    """Numbers in attributes and hooks of modules and in attributes of parameters, which `state_dict` leaves out.

    Single numbers and a few whole numbers are settings. Single numbers of a mapping or an object are one array.
    """
    arrays = {}
    for path, value, members in _attributes(net):
        parts = {place: numbers for place, member in members if (numbers := numbers_of(member)) is not None}
        single = [numbers for numbers in parts.values() if numbers.size == 1]
        parts = {**parts, "": np.concatenate(single)} if single else parts
        many = isinstance(value, Tensor | np.ndarray) or sum(numbers.size for numbers in parts.values()) > SHORT
        for place, numbers in parts.items():
            if numbers.size > 1 and (many or (numbers != np.rint(numbers)).any()):
                arrays[f"{path}.{place}".removesuffix(".")] = torch.from_numpy(numbers)
    return arrays


def attribute_texts(net: nn.Module) -> dict[str, str]:
    """Fingerprints of long texts and bytes, of many short ones and of hashes, in what `attribute_numbers` looks into.

    The keys of a mapping are names of what it holds, unless that is next to nothing.
    """
    texts = {}
    for path, _, members in _attributes(net):
        names = set()
        for place, member in members:
            text = repr(list(member)).encode() if _are_hashes(member) else bytes_of(member)
            if isinstance(member, Mapping) and not all(isinstance(value, SIMPLE) for value in member.values()):
                names.add(f"{place}.keys".removeprefix("."))
            several = not isinstance(member, TEXT) and not _are_hashes(member)
            if text is not None and len(text) > (LONG if several else SHORT) and place not in names:
                texts[f"{path}.{place}".removesuffix(".")] = str(fingerprint(text))
    return texts


def _are_hashes(value: Any) -> bool:
    """Whether most members of a list or a set, or keys of a mapping, are whole numbers as large as hashes."""
    if not isinstance(value, list | tuple | Set | Mapping):
        return False
    large = sum(isinstance(member, int | np.integer) and abs(int(member)) >= HASH for member in value)
    return 2 * large > len(value)


def _attributes(net: nn.Module) -> Iterator[tuple[str, Any, list[tuple[str, Any]]]]:
    """By path, what modules and parameters hold as attributes, and modules as hooks, with every member of it.

    The net's own modules and tensors are left out, which hooks and optimisers refer to, and handles of libraries.
    """
    inside = {id(part) for part in (*net.modules(), *net.parameters(), *net.buffers())}

    def is_entered(value: Any) -> bool:
        library = type(value).__module__.partition(".")[0] in LIBRARIES and not isinstance(value, ENTERED)
        return id(value) not in inside and not library

    for path, value in _direct_attributes(net):
        is_few = isinstance(value, Sequence | Set) and len(value) <= SHORT
        is_setting = is_few and (isinstance(value, str | bytes) or all(isinstance(member, int) for member in value))
        is_setting = is_setting and not _are_hashes(value)
        if not is_setting and not isinstance(value, int | float) and is_entered(value):
            walk = Walk({"": value}, is_entered=is_entered)
            members = [(place, member) for place, member in walk if member is not walk.root]
            if not walk.complete:
                raise ValueError(
                    f"OwnTraining: the net's {path} holds too many objects to look into, and is released with it. "
                    "Remove it before the net is returned, or return net.state_dict()."
                )
            yield path, value, members


def _direct_attributes(net: nn.Module) -> Iterator[tuple[str, Any]]:
    """Attributes of modules, as pickle would store them, their hooks, and attributes of parameters and buffers."""
    internal = vars(nn.Module()).keys()
    for path, module in net.named_modules():
        try:
            state: Any = module.__getstate__()
        except Exception:  # of any class: a module of TorchScript refuses
            state = None
        # what pickle stores: Lightning leaves out its trainer, which holds the records
        for name, value in (state if isinstance(state, Mapping) else vars(module)).items():
            if name not in internal:
                yield f"{path}.{name}".removeprefix("."), value
            elif name.endswith("_hooks") and value:
                yield f"{path}.{name}".removeprefix("."), list(value.values())  # their keys count all hooks ever made
    for path, tensor in (*net.named_parameters(), *net.named_buffers()):
        for name, value in vars(tensor).items():
            if name not in OF_OPACUS:
                yield f"{path}.{name}", value
