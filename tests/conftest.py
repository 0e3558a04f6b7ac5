"""Shared by all tests."""

import os
import random
import sys
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores (before torch and numpy are imported)
os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels run on the CPU, slowly (before they are compiled)

from pathlib import Path

import hypothesis
import numpy as np
import pytest

from lostwax.seeds import seed_torch
from optional import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

ROOT = Path(__file__).parent.parent


SEED = int(os.environ.get("LOSTWAX_TEST_SEED", "0"))


# what draws new examples on every run finds faults, but not where somebody else's change waits to be tested
hypothesis.settings.register_profile("same", derandomize=True)
if "LOSTWAX_NEW_EXAMPLES" not in os.environ:
    hypothesis.settings.load_profile("same")


def seed_all():
    """The global generators, which an estimator without `random_state` draws from too."""
    seed_torch(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    random.seed(SEED)


def pytest_collectstart(collector):
    """A net that a module of tests makes has the same weights, whatever was imported before."""
    seed_all()


@pytest.fixture(autouse=True)
def seeded():
    """Each test draws the same numbers alone, beside others and in any order."""
    seed_all()


ABOUT_INSIDERS = {
    "test_climb",
    "test_false_verdicts",
    "test_ladder",
    "test_random_problems",
    "test_same_results",
    "test_who",
}


@pytest.fixture(scope="module", autouse=True)
def few_games_of_insiders(request):
    """Insiders who miss several rows play two games for each number of them, outside the modules that are about them.

    By default they take ten times as long as all the rest of a small audit.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in ABOUT_INSIDERS:
            patch.setattr("lostwax.audits.climb.GAMES", 2)
            patch.setattr("lostwax.audits.climb.ENOUGH", 2)
        yield


@pytest.fixture
def untraced():
    """No coverage is measured: in Python 3.11 a traced thread spins while an exception waits for one that sleeps."""
    here, elsewhere = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    sys.settrace(here)
    threading.settrace(elsewhere)


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def shared_data():
    """The folder of real MNIST and CIFAR-10; tests that need it are skipped where there is none."""
    folder = Path(os.environ.get("LOSTWAX_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "mnist.npz").exists():
        pytest.skip("no mnist.npz: set LOSTWAX_DATA to a folder that holds it")
    return folder
