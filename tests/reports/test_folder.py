import csv
import io
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge

import lostwax as lw
from full_disk import no_file_over
from lostwax import files, reports
from lostwax.reports import charts
from lostwax.reports.charts import drawn
from lostwax.reports.html import render

ALWAYS = {"report.html", "audit.json", "records.csv", "figures"}


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture(autouse=True, scope="module")
def drawn_once():
    """The figures of an audit are drawn once for all tests here, which are about files."""
    drawn, as_png, as_svg = charts.drawn, cache(charts.as_png), cache(charts.as_svg)
    kept = {}

    def drawn_before(audit):
        line = audit.findings[0]
        which = (audit.ceiling is None, tuple(line.null_errors), audit.chance)
        errors = (one.tobytes() for finding in audit.findings for one in finding.errors.values())
        key = (which, audit.threshold, *errors)
        return kept[key] if key in kept else kept.setdefault(key, drawn(audit))

    with pytest.MonkeyPatch.context() as patch:
        for name, one in (("drawn", drawn_before), ("as_png", as_png), ("as_svg", as_svg)):
            patch.setattr(charts, name, one)
        yield


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
    assert "This report was written without records" in (folder / "report.html").read_text()
    again = reports.read(folder)
    assert again.truth.x.shape == (12, 0)
    assert repr(again) == repr(audit)
    lw.report(again, folder)  # there are none to show
    assert not leaks(folder)
    lw.report(audit, folder)  # nobody asked for them
    assert not leaks(folder)
    lw.report(audit, folder, records=True)
    assert leaks(folder)


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
    with pytest.raises(FileExistsError, match=r"not part of a lostwax report. Nothing was\s+written. Name a new"):
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
    with pytest.raises(NotADirectoryError, match=r"cannot be created: .*file is a file"):
        lw.report(audit_of("one_game"), tmp_path / "file" / "report")


def test_only_an_audit_is_reported(tmp_path):
    with pytest.raises(TypeError, match=r"report: expected the result of lw.audit\(...\), got ndarray"):
        lw.report(np.zeros(3), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_run_cut_short_is_taken_up(audit_of, tmp_path):
    """Whatever was written before the cut, the next report goes through."""
    lw.report(audit_of("one_game"), tmp_path)
    (tmp_path / "report.html").unlink()
    (tmp_path / LEFT).write_text("half")
    lw.report(audit_of("one_game"), tmp_path)
    assert (tmp_path / "report.html").exists()


def test_reading_what_is_no_report(audit_of, tmp_path):
    with pytest.raises(FileNotFoundError, match="no report in"):
        reports.read(tmp_path / "nowhere")
    lw.report(audit_of("one_game"), tmp_path / "one")
    lw.report(audit_of("of_a_table"), tmp_path / "many")
    (tmp_path / "many" / "records.safetensors").replace(tmp_path / "one" / "records.safetensors")
    with pytest.raises(ValueError, match="from different reports"):
        reports.read(tmp_path / "one")
    (tmp_path / "one" / "records.safetensors").write_bytes(b"short")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        reports.read(tmp_path / "one")


def test_tensors_of_eight_bits_are_refused(audit_of, tmp_path):
    lw.report(audit_of("of_a_table"), tmp_path)
    path = tmp_path / "records.safetensors"
    tensors = load_file(path)
    for name in tensors:
        save_file(tensors | {name: tensors[name].float().to(torch.float8_e4m3fn)}, path)
        with pytest.raises(ValueError, match="of another dtype than the records"):
            reports.read(tmp_path)


def test_records_are_bound_to_their_numbers(audit_of, tmp_path):
    """Any bit of the file counts; a file of the same shapes from another report is noticed too."""
    lw.report(audit_of("one_game"), tmp_path)
    path = tmp_path / "records.safetensors"
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"records.safetensors is not the file that audit.json beside it was written"):
        reports.read(tmp_path)
    lw.report(audit_of("one_game"), tmp_path, records=False)
    path.write_bytes(before)
    with pytest.raises(ValueError, match="is of another report"):
        reports.read(tmp_path)


@pytest.mark.parametrize("records", [True, False])
def test_reports_up_to_0_3_0_have_no_digest(records, audit_of, tmp_path):
    lw.report(audit_of("one_game"), tmp_path, records=records)
    audit_of("one_game").to_json(tmp_path / "audit.json")  # as they wrote it
    again = reports.read(tmp_path)
    assert (again.truth.x.numel() > 0) == records
    lw.report(again, tmp_path)
    assert "records_sha256" in (tmp_path / "audit.json").read_text()
    assert (reports.read(tmp_path).truth.x.numel() > 0) == records


def test_a_folder_that_another_process_writes_to_is_refused(audit_of, tmp_path):
    lw.report(audit_of("one_game"), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()}
    with ThreadPoolExecutor(1) as other, files.locked("test", tmp_path):
        with pytest.raises(BlockingIOError, match=r"^report: .* is in use: another process writes a report there"):
            other.submit(lw.report, audit_of("of_pictures"), tmp_path).result()
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
    lw.report(audit_of("of_pictures"), tmp_path)


def private(folder):
    """The files that only their owner may read."""
    return {name for name in names(folder) if (folder / name).is_file() and (folder / name).stat().st_mode & 0o077 == 0}


def test_what_shows_records_is_for_the_owner_alone(audit_of, tmp_path):
    shown = {"report.html", "records.csv", "records.safetensors", "figures/rebuilt.png"}
    before = os.umask(0o022)
    try:
        lw.report(audit_of("of_pictures"), tmp_path)
        assert private(tmp_path) == shown
        lw.report(audit_of("of_pictures"), tmp_path, records=False)
        assert private(tmp_path) == set()
    finally:
        os.umask(before)


