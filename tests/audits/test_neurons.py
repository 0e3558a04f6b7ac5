"""Which neurons hold a record, as an audit keeps it: those that were planted."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import lostwax as lw
from attacks.mnemonist import planted
from audits.game import Reads, audited
from lostwax.access import Neuron, neurons
from lostwax.audits.checks import widened
from lostwax.audits.neurons import neuron_shares
from lostwax.audits.procedure import victims_seed
from lostwax.seeds import generator


@pytest.fixture(scope="module")
def game():
    return planted.game()


@pytest.fixture(scope="module")
def audit(game):
    knowledge, secrets = game
    return lw.audit(
        knowledge.net,
        trainer=knowledge.trainer,
        threat=knowledge.threat,
        attack=lw.KernelRidge(),
        prior=knowledge.prior,
        secrets=secrets[:60],
    )


def test_the_best_the_median_and_the_worst_game_are_looked_into(audit):
    ranks = np.argsort(np.argsort(audit.errors))[list(audit.findings[0].neurons.places)]
    assert ranks.tolist() == [0, 30, 59]


def test_the_rows_that_move_hold_the_record(audit, game):
    held = audit.findings[0].neurons
    assert held.rows == neurons(game[0].net)
    sure = held.shares[0] > 4 * held.standard_errors[0]  # the best game
    named = {row for row, seen in zip(held.rows, sure, strict=True) if seen}
    assert named
    assert named <= {Neuron("1", number) for number in planted.LIVE}
    still = [number for number in range(8) if number not in planted.LIVE]
    assert np.abs(held.shares[:, still]).max() < 4 * held.standard_errors[:, still].max()


def test_shares_are_mnemonists_coefficients_over_a_blind_guess(audit, game):
    knowledge, secrets = game
    knowledge = replace(knowledge, prior=widened(knowledge.prior, secrets[:60]).prior)
    cohort = knowledge.threat.deal(secrets[:60], 60, seed=victims_seed(0))
    release = knowledge.trainer(knowledge.net, cohort, seed=victims_seed(0))
    held, adversary = audit.findings[0].neurons, int(generator(0, "adversary").integers(2**62))
    reconstruct = lw.KernelRidge().prepare(knowledge, seed=adversary)
    explain = lw.attacks.Mnemonist(masks=10 * len(held.rows), erase=lw.attacks.mnemonist.ToMean())
    found = explain(reconstruct, knowledge, release, cohort.own, seed=adversary)
    blind = (knowledge.prior.x.mean(0) - cohort.own.x[:, 0]).double().square().flatten(1).mean(1)
    shares = (-found.coefficients / blind.unsqueeze(1))[list(held.places)]
    np.testing.assert_allclose(held.shares, shares, rtol=1e-6, atol=1e-9)


def test_it_comes_back_from_a_file(audit, tmp_path):
    before, after = audit.findings[0].neurons, lw.Audit.from_json(audit.to_json(tmp_path / "audit.json"))
    again = after.findings[0].neurons
    assert (again.places, again.rows) == (before.places, before.rows)
    np.testing.assert_array_equal(again.shares, before.shares)
    np.testing.assert_array_equal(again.standard_errors, before.standard_errors)


def test_a_file_that_lacks_a_neuron(audit, tmp_path):
    path = audit.to_json(tmp_path / "audit.json")
    plain = json.loads(path.read_text())
    plain["findings"][0]["neurons"]["shares"][1].pop()
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="as released / neurons does not hold a number for each neuron"):
        lw.Audit.from_json(path)


def test_attacks_that_learnt_nothing_have_none():
    assert audited(Reads(), games=4).findings[0].neurons is None


def test_only_some_models_are_explained_as_among_all(game):
    knowledge, secrets = game
    cohort, release = planted.played(knowledge, secrets[:10])
    reconstruct = lw.KernelRidge().prepare(knowledge, seed=0)
    explain = lw.attacks.Mnemonist(masks=40, erase=lw.attacks.mnemonist.ToMean())
    every = explain(reconstruct, knowledge, release, cohort.own, seed=0)
    some = explain(reconstruct, knowledge, release, cohort.own, seed=0, only=[7, 2])
    assert torch.equal(some.coefficients, every.coefficients[[7, 2]])


@pytest.mark.parametrize("units", [300, 2_000])
def test_it_takes_the_stated_time_or_is_left_out(units, monkeypatch):
    """Thousands of neurons would take minutes: it is seen before that."""
    known, prior, secrets = lw.records.digits().split(20, 30, 4, seed=0)
    started = []

    def timed(*arguments, **named):
        started.append(time.monotonic())
        found = neuron_shares(*arguments, **{**named, "seconds": 0.5})
        started.append(time.monotonic())
        return found

    monkeypatch.setattr("lostwax.audits.neurons.WARM", 0.1)
    monkeypatch.setattr("lostwax.audits.procedure.neuron_shares", timed)
    audit = lw.audit(
        lw.nets.mlp(64, units, 10),
        trainer=lw.GD(lr=0.1, steps=1),
        threat=lw.Informed(known),
        prior=prior,
        secrets=secrets,
        attack=lw.KernelRidge(),
    )
    assert audit.findings[0].neurons is None
    assert started[1] - started[0] < 10
