"""What leaves files behind, to be killed at every change it makes, and what must hold of what is left."""

import os
import random
import shutil
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

import lostwax as lw
from killed import deaths, dies, in_a_fork
from lostwax import reports
from lostwax.cli import main
from lostwax.learning.training import SavedFolder
from lostwax.recipes import STARTERS, start
from lostwax.shadows import Checkpoints
from shadows.game import fill, tree

RECIPE = """
import numpy as np
from sklearn.linear_model import Ridge
draws = np.random.default_rng(0)
x = draws.normal(size=(40, 3))
y = x @ [1.0, 2.0, 3.0] + draws.normal(size=40)
model, data = Ridge().fit(x, y), (x, y)
"""
RAW = np.random.default_rng(0).normal(size=(40, 3))


@cache
def audit(scale):
    """A small one that rebuilds its records, and has no pictures to draw."""
    from sklearn.linear_model import Ridge

    x = RAW * scale
    y = x @ [1.0, 2.0, 3.0] + RAW[:, 0] ** 2
    return lw.audit(Ridge().fit(x, y), (x, y))


def holds_records(folder, *audits):
    """Whether a file of the folder holds a number of a record, as bytes or as the page and the table write them."""
    content = b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
    values = np.concatenate([one.truth.x.double().numpy().ravel() for one in audits])
    return any(value.tobytes() in content or f">{value:.5g}<".encode() in content for value in values)


def leftovers(folder):
    return [path for path in Path(folder).rglob("*") if path.name.startswith(".lostwax")]


class Report:
    """Over the earlier report of another audit."""

    some = 3  # kills in the fast suite

    def prepare(self, folder):
        lw.report(audit(1.0), folder)
        lw.report(audit(2.0), folder.parent / "other")
        assert holds_records(folder, audit(1.0))  # or looking for them proves nothing
        self.pages = {
            repr(one): (where / "report.html").read_text()
            for one, where in ((audit(1.0), folder), (audit(2.0), folder.parent / "other"))
        }

    def run(self, folder):
        lw.report(audit(2.0), folder)

    def check(self, folder):
        """What is there is of one audit, and a report without records leaves none."""
        found = reports.read(folder)
        whole = next(one for one in (audit(1.0), audit(2.0)) if repr(one) == repr(found))
        if (folder / "records.safetensors").exists():
            assert torch.equal(found.truth.x, whole.truth.x)
        if (folder / "report.html").exists():
            assert (folder / "report.html").read_text() == self.pages[repr(whole)]
        lw.report(audit(2.0), folder, records=False)
        assert not holds_records(folder, audit(1.0), audit(2.0))
        assert not leftovers(folder)


class FirstReport(Report):
    """Into a new folder."""

    some = 2

    def prepare(self, folder):
        super().prepare(folder)
        shutil.rmtree(folder)

    def check(self, folder):
        lw.report(audit(2.0), folder, records=False)
        assert not holds_records(folder, audit(2.0))
        assert not leftovers(folder)


class ReportAgain(Report):
    """`lostwax report FOLDER`, where the folder holds the only copy of the records."""

    some = 2

    def run(self, folder):
        lw.report(reports.read(folder), folder)

    def check(self, folder):
        assert torch.equal(reports.read(folder).truth.x, audit(1.0).truth.x)
        super().check(folder)


class ReportWithoutRecords(Report):
    """`lostwax report FOLDER --no-records`."""

    some = 1

    def run(self, folder):
        lw.report(reports.read(folder), folder, records=False)

    def check(self, folder):
        assert repr(reports.read(folder)) == repr(audit(1.0))
        self.run(folder)
        assert not holds_records(folder, audit(1.0))
        assert not leftovers(folder)


class Command:
    """`lostwax audit`."""

    some = 2

    def prepare(self, folder):
        lw.report(audit(1.0), folder.parent / "other")  # so that what it takes is imported
        folder.mkdir()
        (folder / "recipe.py").write_text(RECIPE)

    def run(self, folder, *more):
        os.chdir(folder)
        assert main(["audit", "recipe.py", "--out", "audit", *more]) == 0

    def check(self, folder):
        self.run(folder, "--no-records")
        assert (folder / "audit" / "report.html").exists()
        assert not (folder / "audit" / "records.safetensors").exists()
        assert not leftovers(folder)


