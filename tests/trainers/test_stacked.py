"""The fast path is what it claims to be."""

from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

from lostwax.losses import CrossEntropy
from lostwax.nets import mlp
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
