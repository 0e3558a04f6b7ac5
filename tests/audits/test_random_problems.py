"""Fresh random problems of every kind that once passed a leak or alarmed on noise, against direct calculations.

The fast suite draws a few of each kind; `pytest -m slow` draws 500 in all.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import lostwax as lw
from lostwax.games import Guess, Records
from lostwax.grades import Grade

pytestmark = pytest.mark.filterwarnings("ignore")
POLICY = lw.Policy(max_grade="not found", max_rebuilt_share=0.05)


@dataclass(frozen=True)
class Problem:
    """An audit, and what a direct calculation says of it."""

    audit: lw.Audit
    leaks: bool


def table(random, n, d, *, scales=False, classes=2):
    x = random.normal(size=(n, d)) + random.normal(size=d)
    if scales:
        x = x * 10.0 ** random.uniform(-9, 9, size=d)
    unit = (x - x.mean(0)) / x.std(0)
    score = unit @ random.normal(size=(d, classes)) + random.gumbel(size=(n, classes))
    return x, score.argmax(1)


def solved_directly(x, y):
    """How many rows of a binary logistic regression come back at its optimum, from 50 Newton steps in long double.

    The optimum is that of the standardised problem, with the penalty of each weight in its own units.
    """
    x = x.astype(np.longdouble)
    mean, scale = x.mean(0), x.std(0)
    f = np.concatenate([(x - mean) / scale, np.ones((len(x), 1), np.longdouble)], 1)
    ridge = np.append(1 / scale**2, 0)  # |w|^2 / 2 in raw units
    # the bias is free, so that centring changes nothing else
    theta = np.zeros(f.shape[1], np.longdouble)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(f @ theta)))
        gradient = f.T @ (p - y) + ridge * theta
        hessian = (f.T * (p * (1 - p))) @ f + np.diag(ridge)
        step = np.linalg.solve(hessian.astype(float) / 1.0, gradient.astype(float))
        theta = theta - step
    p = 1 / (1 + np.exp(-(f @ theta)))
    terms = (p - y)[:, None] * f
    found = 0
    for row in range(len(x)):
        left = -(ridge * theta) - (terms.sum(0) - terms[row])
        guess = left[:-1] / left[-1]
        found += bool(np.sqrt(np.mean((guess - f[row, :-1]).astype(float) ** 2)) <= 0.05)
    return found


def scales(random):
    """Columns from 1e-9 to 1e9, the default solver."""
    x, y = table(random, int(random.integers(30, 80)), int(random.integers(2, 6)), scales=True)
    model = LogisticRegression().fit(x, y)
    return Problem(lw.audit(model, (x, y)), solved_directly(x, y) > 0)


def more_columns_than_rows(random):
    x = random.normal(size=(int(random.integers(6, 12)), int(random.integers(2_000, 6_000))))
    y = random.normal(size=len(x))
    model = random.choice([LinearRegression(), Ridge(1e-12)]).fit(x, y)
    centred = x - x.mean(0)
    inside = np.linalg.norm(model.coef_ - np.linalg.pinv(centred) @ (centred @ model.coef_))
    return Problem(lw.audit(model, (x, y)), bool(inside < 1e-6 * np.linalg.norm(model.coef_)))  # w is a sum of rows


def no_intercept(random):
    x, y = table(random, 60, int(random.integers(2, 6)), classes=3)
    model = LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=10_000).fit(x, y)
    return Problem(lw.audit(model, (x, y)), True)


def pipelines(random):
    x, y = table(random, 60, int(random.integers(3, 8)))
    last = random.choice([0, 1, 2])
    steps = ([PCA(2), LogisticRegression()], [RandomForestClassifier(5, random_state=0)], [SVC()])[last]
    model = make_pipeline(StandardScaler(), *steps).fit(x, y)
    mean = model[0].mean_
    rebuilt = len(x) * mean - (x.sum(0) - x[7])
    return Problem(lw.audit(model, (x, y)), bool(np.allclose(rebuilt, x[7], rtol=1e-6)))


def unreadable_pipelines(random):
    """Nothing can be said of a perceptron behind a public scaler: never an all-clear."""
    x, y = table(random, 60, 4)
    scaler = StandardScaler().fit(random.normal(size=(500, 4)))
    model = make_pipeline(scaler, Perceptron(random_state=0))
    model.steps[-1][1].fit(scaler.transform(x), y)
    return x, y, model


def duplicates(random):
    x, y = table(random, 90, 3)
    x[30:60], y[30:60] = x[60:], y[60:]
    model = LinearSVC(C=1e-2, tol=1e-12, max_iter=1_000_000).fit(x, y)
    return Problem(lw.audit(model, (x, y)), True)


def rare_values(random):
    """A column that is 0 in all the adversary has, and a class of which it has no record."""
    x, y = table(random, 60, 4)
    x = torch.from_numpy(x)
    x[:, 0] = 0.0
    secrets = x[:8].clone()
    secrets[:, 0] = 1.0
    labels = torch.from_numpy(y)
    rare = random.random() < 0.5
    known, prior = Records(x[8:30], labels[8:30]), Records(x[30:], labels[30:])
    held = Records(secrets, torch.full((8,), 2) if rare else labels[:8])
    torch.manual_seed(int(random.integers(2**31)))
    audit = lw.audit(
        lw.nets.mlp(4, 6, 3).double(),
        trainer=lw.GD(lr=0.3, momentum=0.9, steps=20),
        threat=lw.Informed(known),
        attack=lw.Newton(bank=30),
        prior=prior,
        secrets=held,
    )
    return Problem(audit, True)


def twins(random):
    """Candidates of which one is most of the pool: naming it needs no release."""
    x, y = table(random, 100, 3)
    x[:60] = x[0]
    records = Records(torch.from_numpy(x).float(), torch.from_numpy(y))
    known, prior = (Records(torch.randn(20, 3), torch.zeros(20, dtype=torch.long)) for _ in range(2))
    audit = lw.audit(
        torch.nn.Linear(3, 2),
        trainer=lw.DPSGD(lr=0.1, noise_multiplier=1e6, steps=2),
        threat=lw.Informed(known, candidates=4),
        attack=MostFrequent(),
        prior=prior,
        secrets=records,
        seed=int(random.integers(2**31)),
    )
    assert audit.ceiling.upper >= audit.chance - 1e-12
    return Problem(audit, False)


def noise(random):
    """Weight noise a million times the weights, with and without the label."""
    d = int(random.choice([1, 2, 6]))
    x, y = table(random, 160, d)
    records = Records(torch.from_numpy(x).float(), torch.from_numpy(y))
    known, prior, secrets = records.split(30, 90, 40, seed=int(random.integers(2**31)))
    audit = lw.audit(
        torch.nn.Linear(d, 2),
        trainer=lw.DPSGD(lr=0.1, noise_multiplier=1e6, steps=2, publish_steps=False),
        threat=lw.Informed(known, label_known=bool(random.random() < 0.5)),
        attack=lw.KernelRidge(),
        prior=prior,
        secrets=secrets,
        seed=int(random.integers(2**31)),
    )
    return Problem(audit, False)


@dataclass(frozen=True)
class MostFrequent:
    """Names the candidate that is likeliest without any release."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def reconstruct(release, hints=None):
            chances = torch.ones(hints.candidates.x.shape[:2]) if hints.chances is None else hints.chances
            best = chances.argmax(1)
            x, y = (part[torch.arange(len(best)), best][:, None] for part in (hints.candidates.x, hints.candidates.y))
            return Guess(Records(x, y), torch.zeros(len(best), 1))

        return reconstruct


