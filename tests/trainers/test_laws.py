"""Laws that every trainer by gradient steps obeys, on all its examples."""

from copy import deepcopy
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

import lostwax as lw
from instances import instances
from lostwax.games import Cohort, Records
from lostwax.inits import LeCunNormal
from lostwax.trainers import DPSGD, GD, SGD, Adam, AdamW
from trainers.game import EXACT, cohort, convolutions, given, net
from trainers.reference import train_alone

DESCENTS = [trainer for kind in (GD, SGD, Adam, AdamW) for trainer in instances(kind)]
every_descent = pytest.mark.parametrize("trainer", DESCENTS, ids=lambda t: type(t).__name__)
every_trainer = pytest.mark.parametrize("trainer", [*DESCENTS, *instances(DPSGD)], ids=lambda t: type(t).__name__)


def exact(trainer):
    return replace(trainer, dtype=torch.float64)


def assert_close(got, wanted, **tolerance):
    assert got.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], **tolerance)


def assert_same_bytes(got, wanted):
    assert_close(got, wanted, rtol=0, atol=0)


@every_trainer
def test_many_at_once_equal_each_alone(trainer):
    together, games = exact(trainer)(net(), cohort(6), seed=3), cohort(6)
    for row in range(6):
        alone = exact(trainer)(net(), games[row : row + 1], seed=3)
        assert_close(alone[0], together[row], **EXACT)


@every_descent
@pytest.mark.parametrize("shape", [{}, {"shared": 0}, {"secrets": 0}], ids=["informed", "weak", "no secret"])
def test_a_plain_loop_with_torch_optim_agrees(trainer, shape):
    games = cohort(3, **shape)
    release = exact(trainer)(net(), games, seed=5)
    steps = list(exact(trainer).transcript(net(), games, seed=5))
    for row in range(3):
        params, history = train_alone(exact(trainer), net(), games, row, seed=5)
        assert_close(release[row], params, rtol=0, atol=1e-10)
        assert [step.number for step in steps] == list(range(len(history)))
        for step, (before, gradient) in zip(steps, history, strict=True):
            assert_close({name: value[row] for name, value in step.params.items()}, before, rtol=0, atol=1e-10)
            assert_close({name: value[row] for name, value in step.gradient.items()}, gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [GD, SGD, Adam, AdamW])
def test_convolutions_frozen_and_reused_layers_agree_with_the_plain_loop(kind):
    module, games = convolutions(), cohort(2)
    trainer = replace(exact(instances(kind)[0]), init=given(module))
    release = trainer(module, games, seed=0)
    assert not any(name.startswith("frozen") for name in release.params)
    for row in range(2):
        assert_close(release[row], train_alone(trainer, module, games, row, seed=0)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [GD, SGD, Adam, AdamW])
@pytest.mark.parametrize("shape", [{}, {"shared": 0}], ids=["informed", "weak"])
def test_batch_norm_by_the_statistics_of_each_batch(kind, shape):
    """Known and secret records are one batch."""
    norm = torch.nn.BatchNorm2d(2, track_running_stats=False)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, bias=False), norm, torch.nn.Flatten(), torch.nn.Linear(8, 3))
    games, trainer = cohort(2, **shape), exact(instances(kind)[0])
    release = trainer(module, games, seed=0)
    for row in range(2):
        assert_close(release[row], train_alone(trainer, module, games, row, seed=0)[0], rtol=0, atol=1e-10)


def test_batch_norm_with_fixed_statistics_is_a_scale_and_a_shift():
    from torchvision.ops import FrozenBatchNorm2d

    norm = FrozenBatchNorm2d(2)
    norm.running_mean.fill_(0.3)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, bias=False), norm, torch.nn.Flatten(), torch.nn.Linear(8, 3))
    trainer, games = exact(GD(steps=3)), cohort(2)
    assert_close(
        trainer(module, games, seed=0)[1], train_alone(trainer, module, games, 1, seed=0)[0], rtol=0, atol=1e-10
    )


def test_a_batch_norm_has_no_gradient_of_a_single_record():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(16, track_running_stats=False))
    with pytest.raises(ValueError, match=r"mixes the records of a batch\. Use nn.GroupNorm"):
        instances(DPSGD)[0](torch.nn.Sequential(module, torch.nn.Linear(16, 3)), cohort(2), seed=0)


@every_trainer
def test_grouping_whole_tiles_changes_no_byte(trainer):
    trainer, games = replace(trainer, tile=4), cohort(14)
    whole = trainer(net(), games, seed=1).params
    for chunk in (4, 8):
        chunks = [trainer(net(), games[start : start + chunk], seed=1).params for start in range(0, 14, chunk)]
        assert_same_bytes({name: torch.cat([part[name] for part in chunks]) for name in whole}, whole)


@every_trainer
def test_order_and_absent_neighbours_change_no_byte_of_a_tile(trainer):
    trainer, games = replace(trainer, tile=4), cohort(8)
    whole = trainer(net(), games, seed=1).params
    some = torch.tensor([6, 1, 4, 3, 7, 0])  # more than half of each tile
    assert_same_bytes(trainer(net(), games[some], seed=1).params, {name: value[some] for name, value in whole.items()})


