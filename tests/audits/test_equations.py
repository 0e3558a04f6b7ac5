import json
from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import nn

import lostwax as lw
from equations import read
from lostwax.attacks import ClosedForm
from lostwax.audits import Verdict
from lostwax.games import Records
from lostwax.losses import SquaredError
from lostwax.trainers.optimum import polish


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return lw.audit(LogisticRegression().fit(X, y), (X, y))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X / 16, y)
    return lw.audit(model, Records(torch.from_numpy(X / 16).reshape(-1, 8, 8), torch.from_numpy(y)), games=25, seed=3)


def test_predicted_error_is_of_the_right_size_over_ten_decades(cancer):
    released, converged = (
        np.log10(finding.predicted / finding.errors[cancer.criterion]) for finding in cancer.findings
    )
    assert np.abs(np.median(released)) < 0.3
    assert (np.abs(released) < 1).mean() > 0.95
    assert (converged > 0).mean() > 0.99  # rounding is foretold at its worst
    assert np.median(converged) < 3


def test_verdicts_say_what_the_two_lines_show(cancer):
    released, converged = cancer.findings
    for now, best, verdict in zip(released.rebuilt, converged.rebuilt, released.verdicts, strict=True):
        expected = Verdict.RECOVERABLE if now else Verdict.SOLVER_LIMITED if best else Verdict.INFORMATION_LIMITED
        assert verdict == expected
    assert Verdict.SOLVER_LIMITED not in converged.verdicts
    assert converged.stationarity < 1e-14 < released.stationarity


def test_information_limited_means_a_residual_at_rounding_level(cancer):
    converged = cancer.finding("as converged")
    limited = np.array([verdict == Verdict.INFORMATION_LIMITED for verdict in converged.verdicts])
    assert 0 < limited.sum() < 25
    residual = converged.guess.confidence[:, 0].numpy()
    assert np.median(residual[limited]) < 1e-6 * np.median(residual[~limited])


def test_images_are_scored_per_pixel_and_keep_their_shape(digits):
    assert digits.metric == "mean squared error"
    assert digits.truth.x.shape == (25, 8, 8)
    assert digits.games.tolist() == sorted(set(digits.games.tolist()))
    assert digits.finding("as converged").errors["mean squared error"].max() < 1e-12
    assert digits.finding("as converged").labels_right.all()


def test_the_table_a_person_reads(digits, cancer):
    text = str(digits)
    assert "25 of 1797 games" in text
    assert "which is luck, not a defence" in text.replace("\n", " ")
    assert "(86.3-100.0)" in text  # a sample of games has an interval
    assert "nearest known row" in text
    assert "all of 569 games" in str(cancer)
    assert "information-limited" in str(cancer)


def test_json_holds_every_game_and_no_record(digits, tmp_path):
    path = digits.to_json(tmp_path / "audit.json")
    stored = json.loads(path.read_text())
    assert stored["games"] == digits.games.tolist()
    assert len(stored["findings"][1]["errors"]["mean squared error"]) == 25
    assert stored["provenance"]["versions"]["torch"] == metadata.version("torch")
    assert stored["summary"]["as converged"]["rebuilt"] == 1.0
    assert "x" not in stored
    assert list(tmp_path.iterdir()) == [path]


def test_json_into_nowhere(digits, tmp_path):
    with pytest.raises(FileNotFoundError, match="Create it first"):
        digits.to_json(tmp_path / "no" / "audit.json")
    with pytest.raises(IsADirectoryError, match="Name a file in it"):
        digits.to_json(tmp_path)


def test_unknown_line(digits):
    with pytest.raises(KeyError, match='expected one of "as released", "as converged"'):
        digits.finding("as hoped")


def test_same_seed_same_audit():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    first, second = (lw.audit(model, (X, y), games=20, seed=5) for _ in range(2))
    assert np.array_equal(first.games, second.games)
    assert np.array_equal(first.errors, second.errors)
    assert not np.array_equal(first.games, lw.audit(model, (X, y), games=20, seed=6).games)


