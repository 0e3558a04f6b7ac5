import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge

import lostwax as lw
from lostwax import reports
from lostwax.reports.charts import drawn
from lostwax.reports.html import render

ALWAYS = {"report.html", "audit.json", "records.csv", "figures"}


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", ["by_accident", "one_game", "of_pictures", "all_diverged", "under_a_ceiling"])
def test_a_report_is_written_and_read_back(kind, audit_of, tmp_path):
    audit = audit_of(kind)
    page = lw.report(audit, tmp_path / "a" / "b")
    assert page == tmp_path / "a" / "b" / "report.html"
    assert names(page.parent) >= ALWAYS | {"records.safetensors"}
    assert not [name for name in names(page.parent) if ".part" in name]
    again = reports.read(page.parent)
    assert repr(again) == repr(audit)
    assert torch.equal(again.truth.x, audit.truth.x)
    for one, other in zip(again.findings, audit.findings, strict=True):
        assert torch.equal(one.guess.records.x, other.guess.records.x)
        assert torch.equal(one.guess.records.y, other.guess.records.y)
    assert render(again, drawn(again), records=True) == page.read_text(encoding="utf-8")


def test_without_records_nothing_of_them_is_written(tmp_path):
    """Numbers that occur nowhere else are looked for in every form they could take, after a report that held them."""
    X, y = load_iris(return_X_y=True)
    X, y = X * 1.2345678 + 9.8765432, y * 3.1234567 + 1.7654321
    audit = lw.audit(Ridge().fit(X, y), (X, y), games=12)
    values = np.unique(np.concatenate([X[audit.games].ravel(), y[audit.games]]))
    forms = [text.encode() for value in values for text in (f"{value:.5g}", f"{value:.6g}", repr(float(value)))]
    raw = [value.tobytes() for value in np.concatenate([values, values.astype(np.float32)])]

    def leaks(folder):
        content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        words = re.sub(
            rb"<svg.*?</svg>", b"", content, flags=re.DOTALL
        )  # thousands of coordinates: any number is there
        return any(form in words for form in forms) or any(form in content for form in raw)

    folder = tmp_path / "report"
    lw.report(audit, folder)
    assert leaks(folder)
    lw.report(audit, folder, records=False)
    assert not leaks(folder)
    assert "records.safetensors" not in names(folder)
    assert "The records were kept out of this report" in (folder / "report.html").read_text()
    again = reports.read(folder)
    assert again.truth.x.shape == (12, 0)
    assert repr(again) == repr(audit)
    lw.report(again, folder)  # there are none to show
    assert not leaks(folder)


def test_pictures_stay_out_too(audit_of, tmp_path):
    lw.report(audit_of("of_pictures"), tmp_path, records=True)
    assert "figures/rebuilt.png" in names(tmp_path)
    lw.report(audit_of("of_pictures"), tmp_path, records=False)
    assert names(tmp_path) == ALWAYS | {"figures/errors.png", "figures/roc.png"}
    assert "data:image/png" not in (tmp_path / "report.html").read_text()


def test_a_figure_that_no_longer_belongs_is_taken_away(audit_of, tmp_path):
    lw.report(audit_of("of_pictures"), tmp_path)
    lw.report(audit_of("under_a_ceiling"), tmp_path)
    assert {name for name in names(tmp_path) if name.startswith("figures/")} == {
        "figures/ceiling.png",
        "figures/rebuilt.png",
    }


@pytest.mark.parametrize(
    "present",
    [
        {"thesis.tex": "mine"},
        {"figures/mine.png": "mine"},
        {"audit.json": '{"mine": 1}'},
        {"report.html": "mine"},
        {"deep/er/file": "mine"},
    ],
    ids=str,
)
def test_what_is_not_ours_is_never_touched(present, audit_of, tmp_path):
    for name, text in present.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = names(tmp_path)
    with pytest.raises(
        FileExistsError, match=r"no part of an earlier lostwax report. Nothing was\s+written. Name a new"
    ):
        lw.report(audit_of("one_game"), tmp_path)
    assert names(tmp_path) == before
    assert all((tmp_path / name).read_text() == text for name, text in present.items())


def test_a_strange_file_beside_our_report_is_refused_too(audit_of, tmp_path):
    lw.report(audit_of("one_game"), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds 'notes.txt'"):
        reports.check_folder(tmp_path)


def test_a_file_is_no_folder(audit_of, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"is a file. Name a new folder"):
        lw.report(audit_of("one_game"), tmp_path / "file")
    with pytest.raises(NotADirectoryError, match=r"cannot be made: .*file is a file"):
        lw.report(audit_of("one_game"), tmp_path / "file" / "report")


def test_only_an_audit_is_reported(tmp_path):
    with pytest.raises(TypeError, match=r"report: expected what lw.audit\(...\) gives, got ndarray"):
        lw.report(np.zeros(3), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_run_cut_short_is_taken_up(audit_of, tmp_path):
    """Whatever was written before the cut, the next report goes through."""
    lw.report(audit_of("one_game"), tmp_path)
    (tmp_path / "report.html").unlink()
    (tmp_path / "records.csv.part").write_text("half")
    lw.report(audit_of("one_game"), tmp_path)
    assert (tmp_path / "report.html").exists()


def test_reading_what_is_no_report(audit_of, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no report in"):
        reports.read(tmp_path / "nowhere")
    lw.report(audit_of("one_game"), tmp_path / "one")
    lw.report(audit_of("of_a_table"), tmp_path / "many")
    (tmp_path / "many" / "records.safetensors").replace(tmp_path / "one" / "records.safetensors")
    with pytest.raises(ValueError, match="The two are not of one report"):
        reports.read(tmp_path / "one")
    (tmp_path / "one" / "records.safetensors").write_bytes(b"short")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        reports.read(tmp_path / "one")
