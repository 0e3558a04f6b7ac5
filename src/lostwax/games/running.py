"""One way to run any attack: whether it applies, on which device it computes, whether it answers as it must."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from lostwax.games.facts import attack_facts, attack_name, notes_of
from lostwax.games.notes import Noted
from lostwax.games.nouns import Guess, Hints, Knowledge, Release, with_records
from lostwax.games.protocols import Attack, Reconstructor
from lostwax.games.records import Records


def objection_to(attack: Any, knowledge: Knowledge) -> str | None:
    """Why the attack is not applicable, without its name, which attacks of version 0.2 write before; None if it is."""
    reason: str | None = attack.objection(knowledge)
    return None if reason is None else reason.removeprefix(f"{type(attack).__name__} is not applicable: ")


def refusal(attack: Attack, knowledge: Knowledge) -> str | None:
    """The same as a sentence."""
    reason = objection_to(attack, knowledge)
    return None if reason is None else f"{attack_name(attack)} is not applicable: {reason}"


def accepted(attack: Attack, knowledge: Knowledge) -> Knowledge:
    """The knowledge, with all records on the attack's device; raises where the attack is not applicable."""
    if (sentence := refusal(attack, knowledge)) is not None:
        raise ValueError(sentence)
    device = attack_facts(attack).device or knowledge.prior.x.device

    def moved(records: Records) -> Records:
        return records if str(records.x.device) == str(device) else records.to(device)

    return replace(knowledge, threat=with_records(knowledge.threat, moved), prior=moved(knowledge.prior))


class Prepared(NamedTuple):
    """A prepared attack, whose answers are checked."""

    attack: Attack
    reconstruct: Reconstructor

    @property
    def notes(self) -> tuple[Noted, ...]:
        """What it says about itself."""
        return notes_of(self.reconstruct)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess the secrets of every model in the release."""
        guess = self.reconstruct(release, hints)
        if not isinstance(guess, Guess):
            got = f"the function that {attack_name(self.attack)}.prepare returned gave {type(guess).__name__}"
            raise TypeError(f"audit: {got}. It must return lw.games.Guess(lw.Records(x, y), confidence).")
        return guess


def prepared(attack: Attack, knowledge: Knowledge, *, seed: int) -> Prepared:
    """The attack after all the work that needs no release."""
    reconstruct = attack.prepare(knowledge, seed=seed)
    if not callable(reconstruct):
        got = f"{attack_name(attack)}.prepare returned {type(reconstruct).__name__}"
        raise TypeError(f"audit: {got}. It must return a function of (release, hints).")
    return Prepared(attack, reconstruct)
