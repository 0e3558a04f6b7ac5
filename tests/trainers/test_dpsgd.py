"""Laws of DP-SGD, and the same numbers as Opacus."""

import os
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer, optimizer
from scipy.special import log_ndtr, ndtr
from scipy.stats import kstest

from instances import instances
from lostwax.bounds import bound
from lostwax.bounds.closed_forms import epsilon_of
from lostwax.games import Cohort, Records
from lostwax.inits import FromNet, LeCunNormal
from lostwax.losses import CrossEntropy
from lostwax.nets import mlp
from lostwax.schedules import Cosine
from lostwax.trainers import DPSGD, GD
from lostwax.trainers.batches import Independent
from lostwax.trainers.dpsgd import gaussian_noise, sample
from lostwax.trainers.stacked import Architecture
from trainers.game import EXACT, cohort, convolutions, given, net

EXAMPLES = pytest.mark.parametrize("trainer", instances(DPSGD), ids=["full", "gathered", "masked", "bins", "shuffled"])


def draws(games, rate, steps, *, seed):
    return Independent(rate, steps).draws(games, seed=seed)


def exact(trainer):
    return replace(trainer, dtype=torch.float64)


@pytest.mark.parametrize("module", [net(), convolutions()], ids=["ghost", "per record"])
def test_without_noise_and_clipping_it_is_gradient_descent(module):
    fields = {
        "lr": 0.3,
        "momentum": 0.9,
        "steps": 4,
        "weight_decay": 1e-2,
        "schedule": Cosine(),
        "init": given(module),
        "dtype": torch.float64,
    }
    plain = GD(**fields)
    private = DPSGD(**fields, clip=float("inf"), noise_multiplier=0.0)
    one, other = (trainer(module, cohort(3), seed=0) for trainer in (plain, private))
    torch.testing.assert_close(one.flat(), other.flat(), **EXACT)
    for ours, theirs in zip(
        private.transcript(module, cohort(3), seed=0), plain.transcript(module, cohort(3), seed=0), strict=True
    ):
        for name in ours.gradient:
            torch.testing.assert_close(ours.gradient[name], theirs.gradient[name], **EXACT)


def opacus_trains(trainer, module, games, row, masks, monkeypatch):
    """One model by Opacus, on the batches and with the noise of ours."""
    number, seed = int(games.index[row]), 3
    start = trainer.init(module, [number], seed=seed)
    model = mlp(16, 5, 3).double()
    model.load_state_dict({name: value[0] for name, value in start.items()})
    model = GradSampleModule(model)
    steps = gaussian_noise(
        {name: value.detach()[None] for name, value in model.named_parameters()}, [number], seed=seed
    )
    noise = (part[0] for step in steps for part in step.values())  # in the order of the parameters, as Opacus asks

    def ours(std, reference, generator=None, secure_mode=False):
        return std * next(noise).to(reference.dtype)

    monkeypatch.setattr(optimizer, "_generate_noise", ours)
    private = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=trainer.lr, momentum=trainer.momentum),
        noise_multiplier=trainer.noise_multiplier,
        max_grad_norm=trainer.clip,
        expected_batch_size=trainer.rate * games.records,
    )
    x = torch.cat([games.shared.x, games.own.x[row]])
    y = torch.cat([games.shared.y, games.own.y[row]])
    for mask in masks:
        rows = torch.arange(len(x)) if mask is None else mask[row].nonzero().flatten()
        private.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        private.step()
    return torch.cat([value.detach().flatten() for value in model.parameters()])


@EXAMPLES
def test_opacus_gives_the_same_weights_on_the_same_batches_and_noise(trainer, monkeypatch):
    trainer, games = exact(replace(trainer, sample_rate=max(trainer.sample_rate, 0.2))), cohort(3, shared=30)
    release = trainer(net(), games, seed=3)
    masks = list(trainer.law().draws(games, seed=3))
    assert all(mask is None or mask.any(1).all() for mask in masks)  # Opacus cannot take an empty batch here
    for row in range(3):
        theirs = opacus_trains(trainer, net(), games, row, masks, monkeypatch)
        torch.testing.assert_close(release.flat()[row], theirs, rtol=1e-5, atol=1e-5)  # it clips at C / (|g| + 1e-6)


@EXAMPLES
def test_what_is_published_replays_the_training(trainer):
    """From the public start, by the published gradients alone, one comes to the released weights."""
    trainer = replace(trainer, momentum=0.0)
    games = cohort(6)
    release = trainer(net(), games, seed=3)
    (first, *_) = steps = list(release.steps())
    assert len(steps) == trainer.steps
    at = {name: value.clone() for name, value in first.params.items()}
    for number, step in enumerate(steps):
        assert step.number == number
        for name, value in step.params.items():
            torch.testing.assert_close(at[name], value)
            at[name] = at[name] - trainer.lr * step.gradient[name]
    for name, value in release.params.items():
        torch.testing.assert_close(at[name], value)


