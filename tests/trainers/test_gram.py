"""Heads trained in the span of their records are the heads trained step by step."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Records
from lostwax.inits import Normal, TorchDefault
from lostwax.losses import BinaryCrossEntropy, SquaredError
from lostwax.nets import mlp
from lostwax.schedules import Cosine
from lostwax.trainers import GD
from lostwax.trainers.gram import Head
from lostwax.trainers.stacked import Architecture
from trainers.reference import train_alone

S2 = GD(lr=0.01, weight_decay=1e-5, steps=32, init=Normal(0.002, seed=None), tile=4)  # S2, Table 3, MNIST, N = 10
PRIVATE = TorchDefault(seed=None)  # its biases are not 0
TRAINERS = [
    S2,
    replace(S2, lr=0.5, momentum=0.9, weight_decay=0.1, schedule=Cosine(warmup=3), init=PRIVATE),
    replace(S2, loss=BinaryCrossEntropy(positive_weight=10.0), lr=0.3, init=PRIVATE),
]


def heads(m=6, *, records=10, features=33):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(m, records, features, generator=random, dtype=torch.float64)
    y = torch.randint(4, (m, records), generator=random)
    return Cohort(Records(x[0, :0], y[0, :0]), Records(x, y), torch.arange(m))


def serves(net, cohort):
    return Head.of(Architecture.of(net, torch.device("cpu"), torch.float64), cohort) is not None


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_it_is_the_plain_loop_with_torch_optim(trainer, bias, dtype, tolerance):
    net, games = nn.Linear(33, 4, bias=bias), heads()
    assert serves(net, games)
    release = replace(trainer, dtype=dtype)(net, games, seed=7)
    for row in range(len(games)):
        alone, _ = train_alone(replace(trainer, dtype=dtype), net, games, row, seed=7)
        assert release[row].keys() == alone.keys()
        for name, value in alone.items():
            torch.testing.assert_close(release[row][name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_it_is_the_stacked_path(trainer):
    net, games, exact = nn.Sequential(nn.Flatten(), nn.Linear(33, 4)), heads(), replace(trainer, dtype=torch.float64)
    ours, theirs = exact(net, games, seed=1), exact.differentiable(net, games, seed=1)
    torch.testing.assert_close(ours.flat(), theirs.flat(), rtol=0, atol=1e-13)
    *_, last = exact.transcript(net, games, seed=1)
    assert list(ours.params) == list(last.params)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    "net",
    [mlp(33, 8, 4, activation=nn.ReLU), nn.Sequential(nn.Linear(33, 5, bias=False), nn.LayerNorm(5), nn.Linear(5, 4))],
)
def test_whatever_is_behind_the_first_layer(trainer, net):
    games, exact = heads(), replace(trainer, dtype=torch.float64, init=PRIVATE)
    assert serves(net, games)
    ours, theirs = exact(net, games, seed=1), exact.differentiable(net, games, seed=1)
    assert list(ours.params) == list(theirs.params)
    torch.testing.assert_close(ours.flat(), theirs.flat(), rtol=0, atol=1e-12)


def test_targets_of_several_outputs():
    games = heads()
    targets = Cohort(
        Records(games.shared.x, torch.zeros(0, 4).double()), Records(games.own.x, games.own.x[..., :4]), games.index
    )
    exact = replace(S2, loss=SquaredError(), dtype=torch.float64)
    ours, theirs = (train(nn.Linear(33, 4), targets, seed=0).flat() for train in (exact, exact.differentiable))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)


@pytest.mark.parametrize("net", [nn.Linear(33, 4), mlp(33, 8, 4, activation=nn.ReLU)])
def test_heads_that_diverge_are_infinite_as_step_by_step(net):
    """Weight decay beyond 2 / lr: s_t, kept in float64, outgrows float32."""
    wild = replace(S2, lr=1.0, weight_decay=1e4, init=PRIVATE)
    assert not wild(net, heads(), seed=0).flat().isfinite().all(1).any()


def test_a_model_is_the_same_in_any_company():
    net, games = nn.Linear(33, 4), heads(12)
    whole, part = S2(net, games, seed=3), S2(net, games[4:8], seed=3)
    assert torch.equal(whole.flat()[4:8], part.flat())


class Doubled(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    net = nn.Linear(33, 4)
    net.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return net


def twice(layer):
    return nn.Sequential(layer, layer)


def tied(one, other):
    other.weight = one.weight
    return nn.Sequential(one, nn.ELU(), other)


@pytest.mark.parametrize(
    "net",
    [
        Doubled(33, 4),
        hooked(),
        nn.utils.parametrizations.weight_norm(nn.Linear(33, 4)),
        nn.Linear(33, 4).requires_grad_(False),
        nn.Sequential(nn.ELU(), nn.Linear(33, 4)),
        nn.Sequential(nn.Linear(33, 5), nn.Linear(5, 4).requires_grad_(False)),
        twice(nn.Linear(33, 33)),
        tied(nn.Linear(33, 33), nn.Linear(33, 33)),
    ],
)
def test_other_nets_go_step_by_step(net):
    assert not serves(net, heads())


def test_many_or_shared_records_go_step_by_step():
    games = heads()
    assert not serves(nn.Linear(33, 4), heads(records=34))
    shared = Records(games.own.x[0], games.own.y[0])
    assert not serves(nn.Linear(33, 4), Cohort(shared, games.own, games.index))


@pytest.mark.parametrize(("hidden", "weight"), [(8, 1.0), (4, 10.0)])
def test_the_binary_heads_of_s2_train_as_with_torchs_own_loss(hidden, weight):
    """S2, Table 6: FC(8)-ReLU-FC(1); Table 3, CelebA: FC(4)-ReLU-FC(1), one positive in ten with weight 10."""
    games, net = heads(3), mlp(33, hidden, 1, activation=nn.ReLU)
    games = Cohort(games.shared, Records(games.own.x, (torch.arange(10) == 9).long().expand(3, 10)), games.index)
    loss = BinaryCrossEntropy(positive_weight=weight)
    trainer = replace(S2, lr=0.1, loss=loss, init=PRIVATE, dtype=torch.float64)
    release = trainer(net, games, seed=0)
    for row in range(3):
        alone = deepcopy(net).double()
        alone.load_state_dict({name: value[0] for name, value in PRIVATE(net, [row], seed=0).items()})
        optimiser = torch.optim.SGD(alone.parameters(), lr=0.1, weight_decay=1e-5)
        theirs = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight))
        for _ in range(trainer.steps):
            optimiser.zero_grad()
            theirs(alone(games.own.x[row])[:, 0], games.own.y[row].double()).backward()
            optimiser.step()
        for name, value in alone.named_parameters():
            torch.testing.assert_close(release[row][name], value.detach(), rtol=0, atol=1e-12)


def test_a_layer_along_the_last_of_several_axes_goes_step_by_step():
    games = heads(records=4, features=33)
    images = Cohort(
        Records(torch.empty(0, 3, 11).double(), games.shared.y),
        Records(games.own.x.reshape(6, 4, 3, 11), games.own.y),
        games.index,
    )
    assert not serves(nn.Sequential(nn.Linear(11, 2), nn.Flatten()), images)
    assert serves(nn.Sequential(nn.Flatten(), nn.Linear(33, 4)), images)


def test_features_are_what_is_trained_on():
    """The victim's path: digits, a backbone, a head on ten records that the adversary does not know."""
    torch.manual_seed(0)
    pool = lw.records.digits()[:200]
    pool = Records(pool.x.flatten(1).float(), pool.y).through(nn.Sequential(nn.Linear(64, 96), nn.ReLU()))
    games = lw.Weak(size=10).deal(pool, 3, seed=0)
    release = S2(nn.Linear(96, 10), games, seed=0)
    alone, _ = train_alone(S2, nn.Linear(96, 10), games, 2, seed=0)
    torch.testing.assert_close(release[2]["weight"], alone["weight"], rtol=0, atol=1e-6)