@pytest.mark.parametrize("model", [LogisticRegression(), LogisticRegression(tol=1e-8)], ids=["short", "near"])
def test_a_constant_feature_hides_nothing(model):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    constant = np.hstack([X, np.full((150, 1), 7.0)])
    plain, more = (lw.audit(clone(model).fit(part, y), (part, y)) for part in (X, constant))
    assert more.finding("as converged").rebuilt.all()
    assert more.findings[0].rebuilt.mean() > plain.findings[0].rebuilt.mean() - 0.1


def test_no_optimum_to_converge_to():
    X, y = load_iris(return_X_y=True)
    separable = (y == 0).astype(int)
    audit = lw.audit(LogisticRegression(C=np.inf).fit(X, separable), (X, separable))
    assert [finding.name for finding in audit.findings] == ["as released"]
    (why,) = audit.unanswered
    assert "no optimum could be reached: without a penalty, separable classes have no optimum" in why
    assert not audit.findings[0].rebuilt.all()
    assert Verdict.SOLVER_LIMITED not in audit.verdicts  # nobody saw the optimum
    assert Verdict.UNDECIDED in audit.verdicts
    assert "Not answered: There is no line 'as converged'" in " ".join(str(audit).split())
    assert "undecided" in str(audit)


def test_published_sums_need_no_optimum():
    X, y = load_iris(return_X_y=True)
    separable = (y == 0).astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf)).fit(X, separable)
    audit = lw.audit(model, (X, separable), games=20)
    assert audit.findings[0].rebuilt.all()
    assert audit.unanswered == ()
    assert any("no optimum could be reached" in note for note in map(str, audit.notes))


def test_a_solver_that_stopped_early_cannot_be_told_from_forgotten_weights():
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).random(150) + 0.5
    model = LogisticRegression(max_iter=1_000, tol=1e-8).fit(X, y, sample_weight=weight)
    text = str(lw.audit(model, (X, y), games=20))
    assert "or the model was fitted on other rows or weights" in " ".join(text.split())
    assert "only that its solver stopped early" not in text


def test_twice_as_many_features_as_rows_give_half_of_a_row():
    """What lies in the span of the known rows leaves no trace in weights that fit every row."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 40)), rng.normal(size=20)
    audit = lw.audit(LinearRegression().fit(X, y), (X, y))
    assert not audit.findings[0].rebuilt.any()
    assert audit.beats_baselines(audit.findings[0]).mean() > 0.8
    assert set(audit.verdicts) == {Verdict.INFORMATION_LIMITED}
    assert "None of 20 records come back" in " ".join(str(audit).split())
    assert audit.grade.leaks  # nearer than any guess made without the model


def test_solver_that_ran_out_of_iterations_is_audited_all_the_same():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(match="converge"):
        model = LogisticRegression(max_iter=3).fit(X, y)
    audit = lw.audit(model, (X, y), games=5)
    assert any("ran out of iterations" in note for note in map(str, audit.notes))


def test_baselines_against_the_plain_loop():
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X, y), (X, y), games=15)
    deviation = X.std(0)
    for place, row in enumerate(audit.games):
        known = np.delete(X, row, 0)
        blind = np.sqrt((((known.mean(0) - X[row]) / deviation) ** 2).mean())
        nearest = np.sqrt((((known - X[row]) / deviation) ** 2).mean(1).min())
        assert audit.baselines["blind guess (mean of the known)"][audit.metric][place] == pytest.approx(blind)
        assert audit.baselines["nearest known row"][audit.metric][place] == pytest.approx(nearest)


@pytest.mark.parametrize("mean", [True, False])
def test_a_torch_head_at_its_optimum(mean):
    """Trained by torch's own optimiser, audited through the objective the user states."""
    X, y = load_iris(return_X_y=True)
    x, labels = torch.from_numpy(StandardScaler().fit_transform(X)), torch.from_numpy(y)
    torch.manual_seed(0)
    head, ridge = nn.Linear(4, 3).double(), 1e-2
    optimiser = torch.optim.LBFGS(
        head.parameters(), max_iter=900, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss():
        optimiser.zero_grad()
        value = nn.functional.cross_entropy(head(x), labels, reduction="mean" if mean else "sum")
        value = value + ridge / 2 * head.weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    audit = lw.audit(head, (x, labels), trainer=lw.Optimum(ridge=ridge, mean=mean))
    assert audit.finding("as converged").rebuilt.all()
    assert audit.findings[0].rebuilt.mean() > 0.9


@pytest.mark.parametrize(
    ("net", "trainer", "data", "error", "words"),
    [
        (nn.Linear(4, 3), None, None, TypeError, "trainer=lw.Optimum"),
        (
            nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)),
            lw.Optimum(),
            None,
            TypeError,
            "applies to one nn.Linear",
        ),
        (nn.Linear(5, 3), lw.Optimum(), None, ValueError, "X has 4 features, but the layer takes 5"),
        (nn.Linear(4, 2), lw.Optimum(), None, ValueError, "labels from 0 to 1, but 50 of 150 are not"),
        (nn.Linear(4, 1), lw.Optimum(), None, ValueError, "Use BinaryCrossEntropy"),
        (nn.Linear(4, 3), lw.Optimum(), "float", TypeError, "expects class numbers in y"),
        (nn.Linear(4, 3), lw.Optimum(), None, ValueError, "was not fitted on this data"),
        (nn.Linear(4, 1), lw.Optimum(loss=SquaredError()), "float", ValueError, "was not fitted on this data"),
    ],
)
def test_torch_heads_that_cannot_be_read(net, trainer, data, error, words):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(error, match=words):
        lw.audit(net, (X, y.astype(float) if data else y), trainer=trainer)


