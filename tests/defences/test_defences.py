"""What each defence does to a release: how far it may move a weight, and by what it may be decided."""

from dataclasses import FrozenInstanceError, fields

import pytest
import torch

from instances import instances
from lostwax.defences import Quantised, Rounded, WeightNoise
from lostwax.games import Release

DEFENCES = [one for kind in (Rounded, Quantised, WeightNoise) for one in instances(kind)]
every_defence = pytest.mark.parametrize("defence", DEFENCES, ids=repr)
NUMBERS = [7, 0, 3, 1_000_000]


def release(dtype=torch.float32, m=4):
    """Weights over many magnitudes, a bias of one number, and one that is all zeros."""
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(m, 5, 3, generator=random) * 10 ** torch.linspace(-9, 2, 3)
    params = {"weight": weight, "bias": torch.randn(m, 1, generator=random), "unused": torch.zeros(m, 2)}
    return Release({name: value.to(dtype) for name, value in params.items()})


def equal(one, other):
    return all(torch.equal(value, other.params[name]) for name, value in one.params.items())


@every_defence
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_names_shapes_and_dtypes_are_kept_and_the_original_too(defence, dtype):
    before, untouched = release(dtype), release(dtype)
    after = defence(before, NUMBERS, seed=1)
    assert list(after.params) == list(before.params)
    for name, value in before.params.items():
        assert after.params[name].shape == value.shape
        assert after.params[name].dtype == dtype
    assert equal(before, untouched)
    assert not equal(after, before)
    assert torch.equal(after.params["unused"], before.params["unused"])


@every_defence
def test_a_model_is_defended_alike_in_whatever_company(defence):
    before = release()
    together = defence(before, NUMBERS, seed=1)
    assert equal(defence(before, NUMBERS, seed=1), together)
    for row in (3, 0):
        alone = Release({name: value[row : row + 1] for name, value in before.params.items()})
        again = defence(alone, NUMBERS[row : row + 1], seed=1)
        assert all(torch.equal(value[0], together.params[name][row]) for name, value in again.params.items())


@every_defence
def test_only_noise_depends_on_seed_and_number(defence):
    whole, others = release(), [9, 8, 6, 5]
    first = defence(whole, NUMBERS, seed=1)
    random = isinstance(defence, WeightNoise)
    assert equal(defence(whole, NUMBERS, seed=2), first) != random
    assert equal(defence(whole, others, seed=1), first) != random


@pytest.mark.parametrize("defence", [*instances(Rounded), *instances(Quantised)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_twice_is_rounding_once(defence, dtype):
    once = defence(release(dtype), NUMBERS, seed=0)
    assert equal(defence(once, NUMBERS, seed=0), once)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounded_weights_are_floats_of_that_kind_and_within_half_a_step(dtype):
    before = release(torch.float64).params["weight"]
    after = Rounded(dtype)(release(torch.float64), NUMBERS, seed=0).params["weight"]
    limits = torch.finfo(dtype)
    assert torch.equal(after.to(dtype).double(), after)
    allowed = (before.abs() * limits.eps / 2).clamp_min(limits.smallest_normal * limits.eps / 2)
    assert ((after - before).abs() <= allowed).all()


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_quantised_weights_are_the_nearest_of_few_whole_numbers_times_a_scale(bits):
    before = release(torch.float64).params["weight"]
    after = Quantised(bits)(release(torch.float64), NUMBERS, seed=0).params["weight"]
    for one, other in zip(before, after, strict=True):  # one model at a time
        scale = float(one.abs().max()) / (2 ** (bits - 1) - 1)
        whole = torch.clamp(torch.round(one / scale), -(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1)
        torch.testing.assert_close(other, whole * scale, rtol=1e-15, atol=0)
        assert ((other - one).abs() <= scale / 2 * (1 + 1e-12)).all()
        assert other.abs().max() == one.abs().max()


def test_noise_is_gaussian_and_relative_to_the_root_mean_square_of_its_tensor():
    models, sigma = 200, 0.1
    weight = torch.randn(30, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    params = {"weight": 5 * weight.expand(models, -1, -1), "bias": torch.full((models, 1), -2.0, dtype=torch.float64)}
    after = WeightNoise(sigma)(Release(params), range(models), seed=0)
    noise = (after.params["weight"] - params["weight"]) / (sigma * params["weight"].square().mean().sqrt())
    n = noise.numel()
    assert abs(noise.mean()) < 4 / n**0.5
    assert abs(noise.square().mean() - 1) < 4 * (2 / n) ** 0.5
    assert abs(noise.pow(4).mean() - 3) < 4 * (96 / n) ** 0.5
    models_apart = torch.corrcoef(noise.flatten(1)[:20]) - torch.eye(20)
    assert models_apart.abs().max() < 5 / noise[0].numel() ** 0.5
    of_one_number = after.params["bias"] + 2  # which has no deviation, and is hidden all the same
    assert 0.15 < of_one_number.std() < 0.25


def test_diverged_models_spoil_no_other():
    broken = release()
    broken.params["weight"][1, 0, 0] = torch.nan
    broken.params["weight"][2, 0, 0] = torch.inf
    for defence in DEFENCES:
        whole, after = (defence(one, NUMBERS, seed=0).params["weight"] for one in (release(), broken))
        assert torch.equal(after[[0, 3]], whole[[0, 3]])
        assert not after[1].isfinite().all()
        assert not after[2].isfinite().all()


@every_defence
def test_steps_that_are_published_too_are_refused(defence):
    with pytest.raises(ValueError, match=f"{type(defence).__name__}: .*Release the final weights only"):
        defence(Release(release().params, steps=lambda: iter(())), NUMBERS, seed=0)


@every_defence
def test_is_a_frozen_value(defence):
    assert defence == type(defence)(*(getattr(defence, field.name) for field in fields(defence)))
    with pytest.raises(FrozenInstanceError):
        setattr(defence, fields(defence)[0].name, None)


def test_refusals():
    with pytest.raises(ValueError, match=r"Rounded: expected dtype torch\.float16 or torch\.bfloat16"):
        Rounded(torch.float32)
    for bits in (1, 17):
        with pytest.raises(ValueError, match=r"Quantised: expected bits in \[2, 16\]"):
            Quantised(bits)
    for sigma in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"WeightNoise: expected sigma (> 0|to be finite)"):
            WeightNoise(sigma)
    with pytest.raises(ValueError, match="WeightNoise: expected the numbers of 4 models, got 1"):
        WeightNoise(0.1)(release(), [0], seed=0)
