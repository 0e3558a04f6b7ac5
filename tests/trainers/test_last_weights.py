"""Slope, smoothness and convexity of a head, read from its net and loss, against derivatives by autograd."""

import math

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.bounds import LastWeights, bound
from lostwax.games.facts import loss_facts, trainer_facts
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from lostwax.nets import ShortFeatures
from lostwax.schedules import Cosine
from lostwax.trainers import last_weights

HEADS = [(CrossEntropy(), 10), (CrossEntropy(), 2), (BinaryCrossEntropy(), 1), (BinaryCrossEntropy(3.0), 1)]
HEADS += [(BinaryCrossEntropy(), 4), (SquaredError(), 1), (SquaredError(), 3)]


def label(loss, outputs):
    if isinstance(loss, SquaredError):
        return torch.randn(outputs).squeeze().double()
    return torch.randint(max(2, outputs), ()).long()


@pytest.mark.parametrize(("loss", "outputs"), HEADS)
def test_no_gradient_is_longer_and_no_curvature_larger(loss, outputs):
    torch.manual_seed(0)
    net = nn.Sequential(ShortFeatures(1.5), nn.Linear(6, outputs)).double()
    clip = 100.0
    stated = last_weights(net, lr=1e-3, clip=clip, loss=loss, weight_decay=0.02)
    facts = loss_facts(loss, outputs)
    longest = sharpest = 0.0
    for _ in range(100):
        weights = torch.randn(outputs * 7).double() * 10 ** float(torch.rand(()) * 2 - 1)
        x, y = torch.randn(6).double() * 3, label(loss, outputs)

        def value(flat, x=x, y=y):
            z = net[0](x.unsqueeze(0)) @ flat[: outputs * 6].view(outputs, 6).mT + flat[outputs * 6 :]
            return loss(z, y.unsqueeze(0)).sum()

        longest = max(longest, float(torch.autograd.functional.jacobian(value, weights).norm()))
        curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(value, weights))
        assert curvature.min() > -1e-9
        sharpest = max(sharpest, float(curvature.max()))
    assert stated.convexity == 0.02
    assert 0.3 * (stated.smoothness - 0.02) < sharpest <= stated.smoothness - 0.02
    if facts.slope is not None:
        assert 0.5 * facts.slope * math.hypot(1.5, 1) < longest <= facts.slope * math.hypot(1.5, 1)


@pytest.mark.parametrize(("loss", "outputs"), [(BinaryCrossEntropy(), 1), (SquaredError(), 1), (SquaredError(), 3)])
def test_a_cut_gradient_is_that_of_a_convex_loss_where_that_is_stated(loss, outputs):
    """Its derivative is symmetric, without negative eigenvalues, and no sharper."""
    torch.manual_seed(0)
    clip, x = 0.7, torch.randn(4).double()
    for _ in range(50):
        y, weights = label(loss, outputs), torch.randn(outputs * 4).double()

        def cut(flat, y=y):
            z = x.unsqueeze(0) @ flat.view(outputs, 4).mT
            slope = torch.outer(loss.residual(z, y.unsqueeze(0))[0], x).flatten()
            return slope * (clip / slope.norm()).clamp_max(1)

        derivative = torch.autograd.functional.jacobian(cut, weights)
        assert torch.allclose(derivative, derivative.mT, atol=1e-12)
        values = torch.linalg.eigvalsh((derivative + derivative.mT) / 2)
        assert values.min() > -1e-12
        assert values.max() <= loss_facts(loss, outputs).curvature * float(x.square().sum()) + 1e-12


def test_a_cut_softmax_gradient_belongs_to_no_loss():
    """Its derivative is not symmetric: this is why it is refused."""
    torch.manual_seed(0)
    x, clip = torch.randn(4).double(), 0.3

    def cut(flat):
        z = x.unsqueeze(0) @ flat.view(3, 4).mT
        slope = torch.outer(CrossEntropy().residual(z, torch.tensor([0]))[0], x).flatten()
        return slope * (clip / slope.norm()).clamp_max(1)

    derivative = torch.autograd.functional.jacobian(cut, torch.randn(12).double())
    assert (derivative - derivative.mT).abs().max() > 1e-3


def test_a_trainer_states_it_and_its_ceiling_is_lower():
    net = nn.Sequential(ShortFeatures(1.0), nn.Linear(64, 10))
    settings = {"lr": 0.5, "clip": 2.0, "noise_multiplier": 20.0, "steps": 2000, "weight_decay": 0.02}
    last, every = (lw.DPSGD(**settings, publish_steps=publish) for publish in (False, True))
    mechanism = trainer_facts(last, net, 100).mechanism
    assert mechanism["released"] == last.last_weights(net)
    assert mechanism["released"].smoothness == pytest.approx(1.02)
    assert "released" not in trainer_facts(every, net, 100).mechanism
    assert bound(**mechanism, baseline=0.1).upper < bound(**every.mechanism(), baseline=0.1).upper
    hidden = lw.nets.mlp(64, 20, 10)
    assert "released" not in trainer_facts(last, hidden, 100).mechanism
    with pytest.raises(ValueError, match=r"1\.weight is trained too, a hidden layer"):
        last.last_weights(hidden)


