"""Losses beyond pixels."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.reconn.game import ATTACK, KNOWN, NET, PRIOR, SECRETS, Leaks, errors, knowledge
from lostwax.files import write_tensors
from lostwax.games import Informed, Records
from lostwax.learning.decoders import PatchDiscriminator
from lostwax.metrics import LPIPS
from lostwax.metrics.errors import _shapes

GAME = knowledge(Leaks())
SMALL = PatchDiscriminator(channels=(8, 16))
DIGITS = lw.records.digits().x


@pytest.fixture(scope="module")
def metric(tmp_path_factory):
    """AlexNet with weights of chance: its distances are not people's, but distances they are."""
    random = torch.Generator().manual_seed(0)
    tensors = {name: torch.rand(shape, generator=random) for name, shape in _shapes().items()}
    for value in tensors.values():
        if value.ndim == 4:
            nn.init.kaiming_normal_(value, generator=random)
    path = tmp_path_factory.mktemp("weights") / "alexnet.safetensors"
    write_tensors(path, tensors)
    return LPIPS(path)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_perceptual_term_is_the_metrics_mean_and_points_downhill(metric, channels):
    truth = DIGITS[:8].expand(-1, channels, -1, -1)
    answers = DIGITS[8:16].expand(-1, channels, -1, -1).clone().requires_grad_()
    term = lw.learning.Perceptual(weight=0.5, metric=metric).begin(truth)
    value = term(answers, truth)
    torch.testing.assert_close(value, 0.5 * metric(answers, truth).mean())
    (gradient,) = torch.autograd.grad(value, answers)
    assert gradient.shape == truth.shape
    assert term(answers - 0.01 * gradient / gradient.norm(), truth) < value
    assert term(truth, truth) == 0


def test_the_perceptual_term_teaches_all_but_alone(metric):
    perceptual = {"mae": 0.0, "mse": 1e-9, "terms": (lw.learning.Perceptual(metric=metric),)}
    attack = replace(ATTACK, epochs=8, batch_size=32, lr=0.01, **perceptual)
    (error, blind), _, _ = errors(attack.prepare(replace(GAME, prior=PRIOR[:120]), seed=0), Leaks())
    assert error.mean() < 0.5 * blind.mean()


def test_the_discriminator_steps_first_and_the_decoder_is_judged_by_the_new_one():
    truth, answers = DIGITS[:20], DIGITS[20:40].clone().requires_grad_()
    torch.manual_seed(0)
    term = lw.learning.Adversarial(weight=0.1, lr=0.01, discriminator=SMALL).begin(truth)
    torch.manual_seed(0)
    reference = SMALL.build((1, 8, 8))
    optimiser = torch.optim.Adam(reference.parameters(), lr=0.01, betas=(0.5, 0.999))
    ones, zeros = torch.ones(20, 1, 4, 4), torch.zeros(20, 1, 4, 4)
    for _ in range(3):
        optimiser.zero_grad()
        half = nn.functional.mse_loss(reference(truth), ones) + nn.functional.mse_loss(reference(answers.data), zeros)
        (half / 2).backward()
        optimiser.step()
        value = term(answers, truth)
        torch.testing.assert_close(value, 0.1 * nn.functional.mse_loss(reference(answers), ones))
    value.backward()
    assert answers.grad.abs().max() > 0


def test_what_cannot_be_told_apart_scores_a_half():
    """The optimum of least squares is D = p(truth) / (p(truth) + p(answer)); the term is (D - 1)^2."""
    torch.manual_seed(0)
    terms = [lw.learning.Adversarial(weight=1.0, lr=1e-3, discriminator=SMALL).begin(DIGITS) for _ in range(2)]
    for _ in range(150):
        one, other = DIGITS[torch.randint(0, 1797, (2, 64))]
        alike, unlike = terms[0](one, other), terms[1](one.flip(3), torch.ones_like(other) - other)
    assert alike.item() == pytest.approx(0.25, abs=0.05)
    assert unlike.item() > 0.9


def test_both_terms_keep_training_deterministic_and_saving_exact(metric, tmp_path):
    terms = (lw.learning.Perceptual(metric=metric), lw.learning.Adversarial(discriminator=SMALL))
    attack = replace(ATTACK, epochs=2, terms=terms)
    few = replace(GAME, prior=PRIOR[:60])
    release = Leaks()(NET, Informed(KNOWN).deal(SECRETS, 5, seed=0), seed=0)
    one, two = (attack.prepare(few, seed=3) for _ in range(2))
    assert torch.equal(one(release).records.x, two(release).records.x)
    assert torch.equal(one(release).records.x, attack.load(one.save(tmp_path), few)(release).records.x)
    pixels_only = replace(attack, terms=()).prepare(few, seed=3)
    assert not torch.equal(one(release).records.x, pixels_only(release).records.x)


def test_objections_say_why_and_what_to_do(metric, monkeypatch):
    monkeypatch.delenv("LOSTWAX_DATA", raising=False)
    assert "perceptual term, and LPIPS has no path to its weights" in lw.RecoNN(
        terms=(lw.learning.Perceptual(),)
    ).objection(GAME)
    flat = replace(GAME, prior=Records(PRIOR.x.flatten(1), PRIOR.y))
    loud = replace(GAME, prior=Records(255 * PRIOR.x, PRIOR.y))
    seeing, judged = (
        lw.RecoNN(terms=(term,)) for term in (lw.learning.Perceptual(metric=metric), lw.learning.Adversarial())
    )
    assert seeing.objection(GAME) is None
    assert "LPIPS compares images" in seeing.objection(flat)
    assert "needs pixels in [0, 1] or [-1, 1], and the prior has others" in seeing.objection(loud)
    assert judged.objection(GAME) is None
    assert judged.objection(loud) is None
    assert "adversarial term, and PatchDiscriminator: expected images" in judged.objection(flat)
    for term, field in (
        (lw.learning.Perceptual, "weight"),
        (lw.learning.Adversarial, "weight"),
        (lw.learning.Adversarial, "lr"),
    ):
        with pytest.raises(ValueError, match=f"{term.__name__}: expected {field} > 0, got 0"):
            term(**{field: 0.0})
