"""Everything that a net holds beside its parameters, as pickle would store it: numbers to attack, texts to refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from lostwax.adapters.objects import TEXT, Walk, bytes_of, fingerprint, numbers_of

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
        for name, value in _stored(module).items():
            if name not in internal:
                yield f"{path}.{name}".removeprefix("."), value
            elif name.endswith("_hooks") and value:
                yield f"{path}.{name}".removeprefix("."), list(value.values())  # their keys count all hooks ever made
    for path, tensor in (*net.named_parameters(), *net.named_buffers()):
        for name, value in vars(tensor).items():
            if name not in OF_OPACUS:
                yield f"{path}.{name}", value


def _stored(module: nn.Module) -> Mapping[str, Any]:
    """What pickle stores of a module: Lightning leaves out its trainer, which holds the records."""
    try:
        state: Any = module.__getstate__()  # type: ignore[no-untyped-call]
    except Exception:  # of any class: a module of TorchScript refuses
        return vars(module)
    return state if isinstance(state, Mapping) else vars(module)
