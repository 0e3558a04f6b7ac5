"""Every table and figure of the papers has a line, and no line says more than the results do."""

import re
from collections import Counter
from decimal import Decimal

import pytest

from lostwax_dev.coverage import (
    MeasuredCell,
    PaperCell,
    PaperItem,
    answers,
    counted,
    page,
    quoted,
    read,
    sentence,
)
from lostwax_dev.results import Row, stated_scale, write_rows

TABLES = {
    "S1": ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"],
    "S2": ["1", "2", "3", "4", "5", "6"],
    "S3": ["1", "2"],
    "S4": ["1", "2", "3"],
}
FIGURES = {"S1": 24, "S2": 16, "S3": 15, "S4": 9}
CELLS = {  # the cells of tables, and the figures, that a reader would count
    **{"S1 Table II": 20, "S1 Table III": 24, "S1 Table IV": 12, "S1 Table IX": 24, "S1 figures": 24},
    **{"S2 Table 1": 18, "S2 Table 4": 4, "S2 Table 5": 6, "S2 factors": 10, "S2 DP": 5, "S2 figures": 16},
    **{"S3 Table 2": 36, "S3 figures": 15, "S4 Table 3": 8, "S4 figures": 9},
    **{"S1 section V": 24, "S2 section 2": 3, "S3 section A": 1, "S4 section 4": 1, "S4 section 5.3": 4},
}


def test_every_table_and_figure_has_one_line(root):
    found = Counter((item.paper, item.item) for item, _ in read(root))
    wanted = {(paper, f"Table {name}") for paper, names in TABLES.items() for name in names}
    wanted |= {(paper, f"Figure {number}") for paper, count in FIGURES.items() for number in range(1, count + 1)}
    sections = {key for key in found if key[1].startswith("Section")}
    assert set(found) - sections == wanted
    assert set(found.values()) == {1}


def test_all_cells_are_counted(root):
    totals = counted(read(root))
    scales = ("full", "part", "not run", "no number", "again")
    assert {name: sum(one[scale] for scale in scales) for name, one in totals.items()} == CELLS


def test_readme_quotes_the_page(root):
    answered = read(root)
    assert quoted(answered) in (root / "README.md").read_text(), "run `make results`"
    assert sentence(sum(counted(answered).values(), Counter())) in page(root)


def test_scripts_exist_and_those_without_results_have_no_link_to_them(root):
    named = {item.script for item, _ in read(root) if item.script}
    assert all((root / "papers" / f"{name}.py").is_file() for name in named)
    linked = set(re.findall(r"results\.md#papers(\w+)\)", page(root)))
    assert linked == {name for name in named if (root / "papers" / "results" / f"{name}.json").is_file()}


def test_every_script_that_has_results_is_in_a_line(root):
    used = {item.script for item, _ in read(root)}
    used |= {name.rpartition(":")[0] for item, _ in read(root) for cell in item.cells for name in _names(cell)}
    made = {path.stem for path in (root / "papers" / "results").glob("s[1-4]_*.json")}
    beyond = {"s2_pretrain", "s2_held", "s4_newton", "s4_starts"}  # our base model, our attacks, our search for causes
    beyond |= {"s1_figure20_cause"}
    made -= {"s1_partly_informed", "s2_dp_last"}  # questions that the papers leave open
    assert made - used == beyond


def _names(cell):
    return (cell.row, cell.like, *cell.order, *cell.also.values())