def test_json_of_a_table_with_a_constant_column(tmp_path):
    X, y = load_iris(return_X_y=True)
    X = np.hstack([X, np.full((150, 1), 7.0)])
    audit = lw.audit(LogisticRegression(max_iter=1000).fit(X, y), (X, y))
    stored = json.loads(audit.to_json(tmp_path / "audit.json").read_text())
    assert stored["summary"]["as converged"]["rebuilt"] == 1.0


def test_nothing_that_is_shown_or_stored_holds_a_record(tmp_path):
    X, y = load_iris(return_X_y=True)
    X = X * 1.2345678 + 9.8765432
    audit = lw.audit(Ridge().fit(X, y), (X, y), games=10)
    texts = (repr(audit), str(audit), audit.to_json(tmp_path / "audit.json").read_text())
    for value in X[audit.games].ravel():
        assert not any(f"{value:.6f}"[:8] in text for text in texts)


def test_raw_errors_stand_beside_standardised_ones():
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X, y), (X, y), games=10)
    raw = ((audit.guess.records.x[:, 0] - audit.truth.x) ** 2).mean(1)
    np.testing.assert_allclose(audit.findings[0].errors["mean squared error"], raw)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_predicted_rounding_does_not_depend_on_where_zero_is(offset):
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X + offset, y), (X + offset, y))
    converged = audit.finding("as converged")
    assert converged.rebuilt.all()
    assert np.median(converged.predicted) < 1e-3


def one_number(audit):
    """Errors, shares and verdicts of every line say the same."""
    summary = audit.summary()
    for finding in audit.findings:
        recoverable = np.array([verdict == Verdict.RECOVERABLE for verdict in finding.verdicts])
        assert np.array_equal(recoverable, finding.rebuilt)
        assert np.array_equal(finding.errors[audit.criterion] <= audit.threshold, finding.rebuilt)
        assert summary[finding.name]["rebuilt"] == summary[finding.name]["recoverable"]
        shown = finding.guess.records.x[:, 0]
        torch.testing.assert_close(
            torch.from_numpy(finding.errors["mean squared error"]),
            (shown - audit.truth.x).square().mean(1).nan_to_num(nan=torch.inf),
        )


