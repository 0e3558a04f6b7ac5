"""Attacks of papers/kkt.py, against slow references."""

import argparse

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import lostwax as lw


@pytest.fixture(scope="module")
def kkt(paper_module):
    return paper_module("kkt"), paper_module("kkt_attacks")


class SmoothReLU(torch.autograd.Function):
    """Its derivative is sigmoid(alpha x), and can be differentiated again."""

    @staticmethod
    def forward(ctx, values, alpha):
        ctx.save_for_backward(values)
        ctx.alpha = alpha
        return values.relu()

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.alpha * ctx.saved_tensors[0]).sigmoid(), None


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_the_stationarity_loss_and_its_slope_are_those_of_two_passes_backwards(kkt, layers):
    _, attacks = kkt
    shapes = [(5, 4), *[(5, 5)] * layers, (5,)]
    net = attacks.Net.of([torch.randn(shape, dtype=torch.float64) for shape in shapes])
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)  # two runs of six candidates
    weight = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([3.0, 20.0], dtype=torch.float64)
    inputs = torch.cat([x, torch.ones(2, 6, 1)], 2)
    found = attacks.stationarity(net, inputs, weight, alpha.view(2, 1, 1))
    slopes = torch.autograd.grad(found.sum(), (x, weight))
    for run in range(2):
        theta = [tensor.clone().requires_grad_() for tensor in net.tensors]
        own, one = x[run].detach().requires_grad_(), weight[run].detach().requires_grad_()
        values = torch.cat([own, torch.ones(6, 1)], 1)
        for layer in theta[:-1]:
            values = SmoothReLU.apply(values @ layer.T, float(alpha[run]))
        sums = torch.autograd.grad(((values @ theta[-1]) * one).sum(), theta, create_graph=True)
        loss = sum((tensor.detach() - part).square().sum() for tensor, part in zip(theta, sums, strict=True))
        torch.testing.assert_close(found[run], loss)
        for ours, theirs in zip(slopes, torch.autograd.grad(loss, (own, one)), strict=True):
            torch.testing.assert_close(ours[run], theirs)


def test_the_score_is_the_ssim_of_the_nearest_candidate_stretched(kkt):
    """By loops over pixels: Gaussian windows of 3 x 3, reflected at the border (Wang et al. 2004, Eq. 13)."""
    script, attacks = kkt
    own = attacks.Pictures(torch.rand(3, 1, 6, 6, dtype=torch.float64), torch.ones(3), torch.zeros(0))
    guesses = (own.x.flip(0) - own.mean) * 0.5 + 0.1 * torch.rand(3, 1, 6, 6, dtype=torch.float64)
    alike, errors, right = script.scores(guesses.flatten(1), own, halved=False)
    assert right == 0
    assert script.scores((own.x - own.mean).flatten(1), own, halved=True).right == 3
    kernel = np.exp(-(np.arange(-1, 2) ** 2) / (2 * 1.5**2))
    kernel = np.outer(kernel, kernel) / kernel.sum() ** 2
    for number in range(3):
        guess = (guesses[2 - number] + own.mean).numpy()[0]  # shrinking moves no nearest neighbour
        guess = (guess - guess.min()) / (guess.max() - guess.min())
        x, y = (np.pad(image, 1, mode="reflect") for image in (guess, own.x[number, 0].numpy()))
        values = []
        for row in range(6):
            for column in range(6):
                a, b = (image[row : row + 3, column : column + 3] for image in (x, y))
                mean_a, mean_b = (kernel * a).sum(), (kernel * b).sum()
                spread = (kernel * (a - mean_a) ** 2).sum() + (kernel * (b - mean_b) ** 2).sum()
                both = (kernel * (a - mean_a) * (b - mean_b)).sum()
                values.append(
                    (2 * mean_a * mean_b + 1e-4)
                    * (2 * both + 9e-4)
                    / ((mean_a**2 + mean_b**2 + 1e-4) * (spread + 9e-4))
                )
        assert alike[number] == pytest.approx(np.mean(values))
        expected = (own.x[number] - guesses - own.mean).square().flatten(1).mean(1).min()
        assert errors[number] == pytest.approx(float(expected))


@pytest.fixture
def options():
    return argparse.Namespace(device="cpu", steps=2_000, iterations=20, seconds=60.0, search=5.0, runs=2, seed=0)


