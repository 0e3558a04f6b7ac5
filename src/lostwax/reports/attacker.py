"""The attacker in plain words: what they have, when that applies, and what was not tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from lostwax.games import Kind, Sees
from lostwax.numerals import count

if TYPE_CHECKING:
    from lostwax.audits import Audit


class Attacker(NamedTuple):
    """Who attacks, in two sentences, and how far the audit goes."""

    has: str
    knows: str
    applies: tuple[str, ...]  # "This applies if ..."
    differs: tuple[str, ...]  # "It does not apply if ..."
    untested: tuple[str, ...]


class _Seen(NamedTuple):
    """What an attacker sees of the model, in words."""

    has: str
    applies: str
    differs: str
    untested: str


WEIGHTS = _Seen(
    "The attacker has the model itself, with every number in its file.",
    "the model file or its weights are given out, or can be copied by people who must not see the data",
    "only predictions are given out: such an attacker sees less, but is not shown to learn nothing",
    "An attacker who sees only predictions.",
)
QUERIES = _Seen(
    "The attacker does not have the model file, but sees the model’s predictions.",
    "people can query the model, or get a list of its predictions",
    "the model file is given out too: then this audit is too mild",
    "An attacker who has the model file or its weights.",
)
SOME = _Seen(
    "The attacker sees a part of the model ({access}).",
    "this part of the model is given out, and no more",
    "more of the model is given out: then this audit is too mild",
    "An attacker who has the whole model.",
)
SEEN = {Sees.MODEL: WEIGHTS, Sees.PREDICTIONS: QUERIES, Sees.PART: SOME}


def attacker(audit: Audit) -> Attacker:
    """In the words of `audit.threat` where that is not a threat of ours."""
    adversary = audit.adversary
    seen, row = SEEN[adversary.sees], adversary.unit
    if adversary.knows_all_others:
        knows = f"They know every other {row} of the training data, and look for the one that is missing"
        applies = (
            f"someone can know most other {row}s: a colleague, a source of the data, a partner who trained on a copy, "
            "or anyone, where most of it is public"
        )
        differs = f"nobody can know most other {row}s: such an attacker knows less, but was not tested"
        untested = f"An attacker who knows none of the training {row}s."
    elif adversary.knows_none:
        knows = f"They know no {row} of the training data, only what such {row}s look like"
        applies = "anyone may attack, without inside knowledge"
        differs = f"someone knows other {row}s of the training data: then this audit is too mild"
        untested = f"An insider who knows most other {row}s."
    else:
        knows = f"What they know: {audit.threat}"
        applies = "someone can know this much"
        differs = "someone knows more: then this audit is too mild"
        untested = "Attackers who know more, or less."
    return Attacker(
        seen.has.format(access=adversary.access),
        f"{knows}{_given(audit)}.",
        (seen.applies, applies),
        (seen.differs, differs),
        (*_gaps(audit), seen.untested, untested, *_never(audit)),
    )


def _given(audit: Audit) -> str:
    """What else the attacker is given, as the end of a sentence."""
    given = ["its label"] if audit.labels_given else []
    if audit.chance is not None:
        given.append("a short list of records that it may be")
    return f"; they are given {' and '.join(given)}" if given else ""


def _gaps(audit: Audit) -> Iterator[str]:
    """What this audit left open."""
    if len(audit.games) < audit.population:
        left = audit.population - len(audit.games)
        yield f"{count(left)} of {count(audit.population)} records: a sample was drawn at random."
    if audit.unanswered:
        yield f"What has no answer ({len(audit.unanswered)}, listed below)."
    if audit.left_out:
        yield f"Attacks that do not apply here ({len(audit.left_out)}, listed below)."
    if audit.kind == "this procedure":
        yield "The model that is to be released: models trained in the same way were attacked instead."


def _never(audit: Audit) -> Iterator[str]:
    """What no audit of this kind tests."""
    if audit.chance is None:
        yield "Whether a known person’s record was used at all (membership), apart from rebuilding it."
    if not any(note.kind is Kind.ATTRIBUTE for note in audit.notes):
        yield "Guessing one hidden value of a person whose other values are known (attribute inference)."
    yield "Several models trained on the same records, and files beside the model: checkpoints, logs, explanations."
    yield "Attacks that are not known today."