def test_of_two_candidates_the_nearer_counts_everywhere():
    X, y = load_diabetes(return_X_y=True)
    audit = lw.audit(Ridge(fit_intercept=False).fit(X, y - y.mean()), (X, y - y.mean()))
    one_number(audit)
    assert audit.findings[0].rebuilt.all()
    assert "All 442 records come back" in str(audit)
    (note,) = (note for note in map(str, audit.notes) if "explain the weights equally well" in note)
    likeliest = audit.guess.alternatives.x[:, 0]
    less_likely = int(((likeliest - audit.truth.x).abs().amax(1) > 1e-3).sum())
    assert 0 < less_likely < 442
    assert f"in {less_likely} games it is not the likeliest one" in note
    broken = lw.Policy(max_rebuilt_share=0.5).breaches(audit)
    assert [breach.found for breach in broken] == [1.0]


def scaled_table(seed, n=300):
    """Age, bmi, a concentration of 1e-7, an income of 2e5; two classes that depend on all."""
    rng = np.random.default_rng(seed)
    logs = np.exp(rng.normal(0, 0.5, (n, 2))) * [1e-7, 2e5]
    X = np.hstack([rng.normal(50, 15, (n, 1)), rng.normal(26, 4, (n, 1)), logs])
    return X, ((X - X.mean(0)) / X.std(0) @ rng.normal(size=4) + rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize("seed", range(3))
def test_a_solver_is_no_defence_where_columns_differ_in_scale(seed):
    """Default lbfgs; the tight solver gives the rows away from the model as it is."""
    X, y = scaled_table(seed)
    audit = lw.audit(LogisticRegression().fit(X, y), (X, y))
    tight = lw.audit(LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1_000).fit(X, y), (X, y))
    assert audit.finding("as converged").rebuilt.mean() >= tight.findings[0].rebuilt.mean() > 0.99
    assert Verdict.INFORMATION_LIMITED not in audit.verdicts
    assert audit.unanswered == ()


SCALED = {
    "binary": LogisticRegression(),
    "multinomial": LogisticRegression(),
    "no intercept": LogisticRegression(fit_intercept=False),
    "liblinear": LogisticRegression(solver="liblinear"),
    "svc": LinearSVC(),
    "ridge": Ridge(),
    "sag": Ridge(solver="sag"),
    "least squares": LinearRegression(),
    "poisson": PoissonRegressor(alpha=0),
}


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore")
def test_columns_from_a_billionth_to_a_billion(kind, seed):
    rng = np.random.default_rng(seed)
    scale, offset = rng.permutation(10.0 ** np.arange(-9, 10, 3)), rng.choice([0, 1, 30, 1000], 7)
    Z = rng.normal(size=(150, 7))
    X = (Z + offset) * scale
    signal = Z @ rng.normal(size=7) / 2 + rng.normal(size=150)
    model = clone(SCALED[kind])
    if (
        kind == "poisson"
    ):  # scikit-learn's solvers fail on X itself: fitted on Z, which comes to the same without penalty
        y = rng.poisson(np.exp(signal.clip(-2, 2)))
        model.fit(Z, y)
        model.coef_ = model.coef_ / scale
        model.intercept_ -= X.mean(0) @ model.coef_ - Z.mean(0) @ (model.coef_ * scale)
    else:
        regression = isinstance(model, Ridge | LinearRegression)
        y = signal if regression else np.digitize(signal, [-0.7, 0.7] if kind == "multinomial" else [0])
        model.fit(X, y)
    audit = lw.audit(model, (X, y))
    one_number(audit)
    assert audit.unanswered == ()
    fitted = read(model, (X, y))
    optimum = polish(fitted.model, fitted.table, fitted.weight).model
    residual = optimum.factors(fitted.table, fitted.weight)[0].abs().amax(1).numpy()
    assert audit.finding("as converged").rebuilt[residual > 1e-6].all()
    assert (residual > 1e-6).mean() > (0.5 if kind == "svc" else 0.99)  # behind its margin a row has none