LEAKS = [scales, more_columns_than_rows, no_intercept, pipelines, duplicates, rare_values]
NOISE = [noise, twins]


def check_leak(problem, seed):
    """Whether it leaks, and its grade; "refused" where the audit says that the model is too far from its optimum."""
    kind = problem.__name__
    try:
        found = problem(np.random.default_rng([seed, *kind.encode()]))
    except ValueError as error:
        if "stopped far from its optimum" not in str(error):
            raise
        return True, "refused"  # by a sentence, which is no pass
    grade = found.audit.grade
    if found.leaks:
        assert grade.leaks or grade is Grade.UNDECIDED, f"{kind} {seed}: {grade}"
        assert POLICY.breaches(found.audit), f"{kind} {seed}"
    return found.leaks, grade


def alarms(problem, seeds):
    found = [problem(np.random.default_rng([seed, *problem.__name__.encode()])) for seed in seeds]
    return sum(one.audit.grade.leaks for one in found)


@pytest.mark.parametrize("problem", LEAKS, ids=lambda one: one.__name__)
def test_no_leak_is_graded_not_found(problem):
    grades = [check_leak(problem, seed) for seed in range(1 if problem is rare_values else 3)]  # it trains nets
    assert any(leaks and grade is Grade.EXACT for leaks, grade in grades)


@pytest.mark.parametrize("problem", NOISE, ids=lambda one: one.__name__)
def test_noise_does_not_alarm(problem):
    assert alarms(problem, range(5)) == 0


@pytest.mark.parametrize("seed", range(2))
def test_what_cannot_be_read_is_listed_not_cleared(seed):
    x, y, model = unreadable_pipelines(np.random.default_rng(seed))
    audit = lw.audit(model, (x, y))
    assert audit.grade is Grade.UNDECIDED
    assert any("does not apply to Perceptron" in why for why in audit.unanswered)
    assert any("StandardScaler was fitted on other rows" in why for why in audit.unanswered)


@pytest.mark.slow
@pytest.mark.parametrize("problem", LEAKS, ids=lambda one: one.__name__)
def test_no_leak_of_many_is_graded_not_found(problem):
    counts = {}
    for seed in range(100, 165):
        leaks, grade = check_leak(problem, seed)
        counts[leaks, str(grade)] = counts.get((leaks, str(grade)), 0) + 1
    print(problem.__name__, counts)


@pytest.mark.slow
@pytest.mark.parametrize("problem", NOISE, ids=lambda one: one.__name__)
def test_noise_alarms_no_more_often_than_stated(problem):
    assert alarms(problem, range(100, 160)) <= 4  # 0.6 expected at most
