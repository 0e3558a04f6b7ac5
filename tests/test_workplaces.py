import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.grades import Grade
from lostwax.workplaces import BEGIN, END, leak

X, y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def audit():
    return lw.audit(LogisticRegression(max_iter=2_000, tol=1e-8).fit(X, y), (X, y), games=20)


def test_a_search_prefers_what_leaks_less():
    """Nearest neighbours keep every row. A tree of one split keeps none, and is a little less accurate."""
    pipeline = Pipeline([("model", KNeighborsClassifier())])
    models = [KNeighborsClassifier(5), DecisionTreeClassifier(max_depth=1, random_state=0)]
    picked = {}
    for weight in (0, 5.0):
        scoring = lw.scorer("accuracy", weight=weight, games=20)
        search = GridSearchCV(pipeline, {"model": models}, scoring=scoring, cv=3, error_score="raise").fit(X, y)
        picked[weight] = type(search.best_params_["model"]).__name__
        keeps, split = search.cv_results_["mean_test_score"]
        assert keeps > split if weight == 0 else keeps < -3.5, "a full leak costs the weight"
    assert picked == {0: "KNeighborsClassifier", 5.0: "DecisionTreeClassifier"}


def test_a_scorer_is_the_score_less_the_leak(audit):
    model = LogisticRegression(max_iter=2_000, tol=1e-8).fit(X[::2], y[::2])
    rest = X[1::2], y[1::2]
    alone = lw.audit(LogisticRegression(max_iter=2_000, tol=1e-8).fit(*rest), rest, games=20)
    assert leak(alone) == 1
    assert lw.scorer(weight=0.5, games=20)(model, *rest) == pytest.approx(model.score(*rest) - 0.5)
    with pytest.raises(ValueError, match="expected a weight of 0 or more"):
        lw.scorer(weight=-1)


def test_what_is_undecided_counts_as_a_full_leak(audit):
    assert leak(audit) == 1
    line = audit.findings[0]
    cells = None if line.cells is None else line.cells._replace(exact=0, certified=0)
    nothing = replace(line, rebuilt=np.zeros(20, bool), luck=None, target=None, cells=cells)
    errors = {name: np.full(20, 9.0) for name in line.errors}
    unknown = replace(audit, findings=(replace(nothing, errors=errors),), rungs=(), unanswered=("Newton was stopped.",))
    assert unknown.grade is Grade.UNDECIDED
    assert leak(unknown) == 1


def test_a_model_card_keeps_the_rest_of_the_file(audit, tmp_path):
    """Read back by the hub's own library."""
    readme = tmp_path / "README.md"
    readme.write_text("---\nlicense: apache-2.0\ntags: [tabular]\n---\n\n# Iris\n\nA model.\n")
    lw.model_card(audit, readme)
    once = readme.read_text()
    lw.model_card(audit, readme, policy=lw.Policy(max_rebuilt_share=0.1))
    twice = readme.read_text()
    assert once.count(BEGIN) == twice.count(BEGIN) == twice.count(END) == 1
    assert "The policy is broken" in twice
    assert twice.startswith("---\nlicense: apache-2.0\ntags: [tabular]\n---\n\n# Iris\n\nA model.\n\n" + BEGIN)
    card = pytest.importorskip("huggingface_hub").ModelCard.load(readme)
    assert card.data.license == "apache-2.0"
    assert "## Privacy audit" in card.text
    assert str(audit.grade) in card.text


def test_a_model_card_is_text(audit):
    """Names of the user are no markup; no record is in it."""
    text = lw.model_card(replace(audit, subject="<script>|`x`"))
    assert "<script>" not in text
    assert "\\|\\`x\\`" in text
    with pytest.raises(FileNotFoundError, match=r"Name the README\.md"):
        lw.model_card(audit, "absent.md")


def test_a_damaged_card_is_left_alone(audit, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n{BEGIN}\nold")
    with pytest.raises(ValueError, match="but not its end"):
        lw.model_card(audit, readme)
    assert readme.read_text() == f"# Mine\n{BEGIN}\nold"


def test_an_audit_in_mlflow(audit, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # plain files, without a database
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        lw.log_to_mlflow(audit, policy=lw.Policy(max_rebuilt_share=0.1))
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.metrics["lostwax.leak"] == 1
    assert logged.metrics["lostwax.broken_limits"] == 1
    assert logged.tags["lostwax.grade"] == str(audit.grade)
    assert logged.tags["lostwax.suggestion"] == "do not release"
    folder = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="lostwax", dst_path=tmp_path)
    names = {path.name for path in tmp_path.joinpath(folder).iterdir()}
    assert {"report.html", "audit.json"} <= names
    assert "records.safetensors" not in names


def test_without_mlflow_it_says_what_to_install(audit, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install mlflow-skinny"):
        lw.log_to_mlflow(audit)