@EXAMPLES
def test_a_step_tells_who_of_the_known_was_drawn_and_not_whether_the_secret_was(trainer):
    games = cohort(6)
    masks = trainer.law().draws(games, seed=3)
    for step, mask in zip(trainer.transcript(net(), games, seed=3), masks, strict=True):
        if mask is None:
            assert step.sampled is None
        else:
            assert torch.equal(step.sampled, mask[:, :9])


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 1.0])
def test_sampling_gathered_or_masked_is_the_sum_over_those_drawn(rate):
    trainer = DPSGD(lr=0.1, clip=0.4, noise_multiplier=0.0, steps=6, sample_rate=rate, dtype=torch.float64)
    games = cohort(4, shared=21)
    masks = draws(games, rate, 6, seed=3)
    for step, mask in zip(trainer.transcript(net(), games, seed=3), masks, strict=True):
        everybody = replace(trainer, sample_rate=1.0, steps=1)
        for row in range(4):
            rows = slice(None) if mask is None else mask[row]
            x = torch.cat([games.shared.x, games.own.x[row]])[rows]
            y = torch.cat([games.shared.y, games.own.y[row]])[rows]
            if not len(y):
                assert all(value[row].eq(0).all() for value in step.gradient.values())
                continue
            alone = type(games)(games.shared[:0], type(games.own)(x[None], y[None]), games.index[:1])
            start = given_model({name: value[row] for name, value in step.params.items()})
            again = next(replace(everybody, init=given(start)).transcript(start, alone, seed=0))
            for name, value in step.gradient.items():
                sum_of_drawn = again.gradient[name][0] * len(y)
                torch.testing.assert_close(value[row] * rate * games.records, sum_of_drawn, **EXACT)


def given_model(params):
    module = net().double()
    module.load_state_dict(params)
    return module


def test_a_crowded_batch_is_computed_in_slabs():
    """Nothing is lost where more are drawn than one slab holds, and who needs one slab is the same to the last byte."""
    games = cohort(4, shared=40)
    model = Architecture.of(net(), torch.device("cpu"), torch.float64)
    params = {name: value.double() for name, value in LeCunNormal()(net(), range(4), seed=0).items()}
    drawn = torch.rand(4, 42, generator=torch.Generator().manual_seed(0)) < 0.02
    crowded = drawn.clone()
    crowded[3] = True
    clipping = DPSGD().clipping(model, games.shared.x[0])
    few, many, masked = (
        clipping.total(model, CrossEntropy(), params, sample(games, *how), 0.5)
        for how in ((drawn, 0.02), (crowded, 0.02), (crowded, 0.9))
    )
    assert len(sample(games, drawn, 0.02).batch.own) == 1
    assert len(sample(games, crowded, 0.02).batch.own) > 5
    for name in params:
        assert torch.equal(few[name][:3], many[name][:3])
        torch.testing.assert_close(many[name], masked[name], **EXACT)


def test_the_noise_is_standard_normal_and_independent():
    like = {"a": torch.zeros(40, 30, 5), "b": torch.zeros(40, 50)}
    steps = list(islice(gaussian_noise(like, range(40), seed=0), 3))
    numbers = torch.stack([torch.cat([part.flatten(1) for part in step.values()], 1) for step in steps])  # (3, 40, 200)
    assert numbers.shape == (3, 40, 200)
    assert abs(float(numbers.mean())) < 4 / 24_000**0.5
    assert abs(float(numbers.var()) - 1) < 4 * (2 / 24_000) ** 0.5
    assert kstest(numbers.flatten().numpy(), "norm").pvalue > 1e-3
    rows = numbers.reshape(120, 200)
    others = (rows @ rows.mT / 200)[~torch.eye(120, dtype=torch.bool)]
    assert others.abs().max() < 6 / 200**0.5
    (alone,) = (next(gaussian_noise({"a": like["a"][:1], "b": like["b"][:1]}, [17], seed=0)),)
    assert torch.equal(alone["b"][0], steps[0]["b"][17])


@pytest.mark.gpu
def test_the_noise_of_a_gpu_is_that_of_a_cpu():
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    like = {"a": torch.zeros(20, 10, 784), "b": torch.zeros(20, 10)}
    here = gaussian_noise(like, range(20), seed=0)
    there = gaussian_noise({name: value.cuda() for name, value in like.items()}, range(20), seed=0)
    for one, other in islice(zip(here, there, strict=True), 3):
        for name in like:
            torch.testing.assert_close(one[name], other[name].cpu(), rtol=1e-4, atol=1e-5)


