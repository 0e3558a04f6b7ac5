"""simulate killed with SIGKILL at random moments: once resumed, the store is byte-identical to an unbroken run's."""

import random
import time

import pytest

from shadows.game import CHUNK, begin, fill, tree
from shadows.warm import children

MODELS = 30 * CHUNK
SETTINGS = {"steps": 5}


def run(where, kill_after=None):
    """One run in a process of its own, killed after so many seconds; how many it took."""
    started = children().Event()
    child = children().Process(target=begin, args=(where, started, MODELS, SETTINGS))
    child.start()
    assert started.wait(60)
    start = time.perf_counter()
    child.join(kill_after)
    if child.is_alive() and kill_after is not None:
        child.kill()
    child.join()
    assert kill_after is not None or child.exitcode == 0
    return time.perf_counter() - start


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The files of an unbroken run, and how long such a run takes."""
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder / "warm")
    return run(folder / "store"), tree(folder / "store")


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_and_resumed(kills, unbroken, tmp_path):
    seconds, files = unbroken
    moments, broken, number = random.Random(kills), 0, 0
    while number < kills or (broken < kills // 3 and number < 4 * kills):
        store = tmp_path / str(number)
        moment = moments.uniform(0, seconds)
        if (took := run(store, kill_after=moment)) < moment:  # it was done before: kill the next ones earlier
            seconds = took
        broken += 0 < len(tree(store)) < len(files)
        run(store)
        assert tree(store) == files
        number += 1
    assert broken >= kills // 3, "most kills came too early or too late to test anything"


def test_killed_over_and_over(unbroken, tmp_path):
    """One store, and no run that is left in peace but the last."""
    seconds, files = unbroken
    for _ in range(3):
        run(tmp_path / "store", kill_after=seconds / 3)
    run(tmp_path / "store")
    assert tree(tmp_path / "store") == files


def test_one_of_two_writers_is_killed(unbroken, tmp_path):
    seconds, files = unbroken
    survivor = children().Process(target=fill, args=(tmp_path / "store", MODELS), kwargs=SETTINGS)
    survivor.start()
    run(tmp_path / "store", kill_after=seconds / 2)
    survivor.join()
    assert survivor.exitcode == 0
    assert tree(tmp_path / "store") == files
