"""RecoNN, taught by those rows alone that store the record (S4 Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.access import Superparameters, neurons
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist
from lostwax.attacks.reconn import RecoNN, Trained
from lostwax.fields import at_least, check_fields
from lostwax.games import Access, Guess, Hints, Knowledge, Records, Release
from lostwax.inits import trainable
from lostwax.learning.shadow_tables import ShadowTable, accepted, adversary_seed, shadow_tables
from lostwax.learning.training import ErrorLine, Examples, errors
from lostwax.trainers.stacked import Architecture

# Shadow models back from the table that they were flattened into.


def seen_by(access: Access, net: nn.Module, table: ShadowTable) -> ShadowTable:
    """The same models through another access, from one to all weights."""
    models, told = models_and_told(table)
    return table._replace(seen=torch.cat([access(net, release_of(net, models)), told], 1))


def models_and_told(table: ShadowTable) -> tuple[Tensor, Tensor]:
    """All weights of the models (s, p), and the numbers of their secrets that are told (s, told)."""
    models, told = torch.split(table.seen, [table.seen.shape[1] - table.told, table.told], 1)
    return models, told


def release_of(net: nn.Module, flat: Tensor) -> Release:
    """The models whose parameters lie side by side in (s, p): `Release.flat` undone."""
    params = trainable(net)
    parts = torch.split(flat, [value.numel() for value in params.values()], 1)
    named = zip(params.items(), parts, strict=True)
    return Release({name: part.reshape(len(flat), *value.shape) for (name, value), part in named})


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

    reads_weights: ClassVar[bool] = True  # as RecoNN

    attack: RecoNN
    mnemonist: Mnemonist = field(default_factory=Mnemonist)
    models: int = 200

    def __post_init__(self) -> None:
        check_fields(self, models=at_least(2))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable: for its own reason, or for RecoNN's."""
        refusal = "MnemonistRecoNN is not applicable: "
        if not knowledge.facts.access.all_weights:
            return refusal + (
                f"it chooses among the rows of all layers, but the adversary sees {knowledge.access!r}. Use "
                "access=Weights(), or RecoNN."
            )
        if (sentence := self.mnemonist.objection(knowledge, self.models)) is not None:
            return refusal + sentence
        sentence = self.attack.objection(knowledge)
        return None if sentence is None else refusal + sentence.removeprefix("RecoNN is not applicable: ")

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


# RecoNN for nets that begin with convolutions, by way of what their first linear layer is shown (S4 section 6).


ROWS = 1024  # records shown to a net at a time


class Rebuilt(NamedTuple):
    """An access to a model: what its first linear layer was shown, as a reconstructor has it."""

    embedding: Trained

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features)."""
        return self.embedding(release).records.x.flatten(1)


class Embedded(NamedTuple):
    """A prepared EmbeddingRecoNN: `embedding` answers what the layer was shown, and `picture` makes the record of it.

    `picture.validation_error` is that of the two together, on held-out shadow models.
    """

    embedding: Trained
    picture: Trained

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret. The label is read off the layer itself, not off the record."""
        guess, labels = self.picture(release, hints), self.embedding(release, hints).records.y
        return replace(guess, records=Records(guess.records.x, labels))


