"""A model read row by row: against what is known of the rows."""

import math

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.mnemonist import planted
from lostwax.learning.decoders import MLPDecoder, RowDecoder, RowSums
from lostwax.learning.standardise import SeenRows, Standardise


def test_a_row_counts_by_its_direction():
    """Gates of one, and no noise: the sum of unit directions, whatever their sizes."""
    net = lw.nets.mlp(5, 4, 3)
    seen = torch.randn(50, 39, generator=torch.Generator().manual_seed(0))
    standardise = Standardise.fit(seen)
    found = SeenRows.of(net, lw.access.Weights(), standardise)
    sums = RowSums(found, RowDecoder(sums=1, input_noise=0.0)).double()
    nn.init.zeros_(sums.gates[-2].weight)
    nn.init.ones_(sums.gates[-2].bias)
    features = standardise(seen)
    expected = []
    for layer in found.layers:
        moved = features[:, layer.place] * layer.unit
        expected.append(math.sqrt(moved.shape[2]) * (moved / moved.norm(dim=2, keepdim=True)).sum(1))
    torch.testing.assert_close(sums(features), torch.cat(expected, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sums(100 * features), sums(features))


def squared_error(attack, knowledge, cohort, release):
    return float((attack.prepare(knowledge, seed=0)(release).records.x - cohort.own.x).square().mean())


def test_it_reads_records_off_the_rows_that_hold_them():
    """In the planted game: half of a blind guess's error, and less."""
    knowledge, secrets = planted.game()
    cohort, release = planted.played(knowledge, secrets)
    attack = lw.RecoNN(decoder=RowDecoder(width=32), epochs=20, batch_size=16)
    blind = float((knowledge.prior.x.mean(0) - cohort.own.x).square().mean())
    assert squared_error(attack, knowledge, cohort, release) < 0.5 * blind


@pytest.mark.slow
def test_from_relu_nets_it_reads_more_than_a_decoder_of_all_weights():
    """Over three initialisations."""
    known, prior, secrets = lw.records.digits().split(300, 600, 200, seed=0)
    net = lw.nets.mlp(64, 10, 10, 10, activation=nn.ReLU)
    totals = dict.fromkeys((RowDecoder(), MLPDecoder(width=300)), 0.0)
    for run in range(3):
        trainer = lw.GD(lr=0.1, momentum=0.9, steps=40, init=lw.inits.LeCunNormal(seed=run))
        knowledge = lw.games.Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
        cohort, release = planted.played(knowledge, secrets)
        for decoder in totals:
            attack = lw.RecoNN(decoder=decoder, epochs=20, batch_size=32)
            totals[decoder] += squared_error(attack, knowledge, cohort, release)
    by_rows, by_all = totals.values()
    assert by_rows < 0.75 * by_all


def test_saved_and_read_back(tmp_path):
    knowledge, secrets = planted.game()
    _, release = planted.played(knowledge, secrets[:5])
    attack = lw.RecoNN(decoder=RowDecoder(sums=2, width=8, picture=MLPDecoder(width=8)), epochs=1)
    trained = attack.prepare(knowledge, seed=0)
    again = attack.load(trained.save(tmp_path), knowledge)
    assert torch.equal(again(release).records.x, trained(release).records.x)


def test_refusals():
    knowledge, _ = planted.game()
    attack = lw.RecoNN(decoder=RowDecoder())
    logits = lw.games.Knowledge(
        knowledge.net, knowledge.trainer, knowledge.threat, lw.access.Logits(knowledge.prior.x), knowledge.prior
    )
    assert "reads weights row by row, but the adversary sees" in attack.objection(logits)
    for field, value in {"sums": 0, "summary": 0, "width": 0, "input_noise": -1.0}.items():
        with pytest.raises(ValueError, match=f"RowDecoder: expected {field} .*, got {value}"):
            RowDecoder(**{field: value})
