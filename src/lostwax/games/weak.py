"""The weak adversary: knows how a model is trained and what its records look like, but not one of them (S2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lostwax import philox
from lostwax.fields import at_least, check_fields, expect
from lostwax.games.facts import HintFacts, ThreatFacts
from lostwax.games.judges import NearestOfClass
from lostwax.games.nouns import Cohort, Hints
from lostwax.games.records import Records
from lostwax.seeds import key

# Dealing a pool again and again, like a pack of cards that is shuffled whenever it runs out.


def passes(cards: int, hand: int, *, start: int, m: int, key: int, device: torch.device) -> Tensor:
    """(m, hand) the cards of players start .. start + m - 1, by number.

    A pass serves cards // hand players, none of whom shares a card; each pass has its own order. So the cards are used
    equally often, and a hand depends on the key and the player's number alone.
    """
    served = cards // hand  # players in a pass
    first, last = start // served, (start + m - 1) // served
    orders = philox.orders(key, torch.arange(first, last + 1, device=device), cards)  # (passes, cards)
    hands = orders[:, : served * hand].reshape(-1, hand)
    return hands[start - first * served :][:m]


@final
@dataclass(frozen=True)
class Weak:
    """A training set is `size` records of the pool, all of them secret (S2, assumptions A.1 to A.3).

    It has equally many of every class, as S2's MNIST and CIFAR-10 heads have, or `per_class`: with
    `Weak(size=10, per_class=(9, 1))` nine of class 0 and one of class 1, as its CelebA heads. The adversary knows
    these numbers. Where labels are no class numbers, the records are drawn whatever their label.
    """

    size: int
    per_class: tuple[int, ...] | None = None  # how many of class 0, 1, ...; None: as many of each

    def __post_init__(self) -> None:
        check_fields(self, size=at_least(1), per_class=at_least(0))
        summed = self.per_class is None or sum(self.per_class) == self.size
        expect(self, "per_class", f"to be numbers that sum to size={self.size}", summed)

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1, the records of each in the order of their classes, where the pool lies."""
        if m < 1 or start < 0:
            raise ValueError(f"Weak.deal: expected m >= 1 and start >= 0, got m={m} and start={start}.")
        device, drawn = pool.x.device, []
        everything = torch.arange(len(pool), device=device)
        for label, hand in self._hands(pool).items():
            rows = everything if label is None else everything[pool.y == label]
            if len(rows) < hand:
                kind = "records" if label is None else f"records of class {label}"
                raise ValueError(
                    f"Weak.deal: a training set takes {hand} {kind}, and the pool holds {len(rows)}. Bring more of "
                    "them, or deal smaller sets."
                )
            ours = key(seed, "deal", "any" if label is None else label)
            drawn.append(rows[passes(len(rows), hand, start=start, m=m, key=ours, device=device)])  # (m, hand)
        own = pool[torch.cat(drawn, 1)]  # (m, size, ...)
        return Cohort(pool[:0], own, torch.arange(start, start + m, device=device))

    def facts(self) -> ThreatFacts:
        """No record is known; how many each class has is."""
        return ThreatFacts(None, self.size, HintFacts(labels=True))

    def judge(self) -> NearestOfClass:
        """How guesses are paired with secrets."""
        return NearestOfClass()

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """The labels, where they are classes: how many records each class has is known, and so is their order."""
        return Hints(labels=cohort.own.y) if _are_classes(pool.y) else None

    def _hands(self, pool: Records) -> dict[int | None, int]:
        """How many records a set takes of each class; of None where there are no classes."""
        if not _are_classes(pool.y):
            if self.per_class is not None:
                raise ValueError(
                    f"Weak.deal: per_class={self.per_class} needs labels that are whole class numbers, got "
                    f"{pool.y.dtype} of shape {tuple(pool.y.shape)}. Leave per_class out."
                )
            return {None: self.size}
        if self.per_class is not None:
            return {label: hand for label, hand in enumerate(self.per_class) if hand}
        present = torch.unique(pool.y).tolist()
        if present != list(range(len(present))):
            missing = next(number for number in range(len(present)) if present[number] != number)
            raise ValueError(
                f"Weak.deal: the pool has no record of class {missing}, and labels that are not 0 to "
                f"{len(present) - 1}. Bring some, number the classes from 0, or say with per_class how many of each "
                "class a set holds."
            )
        if self.size % len(present):
            raise ValueError(
                f"Weak.deal: {self.size} records cannot be shared equally among the {len(present)} classes of the "
                f"pool. Choose a multiple of {len(present)} as size, or say with per_class how many each has."
            )
        return dict.fromkeys(present, self.size // len(present))


def _are_classes(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()
