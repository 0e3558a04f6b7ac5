"""Error texts name rows and columns, and never quote what is in them: messages end up in logs."""

import traceback

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

import lostwax as lw
from fuzz.arrays import CLASSES, TARGETS, X
from fuzz.outcomes import MARK, NUMBER

NAMES = np.array(["ill", MARK])[CLASSES]


def planted(value, dtype=object):
    """The table with one odd cell, in row 7 and column 1."""
    cells = X.astype(dtype)
    cells[7, 1] = value
    return cells


def csv(folder, text):
    path = folder / "people.csv"
    path.write_text(text)
    return path


def records(label):
    return lw.Records(torch.from_numpy(X), torch.full((len(X),), label))


def images(factor):
    return lw.Records(torch.rand(30, 1, 8, 8) * factor, torch.arange(30) % 3)


REGRESSION, CLASSIFIER = LinearRegression().fit(X, TARGETS), LogisticRegression().fit(X, NAMES)
BAD = {
    "a word in X": (lambda _: lw.audit(REGRESSION, (planted(MARK), TARGETS)), "row 7, column 1"),
    "half a number in X": (lambda _: lw.audit(REGRESSION, (planted(f"{NUMBER}x"), TARGETS)), "row 7, column 1"),
    "a huge number in X": (
        lambda _: lw.audit(REGRESSION, (planted(int(f"{int(NUMBER)}{'0' * 400}")), TARGETS)),
        "row 7, column 1",
    ),
    "an unknown label": (
        lambda _: lw.audit(CLASSIFIER, (X, np.where(np.arange(40) == 9, "other" + MARK, NAMES)), games=3),
        "row 9",
    ),
    "an unknown number": (
        lambda _: lw.audit(
            LogisticRegression().fit(X, CLASSES), (X, np.where(np.arange(40) == 9, int(NUMBER), CLASSES))
        ),
        "row 9",
    ),
    "a list as a label": (lambda _: lw.audit(CLASSIFIER, (X, [[MARK], *NAMES[1:]])), "y"),
    "a negative weight": (
        lambda _: lw.audit(REGRESSION, (X, TARGETS), sample_weight=np.where(np.arange(40) == 5, -NUMBER, 1)),
        "row 5",
    ),
    "words in a table": (lambda _: lw.records.table((planted(MARK), CLASSES)), "X"),
    "labels of two kinds": (
        lambda _: lw.records.table((X, np.where(np.arange(40) == 3, NUMBER, NAMES.astype(object)))),
        "row 3",
    ),
    "a column of words": (
        lambda _: lw.records.table(pd.DataFrame({"age": [1, 2], "name": [MARK, "b"], "y": [0, 1]}), "y"),
        "'name'",
    ),
    "a file of words": (lambda folder: lw.records.table(csv(folder, f"age,name,y\n1,{MARK},0\n"), "y"), "'name'"),
    "no line of names": (lambda folder: lw.records.table(csv(folder, f"{NUMBER},2\n3,4\n"), "y"), "a header line"),
    "a label out of range": (
        lambda _: list(
            lw.simulate(
                nn.Linear(3, 2).double(),
                trainer=lw.GD(steps=1),
                threat=lw.Informed(records(0)),
                models=2,
                prior=records(int(NUMBER)),
            )
        ),
        "row 0",
    ),
    "pixels out of range": (
        lambda _: lw.audit(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
            trainer=lw.GD(steps=1),
            threat=lw.Informed(images(NUMBER)),
            prior=images(1),
            secrets=images(1),
        ),
        "threat.known",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_no_message_quotes_a_cell(name, tmp_path):
    run, where = BAD[name]
    with pytest.raises((TypeError, ValueError)) as error:
        run(tmp_path)
    printed = "".join(traceback.format_exception_only(error.value)) + str(error.value.__cause__ or "")
    assert MARK not in printed
    assert str(int(NUMBER)) not in printed
    assert where in printed