@every_trainer
def test_a_model_depends_on_its_own_set_seed_and_number_only(trainer):
    trainer, games = exact(trainer), cohort(6)
    whole = trainer(net(), games, seed=1)
    few = torch.tensor([5, 2])
    assert_close(trainer(net(), games[few], seed=1)[1], whole[2], **EXACT)
    same_set_and_number = games[torch.tensor([2, 2, 2])]
    for row in range(3):
        assert_close(trainer(net(), same_set_and_number, seed=1)[row], whole[2], **EXACT)
    renumbered = Cohort(games.shared, games.own[few], torch.tensor([40, 41]))
    draws = isinstance(trainer, DPSGD) or getattr(trainer, "order_seed", 0) is None
    private = draws or trainer.init == LeCunNormal(seed=None)
    changed = not torch.allclose(trainer(net(), renumbered, seed=1).flat()[1], whole.flat()[2])
    reseeded = not torch.allclose(trainer(net(), games, seed=2).flat(), whole.flat())
    assert changed == reseeded == private


@every_descent
def test_training_pushes_tangents_forward(trainer):
    """d parameters / d secret by torch.func.jvp, mapped over tangents, against central differences."""
    trainer = replace(exact(trainer), **({"steps": 3} if isinstance(trainer, GD) else {"epochs": 1}))
    module, games = net(), cohort(2)

    def weights(x):
        return trainer(module, Cohort(games.shared, Records(x, games.own.y), games.index), seed=0).flat()

    x, h = games.own.x, 1e-7  # small: Adam turns sharply where a gradient is near 0
    directions = torch.randn(3, *x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tangents = torch.func.vmap(lambda direction: torch.func.jvp(weights, (x,), (direction,))[1])(directions)
    for direction, tangent in zip(directions, tangents, strict=True):
        difference = (weights(x + h * direction) - weights(x - h * direction)) / (2 * h)
        torch.testing.assert_close(tangent, difference, rtol=1e-5, atol=1e-6)


@every_trainer
def test_a_release_has_the_trainers_dtype_and_the_net_stays_as_it_was(trainer):
    module = net().eval()
    before = deepcopy(module.state_dict())
    first, second = (trainer(module, cohort(3), seed=0) for _ in range(2))
    assert_same_bytes(first.params, second.params)
    assert {value.dtype for value in first.params.values()} == {trainer.computes_in(module)}
    assert {len(value) for value in first.params.values()} == {3}
    assert_same_bytes(module.state_dict(), before)
    assert not module.training
    module.load_state_dict({name: value.to(torch.float32) for name, value in first[0].items()})


@every_trainer
def test_a_trainer_is_a_frozen_value(trainer):
    assert trainer == replace(trainer)
    with pytest.raises(FrozenInstanceError):
        trainer.lr = 1.0


@pytest.mark.parametrize("kind", [GD, SGD, Adam, AdamW, DPSGD])
def test_training_starts_from_the_nets_own_weights_in_their_dtype(kind):
    """A pretrained net is audited from where it is, and not from a fresh start."""
    pretrained = net().double()
    with torch.no_grad():
        for value in pretrained.parameters():
            value += torch.randn_like(value)
    trainer = kind()
    assert trainer.public_start(pretrained)
    step = next(trainer.transcript(pretrained, cohort(3), seed=0))
    for name, value in pretrained.named_parameters():
        assert step.params[name].dtype == torch.float64
        assert torch.equal(step.params[name], value.detach().expand(3, *value.shape))
    single = trainer(net().float(), cohort(3), seed=0)
    assert all(value.dtype == torch.float32 for value in single.params.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [GD, DPSGD])
def test_a_half_precision_net_is_refused_unless_a_dtype_is_named(kind, dtype):
    half = net().to(dtype)
    for call in (lambda t: t(half, cohort(2), seed=0), lambda t: t.tile_size(half, cohort(2))):
        with pytest.raises(ValueError, match=f"the net's parameters are {str(dtype)[6:]}, but training needs"):
            call(kind(steps=2))
    release = kind(steps=2, dtype=torch.float32)(half, cohort(2), seed=0)
    assert all(value.dtype == torch.float32 for value in release.params.values())
    mixed = net()
    mixed[1].to(dtype)
    with pytest.raises(ValueError, match=f"{str(dtype)[6:]} and float32"):
        kind(steps=2)(mixed, cohort(2), seed=0)


def test_a_half_precision_net_is_not_audited_in_float32():
    known, prior, secrets = lw.records.digits().split(20, 20, 5, seed=0)
    game = {"threat": lw.Informed(known, candidates=2), "prior": prior, "secrets": secrets}
    with pytest.raises(ValueError, match="the net's parameters are float16"):
        lw.audit(lw.nets.mlp(64, 5, 10).half(), trainer=DPSGD(steps=2), **game)