LEFT = ".lostwax-" + 32 * "0" + ".part"


@pytest.mark.parametrize("left", [LEFT, f"figures/{LEFT}"])
@pytest.mark.parametrize("first", [False, True], ids=["before any report", "after a report"])
def test_leftovers_that_may_hold_records_are_swept_up(first, left, audit_of, tmp_path):
    """What a killed report left does not survive the next one."""
    if first:
        lw.report(audit_of("one_game"), tmp_path)
    (tmp_path / "figures").mkdir(exist_ok=True)
    (tmp_path / left).write_bytes(b"a left-over record")
    lw.report(audit_of("one_game"), tmp_path, records=False)
    assert left not in names(tmp_path)
    assert b"a left-over record" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["report.html.part", "report.html", "audit.json", "figures/errors.png", LEFT])
def test_a_link_in_the_folder_is_refused_and_not_followed(name, audit_of, tmp_path):
    (tmp_path / "bashrc").write_text("mine")
    lw.report(audit_of("one_game"), tmp_path / "report")
    (tmp_path / "report" / name).unlink(missing_ok=True)
    (tmp_path / "report" / name).symlink_to(tmp_path / "bashrc")
    with pytest.raises(FileExistsError, match=rf"holds '{re.escape(name)}', which is not part of"):
        lw.report(audit_of("one_game"), tmp_path / "report")
    assert (tmp_path / "bashrc").read_text() == "mine"


def test_a_folder_of_figures_that_is_a_link_is_not_emptied(audit_of, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "errors.png").write_text("mine")
    lw.report(audit_of("one_game"), tmp_path / "report")
    for path in (tmp_path / "report" / "figures").iterdir():
        path.unlink()
    (tmp_path / "report" / "figures").rmdir()
    (tmp_path / "report" / "figures").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError, match=r"holds 'figures', which is not part of"):
        lw.report(audit_of("one_game"), tmp_path / "report")
    assert (tmp_path / "mine" / "errors.png").read_text() == "mine"


def test_a_folder_that_is_a_link_is_refused(audit_of, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError, match=r"link is a symbolic link, which lostwax does not follow"):
        lw.report(audit_of("one_game"), tmp_path / "link")
    assert names(tmp_path / "mine") == set()


@pytest.mark.parametrize("kind", [str, Path])
def test_a_url_is_no_folder(kind, audit_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^report: 's3:/+\*\*\*@bucket/a' is a URL, but only local files are"):
        lw.report(audit_of("one_game"), kind("s3://KEY:pass@bucket/a"))
    assert names(tmp_path) == set()


def test_a_full_disk_keeps_what_fits(audit_of, tmp_path):
    """The numbers fit, so they are there; no file of the earlier audit stands beside them."""
    lw.report(audit_of("of_pictures"), tmp_path)
    smaller = lw.report(audit_of("one_game"), tmp_path / "size").parent
    room = 1 + max((smaller / name).stat().st_size for name in ("audit.json", "records.csv"))
    shutil.rmtree(smaller)
    with no_file_over(room), pytest.raises(OSError, match=r"could not be written .File too large") as caught:
        lw.report(audit_of("one_game"), tmp_path)
    assert f"report: {tmp_path / 'figures' / 'errors.png'} could not be written" in str(caught.value)
    assert repr(reports.read(tmp_path)) == repr(audit_of("one_game"))
    assert names(tmp_path) == {"audit.json", "records.csv", "records.safetensors", "figures"}
    lw.report(audit_of("one_game"), tmp_path)
    assert names(tmp_path) >= ALWAYS


def test_where_the_numbers_do_not_fit_the_earlier_report_stays(audit_of, tmp_path):
    lw.report(audit_of("one_game"), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path) if (tmp_path / name).is_file()}
    with no_file_over(100), pytest.raises(OSError, match=r"audit\.json could not be written"):
        lw.report(audit_of("of_pictures"), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert names(tmp_path) == {*before, "figures"}


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", 300 * "a"], ids=["nul", "surrogate", "long"])
def test_a_folder_that_cannot_be_named(name, audit_of, tmp_path):
    with pytest.raises(ValueError, match=r"^report: .*Use a"):
        lw.report(audit_of("one_game"), tmp_path / name)
    with pytest.raises(ValueError, match=r"^Audit.to_json: .*Use a"):
        audit_of("one_game").to_json(tmp_path / name)


NAMES = ["two\nrows", "two\r=1+1", "\r\n=1+1", "half \ud800", "zero \0", 300 * "long "]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_class_name_makes_a_whole_report(name, tmp_path):
    """The page, the table and the numbers are text that can be read back, and say as many rows as there are games."""
    X, y = load_iris(return_X_y=True)
    names = np.array([name, "b", "c"], dtype=object)[y]
    audit = lw.audit(LogisticRegression(max_iter=1_000).fit(X, names), (X, names), games=9)
    page = lw.report(audit, tmp_path)
    assert "\0" not in page.read_text(encoding="utf-8")
    text = (tmp_path / "records.csv").read_bytes().decode("utf-8")
    assert "\0" not in text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 9 * len(audit.findings)
    assert {row["game"] for row in rows} == {str(game) for game in audit.games.tolist()}
    assert not any(row["label"].startswith(("=", "\r", "\n")) for row in rows)
    assert reports.read(tmp_path).classes == tuple(audit.classes)
