"""Numbers and tables formatted for reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

SIGN = "\N{NO-BREAK SPACE}%"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Two significant digits, without trailing zeros: 0.013, 0.05, 4.2×10⁻⁹, 1,200, ∞."""
    if not math.isfinite(value):
        return "?" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        places = max(0, 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        return (text.rstrip("0").rstrip(".") if places else text).replace("-", "−")
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}×10{str(int(exponent)).translate(RAISED)}".replace("-", "−")


def power(value: float) -> str:
    """A power of ten on an axis: 10⁻⁶, 0.1, 1, 10."""
    exponent = round(math.log10(value))
    return f"{10.0**exponent:g}" if -3 <= exponent <= 3 else f"10{str(exponent).translate(RAISED)}"


def percent(share: float) -> str:
    """0 %, 0.4 %, 12 %, 99.6 %, 100 %: never rounded to exactly 0 or 100 %."""
    value = 100 * share
    if 0 < value < 0.1:
        return f"{number(value)}{SIGN}"
    if 99.9 < value < 100:
        return f"99.9{SIGN}"
    return (f"{value:.0f}" if 10 <= value <= 90 else f"{value:.1f}".removesuffix(".0")) + SIGN


def round_up(value: float) -> str:
    """Three significant digits, rounded up: for upper limits and sufficient noise."""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    value = max(value, 1e-300)  # below, the rounding step would underflow
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step - 1e-9) * step:.3g}"


def at_most(share: float) -> str:
    """An upper limit as a percentage, rounded up."""
    return f"{round_up(min(100.0, 100 * share))}{SIGN}"


def interval(low: float, high: float) -> str:
    """12 % to 15 %."""
    return f"{percent(low)} to {percent(high)}"


def count(value: int) -> str:
    """1,797."""
    return f"{value:,}"


def side_by_side(rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> list[str]:
    """The lines of a table: its cells in columns of these widths, or as wide as they need."""
    widths = widths or [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
