"""The page of a report: one file that works offline and without scripts, and makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lostwax import files
from lostwax.audits.ladder import Rung
from lostwax.audits.text import rates_by_class
from lostwax.audits.words import first_upper, reached, who
from lostwax.bounds import Plan, calibrate
from lostwax.grades import Grade
from lostwax.metrics import LargestError
from lostwax.numerals import at_most, count, interval, number, percent, round_up
from lostwax.policies import limits_of
from lostwax.reports import charts
from lostwax.reports.advice import answer, attacker
from lostwax.reports.fields import fields_of, measured_of, policy_of, without_fields
from lostwax.reports.gallery import Pair, most_at_risk, pair, rows

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from lostwax.audits import Audit, Finding
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


class PageLine(NamedTuple):
    """A row of the table of all numbers."""

    name: str
    rebuilt: str
    nearer: str
    labels: str
    milliseconds: str
    reasons: str
    medians: tuple[str, ...]  # per metric


def render(audit: Audit, drawings: Mapping[str, charts.Chart], *, records: bool) -> str:
    """The page, with the figures of `charts.drawn`; it shows no records unless `records`."""
    from markupsafe import Markup

    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    released, template = audit.findings[0], _templates().get_template("report.html.jinja")
    policy, texts = policy_of(audit), fields_of(audit)
    title = texts.title or "lostwax audit report"
    breaches = None if policy is None else policy.breaches(audit)
    page = template.render(
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
        neurons=_neurons(audit, records=records),
        unbounded=int(np.isinf(released.errors[audit.criterion]).sum()),
        rates=charts.rates(audit),
        rates_by_class=rates_by_class(audit),
        nulls=[(str(null), len(scores)) for null, scores in released.null_errors.items()],
        protection=protection(audit),
        metrics=list(released.errors),
        lines=_lines(audit),
        provenance=_flat(without_fields(audit.provenance)),
        recipe=_recipe(audit),
        slider=_slider(audit),
        style=_asset("report.css"),
        script=script,
        script_hash=digest,
    )
    return with_glossary(page)


def _tone(rung: Rung) -> str:
    """The colour of a grade in the map of attackers."""
    if rung.grade is None:
        return "untried"
    return "alarm" if rung.grade.severe else "warning" if rung.grade.leaks or rung.grade is Grade.UNDECIDED else "calm"


def render_comparison(comparison: Comparison) -> str:
    """The page of `lw.compare`."""
    from markupsafe import Markup

    chart, template = comparison.chart(), _templates().get_template("comparison.html.jinja")
    page = template.render(
        comparison=comparison,
        day=date.today().isoformat(),
        alt=chart.alt,
        svg=Markup(charts.as_svg(chart, "comparison")),
        style=_asset("report.css"),
        footline=css_text("lostwax comparison"),
    )
    return with_glossary(page)


def css_text(text: str) -> Markup:
    """A string of CSS: every character that is not a letter or digit is escaped."""
    from markupsafe import Markup

    plain = files.escaped(text)
    return Markup('"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in plain) + '"')


def _neurons(audit: Audit, *, records: bool) -> list[tuple[str, int, Pair | None]]:
    """The games whose neurons are drawn: name of the figure, number of the game, and its images."""
    released = audit.findings[0]
    if released.neurons is None:
        return []
    return [
        (name, int(audit.games[index]), pair(audit, released, index) if records else None)
        for name, index in zip(charts.NEURONS, released.neurons.places, strict=True)
    ]


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


def _lines(audit: Audit) -> list[PageLine]:
    """Every line of the audit, then the baselines."""
    lines = [_line(audit, finding) for finding in audit.findings]
    for name, errors in audit.baselines.items():
        rebuilt = float((errors[audit.criterion] <= audit.threshold).mean())
        lines.append(PageLine(name, _share(rebuilt, audit), "", "", "", "", _medians(errors)))
    return lines


def _line(audit: Audit, finding: Finding) -> PageLine:
    numbers = audit.summary()[finding.name]
    labels = f"{_share(numbers['labels_right'], audit)} right"
    if finding.label_errors is not None:
        labels = f"off by {number(float(finding.label_errors.mean()))} dev."
    return PageLine(
        name=finding.name,
        rebuilt=_share(numbers["rebuilt"], audit),
        nearer="" if audit.chance is not None else _share(numbers["beats_baselines"], audit),
        labels="given" if audit.labels_given else labels,
        milliseconds=number(numbers["milliseconds_per_record"]),
        reasons=", ".join(f"{percent(numbers[str(kind)])} {kind}" for kind in dict.fromkeys(finding.verdicts)),
        medians=_medians(finding.errors),
    )


def _medians(errors: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(number(float(np.median(values))) for values in errors.values())


def _share(share: float, audit: Audit) -> str:
    if audit.complete:
        return percent(share)
    low, high = audit.interval(round(share * len(audit.games)))
    return f"{percent(share)} ({interval(low, high)})"


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """A nested mapping as a flat list: ("versions, torch", value)."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        pairs += _flat(value, f"{above}{name}, ") if isinstance(value, Mapping) else [(f"{above}{name}", str(value))]
    return pairs


