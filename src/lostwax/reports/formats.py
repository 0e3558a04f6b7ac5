"""A finished audit in the formats of CI systems, SARIF 2.1.0 and JUnit XML. They hold no record."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from lostwax import __version__, files
from lostwax.audits.decision import Suggestion, decide
from lostwax.audits.words import first_upper, reached, who
from lostwax.games import Adversary, Sees
from lostwax.grades import Grade
from lostwax.policies import limits_of
from lostwax.reports.fields import policy_of

if TYPE_CHECKING:
    from lostwax.audits import Audit
    from lostwax.audits.conclusion import Rung

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Outcome(StrEnum):
    """What a check came to. Errors and warnings fail a build; a leak that the policy allows is a note."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    PASS = "pass"
    OPEN = "open"  # nobody tried it

    @property
    def fails(self) -> bool:
        """True if it fails a build."""
        return self in (Outcome.ERROR, Outcome.WARNING)


class Answered(NamedTuple):
    """One question to the audit, and its answer."""

    rule: str  # a stable name
    question: str
    outcome: Outcome
    answer: str


def checks(audit: Audit) -> Iterator[Answered]:
    """The suggestion, each limit of the policy that the report carries, each attacker, and what is open."""
    policy = policy_of(audit)
    breaches = None if policy is None else policy.breaches(audit)
    accepted = breaches is not None and not breaches
    decision = decide(audit, None if breaches is None else [str(breach) for breach in breaches])
    outcome = {
        Suggestion.RELEASE: Outcome.PASS,
        Suggestion.CHANGE: Outcome.NOTE if accepted else Outcome.WARNING,
        Suggestion.KEEP: Outcome.ERROR,
    }[decision.suggestion]
    said = f"{first_upper(decision.suggestion)}. {decision.reason} {audit.conclusion.headline}"
    yield Answered("suggestion", "May the model be released?", outcome, said)
    if policy is not None and breaches is not None:
        for name, allowed, why in limits_of(policy, breaches):
            outcome = Outcome.ERROR if why else Outcome.PASS
            yield Answered(f"policy/{name}", f"Is {name} = {allowed} kept?", outcome, why or "The limit is kept.")
    for rung in audit.attackers.rungs:
        said = f"{rung.grade or 'not tried'}. {first_upper(reached(rung))} {first_upper(rung.reason)}"
        question = f"Can records be rebuilt by {who(rung.attacker)}?"
        yield Answered(f"attacker/{_name(rung.attacker)}", question, _of_attacker(rung, accepted=accepted), said)
    if audit.conclusion.open:
        outcome = Outcome.NOTE if accepted else Outcome.WARNING
        yield Answered("open", "Is anything left open?", outcome, " ".join(audit.conclusion.open))


def _of_attacker(rung: Rung, *, accepted: bool) -> Outcome:
    if rung.grade is None:
        return Outcome.OPEN
    if not rung.leaks and rung.grade is not Grade.UNDECIDED:
        return Outcome.PASS
    return Outcome.NOTE if accepted else Outcome.ERROR if rung.grade.severe else Outcome.WARNING


def _name(attacker: Adversary) -> str:
    """Of the attacker, by what they have: insider, insider-predictions, insider-missing-3."""
    missing, several = attacker.missing, attacker.knows_none or attacker.missing in (None, 1)
    parts = (
        str(attacker.kind),
        "" if attacker.sees is Sees.MODEL else str(attacker.sees),
        "" if several else f"missing-{missing}",
        "" if attacker.files == 1 else f"files-{attacker.files}",
    )
    return "-".join(filter(None, parts))


def as_sarif(audit: Audit, where: str) -> str:
    """SARIF 2.1.0. `where` is the audit's file as viewers should name it: a path relative to the repository."""
    answered = list(checks(audit))
    rules = {check.rule: {"id": check.rule, "shortDescription": {"text": _said(check.question)}} for check in answered}
    place = {"physicalLocation": {"artifactLocation": {"uri": where}, "region": {"startLine": 1}}}

    def result(check: Answered) -> dict[str, object]:
        passes = check.outcome in (Outcome.PASS, Outcome.OPEN)
        return {
            "ruleId": check.rule,
            "ruleIndex": list(rules).index(check.rule),
            "kind": str(check.outcome) if passes else "fail",
            "level": "none" if passes else str(check.outcome),
            "message": {"text": _said(check.answer)},
            "locations": [place],
            "partialFingerprints": {"lostwaxCheck/v1": _said(f"{audit.subject}: {check.rule}")},
        }

    driver = {"name": "lostwax", "version": __version__, "rules": list(rules.values())}
    properties = {"subject": _said(audit.subject), "grade": str(audit.grade)}
    run = {"tool": {"driver": driver}, "results": [result(check) for check in answered], "properties": properties}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def as_junit(audit: Audit, where: str) -> str:
    """JUnit XML, a test case per check: it fails with errors and warnings, and is skipped where nobody tried."""
    answered = list(checks(audit))
    counts = {
        "tests": len(answered),
        "failures": sum(check.outcome.fails for check in answered),
        "errors": 0,
        "skipped": sum(check.outcome is Outcome.OPEN for check in answered),
    }
    suite = ET.Element("testsuite", _texts({"name": f"lostwax audit of {audit.subject}", **counts}))
    for check in answered:
        named = {"classname": "lostwax." + check.rule.partition("/")[0], "name": f"{check.rule}: {check.question}"}
        case = ET.SubElement(suite, "testcase", _texts(named))
        about = _texts({"type": str(check.outcome), "message": _said(check.answer)})
        if check.outcome.fails:
            ET.SubElement(case, "failure", about).text = f"See {where}."
        elif check.outcome is Outcome.OPEN:
            ET.SubElement(case, "skipped", about)
        else:
            ET.SubElement(case, "system-out").text = _said(check.answer)
    ET.indent(suite)
    text: str = ET.tostring(suite, encoding="us-ascii", xml_declaration=True).decode("ascii")
    return text + "\n"


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: _said(str(value)) for name, value in values.items()}


def _said(text: str) -> str:
    """On one line, with nothing that XML or JSON cannot hold."""
    return files.as_utf8(files.escaped(" ".join(text.split()))).decode()


FORMATS = {"sarif": as_sarif, "junit": as_junit}
