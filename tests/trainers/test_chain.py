"""Layer by layer, the gradient of stacked models is what vmap computes for any net."""

import pytest
import torch
from torch import nn

from lostwax.losses import CrossEntropy, SquaredError
from lostwax.trainers.stacked import ACTIVATIONS, Architecture, Batch, _Chain, gradient, gradient_by_vmap

M, D, C = 3, 6, 4


def stacked(net, dtype=torch.float64):
    """The architecture and the parameters of M models."""
    shapes = {name: value.shape for name, value in net.named_parameters() if value.requires_grad}
    ours = Architecture.of(net, torch.device("cpu"), dtype)
    return ours, {name: torch.randn(M, *shape, dtype=dtype) for name, shape in shapes.items()}


def batch(shared, own, targets=False, shape=(D,), dtype=torch.float64):
    def part(*size):
        y = torch.randn(*size, C, dtype=dtype) if targets else torch.randint(C, size)
        return torch.rand(*size, *shape, dtype=dtype), y

    return Batch((part(shared),) if shared else (), (part(M, own),) if own else ())


def deep(activation, bias=True):
    return nn.Sequential(nn.Linear(D, 5, bias=bias), activation(), nn.Linear(5, 5), activation(), nn.Linear(5, C))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError()], ids=["classes", "targets"])
@pytest.mark.parametrize("sizes", [(7, 1), (0, 5), (7, 0)], ids=["both", "own", "shared"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_the_gradient_by_vmap(activation, sizes, loss, dtype):
    net, params = stacked(deep(activation), dtype)
    records = batch(*sizes, targets=isinstance(loss, SquaredError), dtype=dtype)
    assert _Chain.of(net, params, records) is not None
    found, expected = gradient(net, loss, params, records), gradient_by_vmap(net, loss, params, records)
    assert list(found) == list(expected)
    torch.testing.assert_close(found, expected, rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_so_are_its_derivatives(activation):
    net, params = stacked(deep(activation, bias=False))
    records = batch(7, 1)
    towards = {name: torch.randn_like(value) for name, value in params.items()}
    ours, theirs = (
        torch.func.jvp(lambda at, slope=slope: slope(net, CrossEntropy(), at, records), (params,), (towards,))[1]
        for slope in (gradient, gradient_by_vmap)
    )
    torch.testing.assert_close(ours, theirs)
    ours, theirs = (
        torch.func.vjp(lambda at, slope=slope: slope(net, CrossEntropy(), at, records), params)[1](towards)[0]
        for slope in (gradient, gradient_by_vmap)
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_alone_is_a_chain(bias):
    net, params = stacked(nn.Linear(D, C, bias=bias))
    records = batch(7, 2)
    assert _Chain.of(net, params, records) is not None
    found, expected = (slope(net, CrossEntropy(), params, records) for slope in (gradient, gradient_by_vmap))
    torch.testing.assert_close(found, expected)


def test_pictures_are_flattened():
    net, params = stacked(nn.Sequential(nn.Flatten(), nn.Linear(D, C), nn.Identity()))
    records = batch(7, 2, shape=(1, 2, 3))
    assert _Chain.of(net, params, records) is not None
    found, expected = (slope(net, CrossEntropy(), params, records) for slope in (gradient, gradient_by_vmap))
    torch.testing.assert_close(found, expected)


def test_an_activation_that_occurs_twice_is_applied_twice():
    activation = nn.Tanh()
    net, params = stacked(nn.Sequential(nn.Linear(D, 5), activation, nn.Linear(5, 5), activation, nn.Linear(5, C)))
    records = batch(7, 1)
    assert _Chain.of(net, params, records) is not None
    found, expected = (slope(net, CrossEntropy(), params, records) for slope in (gradient, gradient_by_vmap))
    torch.testing.assert_close(found, expected)


def twice():
    layer = nn.Linear(D, D)
    return nn.Sequential(layer, nn.ELU(), layer, nn.ELU(), nn.Linear(D, C))


def frozen():
    net = deep(nn.ELU)
    net[0].bias.requires_grad_(False)
    return net


def tied():
    net = nn.Sequential(nn.Linear(D, D), nn.ELU(), nn.Linear(D, D), nn.ELU(), nn.Linear(D, C))
    net[2].weight = net[0].weight
    return net


def hooked():
    net = deep(nn.ELU)
    net[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


@pytest.mark.parametrize(
    "net",
    [
        frozen(),
        tied(),
        twice(),
        hooked(),
        nn.Sequential(nn.Linear(D, 5), nn.ELU(alpha=0.5), nn.Linear(5, C)),
        nn.Sequential(nn.Linear(D, 5), nn.GELU(), nn.Linear(5, C)),
        nn.Sequential(nn.Linear(D, 5), nn.LayerNorm(5), nn.Linear(5, C)),
        nn.utils.parametrizations.weight_norm(nn.Linear(D, C)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(D, C))),
        nn.Sequential(nn.Sequential(nn.Linear(D, C))),
    ],
    ids=[
        "frozen",
        "tied",
        "a layer twice",
        "hooked",
        "alpha",
        "GELU",
        "norm",
        "not sequential",
        "parametrised",
        "nested",
    ],
)
def test_other_nets_are_left_to_vmap(net):
    ours, params = stacked(net)
    assert _Chain.of(ours, params, batch(7, 1)) is None


def test_so_are_dropout_sequences_and_several_own_parts():
    net, params = stacked(deep(nn.ELU))
    plain = batch(7, 1)
    assert _Chain.of(net, params, plain) is not None
    assert _Chain.of(net, params, plain._replace(masks=({}, {}))) is None
    assert _Chain.of(net, params, plain._replace(own=2 * plain.own)) is None
    assert _Chain.of(net, params, batch(7, 1, shape=(2, D))) is None
    dropping = stacked(nn.Sequential(nn.Linear(D, 5), nn.Dropout(0.5), nn.Linear(5, C)))
    assert _Chain.of(*dropping, plain) is None
