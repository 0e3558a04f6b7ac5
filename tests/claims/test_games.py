"""Pairs of training sets, and what is seen of a training."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from claims.training import full_batches, layer, records
from lostwax.claims.games import Player
from lostwax.claims.pairs import pairs as every_pair
from lostwax.claims.slopes import Slopes


def player(train, net=None):
    net = net or layer()
    return Player(net, train, Slopes.of(net, records(), None), 0)


def pairs(data):
    return every_pair(data, Slopes.of(layer(), data, None))


def test_a_pair_differs_in_one_record():
    data = records()
    for pair in pairs(data):
        assert len(pair.others) == len(data) - 1
        assert len(pair.canaries) == 2
        one, other = pair.canaries[:1], pair.canaries[1:]
        assert int(one.y) != int(other.y)


def test_every_run_has_its_own_seed_and_the_same_net():
    seen = []

    def train(net, x, y, seed):
        seen.append((seed, net.weight.detach().clone(), torch.rand(1).item()))
        return net

    play, pair = player(train), pairs(records())[0]
    for number in (0, 1, 0):
        play(pair, 0, "game", number)
    assert seen[0][0] == seen[2][0] != seen[1][0]
    assert seen[0][2] == seen[2][2] != seen[1][2]
    assert torch.equal(seen[0][1], seen[1][1])


def test_the_canary_is_the_last_record():
    pair, seen = pairs(records())[3], []
    play = player(lambda net, x, y, seed: seen.append(y) or net)
    for which in (0, 1):
        play(pair, which, "game", 0)
    assert torch.equal(seen[0][:-1], seen[1][:-1])
    assert [int(y[-1]) for y in seen] == pair.canaries.y.tolist()


def test_steps_are_read_from_optimisers_or_returned():
    """A copy of the net, a list of weights, the last weights alone."""
    pair = pairs(records())[0]
    steps = []

    def listed(net, x, y, seed):
        steps.clear()
        full_batches(net, x, y, seed, steps_out=steps)
        return list(steps)

    runs = [
        player(train)(pair, 1, "game", 0)
        for train in (full_batches, listed, lambda net, x, y, seed: full_batches(deepcopy(net), x, y, seed))
    ]
    assert [run.steps for run in runs] == [2, 2, 2]
    for run in runs[1:]:
        torch.testing.assert_close(run.along, runs[0].along)

    assert player(lambda net, x, y, seed: net)(pair, 1, "game", 0).steps is None


def test_a_step_along_the_canaries_tells_them_apart():
    pair = pairs(records())[0]
    signs = [player(lambda *a: full_batches(*a, scale=0.0))(pair, k, "g", 0).along[:, 0].sum() for k in (0, 1)]
    assert signs[0] * signs[1] < 0


def test_weights_that_do_not_fit_are_named():
    pair = pairs(records())[0]
    for returned, error in (
        (None, TypeError),
        ([], TypeError),
        (nn.Linear(3, 2), ValueError),
        ({"weight": torch.zeros(2, 4)}, ValueError),
    ):
        with pytest.raises(error, match="check_dp: the function returned"):
            player(lambda *_, value=returned: value)(pair, 0, "game", 0)


def test_weights_that_are_not_finite_are_told_from_finite_ones():
    def train(net, x, y, seed):
        if x.abs().max() > 100:
            nn.init.constant_(net.weight, float("nan"))
        return net

    play, pair = player(train), pairs(records())[2]
    one, other = (play(pair, which, "game", 0) for which in (0, 1))
    assert all(value.isfinite().all() for run in (one, other) for value in (run.along, *run.moved.values()))
    assert not torch.equal(one.moved["weight"], other.moved["weight"])


def test_batch_norm_without_averages_is_asked_with_other_records():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 2))
    play = player(lambda net, x, y, seed: net, net)
    assert not play.slopes.takes_one
    run = play(pairs(records())[2], 1, "game", 0)
    assert run.along.shape == (1, 1 + 2 * 6)


def test_frozen_layers_are_left_out():
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    net[0].requires_grad_(False)

    def train(net, x, y, seed):
        optimiser = torch.optim.SGD([value for value in net.parameters() if value.requires_grad], lr=0.1)
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
        return net

    run = player(train, net)(pairs(records())[0], 0, "game", 0)
    assert run.along.shape == (1, 1 + 2 * 2)
    assert run.steps == 1


def clipped(gradients):
    return [g / max(1.0, float(torch.cat([one.flatten() for one in gradients]).norm())) for g in gradients]


def on_copies(net, x, y, seed):
    """One step of DP-FedAvg: each record's update comes from an optimiser of a copy, which nobody sees."""
    total = [torch.zeros_like(value) for value in net.parameters()]
    for one, label in zip(x, y, strict=True):
        local = deepcopy(net)
        optimiser = torch.optim.SGD(local.parameters(), lr=1.0)
        nn.functional.cross_entropy(local(one[None]), label[None]).backward()
        optimiser.step()
        moved = [a.detach() - b.detach() for a, b in zip(local.parameters(), net.parameters(), strict=True)]
        total = [a + b for a, b in zip(total, clipped(moved), strict=True)]
    with torch.no_grad():
        for value, push in zip(net.parameters(), total, strict=True):
            value += 0.1 * (push + 2.0 * torch.randn_like(push))
    return net


def noise_after_the_step(net, x, y, seed):
    """The optimiser's own weights, without the noise, are not released."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(x), y).backward()
    optimiser.step()
    with torch.no_grad():
        for value in net.parameters():
            value += torch.randn_like(value)
    return net


@pytest.mark.parametrize("train", [on_copies, noise_after_the_step])
def test_steps_that_do_not_lead_to_what_is_returned_are_not_seen(train):
    run = player(train)(pairs(records())[0], 1, "game", 0)
    assert run.steps is None
    assert len(run.along) == 1


def test_steps_go_on_where_a_copy_was_loaded():
    """A new copy for each step, and a net that is not part of it."""

    def train(net, x, y, seed):
        for step in range(3):
            full_batches(layer(), x, y, seed, steps=1)
            net = full_batches(deepcopy(net), x, y, seed + step, steps=1)
        return net

    def alike(net, x, y, seed):
        for step in range(3):
            full_batches(net, x, y, seed + step, steps=1)
        return net

    runs = [player(function)(pairs(records())[0], 1, "game", 0) for function in (train, alike)]
    assert [run.steps for run in runs] == [3, 3]
    torch.testing.assert_close(runs[0].along, runs[1].along)


def test_weights_that_are_not_finite():
    def train(net, x, y, seed):
        with torch.no_grad():
            net.weight.mul_(torch.nan)
        return net

    run = player(train)(pairs(records())[0], 1, "game", 0)
    assert not run.finite
    assert all(value.isfinite().all() for value in (run.along, run.others, *run.moved.values()))
