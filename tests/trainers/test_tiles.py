"""Which models are computed together."""

import pytest
import torch
from torch import nn

from lostwax.nets import mlp
from lostwax.trainers import GD
from lostwax.trainers.stacked import Architecture
from lostwax.trainers.stepwise import default_size, gather, tiles
from trainers.game import cohort, net


def test_a_tile_that_is_mostly_wanted_keeps_every_model_in_its_place():
    (tile,) = tiles([5, 4, 7], 4)
    assert tile.rows.tolist() == [1, 0, 1, 2]  # place 2 is filled with the first
    assert tile.wanted.tolist() == [0, 1, 3]


def test_one_victim_costs_one_training():
    (tile,) = tiles([200], 256)
    assert (tile.rows.tolist(), tile.wanted.tolist()) == ([0], [0])


def test_a_number_asked_for_many_times_is_cut_into_tiles():
    assert [len(tile.rows) for tile in tiles([3] * 10, 4)] == [4, 4, 2]


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4], [9, 2, 4, 1, 0, 3], [7, 7, 1], list(range(20, 3, -1))])
@pytest.mark.parametrize("size", [1, 3, 4, 256])
def test_what_was_cut_is_put_together_again(numbers, size):
    values = torch.tensor(numbers) * 10
    parts = [(tile, {"w": values[tile.taken(values.device)]}) for tile in tiles(numbers, size)]
    assert torch.equal(gather(parts)["w"], values)


def size(net, inputs, records, own=1):
    return default_size(Architecture(net, {}), torch.zeros(inputs), records=records, own=own)


def test_the_default_fits_the_working_set_and_knows_no_free_memory():
    assert size(mlp(784, 10, 10), 784, records=1_001) == 128
    assert size(mlp(784, 10, 10), 784, records=10**9) == 1
    assert size(nn.Linear(4, 2), 4, records=10) == 256
    assert size(mlp(784, 10, 10), 784, records=100, own=100) == 64  # a private batch for every model


def test_tile_size_is_the_field_or_the_default():
    assert GD(tile=12).tile_size(net(), cohort(1)) == 12
    assert GD().tile_size(net(), cohort(1)) == 256