def test_a_frozen_backbone_is_no_hidden_layer():
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), ShortFeatures(2.0), nn.Linear(6, 3))
    for value in net[0].parameters():
        value.requires_grad_(False)
    assert last_weights(net, lr=0.1, clip=5.0).smoothness == pytest.approx(2.5)


def test_what_is_not_proved_says_why():
    head = nn.Sequential(ShortFeatures(1.0), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"nothing bounds the features. Put lw.nets.ShortFeatures"):
        last_weights(nn.Linear(4, 3), lr=0.1, clip=10.0)
    assert isinstance(last_weights(nn.Linear(4, 3), lr=0.1, clip=10.0, feature_norm=1.0), LastWeights)
    with pytest.raises(ValueError, match=r"clip=1 cuts gradients of CrossEntropy, which are up to 2 long"):
        last_weights(head, lr=0.1, clip=1.0)
    with pytest.raises(ValueError, match="gradients of SquaredError are unbounded"):
        last_weights(head, lr=0.1, clip=math.inf, loss=SquaredError())
    with pytest.raises(ValueError, match="the last layer is Tanh"):
        last_weights(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), lr=0.1, clip=1.0)
    with pytest.raises(ValueError, match="states no largest curvature"):
        last_weights(head, lr=0.1, clip=1.0, loss=lw.losses.Huber(1.0))
    with pytest.raises(ValueError, match="lr at most"):
        last_weights(head, lr=10.0, clip=10.0)
    for wrong in ({"largest_batch": 0.5}, {"largest_batch": math.nan}, {"feature_norm": math.nan}):
        with pytest.raises(ValueError, match="feature_norm of at least 0 and largest_batch of at least 1"):
            last_weights(head, lr=0.1, clip=10.0, **wrong)
    for wrong in ({"momentum": 0.9}, {"schedule": Cosine()}, {"batches": lw.bounds.BallsInBins(5)}):
        with pytest.raises(ValueError, match="for last_weights"):
            lw.DPSGD(lr=0.1, clip=5.0, steps=10, **wrong).last_weights(head)


def test_long_features_are_shortened_and_short_ones_kept():
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert torch.allclose(ShortFeatures(1.0)(x), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="expected norm"):
        ShortFeatures(0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rounding_makes_no_feature_too_long(dtype):
    x = (torch.randn(20_000, 50, generator=torch.Generator().manual_seed(0)) * torch.rand(20_000, 1)).to(dtype)
    assert ShortFeatures(1.0)(x).double().norm(dim=1).max() <= 1


def test_what_looks_like_a_convex_head_and_is_not_is_refused():
    """Each of these was once given the constants of a plain head."""
    shared, copy = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    copy.weight = shared.weight
    scaled, hooked = nn.Sequential(ShortFeatures(1.0), nn.Linear(4, 3)), nn.Linear(4, 3)
    scaled.register_forward_pre_hook(lambda module, inputs: (10 * inputs[0],))
    hooked.register_forward_hook(lambda module, inputs, outputs: 10 * outputs)

    class TenTimes(nn.Sequential):
        def forward(self, x):
            return 10 * super().forward(x)

    for net, why in (
        (nn.Sequential(shared, nn.Tanh(), ShortFeatures(1.0), shared), "0.weight is trained too"),
        (nn.Sequential(copy, nn.Tanh(), ShortFeatures(1.0), shared), "0.weight is trained too"),
        (TenTimes(ShortFeatures(1.0), nn.Linear(4, 3)), "the last layer is TenTimes"),
        (scaled, "a hook"),
        (nn.Sequential(ShortFeatures(1.0), hooked), "a hook"),
        (nn.Sequential(ShortFeatures(1.0), nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), "the last layer"),
        (nn.Sequential(ShortFeatures(1.0), nn.Dropout(0.5), nn.Linear(4, 3)), "nothing bounds the features"),
    ):
        with pytest.raises(ValueError, match=why):
            last_weights(net, lr=0.1, clip=10.0)


def test_a_loss_that_inherits_its_statement_is_held_to_it():
    class Weighted(CrossEntropy):
        def residual(self, outputs, y):
            return 1.5 * super().residual(outputs, y)

    class HollowError(SquaredError):
        def residual(self, outputs, y):
            return -super().residual(outputs, y)

    head = nn.Sequential(ShortFeatures(1.0), nn.Linear(4, 3))
    for loss in (Weighted(), HollowError()):
        with pytest.raises(ValueError, match=f"{type(loss).__name__} is steeper or sharper than it states"):
            last_weights(head, lr=0.1, clip=10.0, loss=loss)
