"""Gaussian noise for many models, each its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch

from lostwax import philox
from lostwax.inits import Numbers
from lostwax.seeds import key
from lostwax.trainers.stacked import Params


def gaussian_noise(like: Params, numbers: Numbers, *, seed: int) -> Iterator[Params]:
    """Step by step N(0, 1) in the shape of stacked parameters, a function of (seed, model, step, place) alone.

    The same to rounding on every device and in every dtype (`philox/`).
    """
    one = next(iter(like.values()))
    sizes = [value[0].numel() for value in like.values()]
    ours, models = key(seed, "noise"), torch.as_tensor(numbers, device=one.device)
    for step in count():
        normal = philox.normal(ours, models, sum(sizes), turn=step).to(one.dtype)  # (m, p)
        parts = torch.split(normal, sizes, dim=1)
        yield {name: part.reshape(like[name].shape) for name, part in zip(like, parts, strict=True)}