@pytest.mark.parametrize(
    ("low", "high", "fields", "verdict"),
    [
        (1.0, 2.0, {"theirs": 3.0}, "beaten"),
        (1.0, 3.0, {"theirs": 3.0}, "matched"),
        (3.1, 4.0, {"theirs": 3.0}, "missed"),
        (3.1, 4.0, {"theirs": 3.0, "better": "higher"}, "beaten"),
        (1.0, 2.0, {"theirs": 3.0, "better": "higher"}, "missed"),
        (1.0, 2.0, {"theirs": 3.0, "better": "equal"}, "missed"),
        (1.0, 2.0, {"theirs": 3.0, "better": "equal", "within": 1.5}, "matched"),
        (1.0, 2.0, {"theirs": 0.9, "better": "exact"}, "corrected"),
        (1.0, 2.0, {"theirs": 2.1, "better": "below"}, "matched"),
        (1.0, 2.0, {"theirs": 1.9, "better": "below"}, "missed"),
        (1.0, 2.0, {"theirs": 0.9, "better": "above"}, "matched"),
        (1.0, 2.0, {"theirs": "drawn"}, "not comparable"),
        (1.0, 2.0, {"like": "b"}, "beaten"),
        (0.42, 0.424, {"theirs": Decimal("0.43")}, "beaten"),
        (0.42, 0.426, {"theirs": Decimal("0.43")}, "matched"),  # which 0.426 is printed as
        (0.42, 0.426, {"theirs": Decimal("0.430")}, "beaten"),
        (0.4356, 0.44, {"theirs": Decimal("0.43")}, "missed"),
        (1.0, 2.0, {"theirs": Decimal("2.1"), "better": "below"}, "matched"),
        (1.0, 2.06, {"theirs": Decimal("2.1"), "better": "below"}, "missed"),
    ],
)
def test_verdicts_follow_from_the_interval(low, high, fields, verdict):
    like = Row("b", "", 5.0, low=4.0, high=6.0) if "like" in fields else None
    row = Row("a", "", (low + high) / 2, low=low, high=high)
    assert MeasuredCell(PaperCell(row="a", **fields), (row,), {}, {}, like).verdict == verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"theirs": 3.0}, "not comparable"),
        ({"theirs": 1.0, "better": "higher"}, "not comparable"),
        ({"theirs": 3.0, "better": "exact"}, "not comparable"),
        ({"theirs": 3.0, "better": "below"}, "not comparable"),
        ({"theirs": 1.0, "better": "above"}, "not comparable"),
        ({"theirs": 1.0}, "missed"),
        ({"theirs": 3.0, "better": "equal"}, "missed"),
        ({"theirs": Decimal("2")}, "matched"),
        ({"theirs": "drawn"}, "not comparable"),
    ],
)
def test_without_an_interval_nothing_is_beaten(fields, verdict):
    for ends in ({}, {"low": 1.9}, {"high": 2.1}):
        measured = MeasuredCell(PaperCell(row="a", **fields), (Row("a", "", 2.0, **ends),), {}, {})
        assert measured.verdict == verdict
    if verdict == "not comparable" and fields["theirs"] != "drawn":
        assert measured.words == "run, without an interval to compare by"


def test_a_row_of_ours_without_an_interval_is_not_beaten():
    ours = Row("a", "", 1.0, low=0.9, high=1.1)
    assert MeasuredCell(PaperCell(row="a", like="b"), (ours,), {}, {}, Row("b", "", 2.0)).verdict == "not comparable"


def test_without_intervals_there_is_no_order():
    first, second = Row("a", "", 1.0), Row("b", "", 2.0, low=1.6, high=2.5)
    assert MeasuredCell(PaperCell(order=("a", "b")), (first, second), {}, {}).verdict == "not comparable"
    assert MeasuredCell(PaperCell(order=("b", "a")), (second, first), {}, {}).verdict == "missed"


def test_an_order_holds_where_the_intervals_are_apart():
    rows = [Row("a", "", 1.0, low=0.5, high=1.5), Row("b", "", 2.0, low=1.6, high=2.5)]
    cell = PaperCell(order=("a", "b"))
    assert MeasuredCell(cell, tuple(rows), {}, {}).verdict == "matched"
    assert MeasuredCell(cell, tuple(reversed(rows)), {}, {}).verdict == "missed"
    assert MeasuredCell(cell, (rows[0], Row("b", "", 2.0, low=1.4, high=2.5)), {}, {}).verdict == "missed"


def test_the_scale_is_what_the_rows_state():
    quantity = "default: mean MSE (10,000 known, 59,000 prior 4 times, 1,000 targets, 1 decoder)"
    assert stated_scale(quantity).items() >= {
        ("known", 10_000),
        ("shadow models", 236_000),
        ("targets", 1_000),
    }
    assert stated_scale("(4,000 shadow models, prior twice)")["shadow models"] == 4_000
    assert stated_scale("(10 targets, 1,000 models trained on each)")["models trained on each"] == 1_000


