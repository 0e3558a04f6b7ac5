"""The second opinion on a class: the plain definition, its weight by real refits, and the nets that need it."""

import math

import pytest
import torch

import lostwax as lw
from attacks.reconn.game import Leaks, knowledge
from lostwax.learning import kernel_regression
from lostwax.learning.kernel_regression import (
    CLASS_KERNEL,
    CLASS_RIDGE,
    SCORE_WEIGHTS,
    ClassRegression,
    Regression,
    best_weight,
    scores_left_out,
    solve_from,
    variances_left_out,
)
from lostwax.learning.shadow_tables import shadow_tables


def clusters(count, seed, *, spread=0.1):
    """Models in three directions, some near, some far: one class each."""
    draw = torch.Generator().manual_seed(seed)
    groups = torch.arange(count) % 3
    sizes = torch.rand(count, 1, generator=draw, dtype=torch.float64) * 9 + 1
    strayed = spread * torch.randn(count, 3, generator=draw, dtype=torch.float64)
    return sizes * (torch.eye(3, dtype=torch.float64)[groups] + strayed), groups


def regressed(seen, groups):
    return Regression.fit(seen, seen, [(groups == label).nonzero()[:, 0] for label in range(int(groups.max()) + 1)])


def fitted(seen, groups):
    return ClassRegression.fit(regressed(seen, groups), seen, groups)


def test_it_is_a_ridge_regression_of_classes_on_likenesses():
    seen, groups = clusters(30, 0)
    asked = fitted(seen, groups)
    distances = torch.cdist(asked.rows, asked.rows).square()
    alike = CLASS_KERNEL.width * (-distances / (CLASS_KERNEL.width * asked.median)).exp()
    truth = torch.eye(3, dtype=torch.float64)[groups]
    weights = torch.linalg.solve(alike + CLASS_RIDGE * torch.eye(30, dtype=torch.float64), truth - truth.mean(0))
    torch.testing.assert_close(asked(seen), (truth.mean(0) + alike @ weights).mT, rtol=1e-6, atol=1e-8)


def test_it_decides_where_all_classes_are_in_the_same_doubt():
    others, truth = clusters(30, 2)
    asked = fitted(*clusters(60, 1))._replace(weight=10.0)
    assert torch.equal(asked.predict(others, torch.ones(3, 30, dtype=torch.float64)), truth)
    certain = torch.ones(3, 30, dtype=torch.float64)
    certain[1] = math.exp(-50)  # and where a class is in no variance at all, its word does not count
    assert (asked.predict(others, certain) == 1).all()
    assert (asked.predict(others, torch.zeros(3, 30, dtype=torch.float64)) == truth).all()


def test_it_asks_no_more_models_than_it_should(monkeypatch):
    monkeypatch.setitem(kernel_regression.CLASS_MODELS, "cpu", 7)
    assert len(fitted(*clusters(30, 0)).rows) <= 7


def doubt_without(regression, number, rows, one):
    """A group's variance about a model (1, row), by a regression on these models (s, row) of it alone."""
    group, kernel = regression.groups[number], regression.kernel
    lifted = kernel.between(rows, rows, group.median) + group.ridge * torch.eye(len(rows), dtype=torch.float64)
    near = kernel.between(one, rows, group.median)[0]
    own = kernel.between(one, one, group.median)[0, 0]
    return float(own + group.ridge - near @ torch.linalg.solve(lifted, near))


def refitted(regression, asked, seen, groups):
    """Doubts and scores (groups, s) about every model, by regressions on all the others."""
    rows, truth = regression.features(seen, regression.kernel), torch.eye(len(regression.groups)).double()[groups]
    alike = CLASS_KERNEL.between(asked.rows, asked.rows, asked.median)
    variances, scores = torch.empty_like(truth), torch.empty_like(truth)
    for one in range(len(seen)):
        kept = torch.arange(len(seen)) != one
        for number in range(len(regression.groups)):
            models = rows[kept & (groups == number)]
            variances[one, number] = doubt_without(regression, number, models, rows[one : one + 1])
        lifted = alike[kept][:, kept] + CLASS_RIDGE * torch.eye(len(seen) - 1, dtype=torch.float64)
        shares = truth[kept].mean(0)
        scores[one] = shares + alike[one, kept] @ torch.linalg.solve(lifted, truth[kept] - shares)
    return variances.mT, scores.mT


