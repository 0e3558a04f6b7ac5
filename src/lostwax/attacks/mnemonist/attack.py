"""RecoNN, taught by those rows alone that store the record (S4 Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

from lostwax.access import Superparameters, Weights
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist
from lostwax.attacks.mnemonist.tables import models_and_told, release_of, seen_by
from lostwax.attacks.reconn import RecoNN, ShadowTable, Trained
from lostwax.attacks.reconn.shadow_table import adversary_seed
from lostwax.attacks.reconn.shadowed import accepted, shadow_tables
from lostwax.decoders import MLPDecoder
from lostwax.types import Guess, Hints, Knowledge, Records, Release
from lostwax.types.fields import at_least, check_fields


class Focused(NamedTuple):
    """A prepared MnemonistRecoNN: `second` answers."""

    first: Trained  # by all rows
    explanation: Explanation  # of `first`, on held-out shadow models
    second: Trained  # by the rows with negative coefficients

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret."""
        return self.second(release, hints)


@final
@dataclass(frozen=True, kw_only=True)
class MnemonistRecoNN:
    """Prepare RecoNN, ask Mnemonist which rows it reads records from, and prepare it again on these.

    Rows are chosen by shadow models that the decoder did not learn from, `models` of them at most: an explanation needs
    the truth, and nobody but the adversary's own shadows can tell it. These also chose when to stop, as for RecoNN, so
    that both errors of validation are a little optimistic, and the second by a choice more.
    """

    attack: RecoNN
    mnemonist: Mnemonist = field(default_factory=Mnemonist)
    models: int = 200

    def __post_init__(self) -> None:
        check_fields(self, models=at_least(2))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game: for its own reason, or for RecoNN's."""
        refusal = "MnemonistRecoNN cannot play this game: "
        if not isinstance(knowledge.access, Weights):
            return refusal + (
                f"it chooses among the rows of all layers, but the adversary sees {knowledge.access!r}. Use "
                "access=Weights(), or RecoNN."
            )
        if (sentence := self.mnemonist.objection(knowledge, self.models)) is not None:
            return refusal + sentence
        sentence = self.attack.objection(knowledge)
        return None if sentence is None else refusal + sentence.removeprefix("RecoNN cannot play this game: ")

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Focused:
        """Train the shadows, and the decoder twice. The seed decides everything."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        return self.learn(*shadow_tables(self.attack, knowledge, seed), seed=seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Focused:
        """The second half of `prepare`, from shadow models that were trained before, in other runs perhaps."""
        first = self.attack.learn(knowledge, shadows, unseen, seed=seed)
        return self.focus(first, knowledge, shadows, unseen, seed=seed)

    def focus(
        self, first: Trained, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int
    ) -> Focused:
        """The second half of `learn`: explain a reconstructor that learnt from these shadows, and choose rows by it."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        knowledge = accepted(self.attack, knowledge)
        explanation = self._explained(first, knowledge, unseen, seed)
        access = Superparameters(explanation.holding() or explanation.rows)  # where none helps, none is left out
        tables = (seen_by(access, knowledge.net, table) for table in (shadows, unseen))
        second = self.attack.learn(replace(knowledge, access=access), *tables, seed=seed)
        return Focused(first, explanation, second)

    @classmethod
    def examples(cls) -> tuple[MnemonistRecoNN, ...]:
        """Instances to test."""
        attack = RecoNN(decoder=MLPDecoder(width=16), epochs=3)
        return tuple(cls(attack=attack, mnemonist=mnemonist) for mnemonist in Mnemonist.examples())

    def _explained(self, first: Trained, knowledge: Knowledge, unseen: ShadowTable, seed: int) -> Explanation:
        some = slice(self.models)
        models, told = models_and_told(unseen)
        records = unseen.records[some]
        truth = Records(records.x.unsqueeze(1), records.y.unsqueeze(1))  # k = 1
        parts = told[some].reshape(truth.x.shape) if unseen.told else None
        return self.mnemonist(
            first,
            knowledge,
            release_of(knowledge.net, models[some]),
            truth,
            seed=adversary_seed(seed, "masks"),
            hints=Hints(parts=parts),
        )
