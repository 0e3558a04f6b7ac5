"""Several attacks on the same victims, several seeds, several audits side by side."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge
from torch import nn

import lostwax as lw
from audits.game import Reads, audited

SMALL = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), epochs=2)


def test_attacks_of_a_list_meet_the_same_victims():
    """Each line is what the attack alone gives."""
    both = audited([Reads(noise=0.5), Reads(noise=0.1)], games=120)
    assert isinstance(both, lw.Audit)
    assert {line.name for line in both.findings} == {"Reads(noise=0.5)", "Reads(noise=0.1)"}
    assert both.findings[0].name == "Reads(noise=0.1)"  # the better one first
    for noise in (0.5, 0.1):
        alone = audited(Reads(noise=noise), games=120)
        assert np.array_equal(both.finding(f"Reads(noise={noise})").errors[both.metric], alone.errors)
    closer = both.closer("Reads(noise=0.1)", "Reads(noise=0.5)")
    assert closer.value > 0.9
    assert closer.low > 0.5
    assert both.closer("Reads(noise=0.1)", "Reads(noise=0.1)").value == 0
    assert "the best of 2" in str(both)


def test_different_attacks_have_their_own_names():
    both = audited([Reads(noise=0.1), SMALL], games=20)
    assert {line.name for line in both.findings} == {"Reads", "RecoNN"}
    one = audited([Reads(noise=0.1)], games=20)
    assert [line.name for line in one.findings] == ["as released"]


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ([SMALL, SMALL], "the same attack is listed twice"),
        ([SMALL, lw.Newton], "expected attack to be an attack, .* got the class Newton"),
        ([], "expected attack to be an attack"),
        ([SMALL, lw.ClosedForm()], "ClosedForm is not applicable"),
    ],
)
def test_a_list_of_attacks_is_checked_before_anything_is_trained(attack, message):
    with pytest.raises((TypeError, ValueError), match=message):
        audited(attack, games=20)


def test_a_list_takes_no_data():
    net, x = nn.Linear(4, 2), torch.rand(20, 4)
    with pytest.raises(TypeError, match="expected one attack with data"):
        lw.audit(net, lw.Records(x, torch.arange(20) % 2), trainer=lw.GD(), attack=[lw.Newton(), SMALL])


def test_seeds_give_audits_with_their_spread():
    audits = audited([Reads(noise=0.1), SMALL], games=30, seed=range(3))
    assert isinstance(audits, lw.Audits)
    assert audits.names == ("seed 0", "seed 1", "seed 2")
    assert len(audits) == len(list(audits)) == 3
    alone = audited([Reads(noise=0.1), SMALL], games=30, seed=1)
    assert np.array_equal(audits["seed 1"].errors, alone.errors)
    assert audits[1] is audits["seed 1"]
    assert audits[-2:] == (audits[1], audits[2])
    medians = [float(np.median(one.finding("Reads").errors[one.metric])) for one in audits]
    assert len(set(medians)) == 3
    row = next(row for row in audits.spread() if row["line"] == "Reads")
    assert row["median_error"] == pytest.approx(np.mean(medians))
    assert row["median_error_sd"] == pytest.approx(np.std(medians, ddof=1))
    assert (row["median_error_least"], row["median_error_most"]) == (min(medians), max(medians))
    assert audits.grade == max((one.grade for one in audits), key=lambda grade: grade.severity)
    text = str(audits)
    assert "3 lostwax audits of" in text
    assert "±" in text
    assert "of 3)" in text
    assert len(audits.to_frame()) == 3 * 2 * 30
    assert set(audits.to_frame().audit) == set(audits.names)
    assert len(audits.to_csv().splitlines()) == 1 + 3 * 4
    with pytest.raises(KeyError, match="expected one of 'seed 0'"):
        audits["seed 7"]


def test_seeds_of_a_fitted_model():
    X, y = load_iris(return_X_y=True)
    audits = lw.audit(Ridge().fit(X, y), (X, y), games=10, seed=[3, 4])
    assert not np.array_equal(audits[0].games, audits[1].games)


@pytest.mark.parametrize("seeds", [[], [1, 1], [0.5], ["a"], [True]])
def test_seeds_are_different_whole_numbers(seeds):
    X, y = load_iris(return_X_y=True)
    with pytest.raises((TypeError, ValueError), match=r"expected (different seeds|seed to be a whole number)"):
        lw.audit(Ridge().fit(X, y), (X, y), games=10, seed=seeds)


def test_different_audits_have_no_mean():
    """Two models of one kind, by the same seed: nothing of them may be averaged."""
    X, y = load_iris(return_X_y=True)
    audits = lw.Audits({f"C={C}": lw.audit(Ridge(C).fit(X, y), (X, y), games=10) for C in (1.0, 10.0)})
    assert not audits.alike
    with pytest.raises(ValueError, match="have no mean"):
        audits.spread()
    assert "C=10.0" in str(audits)
    assert "±" not in str(audits)


@pytest.mark.parametrize("wrong", [{}, [1], {"a": 3}, {3: 3}])
def test_audits_have_names(wrong):
    with pytest.raises(TypeError, match="Audits: expected"):
        lw.Audits(wrong)


def test_infinite_errors_have_a_spread():
    audits = audited(Reads(noise=float("inf")), games=10, seed=[0, 1])
    assert str(audits)
