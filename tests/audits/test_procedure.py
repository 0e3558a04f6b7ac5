from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import lostwax as lw
from lostwax.games import Informed, Records
from lostwax.losses import SquaredError
from lostwax.trainers import GD


@dataclass(frozen=True)
class Cramped:
    """Gradient descent on a GPU that holds no more than 20 models."""

    def __call__(self, net, cohort, *, seed):
        if len(cohort) > 20:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return GD(steps=20, tile=4, init=lw.inits.LeCunNormal())(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return 4


@pytest.fixture
def parts():
    X, y = load_iris(return_X_y=True)
    x = (X - X.mean(0)) / X.std(0)
    return Records(torch.from_numpy(x), torch.from_numpy(y)).split(80, 40, 30, seed=0)


def audited(parts, **changes):
    """The audit of a linear head at its optimum, but for what is changed."""
    known, prior, secrets = parts
    game = {"trainer": lw.Optimum(), "threat": Informed(known), "prior": prior, "secrets": secrets}
    return lw.audit(nn.Linear(4, 3), **{"attack": lw.ClosedForm(), **game, **changes})


def test_a_linear_head_gives_every_secret_away(parts):
    audit = audited(parts, trainer=lw.Optimum(ridge=0.1), games=12)
    assert audit.kind == "this procedure"
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].labels_right.all()
    assert "12 of 30 games" in str(audit)
    assert audit.baselines["nearest prior or known record"][audit.metric].min() > 0.01


def test_the_oracle_of_a_table_counts_in_deviations(parts):
    known, prior, _ = parts
    audit = audited(parts)
    pool = torch.cat([prior.x, known.x])
    squared = ((audit.truth.x[:, None] - pool) / pool.std(0, correction=0)).square().mean(2)  # (games, pool)
    nearest = squared.min(1).values.sqrt().numpy()
    np.testing.assert_allclose(audit.baselines[audit.oracle][audit.metric], nearest, atol=1e-12)
    assert audit.oracle_percentiles[50] == pytest.approx(float(np.percentile(squared, 50, axis=1).mean()))


def test_an_objection_is_the_error(parts):
    with pytest.raises(ValueError, match=r"audit: ClosedForm is not applicable.*stops short"):
        audited(parts, trainer=GD(lr=0.1, steps=2))


def test_more_games_than_secrets(parts):
    with pytest.raises(ValueError, match="expected 1 <= games <= 30"):
        audited(parts, games=31)


def test_real_valued_labels_and_a_head_without_a_bias(parts):
    known, prior, secrets = (Records(part.x, part.x[:, 0] * 2 + part.y) for part in parts)
    for net, threat in ((nn.Linear(4, 1), Informed(known)), (nn.Linear(4, 1, bias=False), Informed(known, True))):
        audit = lw.audit(
            net,
            trainer=lw.Optimum(loss=SquaredError(), ridge=0.1),
            threat=threat,
            attack=lw.ClosedForm(),
            prior=prior,
            secrets=secrets,
        )
        assert audit.findings[0].labels_right.all()
        assert audit.findings[0].rebuilt.mean() > (0.99 if net.bias is not None else 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda part: Records(part.x.float(), part.y), "secrets.x and prior.x differ in dtype"),
        (lambda part: Records(part.x[:, :3], part.y), "secrets.x and prior.x differ in shape"),
        (lambda part: Records(part.x, part.y.double()), "secrets.y and prior.y differ in dtype"),
    ],
    ids=["dtype", "shape", "labels"],
)
def test_secrets_that_do_not_fit_are_refused_before_any_work(parts, change, words):
    with pytest.raises(ValueError, match=words):
        audited(parts, secrets=change(parts[2]))


def test_an_attack_that_learnt_only_the_mean_beats_nothing():
    """Independent pixels: the mean is nearer to a new record than any record, and must not count as a success."""
    x = torch.rand(150, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    known, prior, secrets = Records(x, torch.arange(150) % 2).split(50, 60, 40, seed=0)
    audit = lw.audit(
        lw.nets.mlp(144, 4, 2),
        trainer=GD(lr=0.1, steps=2),
        threat=Informed(known),
        attack=lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), lr=1e-6, epochs=2),
        prior=prior,
        secrets=secrets,
    )
    nearest, blind = (audit.baselines[name][audit.metric] for name in (audit.oracle, "blind guess (mean of the prior)"))
    assert (blind < nearest).mean() > 0.9
    assert audit.summary()["as released"]["beats_baselines"] < 0.7


def test_a_diverged_victim_is_infinitely_wrong_and_named(parts):
    known, prior, secrets = (part.to(torch.float32) for part in parts)
    wild = Records(secrets.x * 1e25, secrets.y)
    audit = lw.audit(
        lw.nets.mlp(4, 3, 3),
        trainer=GD(lr=0.1, steps=5),
        threat=Informed(known),
        attack=lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), epochs=2),
        prior=prior,
        secrets=wild,
        games=5,
    )
    assert not audit.findings[0].rebuilt.any()
    assert (audit.errors == float("inf")).any() or (audit.errors > 1e20).all()


def test_victims_that_do_not_fit_the_gpu_are_trained_in_parts(parts):
    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), epochs=2)
    with pytest.warns(RuntimeWarning, match="out of GPU memory with 30 models"):
        cramped = audited(parts, trainer=Cramped(), attack=attack)
    roomy = audited(parts, trainer=GD(steps=20, tile=4, init=lw.inits.LeCunNormal()), attack=attack)
    assert np.array_equal(cramped.errors, roomy.errors)
    assert np.array_equal(cramped.games, roomy.games)
