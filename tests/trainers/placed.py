"""Watches that every tensor is made on a device that somebody named: what is not would be on the CPU, whatever else is
on a GPU."""

import torch
from torch.overrides import TorchFunctionMode

MAKERS = {torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.tensor, torch.zeros}


class Placed(TorchFunctionMode):
    """Refuses a tensor made without a device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in MAKERS or (kwargs or {}).get("device") is not None, f"{func.__name__} without a device"
        return func(*args, **(kwargs or {}))
