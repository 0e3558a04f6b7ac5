"""What a model answers."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from instances import instances
from lostwax import access as logits
from lostwax.access import Logits
from lostwax.games import Release
from lostwax.inits import LeCunNormal
from lostwax.nets import mlp

QUERIES = torch.rand(7, 4, generator=torch.Generator().manual_seed(0))


def one_after_the_other(net, release, queries):
    answers = []
    for i in range(len(release)):
        model = deepcopy(net).double()
        model.load_state_dict(release[i], strict=False)
        answers.append(model(queries.double()).detach().flatten())
    return torch.stack(answers)


def started(net, models):
    """Models as they would start, each its own."""
    return Release({name: value.double() for name, value in LeCunNormal(seed=None)(net, range(models), seed=0).items()})


@pytest.mark.parametrize("net", [mlp(4, 5, 3), nn.Sequential(mlp(4, 5, 3), nn.LayerNorm(3))])
def test_it_is_the_plain_loop_over_models(net, monkeypatch):
    monkeypatch.setattr(logits, "MODELS_AT_A_TIME", 4)
    release = started(net, 10)
    seen = Logits(QUERIES)(net, release)
    assert seen.shape == (10, 7 * 3)
    torch.testing.assert_close(seen, one_after_the_other(net, release, QUERIES), rtol=1e-12, atol=1e-12)
    assert not seen.requires_grad


def test_frozen_layers_answer_too():
    net = mlp(4, 5, 3)
    for value in net[1].parameters():
        value.requires_grad_(False)
    release = started(net, 3)
    assert set(release.params) == {"3.weight", "3.bias"}
    torch.testing.assert_close(Logits(QUERIES)(net, release), one_after_the_other(net, release, QUERIES))


def test_a_released_buffer_of_whole_numbers_stays_an_index():
    """Releases hold it as floats."""
    net = nn.Sequential(nn.Linear(4, 3))
    net.register_buffer("order", torch.tensor([2, 0, 1]))
    net.forward = lambda x: net[0](x)[:, net.order]
    queries = torch.rand(5, 4)
    params = {name: value.detach()[None].float() for name, value in net.state_dict().items()}
    torch.testing.assert_close(Logits(queries)(net, Release(params)), net(queries).detach().flatten()[None])


@pytest.mark.parametrize("queries", [torch.zeros(0, 4), torch.zeros(4), torch.zeros(2, 4, dtype=torch.long)])
def test_queries_are_checked(queries):
    with pytest.raises(ValueError, match="Logits: expected floating-point queries of shape"):
        Logits(queries)


def test_examples_fit_a_net_of_four_inputs():
    release = started(mlp(4, 3), 2)
    assert [access(mlp(4, 3), release).shape for access in instances(Logits)] == [(2, 12)]
