"""Which rows hold a record: found where they were planted, by a regression that is the textbook's."""

import numpy as np
import pytest
import torch
from scipy.stats import linregress
from sklearn.linear_model import LinearRegression
from torch import nn

import lostwax as lw
from attacks.mnemonist import planted
from lostwax.access import Neuron, neurons
from lostwax.attacks.mnemonist import Explanation, put_back, regress
from lostwax.games import Guess, Records

ATTACKS = [lw.KernelRidge(), lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=100), epochs=20)]
HELD = tuple(Neuron("1", number) for number in planted.LIVE)


@pytest.fixture(scope="module")
def game():
    knowledge, secrets = planted.game()
    return knowledge, *planted.played(knowledge, secrets)


@pytest.fixture(scope="module", params=ATTACKS, ids=lambda attack: type(attack).__name__)
def reconstruct(request, game):
    return request.param.prepare(game[0], seed=0)


@pytest.mark.parametrize("erase", [lw.attacks.mnemonist.ToStart(), lw.attacks.mnemonist.ToMean()], ids=repr)
def test_exactly_the_rows_that_move_hold_the_record(reconstruct, erase, game):
    knowledge, cohort, release = game
    found = lw.attacks.Mnemonist(masks=100, erase=erase)(reconstruct, knowledge, release, cohort.own, seed=0)
    assert found.holding(by=4) == HELD
    assert set(HELD) <= set(found.holding())


class Reader:
    """Answers by a formula: the sum of what three neurons have learnt, plus a constant."""

    def __init__(self, start):
        self.start = start

    def __call__(self, release, hints=None):
        moved = (release.params["1.bias"] - self.start).abs() > 1e-9  # (masks, rows)
        answer = moved.to(torch.float64) @ torch.tensor([-0.3, 0.0, 0.2, 0.0], dtype=torch.float64)
        x = (2 + answer).sqrt().reshape(-1, 1, 1)
        return Guess(Records(x, torch.zeros(len(x), 1)), torch.zeros(len(x), 1))


def test_an_error_that_is_linear_in_the_masks_is_told_exactly():
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 4))
    x = torch.rand(6, 1, generator=torch.Generator().manual_seed(0))
    records = Records(x, torch.tensor([0, 1, 2, 3, 0, 1]))
    trainer = lw.GD(lr=0.3, steps=3)
    knowledge = lw.games.Knowledge(net, trainer, lw.Informed(records[:4]), lw.access.Weights(), records)
    cohort = knowledge.threat.deal(records[4:], 2, seed=0)
    truth = Records(torch.zeros(2, 1, 1), torch.zeros(2, 1))  # so that the squared error is 2 + answer
    start = trainer.init(net, [0], seed=0)["1.bias"][0].float()
    found = lw.attacks.Mnemonist(masks=30)(Reader(start), knowledge, trainer(net, cohort, seed=0), truth, seed=0)
    expected = torch.tensor([[-0.3, 0.0, 0.2, 0.0]] * 2, dtype=torch.float64)
    torch.testing.assert_close(found.coefficients, expected, atol=1e-10, rtol=0)
    assert found.standard_errors.max() < 1e-10
    assert found.holding(by=3) == (Neuron("1", 0),)


def test_the_regression_is_least_squares():
    random = np.random.default_rng(0)
    kept, errors = (random.random((50, 7)) < 0.5).astype(float), random.random(50)
    coefficients, _ = regress(torch.from_numpy(errors), torch.from_numpy(kept))
    np.testing.assert_allclose(coefficients, LinearRegression().fit(kept, errors).coef_, rtol=1e-9)
    alone = linregress(kept[:, 0], errors)
    coefficients, standard_errors = regress(torch.from_numpy(errors), torch.from_numpy(kept[:, :1]))
    np.testing.assert_allclose([coefficients[0], standard_errors[0]], [alone.slope, alone.stderr], rtol=1e-9)


def test_standard_errors_are_those_of_repetition():
    """Errors with noise of one size: over 2,000 regressions the coefficients spread as their standard errors say."""
    random = np.random.default_rng(1)
    kept = torch.from_numpy((random.random((60, 4)) < 0.5).astype(float))
    slopes, said = zip(
        *(regress(torch.from_numpy(random.standard_normal(60)), kept) for _ in range(2_000)), strict=True
    )
    np.testing.assert_allclose(torch.stack(slopes).std(0), torch.stack(said).mean(0), rtol=0.06)


def test_a_mask_puts_back_whole_rows_and_nothing_else():
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))
    trained, erased = (
        {name: torch.full(value.shape, number) for name, value in net.named_parameters()} for number in (1.0, 0.0)
    )
    kept = torch.rand(9, len(neurons(net)), generator=torch.Generator().manual_seed(0)) < 0.5
    masked = put_back(net, trained, erased, kept)
    for column, row in enumerate(neurons(net)):
        seen = lw.access.Superparameters((row,))(net, masked)  # (masks, features)
        assert torch.equal(seen, kept[:, [column]].expand_as(seen).float())
    assert (masked.params["1.weight"] == 1).all()


def test_over_models_the_spread_among_them_is_the_error():
    coefficients = torch.tensor([[1.0, -2.0], [3.0, -2.5]])
    whole = Explanation((Neuron("1", 0), Neuron("1", 1)), coefficients, torch.zeros(2, 2)).overall()
    assert whole.coefficients.tolist() == [[2.0, -2.25]]
    torch.testing.assert_close(whole.standard_errors, torch.tensor([[1.0, 0.25]]))
    assert whole.overall() is whole


def test_refusals(game):
    knowledge, cohort, release = game
    one, private = (
        release.together([type(release)({k: v[:1] for k, v in release.params.items()})]),
        lw.inits.He(seed=None),
    )
    for mnemonist, trainer, models, sentence in (
        (
            lw.attacks.Mnemonist(masks=15),
            knowledge.trainer,
            release,
            "8 rows needs at least 16 errors, but masks is 15",
        ),
        (lw.attacks.Mnemonist(), lw.GD(init=private), release, "but these are private. Use erase=ToMean"),
        (lw.attacks.Mnemonist(), lw.Optimum(), release, "the trainer, Optimum, has no `init`"),
        (lw.attacks.Mnemonist(erase=lw.attacks.mnemonist.ToMean()), knowledge.trainer, one, "and there is one"),
        (lw.attacks.Mnemonist(), knowledge.trainer, one, "expected the truth of 1 models, got that of 200"),
    ):
        other = lw.games.Knowledge(knowledge.net, trainer, knowledge.threat, knowledge.access, knowledge.prior)
        with pytest.raises(ValueError, match=sentence):
            mnemonist(None, other, models, cohort.own, seed=0)
    with pytest.raises(ValueError, match="expected masks >= 4"):
        lw.attacks.Mnemonist(masks=3)
    with pytest.raises(ValueError, match="cannot separate 2 rows"):
        regress(torch.rand(8, dtype=torch.float64), torch.ones(8, 2, dtype=torch.float64))
