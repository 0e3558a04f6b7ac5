"""What docs/tables.md lists as sums comes back from two releases, whatever scikit-learn publishes."""

import subprocess
import sys

import pytest

# in a process of its own: `two_releases` is a name of tests too
SCRIPT = """
import warnings
from two_releases import list_rows
warnings.simplefilter("ignore")
rows = {row.id: row.value for row in list_rows(games=1)}
not_exact = {name.removeprefix("list.not.") for name in rows if name.startswith("list.not.")}
assert not_exact <= {SOME_ROWS}, not_exact
assert rows["list.SUM"] >= 31 and rows["list.ALL_STORED"] >= 19, rows
"""
SOME_ROWS = {
    "Birch",
    "EllipticEnvelope",
    "IterativeImputer",
    "KNNImputer",
    "MinCovDet",
    "MiniBatchKMeans",
    "SimpleImputer",
}


@pytest.mark.slow
def test_a_removed_row_comes_back_from_every_estimator_that_publishes_sums(root):
    """The others have statistics of some rows only, and docs/updates.md names them."""
    assert all(f"`{name}`" in (root / "docs" / "updates.md").read_text() for name in SOME_ROWS)
    script = SCRIPT.replace("{SOME_ROWS}", repr(SOME_ROWS))
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=root / "benchmarks", check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
