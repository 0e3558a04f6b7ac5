"""The fields of a report: what it is about, and whose it is. They are kept in `audit.json`, with the policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import date as day
from typing import TYPE_CHECKING, Any

from lostwax.fields import shown
from lostwax.policies import Policy

if TYPE_CHECKING:
    from lostwax.audits import Audit

KEY = "report"  # in an audit's provenance
LONGEST = 300  # characters of a field


@dataclass(frozen=True, kw_only=True)
class ReportFields:
    """Arguments of `lw.report` that stand at the top of the page; None is left out."""

    title: str | None = None
    model: str | None = None  # its name
    version: str | None = None  # of the model
    data_set: str | None = None
    owner: str | None = None  # who answers for the model
    date: str | None = None  # of the report; None: today
    report_id: str | None = None  # None: a fingerprint of the audit

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None:
                continue
            if not isinstance(value, str):
                raise TypeError(f"report: expected {name} to be text, got {shown(value)}.")
            if not value.strip() or len(value) > LONGEST:
                raise ValueError(f"report: expected {name} to have 1 to {LONGEST} characters, got {len(value)}.")


NAMES = tuple(field.name for field in fields(ReportFields))


def with_fields(audit: Audit, values: Mapping[str, Any], policy: Policy | None, measured: tuple[str, ...]) -> Audit:
    """The audit with these fields in its provenance; those that are not given stay as they are."""
    if policy is not None and type(policy) is not Policy:
        raise TypeError(f"report: expected policy to be an lw.Policy, got {shown(policy)}.")
    texts = asdict(ReportFields(**{**_kept(audit), **plain(values)}))
    stored = dict(audit.provenance.get(KEY, {}))
    if policy is not None:
        stored["policy"] = {name: value for name, value in asdict(policy).items() if value not in (None, {})}
    if measured:
        stored["measured"] = list(measured)
    stored |= {name: value for name, value in texts.items() if value is not None}
    return replace(audit, provenance={**audit.provenance, KEY: stored}) if stored else audit


def fields_of(audit: Audit) -> ReportFields:
    """The fields that the audit holds; the date is today's and the id is the audit's own where there is none."""
    stored = ReportFields(**_kept(audit))
    return replace(stored, date=stored.date or day.today().isoformat(), report_id=stored.report_id or identity(audit))


def policy_of(audit: Audit) -> Policy | None:
    """The policy that the report was written with."""
    limits = audit.provenance.get(KEY, {}).get("policy")
    try:
        return None if limits is None else Policy(**limits)
    except (TypeError, ValueError) as error:
        raise ValueError(f"report: the policy in audit.json is damaged ({error}). Pass policy= again.") from None


def measured_of(audit: Audit) -> tuple[str, ...]:
    """What defences cost, where the report was written with a comparison."""
    return tuple(audit.provenance.get(KEY, {}).get("measured", ()))


def without_fields(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of the numbers alone."""
    return {name: value for name, value in provenance.items() if name != KEY}


def identity(audit: Audit) -> str:
    """Twelve digits that depend on what was audited, how, and on every error: the same for a repeated audit."""
    asked = (audit.subject, audit.kind, audit.threat, audit.attack, audit.threshold, audit.population, audit.chance)
    words = json.dumps([*asked, without_fields(audit.provenance), audit.grade], sort_keys=True, default=str)
    digest = hashlib.sha256(words.encode())
    digest.update(audit.games.tobytes())
    for finding in audit.findings:
        digest.update(finding.name.encode("utf-8", "backslashreplace"))
        for errors in finding.errors.values():
            digest.update(errors.tobytes())
    digits = digest.hexdigest()[:12]
    return "-".join(digits[start : start + 4] for start in (0, 4, 8))


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are given, with a date as text."""
    return {
        name: value.isoformat() if isinstance(value, day) else value
        for name, value in values.items()
        if value is not None
    }


def _kept(audit: Audit) -> dict[str, Any]:
    return {name: value for name, value in audit.provenance.get(KEY, {}).items() if name in NAMES}