def small(attacks, monkeypatch, options, size=6, width=60, loss=1e-12, small_loss=0.0):
    """A net with one hidden layer that is trained to the margin on small digits."""
    digits = lw.records.digits()
    own = digits[torch.cat([(digits.y % 2 == kind).nonzero()[: size // 2, 0] for kind in (0, 1)])]
    labels = torch.where(own.y % 2 == 0, 1.0, -1.0).double()
    game = attacks.Game("mnist", size)
    pictures = attacks.Pictures(own.x.double(), labels, own.x[:0])
    rate = 0.03 * float(pictures.inputs.square().sum(1).mean())  # larger steps that do not shrink, and fewer: quick
    for name, value in {"WIDTH": width, "RATE": rate, "LOSS": loss, "SMALL_LOSS": small_loss}.items():
        monkeypatch.setattr(attacks, name, value)
    return game, pictures, attacks.train(game, pictures, options)


def test_training_ends_near_a_kkt_point(kkt, monkeypatch, options):
    _, attacks = kkt
    _, own, nets = small(attacks, monkeypatch, options)
    assert nets.loss < attacks.LOSS
    assert nets.alignment > 0.95
    margins = own.y * attacks.outputs(nets.end, own.inputs)
    assert float(margins.min()) > 20


def test_steps_shrink_as_the_margin_grows(kkt, monkeypatch, options):
    """So that it is approached steadily: the weights stay close to the direction of descent at a tiny loss."""
    _, attacks = kkt
    _, _, nets = small(attacks, monkeypatch, options, loss=1e-40, small_loss=1e-3)
    assert nets.loss < 1e-40
    assert nets.alignment > 0.95


def planted(draws, records=6, neurons=120):
    """A move of a hidden layer: half of the neurons are activated by each record."""
    columns = draws.random((neurons, records)) * (draws.random((neurons, records)) < 0.5)
    rows = draws.standard_normal((records, 9))
    return torch.from_numpy(columns @ rows), torch.from_numpy(rows)


def test_neurons_show_every_record_and_its_label(kkt):
    _, attacks = kkt
    draws = np.random.default_rng(0)
    moved, rows = planted(draws)
    found = attacks.records_by_neurons(moved, 6, draws)
    far = torch.cdist(rows[:, :-1] / rows[:, -1:], found.x)
    assert float(far.amin(1).max()) < 1e-6
    assert torch.equal(found.y[far.argmin(1)], rows[:, -1].sign())


def test_neurons_show_nothing_of_another_number_of_records_or_without_zeros(kkt):
    _, attacks = kkt
    draws = np.random.default_rng(0)
    moved, _ = planted(draws)
    assert attacks.records_by_neurons(moved, 5, draws, 0.3) is None
    assert attacks.records_by_neurons(moved, 7, draws, 0.3) is None
    columns = draws.random((120, 6)) + 0.1
    assert attacks.records_by_neurons(torch.from_numpy(columns @ draws.random((6, 9))), 6, draws, 0.3) is None


def test_mixtures_of_records_are_left_out_where_their_neurons_disagree(kkt, monkeypatch, options):
    """Some of these digits activate all neurons that others do, so that not all of them are rays."""
    _, attacks = kkt
    game, own, nets = small(attacks, monkeypatch, options, width=500)
    kept = attacks.by_neurons(nets.start, nets.end, game, options).x
    moved = (nets.end.first - nets.start.first) / nets.end.last.unsqueeze(1)
    every = attacks.records_by_neurons(moved[nets.start.last * nets.end.last > 0], game.size, np.random.default_rng(0))
    wrong, left = (torch.cdist(found, own.inputs[:, :-1]).amin(1) > 1e-6 for found in (every.x, kept))
    assert int((~left).sum()) >= 2
    assert int(left.sum()) < int(wrong.sum())  # a test that some mixtures pass: no certificate


def test_the_first_layer_shows_the_space_of_the_records(kkt, monkeypatch, options):
    _, attacks = kkt
    game, own, nets = small(attacks, monkeypatch, options)
    basis = attacks.standing_out(nets.end.first)
    assert len(basis) == game.size - 1  # less their mean
    x = own.inputs[:, :-1]
    assert float((x @ basis.T).square().sum() / x.square().sum()) > 0.95
    noise = torch.randn(60, 65, dtype=torch.float64)
    assert len(attacks.standing_out(noise)) == 0


def test_steps_within_a_whole_space_are_steps_without_it(kkt, monkeypatch, options):
    _, attacks = kkt
    game, _, nets = small(attacks, monkeypatch, options)
    turned = torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64)).Q
    plain, within = (attacks.by_kkt(nets.end, game, options, basis) for basis in (None, turned))
    assert plain.steps == within.steps == 20
    torch.testing.assert_close(plain.x, within.x, rtol=1e-3, atol=1e-5)
    assert plain.x.shape == (2 * 2 * game.size, 64)


def test_a_run_that_diverges_leaves_the_others(kkt, monkeypatch, options):
    _, attacks = kkt
    game, _, nets = small(attacks, monkeypatch, options)
    alone = attacks.by_kkt(nets.end, game, argparse.Namespace(**{**vars(options), "runs": 1})).x
    steady, wild = attacks.PUBLISHED["mnist"][0], attacks.Setting(1e30, 1e30, 0.1, 100.0)
    monkeypatch.setitem(attacks.PUBLISHED, "mnist", (steady, wild))
    found = attacks.by_kkt(nets.end, game, options).x
    assert len(found) < 2 * 2 * game.size
    assert found.isfinite().all()
    assert len(alone) == 2 * game.size


def test_classes_are_balanced_and_others_are_not_the_training_pictures(kkt, monkeypatch, options):
    _, attacks = kkt
    records = lw.Records(torch.arange(200.0).view(-1, 1, 1, 1).expand(-1, 1, 2, 2), torch.arange(200) % 10)
    monkeypatch.setattr(lw.records, "cifar10", lambda part, root: records)
    options.data = None
    own = attacks.pictures(attacks.Game("cifar10", 10), options)
    assert one_hot((own.y > 0).long()).sum(0).tolist() == [5, 5]
    animals = {2, 3, 4, 5, 6, 7}
    assert all((int(x) % 10 in animals) == (y > 0) for x, y in zip(own.x[:, 0, 0, 0], own.y, strict=True))
    assert not set(own.x[:, 0, 0, 0].tolist()) & set(own.others[:, 0, 0, 0].tolist())
    assert len(own.others) == 2 * 10 * options.runs