@final
@dataclass(frozen=True, kw_only=True)
class EmbeddingRecoNN:
    """Read what the first linear layer was shown off that layer alone, and make the record of it.

    A linear layer stores copies of its input (S4 Eq. 2). Behind convolutions that is no record but an embedding, and
    all shadow models are nearly of one mind about it: here it is what the mean of them makes of a record.

    `attack` learns to read embeddings off the layer, `picture` to turn them into records. The second learns from true
    embeddings, as S4 has it, and is judged by what it makes of rebuilt ones. Where no layer comes before the first
    linear one, the embedding is the record, and RecoNN gets there in one step.
    """

    reads_weights: ClassVar[bool] = True  # as RecoNN

    attack: RecoNN
    picture: RecoNN

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable: for its own reason, or for that of one of its parts."""
        refusal, prior = "EmbeddingRecoNN is not applicable: ", knowledge.prior
        if not knowledge.facts.access.all_weights:
            return refusal + f"it needs all layers, but the adversary sees {knowledge.access!r}. Use access=Weights()."
        if prior.features is not None:
            return refusal + "the net is shown features, and no records. Use RecoNN."
        if knowledge.facts.given.parts is not None:
            return refusal + "it cannot make use of the parts of a record that are told. Use RecoNN."
        layer = _first_linear(knowledge.net)
        if layer is None:
            return refusal + "the net trains no linear layer. Use RecoNN."
        if (sentence := self.picture.objection(knowledge)) is None:
            shown = shown_to(layer, knowledge.net, trainable(knowledge.net), prior.x[:1].cpu())  # (1, ...)
            embedded = Records(shown.to(prior.x).expand(len(prior), *shown.shape[1:]), prior.y)
            sentence = self.attack.objection(replace(knowledge, access=_rows(knowledge.net, layer), prior=embedded))
        return None if sentence is None else refusal + sentence.removeprefix("RecoNN is not applicable: ")

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Embedded:
        """Train the shadows, and learn twice. The seed decides everything."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        return self.learn(*shadow_tables(self.attack, knowledge, seed), seed=seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Embedded:
        """The second half of `prepare`, from shadow models that were trained before, all weights of them."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        knowledge = accepted(self.attack, knowledge)
        net, layer = knowledge.net, str(_first_linear(knowledge.net))
        released = release_of(net, models_and_told(shadows)[0])
        mean = {name: value.mean(0) for name, value in released.params.items()}

        def embedded(records: Records) -> Records:
            return Records(shown_to(layer, net, mean, records.x), records.y)

        facts = replace(knowledge, access=_rows(net, layer), prior=embedded(knowledge.prior))
        tables = [
            seen_by(facts.access, net, table)._replace(records=embedded(table.records)) for table in (shadows, unseen)
        ]
        embedding = self.attack.learn(facts, *tables, seed=seed)
        maps = [
            ShadowTable(table.records.x.flatten(1), records)
            for table, records in zip(tables, (shadows.records, unseen.records), strict=True)
        ]
        chained = replace(knowledge, access=Rebuilt(embedding))
        picture = self.picture.learn(chained, *maps, seed=seed)
        rebuilt = embedding(release_of(net, models_and_told(unseen)[0])).records.x.flatten(1)
        return Embedded(embedding, _judged(picture, rebuilt, unseen.records))


def shown_to(module: str, net: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """What a module is shown, (n, ...), where a net of these parameters is given the records x."""
    architecture = Architecture.of(net, x.device, x.dtype)
    own = {name: value.detach().to(x) for name, value in params.items()}
    shown: list[Tensor] = []
    handle = architecture.net.get_submodule(module).register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    with torch.no_grad():
        for part in torch.split(x, ROWS):
            architecture(own, part)
    handle.remove()
    return torch.cat(shown)


def _first_linear(net: nn.Module) -> str | None:
    """The first linear layer that is trained, in the order in which the net names its layers."""
    trained = trainable(net)
    layers = ((name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Linear))
    return next((name for name, _ in layers if f"{name}.weight".removeprefix(".") in trained), None)


def _rows(net: nn.Module, layer: str) -> Superparameters:
    return Superparameters(tuple(row for row in neurons(net) if row.module == layer))


def _judged(picture: Trained, rebuilt: Tensor, truth: Records) -> Trained:
    """With the errors that it makes of rebuilt embeddings (v, features)."""
    features, answers = picture.standardise(rebuilt, picture.span.shift.dtype), picture.span.shares(truth.x)
    found = errors(picture.decoder, Examples(features, answers, truth.y, torch.ones_like(answers[0], dtype=torch.bool)))
    return picture._replace(error_line=ErrorLine.fit(features, found), validation_error=float(found.mean()))
