"""A stated mechanism: of a user-defined training function, and of a fitted model of a table."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import lostwax as lw
from lostwax.audits.ceiling import privacy_of
from lostwax.bounds import LastWeights, bound
from lostwax.games.facts import trainer_facts

NOISE = {"noise_multiplier": 8.0, "sample_rate": 0.2, "steps": 10}


def train(net, x, y, seed):
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in net.parameters():
            value += 0.01 * torch.randn(value.shape, generator=draws)
    return net


def test_a_page_has_all_three_numbers():
    privacy = privacy_of(NOISE)
    assert privacy.membership.upper == bound(**NOISE, baseline=0.5).upper
    assert privacy.reconstruction.upper == bound(**NOISE, baseline=0.1).upper
    assert "which of ten in" in privacy.sentence
    stated = privacy_of({"epsilon": 1.0, "delta": 1e-6})
    assert (stated.epsilon, stated.delta) == (1.0, 1e-6)
    assert stated.reconstruction.upper == bound(epsilon=1.0, delta=1e-6, baseline=0.1).upper
    released = LastWeights(lr=0.5, smoothness=1.0, convexity=0.2)
    full = {"noise_multiplier": 8.0, "sample_rate": 1.0, "steps": 100}
    last = privacy_of({**full, "released": released})
    assert last.epsilon < privacy_of(full).epsilon
    assert last.membership.upper < privacy_of(full).membership.upper


def test_a_training_function_states_its_noise():
    own = lw.OwnTraining(train, mechanism=NOISE)
    assert trainer_facts(own, nn.Linear(2, 2), 10).mechanism == NOISE
    assert trainer_facts(lw.OwnTraining(train), nn.Linear(2, 2), 10).mechanism is None
    assert own == lw.OwnTraining(train, mechanism=dict(NOISE))
    hash(own)
    with pytest.raises(ValueError, match="seed None with a mechanism"):
        lw.OwnTraining(train, seed=3, mechanism=NOISE)
    with pytest.raises(ValueError, match="noise_multiplier"):
        lw.OwnTraining(train, mechanism={**NOISE, "noise_multiplier": -1.0})


def test_its_audit_has_a_ceiling():
    known, prior, secrets = lw.records.digits().split(20, 60, 6, seed=0)
    audit = lw.audit(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        trainer=lw.OwnTraining(train, mechanism={"epsilon": 0.5, "delta": 1e-6}),
        threat=lw.Informed(known, candidates=4),
        prior=prior,
        secrets=secrets,
        max_minutes=0.1,
    )
    assert audit.ceiling.upper == bound(epsilon=0.5, delta=1e-6, baseline=0.25).upper
    assert audit.privacy.epsilon == 0.5
    assert "ceiling for reconstruction" in audit._repr_html_()


def test_a_fitted_model_with_stated_noise(tmp_path):
    random = np.random.default_rng(0)
    x = random.standard_normal((30, 4))
    y = (x[:, 0] + 0.3 * random.standard_normal(30) > 0).astype(int)
    model = LogisticRegression(C=1.0).fit(x, y)
    model.coef_ += 0.02 * random.standard_normal(model.coef_.shape)
    plain = lw.audit(model, (x, y), games=5)
    stated = lw.audit(model, (x, y), games=5, mechanism={"epsilon": 1.0})
    assert plain.privacy is None
    assert stated.privacy.epsilon == 1.0
    assert len(stated.findings) == 1
    assert any("does not check" in str(note) for note in stated.notes)
    assert "solver stopped early" not in str(stated)
    path = tmp_path / "audit.json"
    stated.to_json(path)
    again = lw.audits.Audit.from_json(path)
    assert again.privacy == stated.privacy
    with pytest.raises(TypeError, match="State it in the trainer"):
        lw.audit(nn.Linear(2, 2), mechanism={"epsilon": 1.0})


def test_stated_noise_hides_no_leak_of_the_release_itself():
    """A false statement: the weights are at the optimum, and every row comes back."""
    random = np.random.default_rng(0)
    x = random.standard_normal((30, 4))
    y = (x[:, 0] + 0.3 * random.standard_normal(30) > 0).astype(int)
    model = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(x, y)
    stated = lw.audit(model, (x, y), games=5, mechanism={"epsilon": 1.0})
    assert stated.grade is lw.audit(model, (x, y), games=5).grade
