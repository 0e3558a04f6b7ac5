import pytest
import torch
from torch import nn

from lostwax.games import Informed, Records
from lostwax.losses import SquaredError
from lostwax.trainers import Optimum
from trainers.placed import Placed


@pytest.fixture
def game():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(30, generator=generator, dtype=torch.float64) > 0).long()
    known, pool = Records(x, y).split(20, 10, seed=0)
    return Informed(known).deal(pool, 4, seed=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("penalise_bias", [True, False])
def test_torch_agrees_that_the_gradient_is_zero(game, bias, mean, penalise_bias):
    net, trainer = nn.Linear(3, 2, bias=bias), Optimum(ridge=0.3, mean=mean, penalise_bias=penalise_bias)
    release = trainer(net, game, seed=0)
    for i in range(len(game)):
        params = {name: value.clone().requires_grad_() for name, value in release[i].items()}
        x = torch.cat([game.shared.x, game.own.x[i]])
        y = torch.cat([game.shared.y, game.own.y[i]])
        outputs = nn.functional.linear(x, params["weight"], params.get("bias"))
        loss = nn.functional.cross_entropy(outputs, y, reduction="mean" if mean else "sum")
        penalised = [value for name, value in params.items() if name == "weight" or penalise_bias]
        loss = loss + 0.3 / 2 * sum(value.square().sum() for value in penalised)
        loss.backward()
        assert max(float(value.grad.abs().max()) for value in params.values()) < 1e-12


def test_least_squares_against_torch(game):
    cohort = type(game)(
        Records(game.shared.x, game.shared.x.sum(1)), Records(game.own.x, game.own.x.sum(2)), game.index
    )
    release = Optimum(loss=SquaredError(), ridge=0.0)(nn.Linear(3, 1), cohort, seed=0)
    torch.testing.assert_close(release.params["weight"], torch.ones(4, 1, 3, dtype=torch.float64))


def test_what_it_cannot_train(game):
    with pytest.raises(ValueError, match="expected net to be one linear layer"):
        Optimum()(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), game, seed=0)
    with pytest.raises(ValueError, match="expected ridge >= 0, got -1"):
        Optimum(ridge=-1)


def test_no_finite_optimum(game):
    separable = (game.shared.x[:, 0] > 0).long()
    own = (game.own.x[..., 0] > 0).long()
    cohort = type(game)(Records(game.shared.x, separable), Records(game.own.x, own), game.index)
    with pytest.raises(ValueError, match=r"no finite optimum of model 0.*set ridge > 0"):
        Optimum(ridge=0.0)(nn.Linear(3, 2), cohort, seed=0)


def test_a_class_without_a_record_lets_the_bias_run_away(game):
    """Whatever the ridge on the weights."""
    one_class = type(game)(
        Records(game.shared.x, torch.zeros_like(game.shared.y)),
        Records(game.own.x, torch.zeros_like(game.own.y)),
        game.index,
    )
    with pytest.raises(ValueError, match=r"If a class has no records, set penalise_bias=True"):
        Optimum(ridge=1.0)(nn.Linear(3, 2), one_class, seed=0)
    assert Optimum(ridge=1.0, penalise_bias=True)(nn.Linear(3, 2), one_class, seed=0).flat().isfinite().all()


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_frozen_parameter_is_refused(game, name):
    net = nn.Linear(3, 2)
    net.get_parameter(name).requires_grad_(False)
    with pytest.raises(ValueError, match=rf"{name} is frozen.*requires_grad_\(True\)"):
        Optimum()(net, game, seed=0)


def test_it_is_solved_where_the_records_lie(game):
    """Wherever the net is: here on a device that holds no numbers."""
    net = nn.Linear(3, 2, device="meta")
    with Placed():
        model = Optimum()._solve(net, game, 0)
    assert model.weight.device == model.bias.device == game.own.x.device


def test_one_model_a_tile(game):
    assert Optimum().tile_size(nn.Linear(3, 2), game) == 1


def test_torchs_own_losses_are_refused():
    with pytest.raises(TypeError, match=r"Optimum: expected loss to be .* got torch's CrossEntropyLoss"):
        Optimum(loss=nn.CrossEntropyLoss())
