"""What lostwax keeps for later, damaged: refused by name, or read as what was written."""

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import lostwax as lw
from attacks.weak.game import QUICK, knowledge, victims
from audits.game import Reads, audited
from fuzz.files import FOLDER, harmed
from fuzz.outcomes import Case
from lostwax import reports
from lostwax.shadows import Checkpoints, Game
from shadows.game import fill, game


class Kept(NamedTuple):
    """A folder that lostwax wrote, what reads it, and what that gives."""

    name: str
    folder: Path
    read: Callable[[Path], Any]
    whole: Any
    files: list[Path]


def store(folder):
    with redirect_stderr(io.StringIO()):
        return torch.cat([release.flat() for _, release in fill(folder, 100)])


def checkpoints(folder):
    net, trainer, threat, pool, seed = game()
    chunks = Checkpoints(folder)(Game(net, trainer, threat, pool, seed), 100)
    return torch.cat([release.flat() for _, release in chunks])


def training(folder):
    return answer(replace(QUICK, checkpoint=folder).prepare(knowledge(), seed=0))


def saved(folder):
    if not folder.exists():
        QUICK.prepare(knowledge(), seed=0).save(folder)
    return answer(QUICK.load(folder, knowledge()))


def report(folder):
    if not folder.exists():
        lw.report(audited(Reads(), games=12), folder)
    audit = reports.read(folder)
    return torch.cat([audit.truth.x.flatten(), *(finding.guess.records.x.flatten() for finding in audit.findings)])


def answer(reconstruct):
    guess = reconstruct(victims(4)[1])
    return torch.cat([guess.records.x.flatten(), guess.confidence.flatten()])


@cache
def kept():
    """One of each; of a report only the records, which its audit.json binds."""
    made = []
    for read in (store, checkpoints, training, saved, report):
        folder = FOLDER / f"kept {read.__name__}"
        whole = read(folder)
        files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        files = [path for path in files if read is not report or path.name == "records.safetensors"]
        made.append(Kept(read.__name__, folder, read, whole, files))
    return made


def cases(random):
    """A file of one of them, harmed."""
    while True:
        one = kept()[random.integers(len(kept()))]
        file = one.files[random.integers(len(one.files))]
        content = harmed(random, (one.folder / file).read_bytes())
        yield Case(
            f"kept: {one.name}",
            f"{file}, damaged",
            lambda one=one, file=file, content=content: again(one, file, content),
            lambda same: same,
        )


def again(one, file, content):
    """Whether the folder with this content of the file gives what the whole one does."""
    copy = FOLDER / "kept and damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(one.folder, copy)
    (copy / file).write_bytes(content)
    return torch.equal(one.read(copy), one.whole)
