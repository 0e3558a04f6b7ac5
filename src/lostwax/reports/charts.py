"""Figures of an audit, as PNG for documents and as SVG in the colours of the page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.metrics import TruePositives, roc, true_positives
from lostwax.numerals import count, number, percent, power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lostwax.audits import Audit
    from lostwax.reports.comparison import Compared

# in PNG; in the page each is a CSS variable, which changes with the theme
COLOURS = {"ink": "#1f1d1b", "muted": "#6f6a63", "line": "#ddd7cd", "accent": "#a8491f", "paper": "#fdfcfa"}
WIDTH = 880  # points; in the page, pixels
SMALLEST = 1e-17  # smaller errors are drawn here
DASHES = ("-", "--", ":", "-.")
LONGEST = 34  # characters of a name in a legend


class Chart(NamedTuple):
    """A figure, its alt text, and the scale of its x axis."""

    figure: Figure
    alt: str
    pixels_per_decade: float = 0.0  # along x, at the original size


def drawn(audit: Audit) -> dict[str, Chart]:
    """All figures that apply to this audit, by name."""
    charts = {}
    if audit.chance is None:
        charts["errors"] = draw_errors(audit)
    if audit.findings[0].null_errors:
        charts["roc"] = draw_roc(audit)
    if len([rung for rung in audit.attackers.by_missing.values() if rung.attacker.known]) > 1:
        charts["knowledge"] = draw_knowledge(audit)
    if audit.ceiling is not None:
        charts["ceiling"] = draw_ceiling(audit)
    return charts


def draw_errors(audit: Audit) -> Chart:
    """Histogram of errors, with the baselines, on a log scale."""
    from matplotlib.ticker import MaxNLocator

    errors, *more = (finding.errors[audit.criterion] for finding in audit.findings)
    others = {name: by_metric[audit.criterion] for name, by_metric in audit.baselines.items()}
    bins = _bins([errors, *more, *others.values()], audit.threshold)
    with style():
        figure, axes = blank(WIDTH, 300)
        top = max(_counts(values, bins).max() for values in (errors, *more, *others.values()))
        axes.hist(_drawn(errors, bins), bins=bins.tolist(), color=COLOURS["accent"], alpha=0.9, rwidth=0.94)
        lines = {finding.name: values for finding, values in zip(audit.findings[1:], more, strict=True)}
        for group, colour, width in ((lines, COLOURS["accent"], 1.6), (others, COLOURS["ink"], 1.2)):
            for (name, values), dashes in zip(group.items(), cycle(DASHES), strict=False):
                counts = _counts(values, bins)
                axes.stairs(counts, bins, color=colour, linewidth=width, linestyle=dashes, label=name)
        axes.axvline(audit.threshold, color=COLOURS["muted"], linewidth=1.2, linestyle=(0, (1, 2)), gid="threshold")
        axes.set(xscale="log", xlim=(bins[0], bins[-1]), ylim=(0, 1.12 * max(1, top)))
        axes.set_xlabel(f"error ({audit.criterion}); lower is closer to the original")
        axes.set_ylabel("games")
        axes.xaxis.set_major_formatter(lambda value, _: power(value))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        _legend(axes, "the attack" if len(audit.findings) == 1 else audit.findings[0].name)
        figure.tight_layout(pad=0.6)
        pixels = axes.get_window_extent().width
    alt = f"Histogram of errors. Median of the attack {number(float(np.median(errors)))}; " + "; ".join(
        f"{name} {number(float(np.median(values)))}" for name, values in others.items()
    )
    return Chart(figure, alt, pixels / math.log10(bins[-1] / bins[0]))


def rates(audit: Audit) -> tuple[TruePositives, ...]:
    """True-positive rates at false-positive rates of 1 % and 0.1 %, for each null with enough games."""
    return tuple(
        true_positives(audit.errors, scores, null=null, fpr=fpr)
        for null, scores in audit.findings[0].null_errors.items()
        for fpr in (0.01, 0.001)
        if len(scores) >= math.ceil(1 / fpr) - 1
    )


def draw_roc(audit: Audit) -> Chart:
    """ROC curve on log scales."""
    nulls = audit.findings[0].null_errors
    least = 0.5 / max(len(audit.games), *(len(scores) for scores in nulls.values()))
    with style():
        figure, axes = blank(600, 420)
        axes.plot([least, 1], [least, 1], color=COLOURS["muted"], linewidth=1, linestyle="--", label="chance")
        for (null, scores), dashes in zip(nulls.items(), cycle(DASHES), strict=False):
            curve = roc(audit.errors, scores, null=null)
            x, y = np.maximum(curve.fpr[1:], least), np.maximum(curve.tpr[1:], least)
            label = f"the attack, against {null}" if len(nulls) > 1 else "the attack"
            axes.plot(x, y, color=COLOURS["accent"], linewidth=2, linestyle=dashes, drawstyle="steps-post", label=label)
        for point in rates(audit):
            rate, low = max(point.rate, least), max(point.low, least)
            ends, ink = [[rate - low], [max(0.0, point.high - rate)]], COLOURS["ink"]
            axes.errorbar(point.fpr, rate, yerr=ends, fmt="o", color=ink, markersize=5, linewidth=1.2, capsize=4)
        axes.set(xscale="log", yscale="log", xlim=(least, 1.1), ylim=(least, 1.4))
        axes.set_xlabel("false-positive rate (found by chance)")
        axes.set_ylabel("true-positive rate (found by the attack)")
        ticks = [tick for tick in (0.0001, 0.001, 0.01, 0.1, 1.0) if tick >= least]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, labels=[f"{100 * tick:g} %" for tick in ticks])
            axis.set_ticks([], minor=True)
        axes.legend(frameon=False, loc="lower right", labelcolor=COLOURS["ink"])
        figure.tight_layout(pad=0.6)
    return Chart(figure, "; ".join(str(point) for point in rates(audit)) or "ROC curve")


def draw_knowledge(audit: Audit) -> Chart:
    """The share of missing records that come back, over how many are missing."""
    from matplotlib.ticker import NullLocator

    curve = sorted(audit.attackers.by_missing.items())
    missing, rungs = [missing for missing, _ in curve], [rung for _, rung in curve]
    shares = np.array([rung.share for rung in rungs])
    ends = np.array([rung.interval for rung in rungs]).T  # (2, rungs)
    with style():
        figure, axes = blank(600, 300)
        axes.errorbar(
            missing,
            shares,
            abs(ends - shares),
            color=COLOURS["accent"],
            marker="o",
            linewidth=2,
            elinewidth=1,
            capsize=3,
        )
        axes.set(xscale="log", ylim=(-0.03, 1.03), xticks=missing)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: percent(max(0.0, value)))
        axes.set_xlabel(f"{rungs[0].attacker.unit}s that the attacker does not know")
        axes.set_ylabel("of them rebuilt")
        figure.tight_layout(pad=0.6)
    points = "; ".join(f"{count(rung.attacker.missing or 0)} missing: {percent(rung.share)}" for rung in rungs)
    return Chart(figure, f"Share of the missing records that come back. {points}.")


def draw_ceiling(audit: Audit) -> Chart:
    """The attack's success with its interval, and the ceiling for every attack."""
    if audit.ceiling is None:
        raise ValueError("draw_ceiling: this audit has no ceiling, because training is not differentially private.")
    won, games = int(audit.findings[0].rebuilt.sum()), len(audit.games)
    low, high = audit.interval(won)
    with style():
        figure, axes = blank(WIDTH, 170)
        axes.axvspan(0, audit.ceiling.upper, color=COLOURS["line"], alpha=0.6, linewidth=0)
        axes.axvline(audit.ceiling.upper, color=COLOURS["ink"], linewidth=1.6)
        axes.axvline(audit.ceiling.baseline, color=COLOURS["muted"], linewidth=1.2, linestyle="--")
        share = won / games
        axes.errorbar(share, 0, xerr=[[share - low], [high - share]], fmt="o", color=COLOURS["accent"], capsize=5)
        widest = min(1.0, 1.5 * max(audit.ceiling.upper, audit.ceiling.baseline, high))
        axes.set(xlim=(0, widest), ylim=(-1, 1.6), yticks=[])
        gap = 0.006 * widest
        axes.text(audit.ceiling.upper - gap, 1.7, "ceiling", ha="left", va="bottom")
        axes.text(audit.ceiling.baseline - gap, 1.7, "blind guess", ha="right", va="bottom", color=COLOURS["muted"])
        axes.text(max(high, audit.ceiling.upper) + 2 * gap, 0, "this attack", va="center", color=COLOURS["accent"])
        axes.xaxis.set_major_formatter(lambda value, _: percent(value))
        axes.set_xlabel("share of games won")
        axes.spines["left"].set_visible(False)
        figure.tight_layout(pad=0.6)
    return Chart(figure, f"The attack wins {percent(share)} of games; {audit.ceiling.sentence}")


