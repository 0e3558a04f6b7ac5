"""Weights that look trained and are not."""

from dataclasses import replace
from importlib import import_module

import torch
from torch import nn

import lostwax as lw
from lostwax.shadows import Game, gaussian_weights
from lostwax.shadows.game import MIN_COVARIANCE_MODELS

DIGITS = lw.records.digits()
GAME = Game(
    lw.nets.mlp(64, 2, 3, activation=nn.ReLU),
    lw.GD(lr=0.5, steps=3, init=lw.inits.Normal(0.1, seed=None)),
    lw.Weak(size=3),
    DIGITS[DIGITS.y < 3],
    0,
)


def test_they_have_the_mean_and_the_covariance_of_shadow_models():
    drawn = gaussian_weights(GAME, 6_000)
    shadows = GAME.trainer(GAME.net, GAME.deal(range(MIN_COVARIANCE_MODELS)), seed=0)
    assert {name: value.shape[1:] for name, value in drawn.params.items()} == {
        name: value.shape for name, value in GAME.net.named_parameters()
    }
    ours, theirs = (release.flat().double() for release in (drawn, shadows))
    scale = theirs.std(0)
    assert float(((ours.mean(0) - theirs.mean(0)) / scale).abs().max()) < 5 / MIN_COVARIANCE_MODELS**0.5
    correlations = [torch.corrcoef(part.T) for part in (ours, theirs)]
    torch.testing.assert_close(*correlations, rtol=0, atol=5 / MIN_COVARIANCE_MODELS**0.5)
    assert float((theirs.T.corrcoef() - torch.eye(theirs.shape[1])).abs().max()) > 0.5  # which is far from none


def test_they_are_the_same_however_shadow_models_are_cut():
    game = GAME._replace(trainer=replace(GAME.trainer, tile=100))
    torch.testing.assert_close(gaussian_weights(game, 3).flat(), gaussian_weights(GAME, 3).flat(), rtol=0, atol=1e-5)


def test_of_large_models_no_more_are_trained_than_can_be(monkeypatch):
    module = import_module("lostwax.shadows.game")  # the function has the same name
    monkeypatch.setattr(module, "MIN_COVARIANCE_MODELS", 10)
    monkeypatch.setattr(module, "MAX_COVARIANCE_NUMBERS", 40 * sum(value.numel() for value in GAME.net.parameters()))
    drawn = gaussian_weights(GAME, 100).flat().double()
    assert torch.linalg.matrix_rank(drawn - drawn.mean(0), rtol=1e-5) == 39


def test_they_depend_on_the_seed_alone():
    one, two, other = (gaussian_weights(GAME._replace(seed=seed), 3).flat() for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
