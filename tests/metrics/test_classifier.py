import pytest
import torch
from torch import nn

from lostwax import records
from lostwax.games import Records
from lostwax.metrics import Classifier

pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def digits():
    return records.digits()[slice(0, 1000)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("judges")


@pytest.fixture(scope="module")
def judge(digits, cache):
    return Classifier.trained(digits, cache=cache, epochs=15)


def test_lenet_learns_digits(judge, digits):
    assert judge.accuracy > 0.9
    strange = records.digits()[slice(1000, None)]
    assert (judge(strange.x).argmax(1) == strange.y).float().mean() > 0.85  # other writers
    torch.testing.assert_close(judge(strange.x).exp().sum(1), torch.ones(len(strange)))
    torch.testing.assert_close(judge(strange.x.flatten(1)), judge(strange.x))


def test_trained_once(judge, digits, cache, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr("lostwax.metrics.classifier.train_lenet", never)
    again = Classifier.trained(digits, cache=cache, epochs=15)
    assert torch.equal(again(digits.x), judge(digits.x))
    assert again.accuracy == judge.accuracy
    for other in (Records(digits.x, digits.y.flip(0)), digits[slice(1, None)]):
        with pytest.raises(AssertionError, match="trained again"):
            Classifier.trained(other, cache=cache, epochs=15)
    with pytest.raises(AssertionError, match="trained again"):
        Classifier.trained(digits, cache=cache, epochs=15, seed=1)


def test_a_seed_decides_and_the_global_generator_is_left_alone(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = digits[slice(0, 60)]
    before = torch.get_rng_state()
    one, two, other = (Classifier.trained(few, epochs=1, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one(few.x), two(few.x))
    assert not torch.equal(one(few.x), other(few.x))
    assert not list(tmp_path.iterdir())  # nothing is written unasked


def test_a_judge_keeps_a_copy_of_the_users_net():
    net = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9))
    judge = Classifier(net)
    x = torch.ones(1, 3)
    before = judge(x)
    nn.init.zeros_(net[0].weight)
    assert torch.equal(judge(x), before)
    assert net.training
    assert net[0].weight.requires_grad


def test_larger_images(digits):
    large = Records(torch.rand(20, 28, 28), torch.arange(20) % 10)
    assert Classifier.trained(large, epochs=1)(large.x).shape == (20, 10)


def test_bad_input(digits):
    with pytest.raises(ValueError, match="LeNet reads images of 8 x 8"):
        Classifier.trained(Records(digits.x.flatten(1), digits.y))
    with pytest.raises(ValueError, match="a class number"):
        Classifier.trained(Records(digits.x, digits.y.float()))
    with pytest.raises(ValueError, match="epochs >= 1"):
        Classifier.trained(digits, epochs=0)
    with pytest.raises(ValueError, match="expected images of shape"):
        Classifier.trained(digits[slice(0, 20)], epochs=1)(torch.zeros(1, 1, 9, 9))


def test_a_broken_cache_is_named(digits, cache, tmp_path):
    few = digits[slice(0, 20)]
    Classifier.trained(few, cache=tmp_path, epochs=1)
    next(tmp_path.iterdir()).write_text("half a fi")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        Classifier.trained(few, cache=tmp_path, epochs=1)


@pytest.mark.slow
def test_lenet_is_a_good_judge_of_mnist(shared_data):
    """S1 section V-B: 99.4 % after all of the training set; here a sixth of it and three epochs."""
    judge = Classifier.trained(records.mnist("train", root=shared_data)[slice(0, 10_000)], epochs=3)
    test = records.mnist("test", root=shared_data)
    assert (judge(test.x).argmax(1) == test.y).float().mean() > 0.98