def answer(cell, *rows, attacks=()):
    item = PaperItem("S1", "Figure 1", "what", script="script", cells=(cell,))
    return answers(item, {"script": {row.id: row for row in rows}}, attacks)[0]


@pytest.mark.parametrize(
    ("fields", "verdict", "words"),
    [
        ({"by": "RecoNN"}, "beaten", "beaten"),
        ({"by": "Newton"}, "another attack", "beaten by another attack"),
        ({"by": "RecoNN", "victim": "accuracy 0.3 for 0.4"}, "another victim", "beaten on another victim"),
        ({"by": "Newton", "victim": "x"}, "another attack", "beaten by another attack, on another victim"),
        ({"by": "Newton", "theirs": 1.05}, "another attack", "matched by another attack"),
        ({"theirs": 2.5, "better": "exact"}, "corrected", "corrected"),
        ({"by": "Newton", "theirs": 0.5, "note": "why"}, "missed", "missed"),  # whatever differs
        (
            {"theirs": 2.0, "better": "below", "untested": "that it is close"},
            "not comparable",
            "run, the claim is tested only in part",
        ),
        ({"theirs": 0.5, "better": "below", "untested": "x", "note": "why"}, "missed", "missed"),
    ],
)
def test_what_is_not_as_the_paper_did_it_is_not_beaten(fields, verdict, words):
    row = Row("a", "error", 1.0, low=0.9, high=1.1)
    measured = answer(PaperCell(**{"name": "x", "row": "a", "theirs": 2.0} | fields), row, attacks=["RecoNN"])
    assert (measured.verdict, measured.words) == (verdict, words)
    if victim := fields.get("victim"):
        assert victim in measured.scale_words
    if fields.get("untested"):
        assert "Not tested" in measured.note


def test_both_fail_where_neither_is_better_than_the_baseline():
    rows = (
        Row("a", "error", 3.0, low=2.9, high=3.1),
        Row("a.kl", "KL", 1.0, low=0.9, high=1.1),
        Row("b", "nearest", 2.0),
    )
    fails = {"row": "a", "theirs": Decimal("4.0"), "baseline": "b"}
    for name, theirs in (("a", Decimal("4.0")), ("a.kl", 9.0), ("a.kl", 0.5)):
        assert answer(PaperCell(name="x", row=name, theirs=theirs, fails=fails), *rows).verdict == "both fail"
    for slip in ({"theirs": Decimal("1.9")}, {"row": "a.kl"}):
        with pytest.raises(ValueError, match="not both fail: one has less error than b, 2"):
            answer(PaperCell(name="x", row="a", theirs=4.0, fails=fails | slip), *rows)


def test_all_metrics_of_a_table_cell_are_of_one_attack(root):
    for item, found in read(root):
        attacks = {}
        for one in found:
            game, _, metric = one.cell.name.rpartition(": ")
            if item.item.startswith("Table") and game and one.rows and metric in METRICS:
                attacks.setdefault(game, set()).add(one.cell.by)
        assert all(len(names) == 1 for names in attacks.values()), (item.item, attacks)


METRICS = ("MSE", "LPIPS", "KL", "TPR at FPR 1 %", "TPR at tau", "FPR at tau")