def draw_comparison(audits: Sequence[Compared]) -> Chart:
    """Success with its interval, ceiling and accuracy, one place on the x axis per audit."""
    places, wanted = np.arange(len(audits)), max(len(audit.name) for audit in audits)
    with style():
        figure, axes = blank(WIDTH, 340)
        success = np.array([audit.success for audit in audits])
        ends = [[audit.success - audit.low for audit in audits], [audit.high - audit.success for audit in audits]]
        axes.errorbar(
            places, success, yerr=ends, fmt="o-", color=COLOURS["accent"], capsize=5, linewidth=1.6, label="success"
        )
        if any(audit.nearer is not None for audit in audits):
            nearer = [math.nan if audit.nearer is None else audit.nearer for audit in audits]
            look: Any = {"color": COLOURS["accent"], "markerfacecolor": COLOURS["paper"], "linewidth": 1}
            axes.plot(places, nearer, "o:", **look, label="closer than every baseline")
        if any(audit.accuracy is not None for audit in audits):
            accuracy = [math.nan if audit.accuracy is None else audit.accuracy for audit in audits]
            axes.plot(places, accuracy, "s--", color=COLOURS["ink"], linewidth=1.4, label="accuracy")
        ceilings = [(place, audit.ceiling) for place, audit in enumerate(audits) if audit.ceiling is not None]
        if ceilings:
            axes.hlines(
                [high for _, high in ceilings],
                [place - 0.22 for place, _ in ceilings],
                [place + 0.22 for place, _ in ceilings],
                color=COLOURS["muted"],
                linewidth=2,
                label="ceiling for any attack",
            )
        axes.set(ylim=(-0.03, 1.05), xlim=(-0.5, len(audits) - 0.5))
        shown = [
            fill(shorten(audit.name, 2 * LONGEST, placeholder="…"), max(8, 110 // len(audits))) for audit in audits
        ]
        axes.set_xticks(places, labels=shown, fontsize=11 if wanted * len(audits) < 100 else 9)
        axes.yaxis.set_major_formatter(lambda value, _: percent(round(value, 6)))
        axes.set_ylabel("share")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=11, borderaxespad=0)
        figure.tight_layout(pad=0.6)
    return Chart(figure, "; ".join(f"{audit.name}: success {audit.success_in_words()}" for audit in audits))


def as_svg(chart: Chart, name: str) -> str:
    """The figure for the page: text as text, CSS colours, unique ids."""
    text = io.StringIO()
    with style():
        chart.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\1{name}-", svg)
    svg = re.sub(r' width="([\d.]+)pt" height="[\d.]+pt"', r' width="\1"', svg, count=1)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg.replace("'DejaVu Sans'", "inherit")


def as_png(chart: Chart) -> bytes:
    """The figure for documents and slides."""
    content = io.BytesIO()
    with style():
        chart.figure.savefig(content, format="png", dpi=144, facecolor=COLOURS["paper"])
    return content.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """The common style of all figures."""
    from matplotlib import rc_context

    settings: Any = {
        **{"svg.fonttype": "none", "svg.hashsalt": "lostwax", "font.size": 12, "text.color": COLOURS["ink"]},
        "text.parse_math": False,  # dollars in names are no formulas
        **{"axes.labelpad": 8, "axes.spines.top": False, "axes.spines.right": False, "xtick.minor.visible": False},
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), COLOURS["line"]),
        **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), COLOURS["muted"]),
    }
    with rc_context(settings):
        yield


