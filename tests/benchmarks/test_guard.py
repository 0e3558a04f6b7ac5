"""The guard of speed notices a loss, and neither noise nor a busy machine."""

import itertools
import runpy
import sys
from pathlib import Path

import pytest

from lostwax_dev.results import Row, write_rows


@pytest.fixture(scope="module")
def guard():
    root = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(root / "benchmarks")
        for name in ("bounds", "heads_per_second", "own_training", "shadows_per_second", "store_scales"):
            monkeypatch.delitem(sys.modules, name, raising=False)  # tests/bounds has the same name as a benchmark
        yield runpy.run_path(str(root / "benchmarks" / "guard.py"))
        for name in ("bounds", "heads_per_second", "own_training", "shadows_per_second", "store_scales"):
            sys.modules.pop(name, None)


def test_every_claim_is_recorded_with_its_machine_and_commit(guard, root):
    rows = {row.id: row for row in guard["read_rows"](root / "benchmarks" / "results" / "guard.json")}
    for claim in guard["CLAIMS"]:
        row = rows[f"{claim.name} on cpu"]
        assert row.value > 0
        assert row.machine
        assert row.commit
        assert (root / claim.where).is_file()
    assert len(guard["CLAIMS"]) == 10


@pytest.mark.parametrize(
    ("ratio", "word", "fails", "fails_strictly"),
    [
        (1.0, "ok", False, False),
        (0.81, "ok", False, False),
        (0.79, "below the threshold", False, True),
        (0.51, "below the threshold", False, True),
        (0.49, "halved", True, True),
    ],
)
def test_a_fifth_is_reported_and_a_half_fails(guard, ratio, word, fails, fails_strictly):
    assert guard["verdict"](7 * ratio, 7.0) == word
    assert guard["failed"](["ok", word], strict=False) == fails
    assert guard["failed"](["ok", word], strict=True) == fails_strictly
    assert guard["verdict"](ratio, None) == "not recorded"


def test_slow_turns_of_a_busy_machine_do_not_count(guard):
    clock = itertools.accumulate(
        # warm-up, then turns: ours, the reference; each is asked for twice
        [0, 50, 0, 50, 0, 2, 0, 6, 0, 9, 0, 90],
    )
    contest = guard["Contest"](guard["Work"](lambda: None, 2), guard["Work"](lambda: None), lambda: float(next(clock)))
    ratio, ratios = guard["measured"](contest, 0)
    assert ratio == 6.0  # 6 per unit of the reference, 1 of ours
    assert ratios == [6.0, 20.0]


@pytest.mark.parametrize(("taken", "fails"), [(1.0, False), (1.9, False), (2.2, True)])
def test_it_fails_where_a_ratio_has_halved(guard, taken, fails, monkeypatch, tmp_path, capsys):
    ticks = itertools.cycle([0.0, taken, 0.0, 1.0])
    contest = guard["Contest"](guard["Work"](lambda: None), guard["Work"](lambda: None), lambda: next(ticks))
    main = guard["main"]
    results = write_rows(str(tmp_path / "guard.py"), [Row("fake on cpu", "a fake", 1.0)])
    monkeypatch.setitem(main.__globals__, "CLAIMS", [guard["Claim"]("fake", "a fake", "README.md", lambda _: contest)])
    monkeypatch.setitem(main.__globals__, "RESULTS", results)
    monkeypatch.setattr(sys, "argv", ["guard.py", "--quick"])
    if fails:
        with pytest.raises(SystemExit, match="1"):
            main()
    else:
        main()
    assert f"{1 / taken:.3g}" in capsys.readouterr().out
