"""The page of a report: one file that works offline and without scripts, and makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lostwax import files
from lostwax.audits.conclusion import Rung
from lostwax.audits.text import HEADER, line_cells
from lostwax.audits.words import first_upper, reached, who
from lostwax.bounds import Plan, calibrate
from lostwax.grades import Grade
from lostwax.metrics import LargestError
from lostwax.numerals import at_most, count, interval, number, percent, round_up
from lostwax.policies import limits_of
from lostwax.reports import charts
from lostwax.reports.advice import answer, attacker
from lostwax.reports.fields import fields_of, measured_of, policy_of, without_fields
from lostwax.reports.gallery import most_at_risk, rows

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from lostwax.audits import Audit
    from lostwax.reports.comparison import Comparison

BASELINE = 0.1  # assumed without candidates: one in ten (Hayes et al. 2023)
ADVANTAGES = (0.05, 0.1, 0.5)  # (success - baseline) / (1 - baseline) allowed to any attack
DELTA = 1e-5
LONGEST = 60  # characters of a title at the foot of a printed page


class Protection(NamedTuple):
    """How much noise limits every attack to three success rates, and the assumptions."""

    baseline: float
    candidates: bool  # the baseline is that of the game, not an assumption
    steps: int
    steps_known: bool
    plans: tuple[tuple[float, Plan], ...]  # success that no attack exceeds, and the noise for it


def protection(audit: Audit) -> Protection:
    """Plans for this audit's number of full-batch steps, or for one step if it is not known."""
    baseline = BASELINE if audit.chance is None else audit.chance
    steps = int(audit.provenance.get("steps", 1))
    return Protection(baseline, audit.chance is not None, steps, "steps" in audit.provenance, _plans(baseline, steps))


@cache  # epsilon takes a third of a second
def _plans(baseline: float, steps: int) -> tuple[tuple[float, Plan], ...]:
    targets = [baseline + advantage * (1 - baseline) for advantage in ADVANTAGES]
    return tuple(
        (success, calibrate(max_success=success, baseline=baseline, steps=steps, delta=DELTA)) for success in targets
    )


def render(audit: Audit, drawings: Mapping[str, charts.Chart], *, records: bool) -> str:
    """The page, with the figures of `charts.drawn`; it shows no records unless `records`."""
    from markupsafe import Markup

    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    released, template = audit.findings[0], _templates().get_template("report.html.jinja")
    policy, texts = policy_of(audit), fields_of(audit)
    title = texts.title or "lostwax audit report"
    breaches = None if policy is None else policy.breaches(audit)
    return template.render(
        audit=audit,
        answer=answer(audit, None if breaches is None else [str(breach) for breach in breaches], measured_of(audit)),
        attacker=attacker(audit),
        who=who,
        reached=reached,
        tone=_tone,
        risky=most_at_risk(audit, records=records),
        fields=texts,
        limits=() if policy is None or breaches is None else limits_of(policy, breaches),
        footline=css_text(f"{title if len(title) <= LONGEST else title[: LONGEST - 1] + '…'} · {texts.report_id}"),
        measure="largest error of a feature" if audit.criterion == LargestError.name else "root mean square error",
        figures={
            name: {**chart._asdict(), "svg": Markup(charts.as_svg(chart, name))} for name, chart in drawings.items()
        },
        rows=rows(audit) if records else (),
        unbounded=int(np.isinf(released.errors[audit.criterion]).sum()),
        rates=charts.rates(audit),
        nulls=[(str(null), len(scores)) for null, scores in released.null_errors.items()],
        protection=protection(audit),
        header=HEADER,
        lines=line_cells(audit),
        medians=_medians(audit),
        provenance=_flat(without_fields(audit.provenance)),
        slider=_slider(audit),
        style=_asset("report.css"),
        script=script,
        script_hash=digest,
    )


def _tone(rung: Rung) -> str:
    """The colour of a grade in the map of attackers."""
    if rung.grade is None:
        return "untried"
    return "alarm" if rung.grade.severe else "warning" if rung.grade.leaks or rung.grade is Grade.UNDECIDED else "calm"


def render_comparison(comparison: Comparison) -> str:
    """The page of `lw.compare`."""
    from markupsafe import Markup

    chart, template = comparison.chart(), _templates().get_template("comparison.html.jinja")
    return template.render(
        comparison=comparison,
        day=date.today().isoformat(),
        alt=chart.alt,
        svg=Markup(charts.as_svg(chart, "comparison")),
        style=_asset("report.css"),
        footline=css_text("lostwax comparison"),
    )


def css_text(text: str) -> Markup:
    """A string of CSS: every character that is not a letter or digit is escaped."""
    from markupsafe import Markup

    plain = files.escaped(text)
    return Markup('"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in plain) + '"')


def _slider(audit: Audit) -> dict[str, Any] | None:
    """Data for the threshold slider: every game's error, null if infinite."""
    if audit.chance is not None or not audit.threshold:  # all or nothing
        return None
    errors = audit.findings[0].errors[audit.criterion]
    finite = errors[np.isfinite(errors)].clip(charts.SMALLEST)
    ends = np.append(finite, audit.threshold)
    return {
        "errors": [float(f"{error:.9g}") if math.isfinite(error) else None for error in errors.tolist()],
        "threshold": audit.threshold,
        "low": float(np.log10(ends.min())) - 0.1,
        "high": float(np.log10(ends.max())) + 0.1,
    }


def _medians(audit: Audit) -> dict[str, list[str]]:
    """By metric, the median of every line and baseline."""
    released, *others = [finding.errors for finding in audit.findings]
    lines = [released, *others, *audit.baselines.values()]
    return {metric: [number(float(np.median(errors[metric]))) for errors in lines] for metric in released}


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """A nested mapping as a flat list: ("versions, torch", value)."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        pairs += _flat(value, f"{above}{name}, ") if isinstance(value, Mapping) else [(f"{above}{name}", str(value))]
    return pairs


def _asset(name: str) -> str:
    return resources.files("lostwax.reports").joinpath("template", name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    """Jinja with escaping: user strings are text, never markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("lostwax.reports", "template")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {
        function.__name__: function for function in (number, at_most, round_up, percent, count, interval, first_upper)
    }
    return templates
