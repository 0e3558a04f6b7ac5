"""Which rows a record is stored in, from inside: against the gradient of the row itself, and against Mnemonist."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import lostwax as lw
from attacks.mnemonist import planted
from lostwax.access import Neuron
from lostwax.attacks.mnemonist import Explanation


@pytest.fixture
def traces(paper_module):
    return paper_module("lib.traces")


def test_a_step_stores_the_record_times_its_scale(traces):
    """S4 Eq. 2: d loss / d row = scale * x in the first layer."""
    known, secrets = lw.records.digits().split(30, 4, seed=0)
    net = lw.nets.mlp(64, 6, 5, 10, activation=nn.ReLU)
    trainer = lw.GD(lr=0.2, steps=5, dtype=torch.float64, init=lw.inits.LeCunNormal())
    cohort = lw.Informed(known).deal(secrets, 4, seed=0)
    scales = traces.row_scales(trainer, net, cohort, seed=0)
    assert scales.scale.shape == (4, 5, 6 + 5 + 10)
    first = scales.of("1")
    assert first.rows == tuple(Neuron("1", number) for number in range(6))
    copies = first.scale.unsqueeze(-1) * cohort.own.x.double().reshape(4, 1, 1, 64)  # (m, t, rows, pixels)
    slopes = torch.stack([slopes["1.weight"] for slopes in traces.own_slopes(trainer, net, cohort, seed=0)], 1)
    torch.testing.assert_close(slopes, copies)
    assert torch.equal(first.stored, slopes.abs().sum(-1) > 0)


def test_relu_leaves_rows_out_and_sigmoid_does_not(traces):
    """S4 Fig. 5."""
    known, secrets = lw.records.digits().split(50, 10, seed=0)
    cohort = lw.Informed(known).deal(secrets, 10, seed=0)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=20, init=lw.inits.LeCunNormal())
    relu, sigmoid = (
        traces.row_scales(trainer, lw.nets.mlp(64, 10, 10, activation=kind), cohort, seed=0)
        .of("1")
        .stored.double()
        .mean()
        for kind in (nn.ReLU, nn.Sigmoid)
    )
    assert relu < 0.8 < sigmoid == 1


def test_only_planted_rows_store(traces):
    knowledge, secrets = planted.game()
    cohort, _ = planted.played(knowledge, secrets[:5])
    scales = traces.row_scales(knowledge.trainer, knowledge.net, cohort, seed=1)
    assert scales.stored.any((0, 1)).nonzero().flatten().tolist() == list(planted.LIVE)
    with pytest.raises(ValueError, match=r"no row lies in module '3'\. There are rows in 1"):
        scales.of("3")


def test_a_layer_without_bias(traces):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    known, secrets = lw.records.digits().split(5, 2, seed=0)
    with pytest.raises(ValueError, match=r"expected a bias in every layer that is trained, but 1\.weight"):
        traces.row_scales(lw.GD(steps=2), net, lw.Informed(known).deal(secrets, 2, seed=0), seed=0)


@pytest.mark.slow
def test_rows_put_back_to_the_mean_tell_what_training_did(traces):
    """Over initialisations, coefficients go with the scales of the first layer; put back to the start, hardly so."""
    known, prior, secrets = lw.records.digits().split(200, 300, 30, seed=0)
    net = lw.nets.mlp(64, 10, 10, activation=nn.ReLU)
    found = {erase: [] for erase in (lw.attacks.mnemonist.ToStart(), lw.attacks.mnemonist.ToMean())}
    for seed in range(4):
        trainer = lw.GD(lr=0.1, momentum=0.9, steps=20, init=lw.inits.LeCunNormal(seed=seed))
        knowledge = lw.games.Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
        cohort, release = planted.played(knowledge, secrets)
        reconstruct = lw.KernelRidge().prepare(knowledge, seed=0)
        scales = traces.row_scales(trainer, net, cohort, seed=1).of("1")
        for erase, agreed in found.items():
            explained = lw.attacks.Mnemonist(masks=60, erase=erase)(reconstruct, knowledge, release, cohort.own, seed=0)
            agreed.append(
                (traces.agreement(explained, scales).spearman.value, np.nanmean(traces.agreements(explained, scales)))
            )
    by_start, by_mean = (np.mean(agreed, 0) for agreed in found.values())  # of rows over records, and within each
    assert (by_mean < -0.4).all()
    assert (by_mean < by_start - 0.2).all()


def test_agreements_are_those_of_each_model_alone(traces):
    random = np.random.default_rng(0)
    rows = tuple(Neuron("1", number) for number in range(6))
    coefficients, scale = torch.from_numpy(random.random((5, 6))), torch.from_numpy(random.standard_normal((5, 3, 4)))
    scale[4] = 0.0  # nothing is stored
    explanation = Explanation(rows, coefficients, torch.zeros(5, 6))
    found = traces.agreements(explanation, traces.Scales(rows[1:5], scale))
    sizes = scale.abs().sum(1)
    expected = [spearmanr(coefficients[model, 1:5], sizes[model]).statistic for model in range(4)]
    np.testing.assert_allclose(found[:4], expected)
    assert np.isnan(found[4])
    with pytest.raises(ValueError, match="expected scales of the 5 explained models, got those of 2"):
        traces.agreements(explanation, traces.Scales(rows, scale[:2]))