def blank(width: int, height: int) -> tuple[Figure, Axes]:
    """A transparent figure of this size, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    FigureCanvasAgg(figure)
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    return figure, axes


def _legend(axes: Axes, first: str) -> None:
    from matplotlib.patches import Patch

    handles, names = axes.get_legend_handles_labels()
    handles = [Patch(color=COLOURS["accent"]), *handles]
    shown = [shorten(name, LONGEST, placeholder="…") for name in (first, *names)]
    place: Any = {
        "loc": "lower left",
        "bbox_to_anchor": (0, 1.0),
        "borderaxespad": 0,
        "ncols": 4 if len(names) < 4 else 3,
    }
    axes.legend(handles, shown, frameon=False, handlelength=1.6, columnspacing=1.8, fontsize=11, **place)


def _bins(samples: list[NDArray[np.float64]], threshold: float) -> NDArray[np.float64]:
    """48 log-spaced bins that cover all finite values and the threshold."""
    values = np.concatenate([*samples, [threshold]])
    values = values[np.isfinite(values)].clip(SMALLEST)
    low, high = math.log10(values.min()), math.log10(values.max())
    margin = max(0.15, 0.03 * (high - low))
    return np.logspace(low - margin, high + margin, 49)


def _drawn(values: NDArray[np.float64], bins: NDArray[np.float64]) -> NDArray[np.float64]:
    """The finite values, clipped to the first bin."""
    return values[np.isfinite(values)].clip(bins[0])


def _counts(values: NDArray[np.float64], bins: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.histogram(_drawn(values, bins), bins)[0]
