"""Randomness by key."""

import numpy as np
import pytest
import torch

from lostwax.seeds import generator, seed_torch


def draws(*key):
    return generator(*key).integers(2**62, size=3).tolist()


def test_the_same_key_draws_the_same():
    assert draws(0, "order", 3, 1) == draws(0, "order", 3, 1) == draws(np.int64(0), "order", np.int64(3), np.uint8(1))


def test_every_part_of_the_key_counts():
    keys = [
        (0, "order", 3, 1),
        (1, "order", 3, 1),
        (0, "init", 3, 1),
        (0, "order", 31),
        (0, "order", 3 + 2**32, 1),
        (0,),
    ]
    assert len({tuple(draws(*key)) for key in keys}) == len(keys)


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_torch_draws_as_after_manual_seed(seed):
    torch.manual_seed(seed)
    expected = torch.rand(3)
    seed_torch(seed)
    assert torch.equal(torch.rand(3), expected)
