"""XGBoost's trees: sizes add up, thresholds are values of the table, and nothing that is told of a row is wrong."""

import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from boosting import check, forest_part, mixed, part_of, table, tells_sizes
from lostwax.adapters import xgboost
from lostwax.adapters.model_files import load_model
from lostwax.adapters.sklearn.boosting import released_booster
from lostwax.grades import Grade

xgb = pytest.importorskip("xgboost")

MODELS = {"diabetes": xgb.XGBRegressor, "breast cancer": xgb.XGBClassifier, "wine": xgb.XGBClassifier}


@pytest.mark.parametrize("gaps", [0.0, 0.05])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("settings", [{}, {"tree_method": "approx"}, {"num_parallel_tree": 2, "max_depth": 3}])
def test_nothing_wrong_is_told(name, gaps, settings):
    X, y = table(name, gaps)
    fitted = forest_part(MODELS[name](n_estimators=20, **settings).fit(X, y), X, y)
    assert all(tells_sizes(fitted))
    assert fitted.forest.trees[0].labels is not None
    assert check(fitted) > 0
    for cuts in fitted.forest.cuts:
        assert np.isin(cuts.thresholds, fitted.forest.cast(X)[:, cuts.column]).all()


@pytest.mark.parametrize(
    "objective",
    ["count:poisson", "reg:gamma", "reg:tweedie", "reg:absoluteerror"],
)
def test_second_derivatives_of_objectives(objective):
    X, y = table("diabetes")
    y = y / y.mean()  # small: with large ones some of these do not grow
    weight = np.random.default_rng(0).random(len(y)) + 0.5
    model = xgb.XGBRegressor(objective=objective, n_estimators=20, base_score=0.5).fit(X, y, sample_weight=weight)
    fitted = forest_part(model, X, y, weight)
    assert all(tells_sizes(fitted))
    assert len(fitted.forest.cuts)
    check(fitted)


def test_weights_of_a_class():
    X, y = table("breast cancer")
    fitted = forest_part(xgb.XGBClassifier(scale_pos_weight=3.0, n_estimators=10).fit(X, y), X, y)
    assert all(tells_sizes(fitted))
    check(fitted)


def test_exact_thresholds_are_not_taken_for_values():
    X, y = table("diabetes")
    fitted = forest_part(xgb.XGBRegressor(tree_method="exact", n_estimators=10).fit(X, y), X, y)
    assert not fitted.forest.cuts
    assert all(tells_sizes(fitted))
    check(fitted)


def test_thresholds_beyond_all_values_are_left_out():
    """They part rows with a value from those without, and are made of the largest or the smallest value."""
    rng = np.random.default_rng(0)
    x = rng.random((200, 1)) + 1
    x[rng.random(200) < 0.3] = np.nan
    y = np.isnan(x[:, 0]) * 10.0 + rng.normal(size=200) * 0.01
    fitted = forest_part(xgb.XGBRegressor(n_estimators=3).fit(x, y), x, y)
    used = np.unique([tree.threshold[0] for tree in fitted.forest.trees])
    assert (used > np.nanmax(x)).any() or (used < np.nanmin(x)).any()
    for cuts in fitted.forest.cuts:
        assert np.isin(cuts.thresholds, fitted.forest.cast(x)).all()
    check(fitted)


def test_a_lonely_maximum_is_no_certain_threshold():
    """Twice the second largest value could be made of a maximum that is half as large."""
    x = np.r_[np.arange(1.0, 9.0), 100.0][:, None].repeat(3, 0)[:-2]
    low, high = xgboost._sentinels(np.sort(x[:, 0]))
    assert low < 1
    assert 8 < high < 100


@pytest.mark.parametrize("values", [[0.0, 1.0, 2.0, 3.0], [1.0, 1 + 2**-23, 1 + 2**-22], [-0.3, 0.7, 0.9]])
def test_a_threshold_beyond_all_values_is_known_in_spite_of_rounding(values):
    """XGBoost makes it of the smallest value in float32, and so does this of the second smallest."""
    low, high = xgboost._sentinels(np.array(values))
    first, last, beyond = np.float32(values[0]), np.float32(values[-1]), np.float32(1e-5)
    for below in (first - (abs(first) + beyond), first - abs(first) - beyond):
        assert below <= low
    for above in (last + (abs(last) + beyond), last + abs(last) + beyond):
        assert above >= high


@pytest.mark.parametrize("kind", [xgb.XGBRegressor, xgb.XGBClassifier])
def test_several_labels_per_row(kind):
    """One tree for each at every step; their labels are not read."""
    X, y = table("diabetes")
    several = (np.c_[y, X[:, 0]] > [140, 0]).astype(float)
    fitted = forest_part(kind(n_estimators=3).fit(X, several), X, several)
    assert all(tells_sizes(fitted))
    assert all(tree.labels is None for tree in fitted.forest.trees)


@pytest.mark.parametrize("settings", [{"subsample": 0.6}, {"booster": "dart", "rate_drop": 0.5}])
def test_exact_thresholds_of_samples_are_not_read_and_the_data_is_not_blamed(settings):
    X, y = table("diabetes")
    model = xgb.XGBRegressor(n_estimators=3, tree_method="exact", **settings).fit(X, y)
    release = lw.adapters.sklearn.released(model, (X, y))
    assert not release.parts
    assert any("tree_method='exact' was not read" in reason for reason in release.unread)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"subsample": 0.7}, "subsample"),
        ({"booster": "dart", "rate_drop": 0.5}, "DART"),
        ({"objective": lambda y, p: (p - y, np.full_like(y, 0.7))}, "custom objective"),
    ],
)
def test_sizes_that_do_not_add_up_say_nothing(settings, why):
    X, y = table("diabetes")
    release = lw.adapters.sklearn.released(xgb.XGBRegressor(n_estimators=5, **settings).fit(X, y), (X, y))
    assert not any(tells_sizes(part_of(release)))
    assert len(part_of(release).forest.cuts)  # thresholds are values still
    assert any(why in reason for reason in release.unread)
    check(part_of(release))