class Json:
    """Over an earlier one."""

    some = 4

    def prepare(self, folder):
        folder.mkdir()
        audit(2.0)
        audit(1.0).to_json(folder / "audit.json")

    def run(self, folder):
        audit(2.0).to_json(folder / "audit.json")

    def check(self, folder):
        found = lw.Audit.from_json(folder / "audit.json")
        assert repr(found) in (repr(audit(1.0)), repr(audit(2.0)))
        self.run(folder)
        assert [path.name for path in folder.iterdir()] == ["audit.json"]


class SaveAgainError(Exception):
    """What is there belongs to two saves, and says so."""


class Save:
    """A prepared reconstructor, over an earlier one."""

    some = 6

    def save(self, folder, number):
        SavedFolder({"number": number}, {"number": torch.full((1000,), float(number))}).write(folder)

    def read(self, folder):
        try:
            return SavedFolder.read("test", folder, torch.device("cpu"))
        except ValueError as error:
            raise SaveAgainError(error) if str(error).endswith("Save it again.") else error from None

    def prepare(self, folder):
        self.save(folder, 1)

    def run(self, folder):
        self.save(folder, 2)

    def check(self, folder):
        with suppress(SaveAgainError):
            found = self.read(folder)
            assert (found.tensors["number"] == found.words["number"]).all()
        self.run(folder)
        assert self.read(folder).words["number"] == 2
        assert len(list(folder.iterdir())) == 2


class Checkpointed:
    """A checkpoint is written twice."""

    some = 6

    def prepare(self, folder):
        pass

    def run(self, folder):
        for number in (1, 2):
            Checkpoints(folder).state({"seed": "0"}).write({"number": torch.full((1000,), float(number))})

    def check(self, folder):
        found = Checkpoints(folder).state({"seed": "0"}).read()
        assert found is None or int(found["number"].min()) == int(found["number"].max()) in (1, 2)
        self.run(folder)
        assert len(list(folder.iterdir())) == 1


class Stored:
    """Two chunks of shadow models."""

    some = 4

    def prepare(self, folder):
        if not (folder.parent / "unbroken").exists():
            assert in_a_fork(partial(self.run, folder.parent / "unbroken")) == 0

    def run(self, folder):
        fill(folder, 100)

    def check(self, folder):
        self.run(folder)
        assert tree(folder) == tree(folder.parent / "unbroken")


class Init:
    """A recipe to start from."""

    some = None

    def prepare(self, folder):
        folder.mkdir()

    def run(self, folder):
        start("torch", folder / "recipe.py")

    def check(self, folder):
        if not (folder / "recipe.py").exists():
            self.run(folder)
        with pytest.raises(FileExistsError, match="exists and was not changed"):
            self.run(folder)
        path = folder / "recipe.py"
        assert path.read_text() == STARTERS["torch"].read_text().replace("recipe.py", path.as_posix())
        assert len(list(folder.iterdir())) == 1


OPERATIONS = {
    kind.__name__: kind
    for kind in (
        Report,
        FirstReport,
        ReportAgain,
        ReportWithoutRecords,
        Command,
        Json,
        Save,
        Checkpointed,
        Stored,
        Init,
    )
}


def kill(name, folder, every, kills=0):
    """The work of a child: kill an operation at every moment, at some, or so many times; look at what is left."""
    torch.set_num_threads(1)
    operation, place = OPERATIONS[name](), folder / "place"
    operation.prepare(place)
    if place.exists():
        shutil.copytree(place, folder / "before")

    def anew():
        shutil.rmtree(place, ignore_errors=True)
        if (folder / "before").exists():
            shutil.copytree(folder / "before", place)

    count = deaths(operation.run, place)
    assert count >= 4, f"{name} makes {count} changes only: the hook does not see them"
    some = count if every else min(operation.some or count, count)
    draws = random.Random(name)
    for number in draws.choices(range(count), k=kills) if kills else sorted(draws.sample(range(count), some)):
        anew()
        dies(number, operation.run, place)
        assert in_a_fork(partial(operation.check, place)) == 0, f"{name}, killed at change {number} of {count}"
