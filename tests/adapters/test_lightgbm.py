"""LightGBM's trees: counts are those of the rows, thresholds lie between neighbours, extremes are of the table."""

import re

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from boosting import check, forest_part, mixed, part_of, table, tells_sizes
from lostwax.adapters.lightgbm import above_half_way
from lostwax.adapters.model_files import load_model
from lostwax.adapters.sklearn.boosting import released_booster
from lostwax.grades import Grade

lgb = pytest.importorskip("lightgbm")

MODELS = {"diabetes": lgb.LGBMRegressor, "breast cancer": lgb.LGBMClassifier, "wine": lgb.LGBMClassifier}


def grown(name, X, y, **settings):
    return MODELS[name](**{"n_estimators": 20, "verbose": -1, "n_jobs": 1, **settings}).fit(X, y)


@pytest.mark.parametrize(("name", "gaps"), [("diabetes", 0.05), ("breast cancer", 0.0), ("wine", 0.0), ("wine", 0.05)])
@pytest.mark.parametrize("settings", [{}, {"max_bin": 15}, {"min_child_samples": 1}, {"boosting_type": "dart"}])
def test_nothing_wrong_is_told(name, gaps, settings):
    X, y = table(name, gaps)
    fitted = forest_part(grown(name, X, y, **settings), X, y)
    assert all(tells_sizes(fitted))
    assert fitted.forest.trees[0].labels is not None
    assert check(fitted) > 0
    for cuts in fitted.forest.cuts:
        values = np.unique(X[~np.isnan(X[:, cuts.column]), cuts.column])
        assert np.isin(cuts.thresholds, above_half_way(values[:-1], values[1:])).all()


def test_extremes_are_those_of_the_table():
    X, y = table("diabetes", 0.1)
    release = lw.adapters.sklearn.released(grown("diabetes", X, y), (X, y))
    (extremes,) = (one for part in release.parts for one in part.fitted.extremes)
    np.testing.assert_array_equal(extremes.low.numpy(), np.nanmin(X, 0))
    np.testing.assert_array_equal(extremes.high.numpy(), np.nanmax(X, 0))


def test_zeros_have_a_bin_of_their_own():
    """Thresholds next to zero are not half-way between anything."""
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (300, 2)).astype(float)
    y = (X[:, 0] > 0) + 0.5 * (X[:, 1] >= 0) + 0.01 * rng.normal(size=300)
    fitted = forest_part(grown("diabetes", X, y, min_child_samples=2), X, y)
    used = np.concatenate([tree.threshold[tree.feature >= 0] for tree in fitted.forest.trees])
    assert (np.abs(used) < 1e-30).any()
    assert all(np.abs(cuts.thresholds).min() > 0.1 for cuts in fitted.forest.cuts)
    check(fitted)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"subsample": 0.7, "subsample_freq": 1}, "bagging"),
        ({"data_sample_strategy": "goss", "n_estimators": 30}, "GOSS"),
        ({"boosting_type": "rf", "subsample": 0.7, "subsample_freq": 1}, "bagging"),
    ],
)
def test_counts_of_a_sample_say_nothing(settings, why):
    X, y = table("diabetes")
    release = lw.adapters.sklearn.released(grown("diabetes", X, y, **settings), (X, y))
    assert not all(tells_sizes(part_of(release)))
    assert len(part_of(release).forest.cuts)  # made of all rows
    assert any(why in reason for reason in release.unread)
    check(part_of(release))


@pytest.mark.parametrize("objective", ["poisson", "quantile", "mape", "huber"])
def test_counts_need_no_objective(objective):
    X, y = table("diabetes")
    fitted = forest_part(grown("diabetes", X, y, objective=objective), X, y)
    assert all(tells_sizes(fitted))
    check(fitted)


def test_labels_with_weights():
    X, y = table("diabetes")
    weight = np.random.default_rng(0).random(len(y)) + 0.5
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y, sample_weight=weight)
    fitted = forest_part(model, X, y, weight)
    assert fitted.forest.trees[0].labels is not None
    check(fitted)


def test_penalised_leaves_tell_no_labels():
    X, y = table("diabetes")
    assert forest_part(grown("diabetes", X, y, reg_lambda=5.0), X, y).forest.trees[0].labels is None


