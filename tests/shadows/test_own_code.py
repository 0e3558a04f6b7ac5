"""The user's own code is known by all that it reaches: what changes what it does changes its words, and little else."""

import importlib
import linecache
import runpy
import sys
from types import ModuleType

import pytest

from lostwax.shadows.identity import describe_code

START = """
import logging
import torch
from dataclasses import dataclass
from functools import lru_cache, partial
from torch import nn
LOG, SCALE, x = logging.getLogger("here"), 1.0, 1.0
"""
NET = """
class Net(nn.Module):
    def forward(self, batch):
        LOG.debug("forward")
        return [act(batch.x) for _ in range(1)]
"""
ACT = """
def act(x):
    return x
"""


def run(folder, source):
    """The description of a net in a file that is run, not imported: as a script, a recipe or a notebook."""
    file = folder / "recipe.py"
    file.write_text(START + source)
    return describe_code(runpy.run_path(str(file), run_name="__recipe__")["Net"])


@pytest.mark.parametrize(
    ("act", "old", "new"),
    [
        (ACT, "return x", "return 2 * x"),
        ("LEVEL = 1.0\ndef act(x):\n    return LEVEL * x\n", "1.0", "2.0"),
        ("act = lambda x: inner(x)\ndef inner(x):\n    return x\n", "return x", "return 2 * x"),
        ("act = torch.sin\n", "sin", "cos"),
        ("from torch import sin as wave\ndef act(x):\n    return wave(x)\n", "sin", "cos"),
        ("act = partial(torch.clamp, min=0)\n", "min=0", "min=1"),
        ("act = {'a': [1, 2], 'b': torch.zeros(2)}\n", "1, 2", "1, 3"),
        ("act = {'a': [1, 2], 'b': torch.zeros(2)}\n", "zeros", "ones"),
        ("act = {'a', 'b'}\n", "'b'", "'c'"),
        ("torch.manual_seed(0)\nact = nn.Linear(1, 1)\n", "seed(0)", "seed(1)"),
        ("@lru_cache\ndef act(x):\n    return x\n", "return x", "return 2 * x"),
        ("@torch.no_grad()\ndef act(x):\n    return x\n", "return x", "return 2 * x"),
        ("def of(n):\n    return lambda x: n * x\nact = of(1)\n", "of(1)", "of(2)"),
        ("def of(n):\n    def act(x, n=n):\n        return n * x\n    return act\nact = of(1)\n", "of(1)", "of(2)"),
        ("@dataclass\nclass Act:\n    by: int\nact = Act(1)\n", "Act(1)", "Act(2)"),
        ("class Act:\n    def __init__(self, by):\n        self.by = by\nact = Act(1)\n", "Act(1)", "Act(2)"),
        ("class Base:\n    by = 1\nclass Act(Base):\n    pass\nact = Act()\n", "by = 1", "by = 2"),
        ("LEVEL = 1\nclass Act:\n    @property\n    def by(self):\n        return LEVEL\nact = Act()\n", "= 1", "= 2"),
        ("LEVEL = 1\nclass Act:\n    def by(self):\n        return LEVEL\nact = Act().by\n", "= 1", "= 2"),
    ],
)
def test_what_a_net_reaches_counts(tmp_path, act, old, new):
    before = run(tmp_path, act + NET)
    assert before == run(tmp_path, act + NET)
    assert before != run(tmp_path, act.replace(old, new) + NET)


def test_a_cell_of_a_notebook(monkeypatch):
    """Of which Python can read the functions, but no class."""

    def run_cell(source):
        monkeypatch.setitem(sys.modules, "__main__", notebook := ModuleType("__main__"))
        monkeypatch.setitem(linecache.cache, "<cell>", (len(source), None, source.splitlines(keepends=True), "<cell>"))
        exec(compile(source, "<cell>", "exec"), vars(notebook))
        return describe_code(notebook.Net)

    before = run_cell(START + ACT + NET)
    assert before == run_cell(START + ACT + "models = 512" + NET)
    assert before != run_cell(START + ACT.replace("return x", "return 2 * x") + NET)
    assert before != run_cell(START + ACT + NET.replace("range(1)", "range(2)"))


def test_the_net_itself_counts_and_what_is_put_into_it_later(tmp_path):
    before = run(tmp_path, ACT + NET)
    assert before != run(tmp_path, ACT + NET.replace("range(1)", "range(2)"))
    assert before != run(tmp_path, ACT + NET + "Net.forward = lambda self, batch: batch\n")


@pytest.mark.parametrize(
    "line", ["x = 2.0", "SCALE = 3.0", "models = 512", "def other():\n    return 1", "LOG.setLevel(10)"]
)
def test_other_lines_of_a_script_do_not_count(tmp_path, line):
    """A script is changed from run to run: to train more models, say. `batch.x` is not the global x."""
    assert run(tmp_path, ACT + NET) == run(tmp_path, ACT + line + NET)


def test_code_that_comes_back_to_itself_has_an_end(tmp_path):
    circle = "def act(x):\n    return back(x)\ndef back(x):\n    return act(x), everything\n"
    circle += "everything = [act]\neverything.append(everything)\n"
    assert run(tmp_path, circle + NET) == run(tmp_path, circle + NET)


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Modules of the user's own, written and imported anew each time."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return importlib.import_module("own_net")

    yield write
    for name in ("own_net", "own_acts"):
        sys.modules.pop(name, None)


def test_a_module_that_is_imported_counts_whole(imported):
    before = describe_code(imported(own_net=START + ACT + NET).Net)
    assert before == describe_code(imported(own_net=START + ACT + NET).Net)
    assert before != describe_code(imported(own_net=START + ACT + NET + "def other():\n    return 1\n").Net)


def test_a_constant_counts_as_it_stands_now(imported):
    module = imported(own_net=START + ACT.replace("return x", "return SCALE * x") + NET)
    before = describe_code(module.Net)
    module.SCALE = 3.0
    assert describe_code(module.Net) != before


@pytest.mark.parametrize(
    "line", ["from own_acts import act", "import own_acts\ndef act(x):\n    return own_acts.act(x)\n"]
)
def test_other_modules_of_the_users_own_are_followed(imported, line):
    net = f"{START}{line}\n{NET}"
    before = describe_code(imported(own_acts=ACT, own_net=net).Net)
    assert before == describe_code(imported(own_acts=ACT, own_net=net).Net)
    assert before != describe_code(imported(own_acts=ACT.replace("return x", "return 2 * x"), own_net=net).Net)


def test_code_that_cannot_be_read_is_refused_wherever_it_is_met(tmp_path):
    with pytest.raises(ValueError, match=r"source of .*act cannot be read.*Define it in a file"):
        run(tmp_path, "exec('def act(x):\\n    return x')\n" + NET)
