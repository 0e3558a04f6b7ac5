import argparse
import json
from dataclasses import replace

import pytest

import lostwax
from lostwax_dev.results import Row, add_options, page, read_rows, smaller, tables, write_rows


def test_rows_are_written_with_command_and_machine_and_read_back(tmp_path, monkeypatch):
    script = tmp_path / "papers" / "table.py"
    script.parent.mkdir()
    monkeypatch.setattr("sys.argv", ["table.py", "--quick"])
    path = write_rows(str(script), [Row("a", "error", 0.25, low=0.2, high=0.3, paper=0.26, seed=1)])
    assert path == tmp_path / "papers" / "results" / "table.json"
    (row,) = read_rows(path)
    assert row.command == "python papers/table.py --quick"
    assert "cores" in row.machine
    assert row.version == lostwax.__version__
    assert (row.value, row.low, row.high, row.paper, row.seed) == (0.25, 0.2, 0.3, 0.26, 1)


def test_a_part_of_the_rows_goes_into_another_folder(tmp_path):
    path = write_rows(str(tmp_path / "papers" / "table.py"), [Row("a", "error", 0.25)], into=tmp_path / "part")
    assert path == tmp_path / "part" / "table.json"
    assert read_rows(path)[0].value == 0.25


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        (Row("a", "error (1,000 targets)", 1.0), Row("a", "error (60 targets)", 1.0), "a: 60 for 1,000 targets"),
        (Row("a", "error (60 targets)", 1.0), Row("a", "error (1,000 targets)", 1.0), ""),
        (Row("a", "error", 1.0, scale={"games": 9}), Row("a", "error", 1.0, scale={"games": 8}), "a: 8 for 9 games"),
        (
            Row("a", "x", 1.0, command="python papers/a.py --samples 500"),
            Row("a", "x", 1.0, scale={"samples": 499}),
            "a: 499 for 500 samples",
        ),
        (Row("a", "10 known, 5 prior twice", 1.0), Row("a", "x", 1.0, scale={"shadow models": 9}), "9 for 10 shadow"),
        (Row("a", "error", 1.0), Row("a", "error", 1.0, scale={"games": 8}), ""),  # not known
        (Row("b", "error (1,000 targets)", 1.0), Row("a", "error (60 targets)", 1.0), ""),
    ],
)
def test_a_smaller_run_is_noticed(old, new, difference, tmp_path):
    path = tmp_path / "papers" / "table.py"
    results = write_rows(str(path), [old if old.command else replace(old, command="python papers/table.py")])
    found = smaller([new], results)
    assert difference in "".join(found)
    assert bool(found) == bool(difference)


def test_where_rows_go(tmp_path, monkeypatch, capsys):
    def write(value, *words):
        monkeypatch.setattr("sys.argv", ["table.py", *words])
        parser = argparse.ArgumentParser()
        parser.add_argument("--targets", type=int, default=100)
        parser.add_argument("--width", type=int, default=5)
        add_options(parser, {"targets": 100, "width": 5})
        options = parser.parse_args()
        return write_rows(str(tmp_path / "papers" / "table.py"), [Row("a", "error", value)], options=options)

    tracked = tmp_path / "papers" / "results" / "table.json"
    assert write(1.0, "--targets", "1000", "--width", "2") == tracked  # not what counts
    (row,) = read_rows(tracked)
    assert (row.command, row.scale) == ("python papers/table.py --targets 1000 --width 2", {"targets": 1_000})
    elsewhere = tmp_path / "artefacts" / "papers" / "results" / "table.json"
    assert write(2.0) == elsewhere  # full, but smaller than what is there
    assert write(3.0, "--targets", "99") == elsewhere
    assert "99 of 100 targets" in capsys.readouterr().out
    assert write(4.0, "--targets", "99", "--out", str(tracked.parent)) == elsewhere
    assert read_rows(tracked)[0].value == 1.0
    assert write(5.0, "--targets", "99", "--out", str(tmp_path / "mine")) == tmp_path / "mine" / "table.json"
    assert write(6.0, "--targets", "99", "--replace") == tracked
    assert read_rows(tracked)[0].command == "python papers/table.py --targets 99"