def test_other_data_is_an_error():
    X, y = table("diabetes")
    model = grown("diabetes", X[:200], y[:200])
    for rows in (slice(200, None), slice(None)):
        with pytest.raises(ValueError, match="not fitted on this table"):
            lw.audit(model, (X[rows], y[rows]))
    with pytest.raises(ValueError, match=r"features|columns"):
        lw.audit(model, (X[:200, :3], y[:200]))


def test_settings_that_are_refused_by_name():
    X, y = table("diabetes", 0.05)
    for settings, why in (({"linear_tree": True}, "linear_tree"), ({"zero_as_missing": True}, "zero_as_missing")):
        release = lw.adapters.sklearn.released(grown("diabetes", X, y, **settings), (X, y))
        assert any(why in reason for reason in release.unread)


def test_categories_in_a_frame():
    X, y = mixed()
    model = lgb.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1, min_child_samples=5).fit(X, y)
    fitted = forest_part(model, X, y)
    assert any(tree.categories for tree in fitted.forest.trees)
    assert check(fitted) > 0
    audit = lw.audit(model, (X, y))
    assert audit.grade == Grade.EXACT
    assert any("town" in note for note in map(str, audit.notes))


def test_in_a_pipeline():
    X, y = table("diabetes")
    model = make_pipeline(StandardScaler(), lgb.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1)).fit(X, y)
    fitted = forest_part(model, X, y)
    assert all(tells_sizes(fitted))
    check(fitted)


@pytest.mark.parametrize("name", MODELS)
def test_files_say_what_the_model_says(tmp_path, name):
    X, y = table(name)
    model = grown(name, X, y)
    model.booster_.save_model(tmp_path / "model.txt")
    here = part_of(released_booster(load_model(tmp_path / "model.txt"), (X, y)))
    for mine, other in zip(here.forest.trees, forest_part(model, X, y).forest.trees, strict=True):
        np.testing.assert_array_equal(mine.threshold, other.threshold)
        np.testing.assert_array_equal(mine.size, other.size)
    check(part_of(released_booster(model.booster_, (X, y))))


def test_a_file_is_audited(tmp_path):
    X, y = table("diabetes")
    lgb.LGBMRegressor(verbose=-1, n_jobs=1).fit(X, y).booster_.save_model(tmp_path / "model.txt")
    audit = lw.audit(tmp_path / "model.txt", (X, y))
    assert audit.subject == "model.txt"
    assert audit.grade == Grade.EXACT


def test_damaged_files(tmp_path):
    X, y = table("diabetes")
    text = grown("diabetes", X, y, n_estimators=3).booster_.model_to_string()
    for name, content, match in (
        ("other.txt", "hello", "not a model of LightGBM"),
        ("cut.txt", text[: len(text) // 3], "its end is missing"),
        ("old.txt", text.replace("version=v4", "version=v2"), "v2"),
        ("partial.txt", text.replace("leaf_count=", "count_of_leaf="), "damaged"),
        ("short.txt", text.replace("feature_infos=", "infos="), "damaged"),
        ("circle.txt", re.sub(r"left_child=-?\d+", "left_child=0", text), "damaged"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=match) as error:
            lw.audit(tmp_path / name, (X, y))
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("objective", "weighted"),
    [
        *((objective, True) for objective in ("regression", "poisson", "gamma", "tweedie", "binary", "multiclass")),
        ("regression", False),
        ("multiclass", False),
    ],
)
def test_a_tree_without_a_split_holds_the_mean_of_the_targets(objective, weighted):
    random = np.random.default_rng(11)
    X, y = random.normal(size=(120, 3)), random.gamma(2.0, 40.0, size=120)
    classes = {"binary": [70], "multiclass": [40, 110]}.get(objective)
    y = y if classes is None else np.digitize(y, classes)
    kind = lgb.LGBMRegressor if classes is None else lgb.LGBMClassifier
    model = kind(objective=objective, n_estimators=3, min_child_samples=100, reg_lambda=2.0, verbose=-1)
    weight = random.integers(1, 4, size=120).astype(float) if weighted else None
    audit = lw.audit(model.fit(X, y, sample_weight=weight), (X, y), sample_weight=weight)
    assert audit.grade is Grade.RECOGNISABLE, audit
    assert audit.findings[0].target.read.mean() > 0.9
    other = lw.audit(model.fit(X, y, sample_weight=weight), (X, y[::-1] * 3 if classes is None else 1 * (y == 0)))
    assert not other.grade.leaks
