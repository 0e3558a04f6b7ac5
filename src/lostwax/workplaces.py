"""An audit where people already work: a scorer for scikit-learn's searches, a model card, a run of MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lostwax import files
from lostwax.fields import shown
from lostwax.grades import Grade

if TYPE_CHECKING:
    from lostwax.audits import Audit
    from lostwax.policies import Policy

BEGIN, END = "<!-- lostwax audit -->", "<!-- end of lostwax audit -->"  # of the section in a model card


def leak(audit: Audit) -> float:
    """How much comes back, from 0 to 1: the worst share of all lines and attackers; 1 where that is undecided.

    Records and cells count, guesses nearer than every baseline, and targets and membership beyond guessing. No leak
    beyond chance is 0.
    """
    if audit.grade is Grade.UNDECIDED:
        return 1.0
    if not audit.grade.leaks:
        return 0.0
    shares = [rung.share for rung in audit.attackers.rungs if rung.leaks]
    for line in audit.findings:
        shares += [float(line.rebuilt.mean()), float(audit.beats_baselines(line).mean())]
        shares += [] if line.cells is None else [line.cells.exact_share]
        shares += [] if line.target is None else [line.target.read.mean() - line.target.guessed.mean()]
    if audit.membership is not None:
        shares.append(2 * audit.membership.share.value - 1)
    return float(max(shares))


def scorer(
    scoring: str | Callable[..., float] | None = None, *, weight: float = 1.0, **settings: Any
) -> Callable[..., float]:
    """A scorer for `GridSearchCV` and the like, that weighs leaks: the score, less `weight` times the leak.

        GridSearchCV(pipeline, grid, scoring=lw.scorer("accuracy", weight=0.5, games=50)).fit(X, y)

    A search gives a scorer only rows that the estimator was not fitted on. So its settings are fitted anew on these
    rows, and that fit is audited: one fit and one audit more per fold, of fewer rows than the final model will have.
    Audit the final model by itself.

    Args:
        scoring: Scikit-learn's scorer, or its name; None for the estimator's own `score`.
        weight: How much a full leak costs, in units of the score.
        settings: Further arguments of `lw.audit`, such as games, access or max_minutes.
    """
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise ValueError(f"scorer: expected a weight of 0 or more, got {shown(weight)}.")

    def score(estimator: Any, X: Any, y: Any = None, **metadata: Any) -> float:
        from sklearn.base import clone
        from sklearn.metrics import check_scoring

        from lostwax.verbs import audit

        value = float(check_scoring(estimator, scoring)(estimator, X, y, **metadata))
        if weight == 0:
            return value
        return value - weight * leak(audit(clone(estimator).fit(X, y), (X, y), **settings))

    return score


def model_card(audit: Audit, readme: str | Path | None = None, *, policy: Policy | None = None) -> str:
    """A section for a model card of the Hugging Face hub, in Markdown, without records.

    With `readme`, the path of a README.md, it is written there: at its end, or in place of the section of an earlier
    audit. The rest of the file, its metadata included, stays as it is.
    """
    text = "\n".join((BEGIN, *_section(audit, policy), END, ""))
    if readme is None:
        return text
    path = files.named("model_card", readme)
    if not path.is_file():
        raise FileNotFoundError(f"model_card: {path} does not exist. Name the README.md of the model, or leave it out.")
    before, begin, after = path.read_text(encoding="utf-8").partition(BEGIN)
    if begin and END not in after:
        raise ValueError(f"model_card: {path} holds the begin of a section, but not its end, {END}. Add it.")
    after = after.partition(END)[2].removeprefix("\n")
    before = before if begin else before.rstrip("\n") + "\n\n"
    files.write(path, before + text + after, source="model_card")
    return text


def _section(audit: Audit, policy: Policy | None) -> Iterator[str]:
    from lostwax import __version__
    from lostwax.audits.decision import decide
    from lostwax.audits.words import first_upper, reached, who
    from lostwax.reports.advice import attacker

    breaches = None if policy is None else [str(breach) for breach in policy.breaches(audit)]
    decision = decide(audit, breaches)
    yield "## Privacy audit"
    yield ""
    yield f"**{_plain(audit.conclusion.headline)}** Grade: {audit.grade}. {_plain(decision.people)}"
    if decision.policy is not None:
        yield ""
        yield _plain(" ".join((decision.policy, *(breaches or ()))))
    yield ""
    yield "| attacker | grade | records that come back |"
    yield "|---|---|---|"
    for rung in audit.attackers.rungs:
        yield f"| {_plain(first_upper(who(rung.attacker)))} | {rung.grade or 'not tried'} | {_plain(reached(rung))} |"
    yield ""
    yield from (f"- {_plain(sentence)}" for sentence in (*audit.conclusion.sentences, *audit.conclusion.open))
    yield f"- Not tested: {_plain(' '.join(attacker(audit).untested))}"
    yield ""
    tried = f"{len(audit.games):,} of {audit.population:,} records were tried"
    yield f"{_plain(audit.subject)}; {tried}; lostwax {__version__}. Finding nothing is not a proof of safety."


def _plain(text: str) -> str:
    """Text that is no markup, on one line."""
    line = escape(files.escaped(" ".join(text.split())), quote=False)
    for mark in "\\`*_|[]":
        line = line.replace(mark, f"\\{mark}")
    return line


def log_to_mlflow(audit: Audit, *, policy: Policy | None = None, records: bool = False) -> None:
    """Log an audit to the active run of MLflow: numbers, tags, and the report below `lostwax`; it starts a run if none.

    Artefacts of a run are read by many: records are left out unless asked for.
    """
    try:
        import mlflow
    except ModuleNotFoundError:
        raise ModuleNotFoundError("log_to_mlflow: MLflow is not installed. Run: pip install mlflow-skinny") from None
    from lostwax.audits.decision import decide
    from lostwax.verbs import report

    breaches = None if policy is None else policy.breaches(audit)
    decision = decide(audit, None if breaches is None else [str(breach) for breach in breaches])
    line = audit.conclusion.line
    numbers = {"leak": leak(audit), "grade": audit.grade.severity, "rebuilt": line.rebuilt / len(audit.games)}
    numbers |= {"nearer": line.nearer / len(audit.games), "games": len(audit.games)}
    numbers |= {} if breaches is None else {"broken_limits": len(breaches)}
    mlflow.log_metrics({f"lostwax.{name}": float(value) for name, value in numbers.items()})
    words = {"grade": audit.grade, "suggestion": decision.suggestion, "headline": audit.conclusion.headline}
    mlflow.set_tags({f"lostwax.{name}": str(value) for name, value in words.items()})
    with TemporaryDirectory() as folder:
        page = report(audit, Path(folder) / "report", records=records, policy=policy)
        mlflow.log_artifacts(str(page.parent), "lostwax")