def test_one_measurement_counts_once(tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    write_rows(str(folder / "script.py"), [Row(name, name, 1.0, low=0.9, high=1.1) for name in ("a", "b")])
    cells = ['{ name = "p", row = "a", theirs = 2.0 }', '{ name = "q", row = "b", theirs = 2.0 }']
    cells += ['{ name = "r", row = "b", theirs = 3.0 }', '{ name = "s", theirs = 2.0, why = "Not yet." }'] * 2
    item = '[[item]]\npaper = "S1"\nitem = "Table II"\nwhat = "x"\nscript = "script"\ncount = "tables"\n'
    (folder / "coverage.toml").write_text(f"{item}cells = [{', '.join(cells)}]\n")
    assert counted(read(tmp_path))["tables"] == {"full": 2, "beaten": 2, "again": 2, "not run": 2}


def test_the_first_line_says_how_much_is_from_the_code_as_it_is(root):
    text = page(root)
    assert re.search(r"^# The papers\n\n\*\*Of the \d+ rows behind this page \d+ were measured by version \d", text)


def test_fewer_targets_are_a_part_of_the_scale():
    row = Row("a", "error (300 targets)", 1.0, low=0.9, high=1.1)
    cell = PaperCell(name="x", row="a", theirs=2.0, needs={"targets": 1_000})
    assert answer(cell, row).words == "beaten, at a part of the scale"
    assert answer(cell, row).scale_words == "300 of 1,000 targets"
    assert answer(cell, Row("a", "error (1,000 targets)", 1.0, low=0.9, high=1.1)).words == "beaten"
    kl = Row("a.kl", "KL", 1.0, low=0.9, high=1.1)
    more = answer(PaperCell(name="x", row="a.kl", theirs=2.0, needs={"targets": 100}), row, kl)
    assert (more.words, more.scale_words) == ("beaten", "300 targets (paper: 100)")  # stated by the row it extends
    other = PaperCell(name="x", row="a", theirs=2.0, needs={"targets": 100}, instead="letters for digits")
    assert answer(other, row).scale == "part"


def test_what_the_page_could_get_wrong_is_an_error():
    row = Row("a", "error (300 targets)", 1.0)
    with pytest.raises(ValueError, match=r"there is no row 'b' in script\.json"):
        answer(PaperCell(name="x", row="b"), row)
    with pytest.raises(ValueError, match=r"there is no row 'b' in other\.json"):
        answer(PaperCell(name="x", row="a", also={"RecoNN": "other:b"}), row)
    with pytest.raises(ValueError, match="does not state its games"):
        answer(PaperCell(name="x", row="a", needs={"games": 10}), row)
    with pytest.raises(ValueError, match="is missed: say in `note`"):
        answer(PaperCell(name="x", row="a", theirs=0.5), row)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('{ name = "x", row = "a", why = "never" }', "name a row, or say in `why`"),
        ('{ name = "x" }', "name a row, or say in `why`"),
        ('{ name = "x", row = "a", better = "bigger" }', "expected one of lower, higher"),
        ('{ name = "x", rows = "a" }', "unknown rows"),
    ],
)
def test_a_slip_in_the_declarations_is_named(cell, message, tmp_path):
    (tmp_path / "papers").mkdir()
    item = f'[[item]]\npaper = "S1"\nitem = "Table I"\nwhat = ""\ncells = [{cell}]\n'
    (tmp_path / "papers" / "coverage.toml").write_text(item)
    with pytest.raises(ValueError, match=message):
        page(tmp_path)


def test_a_figure_counts_once_and_a_table_by_its_cells(tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    write_rows(str(folder / "script.py"), [Row("a", "error", 1.0, low=0.9, high=1.1), Row("b", "error", 3.0)])
    cells = (
        '[{ name = "p", row = "a", theirs = 2.0 }, { name = "q", row = "b", theirs = 2.0, note = "Not known." }, '
        '{ name = "r", theirs = 1.0, data = "CelebA" }]'
    )
    items = "".join(
        f'[[item]]\npaper = "S1"\nitem = "{name}"\nwhat = "x"\nscript = "script"\ncount = "{count}"\ncells = {cells}\n'
        for name, count in (("Table II", "tables"), ("Figure 1", "figures"))
    )
    none = '[[item]]\npaper = "S1"\nitem = "Figure 2"\nwhat = "x"\nnone = "no number in it"\ncount = "figures"\n'
    (folder / "coverage.toml").write_text(f"{items}{none}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "papers.md").write_text("# Papers\n\nWhich?\n")
    totals = counted(read(tmp_path))
    assert totals["tables"] == {"full": 2, "beaten": 1, "missed": 1, "not run": 1, "data": 1}
    assert totals["figures"] == {"part": 1, "missed": 1, "no number": 1, "data": 1}  # one part was not run before
    text = page(tmp_path)
    assert "At full scale, or limited only by data that cannot be had: 4 of 4, 100 %." in text
    assert "| r | none | | | 1.0 | **not run**. Data that cannot be had: CelebA. |" in re.sub(" +", " ", text)
    assert "**1 beaten; 1 missed; 1 not run**" in text
