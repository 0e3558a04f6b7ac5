"""RecoNN taught by some rows: chosen by shadows, never by victims."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from attacks.mnemonist import planted
from lostwax.access import Neuron, neurons
from lostwax.learning.shadow_tables import shadow_tables

RECONN = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=100), epochs=20)
ATTACK = lw.attacks.MnemonistRecoNN(attack=RECONN, mnemonist=lw.attacks.Mnemonist(masks=60))


@pytest.fixture(scope="module")
def game():
    return planted.game()


@pytest.fixture(scope="module")
def focused(game):
    return ATTACK.prepare(game[0], seed=0)


def test_it_reads_the_rows_that_help_and_no_others(focused, game):
    knowledge, secrets = game
    cohort, release = planted.played(knowledge, secrets)
    access = focused.second.access
    assert access.rows == focused.explanation.holding()
    assert {Neuron("1", number) for number in planted.LIVE} <= set(access.rows)
    left_out = next(row for row in neurons(knowledge.net) if row not in access.rows)
    changed = {name: value.clone() for name, value in release.params.items()}
    changed["1.weight"][:, left_out.number] += 1.0
    same = focused(replace(release, params=changed)).records.x
    assert torch.equal(same, focused(release).records.x)
    errors, blind = ((guess - cohort.own.x).square().flatten(1).mean(1) for guess in (same, knowledge.prior.x.mean(0)))
    gain = blind - errors
    assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5


def test_the_first_is_reconn_itself(focused, game):
    knowledge, secrets = game
    _, release = planted.played(knowledge, secrets)
    plain = RECONN.prepare(knowledge, seed=0)
    assert torch.equal(focused.first(release).records.x, plain(release).records.x)


def test_the_explanation_is_of_held_out_shadows(focused, game):
    """What is explained is what validation held out, and no more of it than asked for."""
    knowledge, _ = game
    tables = shadow_tables(RECONN, knowledge, 0)
    held_out = len(tables[2].seen)
    assert len(focused.explanation.coefficients) == held_out == round(RECONN.validation * len(knowledge.prior))
    few = replace(ATTACK, models=3).learn(*tables, seed=0).explanation
    assert torch.equal(few.coefficients, focused.explanation.coefficients[:3])


def test_known_parts_of_a_record_are_read_beside_the_rows(game):
    knowledge, secrets = game
    left = torch.zeros(1, 8, 8, dtype=torch.bool)
    left[..., :4] = True
    told = replace(knowledge, threat=replace(knowledge.threat, parts=left))
    focused = ATTACK.prepare(told, seed=0)
    cohort, release = planted.played(told, secrets)
    guess = focused(release, told.threat.hints(cohort, secrets, seed=1)).records.x
    assert torch.equal(guess[..., :4], cohort.own.x[..., :4])


def test_stored_shadows_are_the_same(focused, game, tmp_path):
    again = replace(ATTACK, attack=replace(RECONN, store=tmp_path)).prepare(game[0], seed=0)
    torch.testing.assert_close(again.explanation.coefficients, focused.explanation.coefficients, atol=1e-3, rtol=1e-2)
    assert again.second.standardise.features == focused.second.standardise.features


def test_refusals(game):
    knowledge, _ = game
    for changed, sentence in (
        (
            replace(knowledge, access=lw.access.Layers("1")),
            "it chooses among the rows of all layers, but the adversary sees Layers",
        ),
        (replace(knowledge, trainer=lw.Optimum()), r"MnemonistRecoNN\(RecoNN\) is not applicable: rows are reset"),
        (replace(knowledge, prior=knowledge.prior[:3]), "at least 4 records in the prior"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ATTACK.prepare(changed, seed=0)
    with pytest.raises(ValueError, match="expected models >= 2"):
        lw.attacks.MnemonistRecoNN(attack=RECONN, models=1)