@pytest.mark.parametrize("seed", range(4))
def test_leaving_a_model_out_needs_no_other_regression(seed):
    seen, groups = clusters(45, seed, spread=0.6)
    groups[groups == 2] = torch.tensor([2, *[1] * 14])  # and a class of one model
    regression = regressed(seen, groups)
    asked = ClassRegression.fit(regression, seen, groups)
    variances, scores = refitted(regression, asked, seen, groups)
    judged, truth = torch.arange(0, 45, 2), torch.eye(3, dtype=torch.float64)[groups]
    solved, _ = solve_from(
        CLASS_KERNEL.between(asked.rows, asked.rows, asked.median), truth - truth.mean(0), CLASS_RIDGE
    )
    torch.testing.assert_close(
        variances_left_out(regression, seen, groups, judged), variances[:, judged], rtol=1e-6, atol=0
    )
    torch.testing.assert_close(scores_left_out(solved, truth), scores, rtol=1e-6, atol=1e-8)

    wrong = [int(((variances.log() - weight * scores).argmin(0) != groups).sum()) for weight in SCORE_WEIGHTS]
    assert len(set(wrong)) > 1
    assert asked.weight == SCORE_WEIGHTS[wrong.index(min(wrong))]


def test_its_word_counts_as_much_as_it_is_right():
    truth = torch.arange(90) % 3
    right, misled = torch.eye(3, dtype=torch.float64)[truth].mT, torch.eye(3, dtype=torch.float64)[(truth + 1) % 3].mT
    open_to_all = torch.ones(3, 90, dtype=torch.float64)
    assert best_weight(1.5 - right, misled, truth) == 1.0  # log 3 between the variances
    assert best_weight((1.5 - right).sqrt(), misled, truth) == 0.0
    assert best_weight(1.5 - misled, 0.1 * right, truth) == 30.0
    assert best_weight(open_to_all, right, truth) == best_weight(1.5 - right, right, truth) == 10.0


def test_few_models_decide_on_its_weight(monkeypatch):
    monkeypatch.setattr(kernel_regression, "JUDGED", 10)
    judged = []
    monkeypatch.setattr(kernel_regression, "best_weight", lambda *case: judged.append(case) or best_weight(*case))
    fitted(*clusters(99, 0))
    ((variances, scores, groups),) = judged
    assert variances.shape == scores.shape == (3, len(groups))
    assert len(groups) == 10


def test_held_out_models_decide_nothing():
    attack = lw.KernelRidge()
    facts, shadows, unseen = shadow_tables(attack, knowledge(Leaks(strength=0.05)), 0)
    once = attack.learn(facts, shadows, unseen)
    again = attack.learn(facts, shadows, unseen._replace(seen=unseen.seen.flip(0)))
    assert once.classifier.weight == again.classifier.weight
    assert torch.equal(once.classifier.weights, again.classifier.weights)
    assert torch.equal(once.regression.left_out, again.regression.left_out)
    assert once.validation_error != again.validation_error


@pytest.mark.parametrize(("neurons", "gained"), [(1, 0.02), (10, -0.01)])
def test_a_net_of_one_neuron_needs_it_and_no_other_suffers(neurons, gained):
    known, prior, secrets = lw.records.digits().split(200, 500, 200, seed=0)
    net, trainer = lw.nets.mlp(64, neurons, 10), lw.GD(lr=0.2, momentum=0.9, steps=50, init=lw.inits.LeCunNormal())
    facts = lw.games.Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    reconstruct = lw.KernelRidge().prepare(facts, seed=0)
    cohort = lw.Informed(known).deal(secrets, 200, seed=0)
    release, truth = trainer(net, cohort, seed=0), cohort.own.y[:, 0]
    with_it, without = (
        float((one(release).records.y[:, 0] == truth).double().mean())
        for one in (reconstruct, reconstruct._replace(classifier=None))
    )
    assert with_it >= without + gained, (with_it, without)
