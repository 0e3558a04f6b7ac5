"""Which rows a record is stored in, from inside: against the gradient of the row itself."""

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.mnemonist import planted
from lostwax.access import Neuron
from lostwax.trainers.descent import own_slopes


def test_a_step_stores_the_record_times_its_scale():
    """S4 Eq. 2: d loss / d row = scale * x in the first layer."""
    known, secrets = lw.records.digits().split(30, 4, seed=0)
    net = lw.nets.mlp(64, 6, 5, 10, activation=nn.ReLU)
    trainer = lw.GD(lr=0.2, steps=5, dtype=torch.float64, init=lw.inits.LeCunNormal())
    cohort = lw.Informed(known).deal(secrets, 4, seed=0)
    scales = lw.attacks.mnemonist.row_scales(trainer, net, cohort, seed=0)
    assert scales.scale.shape == (4, 5, 6 + 5 + 10)
    first = scales.of("1")
    assert first.rows == tuple(Neuron("1", number) for number in range(6))
    copies = first.scale.unsqueeze(-1) * cohort.own.x.double().reshape(4, 1, 1, 64)  # (m, t, rows, pixels)
    slopes = torch.stack([slopes["1.weight"] for slopes in own_slopes(trainer, net, cohort, seed=0)], 1)
    torch.testing.assert_close(slopes, copies)
    assert torch.equal(first.stored, slopes.abs().sum(-1) > 0)


def test_relu_leaves_rows_out_and_sigmoid_does_not():
    """S4 Fig. 5."""
    known, secrets = lw.records.digits().split(50, 10, seed=0)
    cohort = lw.Informed(known).deal(secrets, 10, seed=0)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=20, init=lw.inits.LeCunNormal())
    relu, sigmoid = (
        lw.attacks.mnemonist.row_scales(trainer, lw.nets.mlp(64, 10, 10, activation=kind), cohort, seed=0)
        .of("1")
        .stored.double()
        .mean()
        for kind in (nn.ReLU, nn.Sigmoid)
    )
    assert relu < 0.8 < sigmoid == 1


def test_only_planted_rows_store():
    knowledge, secrets = planted.game()
    cohort, _ = planted.played(knowledge, secrets[:5])
    scales = lw.attacks.mnemonist.row_scales(knowledge.trainer, knowledge.net, cohort, seed=1)
    assert scales.stored.any((0, 1)).nonzero().flatten().tolist() == list(planted.LIVE)
    with pytest.raises(ValueError, match=r"no row lies in module '3'\. There are rows in 1"):
        scales.of("3")


def test_a_layer_without_bias():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    known, secrets = lw.records.digits().split(5, 2, seed=0)
    with pytest.raises(ValueError, match=r"expected a bias in every layer that is trained, but 1\.weight"):
        lw.attacks.mnemonist.row_scales(lw.GD(steps=2), net, lw.Informed(known).deal(secrets, 2, seed=0), seed=0)
