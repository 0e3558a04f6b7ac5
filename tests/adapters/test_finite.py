"""Weights that are not numbers are refused, whatever the audit would make of them."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import lostwax as lw

X, Y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3


def broken(net, value, count=1):
    net = deepcopy(net)
    with torch.no_grad():
        next(net.parameters()).view(-1)[:count] = value
    return net


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("net", "name", "trainer"),
    [
        (nn.Linear(4, 3), "weight", lw.Optimum()),
        (lw.nets.mlp(4, 5, 3), "1.weight", lw.GD(steps=2)),
    ],
    ids=["at the optimum", "by steps"],
)
def test_a_net_that_diverged(net, name, trainer, value):
    words = f"audit: {name} holds 1 value that is NaN or infinite: training diverged, or the file is damaged"
    with pytest.raises(ValueError, match=words):
        lw.audit(broken(net, value), (X, Y), trainer=trainer)
    with pytest.raises(ValueError, match="holds 3 values that are NaN"):
        lw.audit(broken(net, value, count=3), (X, Y), trainer=trainer)