@pytest.mark.parametrize(
    "model", [LinearRegression(), Ridge(1e-12), LinearRegression(fit_intercept=False)], ids=["ols", "ridge", "origin"]
)
def test_far_more_features_than_rows(model):
    """No residual is left to divide by, but the weights point out of the span of the known rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 10_000)), rng.normal(size=10)
    audit = lw.audit(clone(model).fit(X, y), (X, y))
    one_number(audit)
    assert audit.findings[0].rebuilt.all()
    assert any("explain the weights equally well" in note for note in map(str, audit.notes))


def test_what_is_not_rebuilt_at_the_optimum_and_not_hidden_by_rounding_is_unanswered(monkeypatch):
    """As where the optimum were none: never "information-limited"."""
    X, y = load_iris(return_X_y=True)
    model = Ridge().fit(X, y)
    honest = ClosedForm.leave_one_out

    def wrong(self, fitted, games, hints=None, *, at_optimum=False):
        guess = honest(self, fitted, games, hints)
        return replace(guess, records=Records(guess.records.x + 1.0, guess.records.y))

    monkeypatch.setattr(ClosedForm, "leave_one_out", wrong)
    audit = lw.audit(model, (X, y))
    assert set(audit.verdicts) == {Verdict.UNDECIDED}
    assert "150 records were not rebuilt at the optimum" in audit.unanswered[0]


def test_a_perfect_fit_leaves_no_trace():
    X, _ = load_iris(return_X_y=True)
    y = X @ np.arange(4.0) + 2
    audit = lw.audit(LinearRegression().fit(X, y), (X, y))
    assert set(audit.verdicts) == {Verdict.INFORMATION_LIMITED}
    assert not any("separable" in note for note in map(str, audit.notes))


def test_the_oracle_is_nearest_by_the_headline_metric(digits):
    x = torch.from_numpy(load_digits(return_X_y=True)[0] / 16)
    for place, row in enumerate(digits.games[:5]):
        known = torch.cat([x[:row], x[row + 1 :]])
        best = ((known - x[row]) ** 2).mean(1).min()
        assert digits.baselines[digits.oracle]["mean squared error"][place] == pytest.approx(float(best))


def test_weight_decay_as_torch_means_it():
    X, y = load_iris(return_X_y=True)
    x, labels = torch.from_numpy(StandardScaler().fit_transform(X)), torch.from_numpy(y)
    torch.manual_seed(0)
    head = nn.Linear(4, 3).double()
    optimiser = torch.optim.SGD(head.parameters(), lr=1.0, weight_decay=1e-2)
    for _ in range(3_000):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(x), labels).backward()
        optimiser.step()
    audit = lw.audit(head, (x, labels), trainer=lw.Optimum(ridge=1e-2, mean=True, penalise_bias=True))
    assert audit.findings[0].rebuilt.all()
    with pytest.raises(TypeError, match="sample_weight does not apply to a torch net"):
        lw.audit(head, (x, labels), trainer=lw.Optimum(), sample_weight=np.ones(150))


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_rows_without_weight_are_no_games(share):
    """They are not in the training set, and would only thin out the share of records that are rebuilt."""
    X, y = load_iris(return_X_y=True)
    weight = (np.arange(150) % 100 >= 100 * share).astype(float)
    model = LinearRegression().fit(X, y, sample_weight=weight)
    audit = lw.audit(model, (X, y), sample_weight=weight)
    trained = int((weight > 0).sum())
    assert audit.population == len(audit.games) == trained
    assert set(audit.games.tolist()) == set(np.flatnonzero(weight).tolist())
    assert any(note.startswith(f"{150 - trained} rows have no weight") for note in map(str, audit.notes))
    assert len(lw.audit(model, (X, y), sample_weight=weight, games=1).games) == 1


def test_a_scaler_gives_rows_without_weight_away():
    """It was fitted on all of them, whatever the model behind it made of their weights."""
    X, y = load_iris(return_X_y=True)
    weight = (np.arange(150) % 2).astype(float)
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    pipeline.fit(X, y, linearregression__sample_weight=weight)
    audit = lw.audit(pipeline, (X, y), sample_weight=weight)
    assert len(audit.games) == 150
    assert audit.findings[0].rebuilt.all()
