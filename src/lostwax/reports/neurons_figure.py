"""Which neurons hold a record: a column per layer, a cell per neuron, coloured by how much the attack reads from it."""

from __future__ import annotations

from itertools import groupby
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from lostwax.numerals import percent
from lostwax.reports.charts import COLOURS, Chart, blank, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lostwax.audits import Audit

CLEAR = 3.0  # standard errors that count as significant
COLUMN = 12  # neurons per column; wider layers have several columns
CELL, SMALL = (44.0, 19.0), (14.0, 14.0)  # points; small cells have no number
PALEST = 0.12
LEFT, TOP, GAP = 24.0, 46.0, 40.0  # margins left, above, and between layers
NARROWEST = 62.0  # width of a layer, for its name
LONGEST = 16  # characters of a module's name
NAMED = 5  # neurons in the alt text


class Cell(NamedTuple):
    """A neuron."""

    module: str
    number: int
    share: float  # of a blind guess's error that reading it removes
    clear: bool  # significantly different from 0


def cells(audit: Audit, index: int) -> list[Cell]:
    """All neurons, for a game that Mnemonist explained."""
    held = audit.findings[0].neurons
    if held is None or index not in held.places:
        explained = "none" if held is None else ", ".join(map(str, held.places))
        raise ValueError(f"draw_neurons: expected one of the games with neurons ({explained}), got index={index}.")
    at = held.places.index(index)
    numbers = zip(held.rows, held.shares[at].tolist(), held.standard_errors[at].tolist(), strict=True)
    return [Cell(row.module, row.number, share, abs(share) > CLEAR * error) for row, share, error in numbers]


def draw_neurons(audit: Audit, index: int) -> Chart:
    """The neurons that hold the record of the game at this index of the audit's list."""
    found = cells(audit, index)
    layers = [list(layer) for _, layer in groupby(found, key=lambda cell: cell.module)]
    numbered = all(len(layer) <= COLUMN for layer in layers)
    width, height = CELL if numbered else SMALL
    widths = [max(-(-len(layer) // COLUMN) * width, NARROWEST) + GAP for layer in layers]
    across, down = LEFT + sum(widths), TOP + height * min(COLUMN, max(len(layer) for layer in layers))
    muted, boxes = COLOURS["muted"], Boxes()
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
                boxes.append((cell, x, y))
                if numbered:
                    axes.text(x - 5, y + height / 2, str(cell.number), ha="right", va="center", color=muted, fontsize=9)
        _draw_boxes(axes, boxes, (width - 2, height - 2), numbered=numbered)
    return Chart(figure, in_words(found))


def in_words(found: list[Cell]) -> str:
    """Alt text: the neurons that hold most."""
    holding = sorted((cell for cell in found if cell.clear and cell.share > 0), key=lambda cell: -cell.share)
    if not holding:
        return f"None of {len(found)} neurons holds this record."
    most = ", ".join(f"neuron {cell.number} of layer “{cell.module}” {percent(cell.share)}" for cell in holding[:NAMED])
    others = f", and {len(holding) - NAMED} more" if len(holding) > NAMED else ""
    return f"{len(holding)} of {len(found)} neurons hold this record: {most}{others}."


Boxes = list[tuple[Cell, float, float]]  # cells and their positions x, y


def _draw_boxes(axes: Axes, boxes: Boxes, size: tuple[float, float], *, numbered: bool) -> None:
    """Draw all boxes as collections: thousands of single patches would take a minute."""
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    width, height = size
    strongest = max(cell.share for cell, _, _ in boxes)

    def rectangles(some: Boxes) -> list[Rectangle]:
        return [Rectangle((x, y), width, height) for _, x, y in some]

    axes.add_collection(PatchCollection(rectangles(boxes), facecolor="none", edgecolor=COLOURS["line"], linewidth=1))
    misleading = [(x, y) for cell, x, y in boxes if cell.clear and cell.share < 0]
    crosses = [((x, y + a), (x + width, y + b)) for x, y in misleading for a, b in ((0, height), (height, 0))]
    axes.add_collection(LineCollection(crosses, colors=COLOURS["muted"], linewidths=0.9))
    holding = [(cell, x, y) for cell, x, y in boxes if cell.clear and cell.share >= 0]
    strengths = [max(PALEST, cell.share / strongest) if strongest > 0 else PALEST for cell, _, _ in holding]
    colours = [to_rgba(COLOURS["accent"], strength) for strength in strengths]
    axes.add_collection(PatchCollection(rectangles(holding), facecolors=colours, linewidth=0))
    for (cell, x, y), strength in zip(holding, strengths, strict=True):
        if numbered:
            ink = COLOURS["paper" if strength > 0.6 else "ink"]
            middle = x + width / 2, y + height / 2 + 0.5
            axes.text(*middle, percent(cell.share), ha="center", va="center", color=ink, fontsize=9.5)