def test_other_data_is_an_error():
    X, y = table("diabetes")
    with pytest.raises(ValueError, match="no row is in"):
        lw.audit(xgb.XGBRegressor().fit(X[:200], y[:200]), (X[200:], y[200:]))
    rng = np.random.default_rng(0)
    other = rng.random((500, 3))
    model = xgb.XGBRegressor(max_depth=1, n_estimators=3).fit(rng.random((400, 3)), rng.random(400))
    with pytest.raises(ValueError, match="does not fit this table"):
        lw.audit(model, (other, other[:, 0]))
    with pytest.raises(ValueError, match=r"features|columns"):
        lw.audit(xgb.XGBRegressor().fit(X, y), (X[:, :3], y))


def test_settings_that_are_refused_by_name():
    X, y = table("diabetes")
    for settings, why in (
        ({"booster": "gblinear"}, "gblinear"),
        ({"multi_strategy": "multi_output_tree"}, "multi_output_tree"),
        ({"missing": 0.0}, "missing="),
    ):
        targets = np.stack([y, y], 1) if "multi_strategy" in settings else y
        model = xgb.XGBRegressor(n_estimators=2, **settings).fit(X, targets)
        release = lw.adapters.sklearn.released(model, (X, targets))
        assert any(why in reason for reason in release.unread)


def test_categories_in_a_frame():
    X, y = mixed()
    model = xgb.XGBRegressor(enable_categorical=True, n_estimators=20).fit(X, y)
    fitted = forest_part(model, X, y)
    assert any(tree.categories for tree in fitted.forest.trees)
    assert check(fitted) > 0.05
    audit = lw.audit(model, (X, y))
    assert audit.grade == Grade.EXACT
    assert any("town" in note for note in map(str, audit.notes))


def test_in_a_pipeline():
    X, y = table("diabetes")
    model = make_pipeline(StandardScaler(), xgb.XGBRegressor(n_estimators=20)).fit(X, y)
    fitted = forest_part(model, X, y)
    assert all(tells_sizes(fitted))
    check(fitted)


def test_audit():
    X, y = table("diabetes")
    audit = lw.audit(xgb.XGBRegressor().fit(X, y), (X, y))
    assert audit.grade == Grade.EXACT
    assert not audit.unanswered


@pytest.mark.parametrize("ending", ["json", "ubj"])
@pytest.mark.parametrize("name", MODELS)
def test_files_say_what_the_model_says(tmp_path, name, ending):
    X, y = table(name)
    model = MODELS[name](n_estimators=10).fit(X, y)
    path = tmp_path / f"model.{ending}"
    model.get_booster().save_model(path)
    here = part_of(released_booster(load_model(path), (X, y)))
    for mine, other in zip(here.forest.trees, forest_part(model, X, y).forest.trees, strict=True):
        np.testing.assert_array_equal(mine.share, other.share)
        np.testing.assert_array_equal(mine.rounding, other.rounding)
    check(here)
    booster = part_of(released_booster(model.get_booster(), (X, y)))
    assert booster.forest.trees[0].labels is not None


def test_a_file_is_audited(tmp_path):
    X, y = table("diabetes")
    xgb.XGBRegressor(n_estimators=50).fit(X, y).get_booster().save_model(tmp_path / "model.json")
    audit = lw.audit(str(tmp_path / "model.json"), (X, y))
    assert audit.subject == "model.json"
    assert audit.grade == Grade.EXACT


def test_damaged_files(tmp_path):
    X, y = table("diabetes")
    model = xgb.XGBRegressor(n_estimators=2).fit(X, y)
    model.get_booster().save_model(tmp_path / "good.json")
    good = (tmp_path / "good.json").read_bytes()
    old, partial = json.loads(good), json.loads(good)
    old["version"] = [1, 7, 0]
    del partial["learner"]["gradient_booster"]["model"]["tree_info"]
    circle = json.loads(good)
    circle["learner"]["gradient_booster"]["model"]["trees"][0]["left_children"][1] = 0
    no_sizes, short, no_trees = (json.loads(good) for _ in range(3))
    del no_sizes["learner"]["gradient_booster"]["model"]["trees"][0]["sum_hessian"]
    del short["learner"]["gradient_booster"]["model"]["trees"][1]["left_children"][3:]
    no_trees["learner"]["gradient_booster"]["model"]["trees"] = []
    for name, content, match in (
        ("cut.json", good[: len(good) // 2], "not a model of XGBoost"),
        ("other.json", b'{"a": 1}', "not a model of XGBoost"),
        ("list.json", b"[1, 2]", "not a model of XGBoost"),
        ("old.json", json.dumps(old).encode(), r"1\.7\.0"),
        ("partial.json", json.dumps(partial).encode(), "damaged"),
        ("circle.json", json.dumps(circle).encode(), "damaged"),
        ("no_sizes.json", json.dumps(no_sizes).encode(), "without sum_hessian"),
        ("short.json", json.dumps(short).encode(), "damaged"),
        ("no_trees.json", json.dumps(no_trees).encode(), "has no trees"),
        ("noise.ubj", b"noise", "damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=match) as error:
            lw.audit(tmp_path / name, (X, y))
        assert name in str(error.value)
