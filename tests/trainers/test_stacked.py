"""The fast path is what it claims to be."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lostwax.games import Cohort, Records
from lostwax.losses import CrossEntropy
from lostwax.nets import mlp
from lostwax.trainers import DPSGD, GD, SGD
from lostwax.trainers.stacked import Architecture, Batch, gradient


def test_a_linear_layer_on_shared_records_is_one_product_forward_and_one_backward():
    m, n, d, h = 6, 50, 30, 4
    net = Architecture(mlp(d, h, 3), {})
    params = {name: torch.randn(m, *value.shape) for name, value in net.net.named_parameters()}
    shared = (torch.randn(n, d), torch.randint(3, (n,)))
    own = (torch.randn(m, 1, d), torch.randint(3, (m, 1)))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as record:
        gradient(net, CrossEntropy(), params, Batch((shared,), (own,)))
    sizes = [event.input_shapes for event in record.events() or () if event.name in ("aten::mm", "aten::bmm")]
    products = Counter(tuple(map(tuple, shapes[:2])) for shapes in sizes)
    assert products[(m * h, d), (d, n)] == 1
    assert products[(m * h, n), (n, d)] == 1
    largest = max(torch.Size(shape).numel() for event in record.events() or () for shape in event.input_shapes)
    assert largest < m * n * d  # nobody copied the shared records for every model


def test_no_copy_is_made_of_the_outputs_of_that_layer():
    m, n, d, h = 6, 50, 30, 7
    net = Architecture(mlp(d, h, 3), {})
    params = {name: torch.randn(m, *value.shape) for name, value in net.net.named_parameters()}
    shared = (torch.randn(n, d), torch.randint(3, (n,)))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as record:
        gradient(net, CrossEntropy(), params, Batch((shared,), ()))
    copied = [event.input_shapes[0] for event in record.events() or () if event.name in ("aten::copy_", "aten::clone")]
    assert all(torch.Size(shape).numel() < m * h * n for shape in copied)


@pytest.mark.parametrize("shared", [0, 7])  # without shared records, GD trains in the span of the records
@pytest.mark.parametrize(
    "trainer", [GD(steps=3), SGD(epochs=2, batch_size=2), DPSGD(steps=3)], ids=lambda t: type(t).__name__
)
def test_a_module_that_works_in_place_trains_like_one_that_does_not(trainer, shared):
    """And overwrites neither its own input, nor the records, nor the user's net."""
    random = torch.Generator().manual_seed(0)

    def records(*shape):
        return Records(torch.randn(*shape, 5, generator=random), torch.zeros(shape, dtype=torch.long))

    def net(inplace):
        torch.manual_seed(0)
        first, second = nn.ReLU(inplace=inplace), nn.ReLU(inplace=inplace)
        return nn.Sequential(first, nn.Linear(5, 6), second, nn.Linear(6, 3))

    def head(inplace):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 6), nn.ELU(inplace=inplace), nn.Linear(6, 3))

    cohort = Cohort(records(shared), records(2, 3), torch.arange(2))
    before = cohort.shared.x.clone(), cohort.own.x.clone()
    for made in (net, head):
        given = made(inplace=True)
        trained, expected = (trainer(each, cohort, seed=0).flat() for each in (given, made(inplace=False)))
        assert torch.equal(trained, expected)
        assert torch.equal(cohort.shared.x, before[0])
        assert torch.equal(cohort.own.x, before[1])
        assert all(module.inplace for module in given.modules() if hasattr(module, "inplace"))
