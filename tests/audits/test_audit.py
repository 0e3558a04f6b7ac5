"""What an audit says, held against scipy and against definitions written out."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

import lostwax as lw
from audits.game import KNOWN, PRIOR, SECRETS, Reads, audited
from lostwax.metrics import NearPixels, Null

MSE = "mean squared error"


@pytest.fixture(scope="module")
def noisy():
    return audited(Reads(noise=0.15), metrics=(NearPixels(),))


def test_success_is_the_share_below_the_oracle(noisy):
    pool = torch.cat([PRIOR.x, KNOWN.x]).double()
    distance = (noisy.truth.x[:, None] - pool[None]).square().mean((2, 3, 4))  # (games, pool)
    oracle = distance.min(1).values.mean()
    assert noisy.oracle_error == pytest.approx(float(oracle))
    won = int((noisy.errors <= float(oracle)).sum())
    assert 0 < won < 200
    exact = binomtest(won, 200).proportion_ci(method="exact")
    found = noisy.success()
    assert (found.value, found.low, found.high) == pytest.approx((won / 200, exact.low, exact.high), abs=1e-6)
    assert noisy.success(noisy.errors.max()).value == 1.0
    assert noisy.success(0.0).value == 0.0
    for number, error in noisy.oracle_percentiles.items():
        assert error == pytest.approx(float(np.percentile(distance, number, axis=1).mean()))


def test_a_column_that_only_secrets_vary_in_is_scored_by_their_spread():
    """It is constant in all the adversary has, and something else in every secret: the adversary may try that."""
    known, prior, secrets = (lw.Records(part.x.flatten(1).clone(), part.y) for part in (KNOWN, PRIOR, SECRETS))
    secrets.x[:, 0] = 0.5
    audit = audited(Reads(noise=1e-8), threat=lw.Informed(known), prior=prior, secrets=secrets)
    assert 0 < audit.oracle_error < float("inf")
    assert audit.findings[0].rebuilt.all()
    assert "200 of 200 secrets have values that the prior never shows (feature 0, 16, 24, 48)" in str(audit)


def test_where_every_guess_is_infinitely_wrong_none_succeeds():
    audit = audited(Reads(noise=float("inf")))
    assert audit.errors.min() == float("inf")
    assert audit.success().value == 0.0
    assert not audit.grade.leaks


def test_true_positives_by_hand(noisy):
    guess = noisy.guess.records.x[:, 0].double()
    null = [float((guess[i] - noisy.truth.x[(i + 1) % 200]).square().mean()) for i in range(200)]
    np.testing.assert_allclose(noisy.findings[0].null_errors[Null.OTHER_SECRETS], null)
    found = noisy.tpr(at_fpr=0.1)
    twentieth, next_one = np.sort(null)[[19, 20]]  # floor(0.1 * 201) = 20 of 200 null scores
    assert twentieth <= found.threshold < next_one
    assert found.rate == (noisy.errors <= twentieth).mean() == 1.0
    assert (found.null, found.null_games) == (Null.OTHER_SECRETS, 200)


def test_an_attack_that_learnt_nothing_has_as_many_true_positives_as_false_ones():
    nothing = audited(Reads(blind=1.0))
    for rate in (0.05, 0.3):
        found = nothing.tpr(at_fpr=rate)
        assert found.low <= rate <= found.high
        assert abs(found.rate - rate) < 4 * (2 * rate * (1 - rate) / 200) ** 0.5  # both rates are estimates
    assert audited(Reads(blind=0.5, noise=0.01)).tpr().rate == pytest.approx(0.5, abs=0.15)


def test_true_positives_that_cannot_be_told(noisy):
    few = audited(Reads(), games=50)
    with pytest.raises(
        ValueError, match=r"0.01 cannot be estimated from 50 null scores: expected 99 or more. Use more"
    ):
        few.tpr()
    assert "TPR" not in str(few)
    assert "TPR" in str(noisy)
    with pytest.raises(ValueError, match=r"no scores of Null.GAUSSIAN_WEIGHTS.*it holds Null.OTHER_SECRETS"):
        noisy.tpr(null=Null.GAUSSIAN_WEIGHTS)
    with pytest.raises(ValueError, match="it holds none"):
        audited(Reads(), games=1).tpr()


def test_equal_secrets_are_no_null():
    twice = lw.Records(SECRETS.x[:60].repeat(2, 1, 1, 1), SECRETS.y[:60].repeat(2))
    audit = audited(Reads(), secrets=twice)
    assert len(audit.errors) == 120
    assert len(audit.findings[0].null_errors[Null.OTHER_SECRETS]) == 60
    assert audit.findings[0].null_errors[Null.OTHER_SECRETS].min() > audit.errors.max()


def test_errors_by_every_metric(noisy):
    guess, truth = noisy.guess.records.x[:, 0].double(), noisy.truth.x
    errors = noisy.findings[0].errors
    np.testing.assert_allclose(errors["mean absolute error"], (guess - truth).abs().mean((1, 2, 3)))
    np.testing.assert_allclose(errors["peak signal-to-noise ratio (dB)"], -10 * np.log10(errors[MSE]))
    assert {"structural similarity", "share of pixels nearly right"} <= set(errors)
    assert "LPIPS (AlexNet)" not in errors  # no weights, no word
    assert all(set(baseline) == set(errors) for baseline in noisy.baselines.values())
    assert "means: " in str(noisy)
    assert f"structural similarity {errors['structural similarity'].mean():.4g}" in str(noisy)


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("LOSTWAX_DATA", raising=False)


def test_lpips_where_its_weights_are_at_hand(monkeypatch, shared_data):
    if not (shared_data / "lpips_alex.safetensors").exists():
        pytest.skip("no lpips_alex.safetensors in LOSTWAX_DATA")
    monkeypatch.setenv("LOSTWAX_DATA", str(shared_data))
    near, far = (audited(Reads(noise), games=20).findings[0].errors["LPIPS (AlexNet)"] for noise in (0.01, 0.3))
    assert (near < far).all()


def test_a_perfect_guess_has_no_finite_psnr():
    perfect = audited(Reads(noise=0.0))
    assert np.isposinf(perfect.findings[0].errors["peak signal-to-noise ratio (dB)"]).all()
    assert perfect.tpr().rate == perfect.success().value == 1.0


def test_metrics_that_cannot_be_used_are_refused_before_any_work():
    class Untouched:
        def objection(self, knowledge):
            return None

        def prepare(self, knowledge, *, seed):
            raise AssertionError("worked in vain")

    flat = {name: lw.Records(part.x.flatten(1), part.y) for name, part in (("prior", PRIOR), ("secrets", SECRETS))}
    threat = lw.Informed(lw.Records(KNOWN.x.flatten(1), KNOWN.y))
    with pytest.raises(ValueError, match="SSIM compares images"):
        audited(Untouched(), threat=threat, **flat, metrics=(lw.metrics.SSIM(),))
    with pytest.raises(FileNotFoundError, match="LPIPS has no path to its weights"):
        audited(Untouched(), metrics=(lw.metrics.LPIPS(),))
    with pytest.raises(ValueError, match=r'one called "mean absolute error", and there is another of that name'):
        audited(Untouched(), metrics=(lw.metrics.MAE(), lw.metrics.MAE()))
    with pytest.raises(ValueError, match="and there is another of that name"):
        audited(Untouched(), metrics=(lw.metrics.MAE(name="RMSE in feature standard deviations"),))
    with pytest.raises(TypeError, match="metrics does not apply to a torch net"):
        lw.audit(nn.Linear(2, 2), (np.zeros((3, 2)), np.zeros(3)), metrics=(lw.metrics.MAE(),))


def test_provenance_and_json_are_complete(noisy, tmp_path):
    stored = json.loads(noisy.to_json(tmp_path / "audit.json").read_text())
    kept = stored["provenance"]
    assert set(kept["data"]) == {"known", "prior", "secrets"}
    assert len(set(kept["data"].values())) == 3
    assert kept["trainer"] == "Publishes()"
    assert kept["attack"] == "Reads(noise=0.15, blind=0.0)"
    assert {"versions", "machine", "seed", "net", "access"} <= set(kept)
    assert len(stored["findings"][0]["null_errors"]["OTHER_SECRETS"]) == 200
    assert len(stored["findings"][0]["errors"]["structural similarity"]) == 200
    assert set(stored["oracle_percentiles"]) == {"1", "10", "50"}
    assert stored["oracle"] == noisy.oracle


def test_real_valued_labels_are_off_by_so_many_deviations(tmp_path):
    parts = (lw.Records(part.x, part.y.float() + 0.5) for part in (KNOWN, PRIOR, SECRETS))
    known, prior, secrets = parts

    class Rounds(Reads):
        """Reads the label, half a class off."""

        def _guess(self, release, prior):
            guess = super()._guess(release, prior)
            return type(guess)(lw.Records(guess.records.x, guess.records.y - 0.5), guess.confidence)

    audit = audited(Rounds(), threat=lw.Informed(known), prior=prior, secrets=secrets)
    off = 0.5 / float(prior.y.std(correction=0))
    assert audit.summary()["as released"]["label_error"] == pytest.approx(off, rel=1e-6)
    assert f"off by {off:.3f} dev." in str(audit)
    assert "label_error" not in audited(Reads(), games=5).summary()["as released"]
