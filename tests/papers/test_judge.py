import math

import pytest
import torch
from torch import nn

from lostwax import records
from lostwax.games import Records


@pytest.fixture(scope="module")
def digits():
    return records.digits()[slice(0, 1000)]


@pytest.fixture(scope="module")
def judges(paper_module):
    return paper_module("lib.judge")


@pytest.fixture(scope="module")
def judge(judges, digits):
    return judges.Classifier.trained(digits, epochs=15)


def test_lenet_learns_digits(judge, digits):
    assert judge.accuracy > 0.9
    strange = records.digits()[slice(1000, None)]
    assert (judge(strange.x).argmax(1) == strange.y).float().mean() > 0.85  # other writers
    torch.testing.assert_close(judge(strange.x).exp().sum(1), torch.ones(len(strange)))
    torch.testing.assert_close(judge(strange.x.flatten(1)), judge(strange.x))


def test_a_seed_decides_and_the_global_generator_is_left_alone(judges, digits):
    few = digits[slice(0, 60)]
    before = torch.get_rng_state()
    one, two, other = (judges.Classifier.trained(few, epochs=1, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one(few.x), two(few.x))
    assert not torch.equal(one(few.x), other(few.x))


def test_a_judge_keeps_a_copy_of_the_net(judges):
    net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9))
    judge = judges.Classifier(net)
    x = torch.ones(1, 3)
    before = judge(x)
    nn.init.zeros_(net[0].weight)
    assert torch.equal(judge(x), before)
    assert net.training
    assert net[0].weight.requires_grad


def test_larger_images(judges):
    large = Records(torch.rand(20, 28, 28), torch.arange(20) % 10)
    assert judges.Classifier.trained(large, epochs=1)(large.x).shape == (20, 10)


def test_bad_input(judges, digits):
    with pytest.raises(ValueError, match="LeNet reads images of 8 x 8"):
        judges.Classifier.trained(Records(digits.x.flatten(1), digits.y))
    with pytest.raises(ValueError, match="expected images of shape"):
        judges.Classifier.trained(digits[slice(0, 20)], epochs=1)(torch.zeros(1, 1, 9, 9))


class Passed(nn.Module):
    """The record is the logits."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        return self.scale * x


def test_kl_is_the_sum_over_classes(judges):
    p, q = [0.7, 0.2, 0.1], [0.5, 0.1, 0.4]
    metric = judges.KL(judges.Classifier(Passed()))
    truth, guess = (torch.tensor([numbers]).log() for numbers in (p, q))
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))  # KL(p_truth || p_guess), not the reverse
    assert metric(guess, truth).item() == pytest.approx(expected)
    assert metric(truth, guess).item() != pytest.approx(expected)
    assert metric(guess, truth).dtype == guess.dtype


def test_different_records_may_show_the_same(judges):
    """S1 Fig. 5b: a small KL does not imply a small mean squared error."""
    truth = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert judges.KL(judges.Classifier(Passed()))(truth + 10, truth).max() < 1e-12


@pytest.mark.slow
def test_lenet_is_a_good_judge_of_mnist(judges, shared_data):
    """S1 section V-B: 99.4 % after all of the training set; here a sixth of it and three epochs."""
    judge = judges.Classifier.trained(records.mnist("train", root=shared_data)[slice(0, 10_000)], epochs=3)
    test = records.mnist("test", root=shared_data)
    assert (judge(test.x).argmax(1) == test.y).float().mean() > 0.98
