"""Which neurons hold a record: layers as columns, a cell a neuron, its colour the stronger the more is read from it."""

from __future__ import annotations

from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from lostwax.numerals import percent
from lostwax.reports.charts import COLOURS, Chart, blank, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lostwax.audits import Audit

CLEAR = 3.0  # standard errors: less is nothing to be seen
COLUMN = 12  # neurons of a layer, one below the other; wider layers have several columns
CELL, SMALL = (44.0, 19.0), (14.0, 14.0)  # points; the small ones have no room for a number
PALEST = 0.12
LEFT, TOP, GAP = 24.0, 46.0, 40.0  # beside the cells, above them, and between layers, for numbers and names
NARROWEST = 62.0  # a layer, for its name
LONGEST = 16  # letters of a module's name
NAMED = 5  # neurons, in words


class Cell(NamedTuple):
    """A neuron."""

    module: str
    number: int
    share: float  # of a blind guess's error that it spares the attack
    clear: bool  # or perhaps nothing


def cells(audit: Audit, place: int) -> list[Cell]:
    """All neurons, for a game that was looked into."""
    held = audit.findings[0].neurons
    if held is None or place not in held.places:
        there = "none" if held is None else ", ".join(map(str, held.places))
        raise ValueError(
            f"draw_neurons: expected a place that this audit tells the neurons of ({there}), got place={place}."
        )
    at = held.places.index(place)
    numbers = zip(held.rows, held.shares[at].tolist(), held.standard_errors[at].tolist(), strict=True)
    return [Cell(row.module, row.number, share, abs(share) > CLEAR * error) for row, share, error in numbers]


def draw_neurons(audit: Audit, place: int) -> Chart:
    """The neurons that hold the record of the game at this place of the audit's list."""
    found = cells(audit, place)
    layers = [list(layer) for _, layer in groupby(found, key=lambda cell: cell.module)]
    numbered = all(len(layer) <= COLUMN for layer in layers)
    width, height = CELL if numbered else SMALL
    widths = [max(-(-len(layer) // COLUMN) * width, NARROWEST) + GAP for layer in layers]
    across, down = LEFT + sum(widths), TOP + height * min(COLUMN, max(len(layer) for layer in layers))
    strongest = max(cell.share for cell in found)
    muted = COLOURS["muted"]
    with style():
        figure, axes = blank(round(across), round(down))
        axes.set(xlim=(0, across), ylim=(down, 0))
        axes.set_axis_off()
        axes.set_position((0, 0, 1, 1))
        for number, layer in enumerate(layers):
            left = LEFT + sum(widths[:number])
            module = shorten(f"module {layer[0].module}", LONGEST, placeholder="…")
            axes.text(left, 14, f"layer {number + 1}", va="center")
            axes.text(left, 32, module, va="center", color=muted, fontsize=10)
            for cell in layer:
                column, line = divmod(cell.number, COLUMN)
                x, y = left + column * width, TOP + line * height
                _draw_cell(axes, cell, (x, y), (width, height), strongest, numbered=numbered)
                if numbered:
                    axes.text(x - 5, y + height / 2, str(cell.number), ha="right", va="center", color=muted, fontsize=9)
    return Chart(figure, in_words(found))


def in_words(found: list[Cell]) -> str:
    """Those that hold most, for who cannot see the picture."""
    holding = sorted((cell for cell in found if cell.clear and cell.share > 0), key=lambda cell: -cell.share)
    if not holding:
        return f"None of {len(found)} neurons is seen to hold this record."
    most = ", ".join(f"neuron {cell.number} of layer “{cell.module}” {percent(cell.share)}" for cell in holding[:NAMED])
    others = f", and {len(holding) - NAMED} more" if len(holding) > NAMED else ""
    return f"{len(holding)} of {len(found)} neurons hold this record: {most}{others}."


def _draw_cell(
    axes: Axes, cell: Cell, corner: tuple[float, float], size: tuple[float, float], strongest: float, *, numbered: bool
) -> None:
    from matplotlib.patches import Rectangle

    (x, y), (width, height) = corner, (size[0] - 2, size[1] - 2)
    outline = Rectangle(corner, width, height, facecolor="none", edgecolor=COLOURS["line"], linewidth=1)
    axes.add_patch(outline)
    if not cell.clear:
        return
    if cell.share < 0:  # it misleads
        for ends in ((y, y + height), (y + height, y)):
            axes.plot((x, x + width), ends, color=COLOURS["muted"], linewidth=0.9)
        return
    strength = max(PALEST, cell.share / strongest)
    axes.add_patch(Rectangle(corner, width, height, color=COLOURS["accent"], alpha=strength, linewidth=0))
    if numbered:
        ink = COLOURS["paper" if strength > 0.6 else "ink"]
        middle = x + width / 2, y + height / 2 + 0.5
        axes.text(*middle, percent(cell.share), ha="center", va="center", color=ink, fontsize=9.5)