def _recipe(audit: Audit) -> str:
    """The call that made this audit, as far as it is recorded."""
    known = audit.provenance
    named = ["trainer", "attack", "access"] if len(audit.findings) == 1 or audit.kind == "this model" else ["trainer"]
    parts = [f"{name}={known[name]}" for name in named if name in known]
    if audit.kind == "this model":
        parts = ["model", "(X, y)", *parts]
    else:
        parts = ["net", *parts, "threat=threat", "prior=prior", "secrets=secrets"]
    if len(audit.games) < audit.population:
        parts.append(f"games={len(audit.games)}")
    parts += [f"seed={known.get('seed')}", f"threshold={audit.threshold:g}"]
    call = "lw.audit(\n" + "".join(f"    {part},\n" for part in parts) + ")"
    return f'import lostwax as lw\n\naudit = {call}\nlw.report(audit, "audit")'


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


# a pattern that finds the word on the page -> the word, and what it means
WORDS = {
    r"\battacks?\b": ("attack", "A computation that guesses a training record from the model."),
    r"\battribute inference\b": (
        "attribute inference",
        "To find one value of a person from the model and the person’s other values.",
    ),
    r"\bmembership\b": ("membership", "Whether a record was among those that the model was trained on."),
    r"\bgrade\b": ("grade", "How much the model reveals, in one word; the worst result of all attacks counts."),
    r"\bgames?\b": ("game", "One try to rebuild one record."),
    r"\brecords?\b": ("record", "What the model was trained on: a row of a table, a picture, the data of one person."),
    r"\brebuilt\b": ("rebuilt", "The attack’s guess equals the record, up to the threshold stated above."),
    r"\bthreshold\b": ("threshold", "How close a guess must be to count as rebuilt."),
    r"\bbaselines?\b": ("baseline", "A guess made without the model. Only what is closer comes from the model."),
    r"\bblind guess\b": ("blind guess", "The best guess without the model: an average record, or the likeliest."),
    r"\boracle\b|\bnearest\b": ("nearest record", "The record that the attacker has anyway which is closest."),
    r"\bluck\b|\bchance\b": ("chance, luck", "What a guess reaches that has nothing to do with the secret record."),
    r"\bcandidates?\b": ("candidate", "One of a few records, one of which is the secret."),
    r"\binterval\b": ("95 % interval", "Where the true share lies with 95 % confidence, since only some were tried."),
    r"\bstandard deviations?\b": ("standard deviation", "The usual spread of a column: the unit of errors here."),
    r"\boptimum\b|\bas converged\b": (
        "optimum",
        "The end point of training; a model that stopped before it may hide records by accident.",
    ),
    r"\bweights\b": ("weights", "The numbers inside a model, which training sets and a model file holds."),
    r"\bdifferential(ly)? priva|\bDP-SGD\b|\bDP\b": (
        "differential privacy (DP)",
        "Noise in training, so that the model would be nearly the same without any one record.",
    ),
    r"ε": ("ε (epsilon), δ (delta)", "The strength of differential privacy: the smaller, the stronger."),
    r"\bnoise multiplier\b": ("noise multiplier", "How much noise is added, relative to the effect of one record."),
    r"\bceiling\b": ("ceiling", "A limit on the success of every attack, known or not, that follows from the noise."),
    r"\bcertified\b": ("certified", "Proved by mathematics, not estimated from trials."),
    r"\bfalse-positive|\bfalse positives\b": (
        "false positives, true positives",
        "How often the attack claims a record by accident, and how often rightly.",
    ),
    r"\bpolicy\b": ("policy", "The limits that your organisation sets; each is checked against the audit."),
    r"\bverdicts?\b": ("verdict", "Why a record is or is not rebuilt: by the model, the solver or the attack."),
}


MARK = "<!-- glossary -->"  # where the glossary goes, once the words of the page are known


def with_glossary(page: str) -> str:
    """The page, with a section on the words that it uses in place of the mark."""
    entries = "".join(f"<div><dt>{word}</dt><dd>{meaning}</dd></div>\n" for word, meaning in used(page))
    heading = '<h2 id="glossary">Words used here</h2>'
    section = f'<section aria-labelledby="glossary">\n{heading}\n<dl class="glossary">\n{entries}</dl>\n</section>'
    return page.replace(MARK, section)


def used(page: str) -> list[tuple[str, str]]:
    """The words that occur in the text of the page, in alphabetical order, with their meanings."""
    text = re.sub(r"<(style|script|svg)\b.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    entries = [entry for pattern, entry in WORDS.items() if re.search(pattern, text, re.IGNORECASE)]
    return sorted(entries, key=lambda entry: entry[0].lower())