def test_noise_and_draws_are_alike_in_both_dtypes():
    trainer = DPSGD(lr=0.1, noise_multiplier=1.0, steps=3, sample_rate=0.3)
    one, other = (replace(trainer, dtype=dtype)(net(), cohort(4), seed=0) for dtype in (torch.float32, torch.float64))
    torch.testing.assert_close(one.flat().double(), other.flat(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("epsilon", "steps", "rate"), [(1.0, 100, 1.0), (8.0, 50, 0.1), (100.0, 100, 1.0)])
def test_for_epsilon_spends_what_it_may_and_no_more(epsilon, steps, rate):
    trainer = DPSGD.for_epsilon(epsilon, 1e-5, steps=steps, sample_rate=rate, lr=0.5, clip=0.1)
    assert (trainer.steps, trainer.sample_rate, trainer.lr, trainer.clip) == (steps, rate, 0.5, 0.1)
    if rate < 1:
        assert 0.99 * epsilon < epsilon_of(trainer.noise_multiplier, rate, steps, 1e-5, 1e-3) <= epsilon
        return
    mu = steps**0.5 / trainer.noise_multiplier  # Balle and Wang 2018, Theorem 8
    delta = ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    assert 0.99e-5 < delta <= 1e-5


def test_its_mechanism_is_what_a_ceiling_asks_for():
    trainer = DPSGD(noise_multiplier=2.0, steps=9, sample_rate=0.5)
    wanted = bound(noise_multiplier=2.0, steps=9, sample_rate=0.5, baseline=0.1)
    assert bound(**trainer.mechanism(), baseline=0.1) == wanted


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip": 0.0}, "DPSGD: expected clip > 0, got 0.0."),
        ({"clip": float("inf")}, "DPSGD: expected clip finite if there is noise, got inf."),
        ({"noise_multiplier": -1.0}, "DPSGD: expected noise_multiplier >= 0, got -1.0."),
        ({"steps": 0}, "DPSGD: expected steps >= 1, got 0."),
        ({"sample_rate": 0.0}, "DPSGD: expected sample_rate in (0, 1], got 0.0."),
        ({"momentum": 1.0}, "DPSGD: expected momentum in [0, 1), got 1.0."),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(ValueError, match="expected") as error:
        DPSGD(**fields)
    assert str(error.value) == message


@pytest.mark.parametrize("fields", [{"epsilon": 0.0}, {"epsilon": 1.0, "delta": 0.0}, {"epsilon": 1.0, "steps": 0}])
def test_for_epsilon_names_what_it_refuses(fields):
    with pytest.raises(ValueError, match=r"DPSGD.for_epsilon: expected (epsilon|delta|steps) "):
        DPSGD.for_epsilon(**fields)


def test_a_delta_that_needs_no_noise_is_refused():
    """Below it, the search for the least noise would have no end."""
    with pytest.raises(
        ValueError, match=r"expected delta < 0\.19, the probability that a record is ever sampled, got 0\.2"
    ):
        DPSGD.for_epsilon(1.0, 0.2, steps=2, sample_rate=0.1)


def test_its_start_is_public_by_default():
    assert DPSGD().init == FromNet()
    assert DPSGD().public_start(net())
    assert DPSGD().public_start(net())


@pytest.mark.parametrize("module", [net(), convolutions()], ids=["ghost", "per record"])
@pytest.mark.parametrize("size", [1e20, 1e38])
def test_numbers_that_overflow_do_not_tell_the_record(module, size):
    """The rule that used to win: NaN in the weights names the candidate with large numbers. One of two, by a coin."""
    games, wild = cohort(200, secrets=1), torch.arange(200) % 2 == 0
    x = games.own.x.float()
    x[wild] *= size
    ours = Cohort(games.shared.to(torch.float32), Records(x, games.own.y), games.index)
    trainer = DPSGD(lr=1.0, clip=1.0, noise_multiplier=50.0, steps=3)
    release = trainer(module, ours, seed=0)
    for weights in (
        release.flat(),
        *(torch.cat([g.flatten(1) for g in s.gradient.values()], 1) for s in release.steps()),
    ):
        right = (weights.isnan().any(1) == wild).float().mean()
        ceiling = bound(**trainer.mechanism(), baseline=0.5).upper
        assert right <= ceiling + 3 * 0.5 / 200**0.5
        assert weights.isfinite().all()
