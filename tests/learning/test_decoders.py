"""Untrained nets, and the coordinates they answer in."""

import pytest
import torch
from torch import nn

from instances import instances
from lostwax.learning.decoders import ConvDecoder, MLPDecoder, Span


def parameters(net):
    return sum(value.numel() for value in net.parameters())


@pytest.mark.parametrize("decoder", [*instances(MLPDecoder), *instances(ConvDecoder)])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 7, 9)])
def test_answers_have_the_shape_of_a_record_and_keep_within_the_bounds(decoder, shape):
    net = decoder.build(11, shape).eval()
    features = 1e3 * torch.randn(5, 11)
    answers = net(features)
    assert answers.shape == (5, *shape)
    assert 0 <= answers.min() < 0.5 < answers.max() <= 1
    assert decoder.build(11, shape, bounded=False)(features).abs().max() > 1
    assert torch.equal(answers, net(features))


def test_sizes_are_those_of_the_paper():
    """S1 Table V: 9.7M parameters for MNIST; Table VII and section VI-B: 226M for CIFAR-10."""
    with torch.device("meta"):
        assert parameters(MLPDecoder().build(7_960, (1, 28, 28))) == pytest.approx(9.7e6, rel=0.01)
        assert parameters(ConvDecoder().build(55_208, (3, 32, 32))) == pytest.approx(226e6, rel=0.01)


def test_noise_is_for_training_only():
    net = MLPDecoder(depth=0, input_noise=0.5).build(2, (2,), bounded=False)
    net[1].weight.data, net[1].bias.data = torch.eye(2), torch.zeros(2)
    still = torch.zeros(20_000, 2)
    assert net.train()(still).detach().std() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(net.eval()(still), still)
    assert "sigma=0.5" in repr(net)


def test_settings_are_checked():
    for field, value in {"width": 0, "depth": -1, "input_noise": -0.1, "dropout": 1.0}.items():
        with pytest.raises(ValueError, match=f"MLPDecoder: expected {field} .*, got {value}"):
            MLPDecoder(**{field: value})
    with pytest.raises(ValueError, match="ConvDecoder: expected channels to hold at least one number"):
        ConvDecoder(channels=())
    with pytest.raises(ValueError, match="ConvDecoder: expected input_noise >= 0"):
        ConvDecoder(input_noise=-1)
    with pytest.raises(ValueError, match=r"records of shape \(4,\)\. Use MLPDecoder"):
        ConvDecoder().build(3, (4,))


def test_pixels_are_shares_of_their_range():
    for low in (0.0, -1.0):
        prior = low + (1 - low) * torch.rand(20, 1, 3, 3)
        span = Span.of(prior)
        assert span.bounded
        assert span.records(torch.zeros(1, 3, 3)).unique().tolist() == [low]
        assert span.records(torch.ones(1, 3, 3)).unique().tolist() == [1.0]
        torch.testing.assert_close(span.records(span.shares(prior)), prior)


def test_tables_are_unbounded_and_count_in_deviations():
    prior = torch.randn(50, 3, dtype=torch.float64) * torch.tensor([1.0, 100.0, 0.0]) + 7
    span = Span.of(prior)
    assert not span.bounded
    torch.testing.assert_close(span.shares(prior)[:, :2].std(0, correction=0), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(span.records(span.shares(prior)), prior)
    assert span.records(nn.init.constant_(torch.empty(3, dtype=torch.float64), 5.0))[2] == 7  # a constant stays