def test_the_page_shows_every_row(tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "benchmarks").mkdir()
    write_rows(
        str(tmp_path / "papers" / "one.py"), [Row("a", "tiny", 1.5e-9, paper="<= 1e-8"), Row("b", "words", "yes")]
    )
    write_rows(
        str(tmp_path / "benchmarks" / "two.py"), [Row("c", "ratio", 3.25, low=3.0, high=3.5), Row("d", "none", 0.0)]
    )
    text = tables(tmp_path)
    assert f"| tiny | 1.50e-09 |  | <= 1e-8 |  | {lostwax.__version__} |" in text
    assert f"| ratio | 3.25 | 3 to 3.5 |  |  | {lostwax.__version__} |" in text
    assert "| none | 0 |" in text
    assert text.index("papers/one") < text.index("benchmarks/two")


def test_the_contents_go_by_paper_and_name_what_was_not_run(tmp_path):
    runs = 'if __name__ == "__main__":\n    pass\n'
    for name, about in {"s1_table2": "S1 Table II: factors.", "s1_a": "S1 Figure 1: never.", "own": "Ours."}.items():
        path = tmp_path / "papers" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""{about}\n\nMore.\n"""\n{runs}')
    (tmp_path / "papers" / "s1_shared.py").write_text('"""What the scripts share."""\n')
    write_rows(str(tmp_path / "papers" / "s1_table2.py"), [Row("a", "x", 1.0, paper=2.0), Row("b", "y", 1.0)])
    text = tables(tmp_path)
    contents = text.split("## papers/s1_table2")[0]
    assert "| [S1 Table II: factors.](#paperss1_table2) | 2 | 1 |\n\nNo results yet: `papers/s1_a.py`." in contents
    assert contents.index("## S1") < contents.index("## Beyond the papers") < contents.index("`papers/own.py`")
    assert "share" not in text


def test_of_many_rows_most_are_folded_away(tmp_path):
    (tmp_path / "papers").mkdir()
    many = [Row(str(i), f"number {i} ", float(i)) for i in range(60)]
    write_rows(str(tmp_path / "papers" / "many.py"), many)
    shown, folded = tables(tmp_path).split("<summary>50 more rows</summary>")
    assert shown.count("| number") == 10
    assert folded.count("| number") == 50
    assert folded.count("| quantity |") == 1
    write_rows(str(tmp_path / "papers" / "many.py"), [*many[:-1], replace(many[-1], paper=60.0)])
    shown, folded = tables(tmp_path).split("<summary>59 more rows</summary>")
    assert shown.count("| number") == shown.count("| number 59 ") == 1


def test_a_row_of_another_shape_is_named(tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps([{"id": "a"}]))
    with pytest.raises(ValueError, match=r"odd\.json, row 0: expected the fields"):
        read_rows(path)


def test_a_row_that_was_written_before_versions_were_says_so(tmp_path):
    (tmp_path / "papers").mkdir()
    path = write_rows(str(tmp_path / "papers" / "old.py"), [Row("a", "error", 0.5, seed=3)])
    (row,) = json.loads(path.read_text())["rows"]
    del row["version"], row["commit"], row["code"]
    path.write_text(json.dumps([row]))
    assert read_rows(path)[0].version is None
    assert "| error | 0.5 |  |  | 3 | not recorded; unknown code |" in tables(tmp_path)
    write_rows(str(tmp_path / "papers" / "old.py"), [Row("b", "new", 1.0)], keep_others=True)
    assert [one.version for one in read_rows(path)] == [None, lostwax.__version__]  # the old row is as old as it was


def test_the_page_of_this_repository_shows_every_results_file(root):
    text = page(root)
    assert text.startswith("# Results\n")
    for folder in ("papers", "benchmarks"):
        for path in (root / folder / "results").glob("*.json"):
            rows = text.split(f"## {folder}/{path.stem}\n")[1].split("\n## ")[0]
            assert rows.count("\n| ") - rows.count("\n| quantity |") == len(read_rows(path))


def test_a_long_script_may_run_in_parts(tmp_path):
    script = str(tmp_path / "long.py")
    write_rows(script, [Row("a", "first", 1.0), Row("b", "second", 2.0)])
    path = write_rows(script, [Row("b", "second", 3.0), Row("c", "third", 4.0)], keep_others=True)
    assert [(row.id, row.value) for row in read_rows(path)] == [("a", 1.0), ("b", 3.0), ("c", 4.0)]
