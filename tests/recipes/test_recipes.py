import inspect
import keyword
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lostwax
from lostwax.recipes import OPTIONAL, REQUIRED, STARTERS, Recipe, start

FITTED = """
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression
X, y = load_iris(return_X_y=True)
data = (X, y)
model = LinearRegression().fit(X, y)
games = 3
"""
TRAINED = """
import torch
import lostwax as lw
x = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
known, prior, secrets = lw.Records(x, torch.arange(30) % 2).split(10, 10, 10, seed=0)
net = torch.nn.Linear(4, 2)
trainer = lw.Optimum(ridge=0.1)
threat = lw.Informed(known)
attack = lw.ClosedForm()
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="recipe.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


def test_names_are_the_arguments_of_audit():
    ours = {name for kind in REQUIRED for name in (*REQUIRED[kind], *OPTIONAL[kind])}
    assert ours | {"model"} == set(inspect.signature(lostwax.audit).parameters)


def test_a_fitted_model(write):
    recipe = Recipe.read(write(FITTED))
    assert not recipe.trains
    audit = recipe.audit()
    assert audit.kind == "this model"
    assert len(audit.games) == 3


def test_a_fitted_model_that_is_seen_through_its_predictions(write):
    text = """
import lostwax as lw
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier
X, y = load_iris(return_X_y=True)
model, data = DecisionTreeClassifier(random_state=0).fit(X, y), (X, y)
access, max_minutes = lw.access.Outputs(), 1
"""
    recipe = Recipe.read(write(text))
    assert {"access", "max_minutes"} <= set(recipe.arguments)
    assert "refitted" in recipe.audit().subject


def test_a_way_of_training(write):
    recipe = Recipe.read(write(TRAINED + "games = 2\nseed = 5\ndata = 'an affair of its own'\n"))
    assert recipe.trains
    audit = recipe.audit()
    assert len(audit.games) == 2
    assert audit.provenance["seed"] == 5


def test_modules_beside_it_can_be_imported_and_hide_nothing(write, monkeypatch):
    write("SIZE = 4", "beside.py")
    later = "class Net(torch.nn.Linear):\n  def forward(self, x):\n    import beside\n    return super().forward(x)\n"
    text = "from beside import SIZE\n" + TRAINED.replace("net = torch.nn.Linear(4,", f"{later}net = Net(SIZE,")
    monkeypatch.setattr(sys, "path", list(sys.path))
    recipe = Recipe.read(
        write(text.replace("Optimum(ridge=0.1)", "GD(steps=1)").replace("ClosedForm", "Newton"), "torch.py")
    )
    assert recipe.audit().kind == "this procedure"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "defines neither model nor net"),
        ("modle = 1", "defines neither model nor net.* Does modle mean model?"),
        (FITTED + "net = 1", "defines both model and net"),
        ("model = 1", r"defines model, but not data \(the table"),
        (TRAINED.replace("prior, secrets", "_1, _2"), "defines net, but not prior .*, nor secrets"),
        (TRAINED.replace("trainer =", "trainr ="), r"recipe\.py. Does trainr mean trainer\? Then rename it"),
        (TRAINED.replace("attack =", "atack ="), "Does atack mean attack?"),  # optional: it would go unnoticed
        (
            TRAINED.replace("lw.Optimum(ridge=0.1)", "lw.Optimum"),
            r"trainer is the class Optimum. Pass an instance: Optimum\(",
        ),
        (TRAINED + "def trainer(net, x, y, seed): ...", r"trainer is the function trainer. Wrap it: lw.OwnTraining\("),
        (TRAINED + "import json as attack", "attack is the module json"),
    ],
)
def test_names_that_are_missing_misspelt_or_no_values(write, text, words):
    with pytest.raises(ValueError, match=f"(?s)recipe: .*{words}"):
        Recipe.read(write(text))


def test_a_name_alike_beside_the_name_itself_is_the_recipe_s_own_affair(write):
    assert Recipe.read(write(FITTED + "game = 7\n")).arguments["games"] == 3
    assert Recipe.read(write(FITTED.replace("games", "_game"))).arguments.get("games") is None


def test_an_error_shows_the_user_s_lines_and_no_others(write):
    write("def load():\n    raise OSError('no such table')\n", "own_tables.py")
    with pytest.raises(ValueError, match="cannot be run") as caught:
        Recipe.read(write("import own_tables\n\nX = own_tables.load()\n"))
    text = str(caught.value)
    assert 'recipe.py", line 3, in <module>' in text
    assert 'own_tables.py", line 2, in load' in text
    assert text.endswith("OSError: no such table")
    assert "runpy" not in text
    assert "lostwax/" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = (", "line 1.*SyntaxError"),
        ("import lostwax as lw\nlw.GD(lr=-1, steps=1)", "line 2.*GD: expected lr > 0"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def f(): f()\nf()", "RecursionError"),
        ("assert False, 'so'", "AssertionError: so"),
    ],
)
def test_whatever_a_recipe_does_wrong(write, text, words):
    with pytest.raises(ValueError, match=f"(?s)cannot be run.*{words}"):
        Recipe.read(write(text))


def test_what_is_no_file(tmp_path):
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "absent.py", "does not exist")):
        with pytest.raises(FileNotFoundError, match=f"{words}.*lostwax init"):
            Recipe.read(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_file_is_read_or_refused(tmp_path, content):
    path = tmp_path / "recipe.py"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="recipe: "):
        Recipe.read(path)
    assert path.read_bytes() == content


NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
VALUES = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.dictionaries(
        st.one_of(NAMES, st.sampled_from(sorted({*REQUIRED, *REQUIRED["net"], *OPTIONAL["net"], "data"}))),
        VALUES,
        max_size=6,
    )
)
def test_any_values_under_any_names_are_refused_in_our_words(tmp_path, lines):
    path = tmp_path / "recipe.py"
    path.write_text("".join(f"{name} = {value!r}\n" for name, value in lines.items()))
    with pytest.raises((ValueError, TypeError), match=r"(recipe|audit|sklearn)"):
        Recipe.read(path).audit()


def test_starters_are_those_the_command_offers_and_never_overwrite(tmp_path):
    assert set(STARTERS) == {"sklearn", "torch", "head"}
    for kind in STARTERS:
        path = start(kind, tmp_path / f"{kind}.py")
        assert "max_minutes" not in Recipe.read(path).arguments  # on a slow machine a limit would cut attacks
        path.write_text("mine")
        with pytest.raises(FileExistsError, match="was not changed"):
            start(kind, path)
        assert path.read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="Create it first"):
        start("torch", tmp_path / "no" / "recipe.py")


def test_reading_recipes_needs_no_torch():
    code = "import sys, lostwax.recipes; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert lostwax.recipes is not None


@pytest.mark.slow
def test_the_starter_of_a_head_runs_as_it_is(tmp_path):
    """Those of scikit-learn and torch are run by the tutorial."""
    audit = Recipe.read(start("head", tmp_path / "head.py")).audit()
    assert audit.summary()["as released"]["beats_baselines"] > 0.5


@pytest.mark.parametrize("suffix", [".joblib", ".pkl"])
def test_a_model_is_no_recipe(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match="a recipe is a Python file that loads one"):
        Recipe.read(path)
