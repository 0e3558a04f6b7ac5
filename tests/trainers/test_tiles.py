"""Which models are computed together."""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from lostwax.games import Cohort, Records
from lostwax.nets import mlp
from lostwax.trainers import GD, SGD
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
    parts = [(tile, {"w": values[torch.from_numpy(tile.rows)]}) for tile in tiles(numbers, size)]
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


class CallCounter(TorchFunctionMode):
    """Counts what Python asks of torch."""

    calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("trainer", [GD(lr=0.1, steps=2, tile=4_096), SGD(lr=0.1, epochs=1, batch_size=2, tile=4_096)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_python_does_not_work_model_by_model(trainer, shuffled):
    def calls(models):
        own = Records(torch.rand(models, 3, 2), torch.zeros(models, 3, dtype=torch.long))
        numbers = torch.randperm(models) if shuffled else torch.arange(models)
        with CallCounter() as counter:
            trainer(nn.Linear(2, 2), Cohort(Records(own.x[0, :0], own.y[0, :0]), own, numbers), seed=0)
        return counter.calls

    assert abs(calls(4_096) - calls(2_560)) < 10  # one tile each


def test_numbers_are_read_inside_torch_func_where_only_single_ones_can_be(monkeypatch):
    """As with torch 2.8, where a tensor inside torch.func has no tolist() either."""

    def refuse(*_, **__):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    games, trainer = cohort(3), GD(lr=0.1, steps=2, dtype=torch.float64)

    def weights(x):
        return trainer(net(), Cohort(games.shared, Records(x, games.own.y), games.index.flip(0)), seed=0).flat()

    x = games.own.x
    outside = weights(x)
    for name in ("tolist", "numpy", "__array__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    inside, tangent = torch.func.jvp(weights, (x,), (torch.ones_like(x),))
    monkeypatch.undo()
    torch.testing.assert_close(inside, outside)
    assert tangent.abs().max() > 0
