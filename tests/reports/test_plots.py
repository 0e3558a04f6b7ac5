"""Figures for a notebook."""

import pytest
from matplotlib.figure import Figure

from lostwax.audits import Audit

NAMES = {
    "of_a_table": {"errors"},
    "by_accident": {"errors"},
    "one_game": {"errors"},
    "of_pictures": {"errors", "roc", "pairs"},
    "candidates": {"pairs"},
    "diverged": {"errors", "roc", "pairs"},
    "all_diverged": {"errors", "roc", "pairs"},
    "under_a_ceiling": {"pairs", "ceiling"},
}


@pytest.mark.parametrize("kind", NAMES)
def test_every_figure_is_drawn_or_says_why_not(kind, audit_of):
    plot = audit_of(kind).plot
    assert isinstance(plot(), Figure)
    for name in ("errors", "roc", "pairs", "ceiling"):
        if name in NAMES[kind]:
            getattr(plot, name)().canvas.draw()
        else:
            with pytest.raises(ValueError, match=rf"plot\.{name}: "):
                getattr(plot, name)()


def test_a_notebook_shows_a_figure_without_pyplot(audit_of):
    formatters = pytest.importorskip("IPython.core.formatters")
    png = formatters.PNGFormatter()(audit_of("of_pictures").plot.errors())
    assert png.startswith(b"\x89PNG")


def test_which_pairs(audit_of, tmp_path):
    audit = audit_of("of_pictures")
    assert len(audit.plot.pairs(games=[3, 5]).axes) == 4
    with pytest.raises(ValueError, match="expected games from 0 to 119"):
        audit.plot.pairs(games=[120])
    with pytest.raises(ValueError, match="one or more"):
        audit.plot.pairs(games=[])
    audit.to_json(tmp_path / "audit.json")
    with pytest.raises(ValueError, match="a file that holds no records"):
        Audit.from_json(tmp_path / "audit.json").plot.pairs()
