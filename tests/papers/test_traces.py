"""The gradient of a secret along training, against autograd on one model after the other."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.nets import mlp
from lostwax.trainers import GD, SGD
from trainers.reference import train_alone

TRAINERS = [
    GD(lr=0.2, momentum=0.9, steps=4, dtype=torch.float64),
    SGD(lr=0.1, batch_size=8, epochs=2, order_seed=None, init=lw.inits.LeCunNormal(seed=None), dtype=torch.float64),
]


@pytest.fixture(scope="module")
def own_gradients(paper_module):
    return paper_module("lib.traces").own_gradients


@pytest.fixture(scope="module")
def cohort():
    known, secrets = lw.records.digits().split(20, 5, seed=0)
    return lw.Informed(known).deal(secrets, 5, seed=1)


def slow(trainer, net, cohort, row, seed):
    """Norm and share of zeros at each step, by autograd of the secret's loss alone."""
    _, history = train_alone(trainer, net, cohort, row, seed=seed)
    x, y = cohort.own.x[row].to(trainer.computes_in(net)), cohort.own.y[row]
    norms, zeros = [], []
    for params, _ in history:
        leaves = {name: value.requires_grad_() for name, value in params.items()}
        loss = trainer.loss(torch.func.functional_call(net, leaves, (x,)), y).mean()
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        norms.append(torch.cat([slope.flatten() for slope in slopes]).norm())
        zeros.append([(slope == 0).double().mean() for slope in slopes])
    return torch.stack(norms), torch.tensor(zeros)


@pytest.mark.parametrize("trainer", TRAINERS, ids=["GD", "SGD"])
@pytest.mark.parametrize("activation", [nn.ELU, nn.ReLU])
def test_equals_autograd_on_one_model_after_the_other(own_gradients, trainer, activation, cohort):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), activation(), nn.Linear(8, 10))
    trace = own_gradients(trainer, net, cohort, seed=3)
    assert list(trace.zeros) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    for row in range(len(cohort)):
        norm, zeros = slow(trainer, net, cohort, row, 3)
        torch.testing.assert_close(trace.norm[row], norm)
        torch.testing.assert_close(torch.stack([share[row] for share in trace.zeros.values()], 1), zeros)


def test_relu_stops_gradients_that_elu_lets_through(own_gradients, cohort):
    """S1 Fig. 22: what a ReLU does not pass on leaves no trace in the weights below it."""
    shares = [
        own_gradients(GD(lr=0.2, steps=3), mlp(64, 30, 10, activation=activation), cohort, seed=0).zeros["1.bias"]
        for activation in (nn.ELU, nn.ReLU)
    ]
    assert float(shares[0].max()) == 0
    assert float(shares[1].mean()) > 0.2


def test_the_users_net_stays_as_it_is(own_gradients, cohort):
    net = mlp(64, 4, 10)
    before = [value.clone() for value in net.parameters()]
    own_gradients(GD(lr=0.2, steps=2), net, cohort, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(before, net.parameters(), strict=True))
