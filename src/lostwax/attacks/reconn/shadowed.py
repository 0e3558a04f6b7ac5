"""What attacks that learn from shadow models have in common: the records these are trained on, and their tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from lostwax.attacks.one_secret import not_informed, several_secrets
from lostwax.attacks.reconn.augment import Augment
from lostwax.attacks.reconn.shadow_table import ShadowTable, adversary_seed, shadow_table
from lostwax.seeds import generator
from lostwax.threats import Informed
from lostwax.types import Knowledge, Records

FEWEST = 4  # two shadow models to learn from, two to be tested on


class Shadowed(Protocol):
    """The settings of such an attack."""

    @property
    def shadows(self) -> int | None:
        """How many models, None for one a record of the prior."""
        ...

    @property
    def augment(self) -> Augment | None:
        """Where the records beyond the prior's come from."""
        ...

    @property
    def validation(self) -> float:
        """The share of the prior's records that is kept from learning."""
        ...

    @property
    def device(self) -> str | None:
        """Where all is computed, None for where the prior lies."""
        ...

    @property
    def store(self) -> str | Path | None:
        """Where shadow models are kept."""
        ...

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        ...


def shadow_objection(attack: Shadowed, knowledge: Knowledge) -> str | None:
    """Why there cannot be shadow models for this game, or not so many."""
    name, prior = type(attack).__name__, knowledge.prior
    work = "it rebuilds the one record that an informed adversary does not know"
    if (sentence := not_informed(name, work, knowledge) or several_secrets(name, knowledge)) is not None:
        return sentence
    refusal = f"{name} cannot play this game: "
    if not prior.x.is_floating_point():
        return refusal + f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
    if len(prior) < FEWEST:
        return refusal + f"it needs at least {FEWEST} records in the prior, and there are {len(prior)}."
    if attack.shadows is None or attack.shadows <= len(prior):
        return None
    if attack.augment is None:
        return refusal + (
            f"{attack.shadows} shadow models need as many records, and the prior holds {len(prior)}. Ask for at most "
            f"{len(prior)}, bring {attack.shadows - len(prior)} more, make them with augment=Shifts() or Affine(), "
            "or, where training is random, train on each more than once with augment=Repeats()."
        )
    clause = attack.augment.objection(prior)
    return None if clause is None else f"{refusal}{clause}."


def accepted(attack: Shadowed, knowledge: Knowledge) -> Knowledge:
    """If it can play this game: the adversary's data on its device, and no candidates, of no use to it."""
    if (objection := attack.objection(knowledge)) is not None:
        raise ValueError(objection)
    if not isinstance(knowledge.threat, Informed):
        return knowledge
    device = attack.device or knowledge.prior.x.device
    threat = replace(knowledge.threat, known=knowledge.threat.known.to(device), candidates=None)
    return replace(knowledge, threat=threat, prior=knowledge.prior.to(device))


def shadow_tables(attack: Shadowed, knowledge: Knowledge, seed: int) -> tuple[Knowledge, ShadowTable, ShadowTable]:
    """The knowledge on the adversary's device, shadows to learn from, and others to be tested on."""
    knowledge = accepted(attack, knowledge)
    learn_from, test_on = targets(attack, knowledge.prior, seed)
    name = type(attack).__name__
    shadows = shadow_table(knowledge, learn_from, seed=seed, purpose="shadow", attack=name, store=attack.store)
    unseen = shadow_table(
        knowledge, test_on, seed=seed, purpose="validation", attack=name, store=attack.store, announce=False
    )
    return knowledge, shadows, unseen


def targets(attack: Shadowed, prior: Records, seed: int) -> tuple[Records, Records]:
    """Records to learn from, augmented where there are not enough, and others, as they are, to be tested on."""
    order = torch.from_numpy(generator(seed, "adversary", "split").permutation(len(prior))).to(prior.x.device)
    shadows = attack.shadows or len(prior)
    records = min(shadows, len(prior))
    held_out = min(max(2, round(attack.validation * records)), records - 2)
    learn_from, count = prior[order[held_out:shadows]], shadows - held_out
    if attack.augment is not None and count > len(learn_from):
        learn_from = attack.augment(learn_from, count, seed=adversary_seed(seed, "augment"))
    return learn_from, prior[order[:held_out]]
