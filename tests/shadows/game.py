"""A small real game: linear heads on digits, 64 a tile and a chunk."""

from pathlib import Path

from torch import nn

import lostwax as lw
from lostwax.shadows import Game, Local, Store

KNOWN, PRIOR = lw.records.digits().split(20, 150, seed=0)
CHUNK = 64


def game(**settings):
    """Fresh each time, the random weights of its net too, from which training does not start."""
    trainer = lw.GD(**{"lr": 0.1, "steps": 3, "tile": CHUNK, "init": lw.inits.LeCunNormal()} | settings)
    return Game(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), trainer, lw.Informed(KNOWN), PRIOR, 0)


def fill(where, models, engine=None, **settings):
    """What the user does, all at once; also the work of child processes."""
    return list(Store(where).simulate(game(**settings), models=models, engine=engine or Local()))


def tree(folder):
    """Every file, byte by byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def begin(where, started, models, settings):
    """A child's work, in a file that it can import; the clock starts when its imports are done."""
    started.set()
    fill(where, models, **settings)
