"""A label head that is fitted in the span of few models is the one that is fitted in all features."""

import pytest
import torch

from lostwax.attacks.reconn import LABEL_RIDGES, LabelHead, _minimise, _minimise_in_span, solve


@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("ridge", LABEL_RIDGES)
def test_the_minimum_is_in_the_span(ridge, numbers):
    features = torch.randn(12, 40, dtype=torch.float64)
    labels = features @ torch.randn(40, 3, dtype=torch.float64)
    y = labels if numbers else labels.argmax(1)
    heads = [LabelHead(40, y).double() for _ in range(2)]
    _minimise(heads[0], features, y, ridge)
    _minimise_in_span(heads[1], torch.linalg.qr(features.T).Q, features, y, ridge)
    with torch.no_grad():
        values = [float(one.loss(features, y) + ridge / 2 * one.linear.weight.square().sum()) for one in heads]
    assert values[1] == pytest.approx(values[0], rel=1e-3)
    new = torch.randn(50, 40, dtype=torch.float64)
    ours, theirs = (one.linear(new) for one in heads)
    assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_nothing_is_drawn():
    features, y = torch.randn(12, 40), torch.arange(12) % 3
    head, before = LabelHead(40, y), torch.get_rng_state()
    solve(head, features, y, features, y)
    assert torch.equal(torch.get_rng_state(), before)
    assert (head.guess(features) == y).all()
