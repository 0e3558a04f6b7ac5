"""Killed at every write, rename, mkdir and unlink: nothing is half there, nothing locked, no record left behind."""

import pytest

from operations import OPERATIONS, kill
from shadows.warm import children


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
def test_killed_at_any_change(every, name, tmp_path):
    child = children().Process(target=kill, args=(name, tmp_path, every))
    child.start()
    child.join()
    assert child.exitcode == 0
