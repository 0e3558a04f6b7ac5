"""Child processes that start at once: forked from a server in which all is imported, and torch has trained before."""

import multiprocessing
import os
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest
import zarr.codecs
import zarr.storage

import lostwax.audits
from lostwax.shadows import Local
from shadows.game import game

assert zarr.codecs, zarr.storage
assert lostwax.audits  # what `lostwax audit` imports
list(Local().parts(game(), [range(64)]))


@cache
def children():
    """The context to start them from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shadows.warm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent), prepend=os.pathsep)  # it must find this file
        forkserver.ensure_running()
    return context
