"""The loop that trains every net of an attack, against a loop written out."""

from copy import deepcopy
from itertools import takewhile

import pytest
import torch
from torch import nn

from lostwax.learning.training import Best, fit

X, Y = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(0)).double()


def legs(net, count, events=None):
    """Two steps per leg."""

    def losses():
        for rows in (slice(6), slice(6, 12)):
            yield (net(X[rows]) - Y[rows]).square().mean()
            if events is not None:
                events.append(net.weight.detach().clone())  # after the step

    return (losses() for _ in range(count))


@pytest.mark.parametrize("clip", [None, 0.01])
def test_it_is_the_plain_loop(clip):
    net = nn.Linear(3, 3).double()
    other, seen = deepcopy(net), []
    fit(net, torch.optim.Adam(net.parameters()), legs(net, 3, seen), clip=clip)
    optimiser = torch.optim.Adam(other.parameters())
    for step in range(6):
        rows = slice(6) if step % 2 == 0 else slice(6, 12)
        optimiser.zero_grad()
        (other(X[rows]) - Y[rows]).square().mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(other.parameters(), clip)
        optimiser.step()
        assert torch.equal(seen[step], other.weight)
    assert torch.equal(net.bias, other.bias)
    assert not net.training


@pytest.mark.parametrize(
    ("errors", "patience", "count", "best"),
    [
        ([5, 4, 3, 4, 4, 4, 4], None, 6, 2),  # the first is that of the initial weights
        ([5, 4, 3, 4, 4, 4, 4], 2, 4, 2),
        ([5, 6, 6, 6, 6, 6, 6], 2, 3, 0),  # the first leg counts as its start
        ([5, float("nan"), 6, 6, 6, 1, 1], None, 6, 5),
    ],
)
def test_it_ends_with_the_best_weights_and_the_legs_since_are_counted(errors, patience, count, best):
    net = nn.Linear(3, 3).double()
    weights, scripted = [net.weight.detach().clone()], iter(errors)
    kept = Best(net, lambda: next(scripted))
    in_time = takewhile(lambda _: patience is None or kept.legs_since < patience, legs(net, 6, weights))
    fit(net, torch.optim.SGD(net.parameters(), lr=0.1), in_time, best=kept)
    assert len(weights) == 1 + 2 * count
    assert torch.equal(net.weight, weights[2 * best])
