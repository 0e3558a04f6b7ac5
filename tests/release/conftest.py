"""The wheel and the source distribution of this checkout, built without a network."""

import subprocess
import sys
from typing import NamedTuple

import pytest

from conftest import ROOT


class Built(NamedTuple):
    wheel: str
    source: str


def build(source, target, *kinds):
    """Run hatchling in `source`; what it builds lies in `target`."""
    targets = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", target, *targets],
        cwd=source,
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="package")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "sdist", "wheel")
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    assert len(list(folder.iterdir())) == 2
    return Built(wheel, source)
