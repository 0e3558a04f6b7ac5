"""An audit as a table a person can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lostwax.metrics import ByClass, Null

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit

FEWEST_NULLS = 99  # to tell a false positive rate of 1 %
CURES = {  # for what has no answer, by the audit's kind
    "this model": "Fit a model that has an optimum, with a penalty for example, and audit that.",
    "this procedure": "Allow more minutes (max_minutes), or name the attack that is to play (attack).",
}


def as_table(audit: Audit) -> str:
    """Title, verdict in plain words, one row a line or baseline, notes."""
    played = len(audit.games)
    every = "all" if played == audit.population else str(played)
    lines = [
        f"lostwax audit of {audit.subject}",
        f"{audit.kind} · {every} of {audit.population} games · attack {audit.attack} · {audit.threat}",
        "",
        verdict_sentence(audit),
        "",
    ]
    rows: list[tuple[str, ...]] = [
        ("", "rebuilt", "beats both", "median error", "labels", "ms a record", "why the rest is not")
    ]
    summary = audit.summary()
    for finding in audit.findings:
        numbers = summary[finding.name]
        rows.append(
            (
                finding.name,
                _rate(numbers["rebuilt"], audit),
                "" if audit.chance else _rate(numbers["beats_baselines"], audit),
                _error(numbers["median_error"]),
                _labels(numbers, audit),
                f"{numbers['milliseconds_per_record']:.3f}",
                _reasons(numbers),
            )
        )
    for name in audit.baselines:
        numbers = summary[name]
        rebuilt = _rate(numbers["rebuilt"], audit)
        rows.append((name, rebuilt, "", _error(numbers["median_error"]), "", "", ""))
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]  # no reasons to give
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [
        "",
        f"rebuilt: {audit.criterion} <= {audit.threshold:g}; error: {audit.metric}"
        + ("" if audit.chance else f"; beats both: smaller error than the blind guess and the {audit.oracle}"),
    ]
    if audit.ceiling is not None:
        lines.append(f"ceiling for every attack on this training: {audit.ceiling}")
    if audit.kind == "this procedure" and audit.chance is None:
        lines += _more_numbers(audit)
    lines += [f"note: {note}" for note in audit.notes]
    lines += [f"no answer: {why}" for why in audit.unanswered]
    lines += [f"not played: {why}" for why in audit.left_out]
    return "\n".join(lines)


def verdict_sentence(audit: Audit) -> str:
    """What the numbers mean for somebody about to release the model, and what they leave open."""
    return " ".join([_found(audit), *left_open(audit)])


def left_open(audit: Audit) -> tuple[str, ...]:
    """That more might be rebuilt by what has no answer, as a sentence; none where all was tried, or all is rebuilt."""
    missing = len(audit.unanswered)
    if missing == 0 or audit.findings[0].rebuilt.all():
        return ()
    if audit.kind == "this model":
        return ("No optimum was reached, where more might be rebuilt: this audit cannot tell.",)
    who = "One attack that can play has" if missing == 1 else f"{missing} attacks that can play have"
    return (f"{who} no answer, and might do better: this audit cannot tell.",)


def _found(audit: Audit) -> str:
    played = len(audit.games)
    released = audit.findings[0]
    rebuilt = int(released.rebuilt.sum())
    if audit.chance is not None:
        guessing = f"guessing names it in {100 * audit.chance:.3g} %"
        return f"In {rebuilt} of {played} games the right candidate is named; {guessing}."
    if audit.kind == "this procedure":
        near = int(audit.beats_baselines(released).sum())
        return (
            f"In {near} of {played} games the guess comes nearer to the secret than a blind guess and than any record "
            f"the adversary had; in {rebuilt} it is rebuilt to within the threshold."
        )
    if rebuilt == played:
        sentence = f"Every record played for ({played}) can be rebuilt by an adversary who knows the others."
    elif rebuilt:
        sentence = f"{rebuilt} of {played} records can be rebuilt by an adversary who knows the others."
    else:
        sentence = f"None of {played} records could be rebuilt from this model as it stands."
    near = int((audit.beats_baselines(released) & ~released.rebuilt).sum())
    if near:
        more = "more " if rebuilt else ""
        sentence += f" {near} {more}guesses come nearer than a blind guess and any record the adversary had."
    best = max(int(finding.rebuilt.sum()) for finding in audit.findings)
    if best > rebuilt:
        sentence += (
            f" At the optimum {best} can be rebuilt: what hides them in this model is that its solver stopped early, "
            "which is accidental noise and no defence, or that it was fitted on other rows or weights than these."
        )
    return sentence


def _more_numbers(audit: Audit) -> list[str]:
    """Success by S1's threshold, true positives where there are games enough, and the mean by every metric."""
    released = audit.findings[0]
    lines = [f"share with an error up to {audit.oracle_error:.4g}, the {audit.oracle}'s mean: {audit.success()}"]
    lines += [str(audit.tpr(null=null)) for null, scores in released.null_errors.items() if len(scores) >= FEWEST_NULLS]
    lines += [str(one) for one in rates_by_class(audit)]
    means = [f"{name} {errors.mean():.4g}" for name, errors in released.errors.items() if np.isfinite(errors).all()]
    return [*lines, f"means: {'; '.join(means)}"]


def rates_by_class(audit: Audit) -> tuple[ByClass, ...]:
    """True positives at 1 % in every class, by each null, of a weak adversary with guesses enough of each.

    None for an audit that was read from a file, which holds no labels.
    """
    nulls, labels = audit.findings[0].null_errors, audit.guess.records.y.flatten().cpu().numpy()
    if Null.GAUSSIAN_WEIGHTS not in nulls or len(labels) != len(audit.errors):
        return ()
    classes, guesses = np.unique(labels, return_counts=True)
    if len(classes) < 2 or guesses.min() < FEWEST_NULLS:
        return ()
    return tuple(audit.tpr_by_class(null=null) for null in nulls)


def _labels(numbers: dict[str, float], audit: Audit) -> str:
    """Classes are right or wrong; numbers are off by so much."""
    if "label_error" in numbers:
        return f"off by {_error(numbers['label_error'])} dev."
    return f"{_rate(numbers['labels_right'], audit)} right"


def _rate(share: float, audit: Audit) -> str:
    text, played = f"{100 * share:.1f} %", len(audit.games)
    if audit.kind == "this model" and played == audit.population:
        return text  # every row was played for: nothing is estimated
    low, high = audit.interval(round(share * played))
    return f"{text} ({100 * low:.1f}-{100 * high:.1f})"


def _error(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.1e}"


def _reasons(numbers: dict[str, float]) -> str:
    reasons = [
        f"{100 * numbers[reason]:.1f} % {reason}"
        for reason in ("solver-limited", "information-limited", "undecided")
        if numbers.get(reason, 0) > 0
    ]
    return ", ".join(reasons)
