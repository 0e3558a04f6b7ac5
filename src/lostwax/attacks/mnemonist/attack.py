"""RecoNN, taught by those rows alone that store the record (S4 Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.access import Superparameters, Weights
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist
from lostwax.attacks.reconn import RecoNN, ShadowTable, Trained
from lostwax.attacks.reconn.shadow_table import adversary_seed
from lostwax.attacks.reconn.shadowed import accepted, shadow_tables
from lostwax.decoders import MLPDecoder
from lostwax.inits import trainable
from lostwax.types import Access, Guess, Hints, Knowledge, Records, Release


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
        if self.models < 2:
            raise ValueError(f"MnemonistRecoNN: expected models >= 2, got {self.models}.")

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
        return None if sentence is None else f"MnemonistRecoNN is RecoNN, taught twice. {sentence}"

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
        tables = (_seen_by(access, knowledge.net, table) for table in (shadows, unseen))
        second = self.attack.learn(replace(knowledge, access=access), *tables, seed=seed)
        return Focused(first, explanation, second)

    @classmethod
    def examples(cls) -> tuple[MnemonistRecoNN, ...]:
        """Instances to test."""
        attack = RecoNN(decoder=MLPDecoder(width=16), epochs=3)
        return tuple(cls(attack=attack, mnemonist=mnemonist) for mnemonist in Mnemonist.examples())

    def _explained(self, first: Trained, knowledge: Knowledge, unseen: ShadowTable, seed: int) -> Explanation:
        some = slice(self.models)
        models, told = _models_and_told(unseen)
        records = unseen.records[some]
        truth = Records(records.x.unsqueeze(1), records.y.unsqueeze(1))  # k = 1
        parts = told[some].reshape(truth.x.shape) if unseen.told else None
        return self.mnemonist(
            first,
            knowledge,
            _release(knowledge.net, models[some]),
            truth,
            seed=adversary_seed(seed, "masks"),
            hints=Hints(parts=parts),
        )


def _seen_by(access: Access, net: nn.Module, table: ShadowTable) -> ShadowTable:
    """The same models through another access, from one to all weights."""
    models, told = _models_and_told(table)
    return table._replace(seen=torch.cat([access(net, _release(net, models)), told], 1))


def _models_and_told(table: ShadowTable) -> tuple[Tensor, Tensor]:
    """All weights of the models (s, p), and the numbers of their secrets that are told (s, told)."""
    models, told = torch.split(table.seen, [table.seen.shape[1] - table.told, table.told], 1)
    return models, told


def _release(net: nn.Module, flat: Tensor) -> Release:
    """The models whose parameters lie side by side in (s, p): `Release.flat` undone."""
    params = trainable(net)
    parts = torch.split(flat, [value.numel() for value in params.values()], 1)
    named = zip(params.items(), parts, strict=True)
    return Release({name: part.reshape(len(flat), *value.shape) for (name, value), part in named})
