"""RecoNN on the rows that store the record (Shamsabadi et al. 2023, Algorithm 1), and through embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.access import Superparameters, neurons
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist
from lostwax.attacks.reconn import RecoNN, Trained
from lostwax.fields import at_least, check_fields, expect
from lostwax.games import Access, AttackFacts, Guess, Hints, Knowledge, Records, Release
from lostwax.games.running import accepted
from lostwax.inits import trainable
from lostwax.learning.shadow_tables import ShadowTable, adversary_seed, shadow_tables
from lostwax.learning.training import errors
from lostwax.trainers.stacked import Architecture

RECORDS_AT_A_TIME = 1024  # records per forward pass


def seen_by(access: Access, net: nn.Module, table: ShadowTable) -> ShadowTable:
    """The same models through another access; the table must have all weights."""
    models, given_numbers = models_and_given(table)
    return table._replace(seen=torch.cat([access(net, release_of(net, models)), given_numbers], 1))


def models_and_given(table: ShadowTable) -> tuple[Tensor, Tensor]:
    """All weights of the models (s, p), and the given numbers of their secrets (s, given)."""
    models, given_numbers = torch.split(table.seen, [table.seen.shape[1] - table.given, table.given], 1)
    return models, given_numbers


def release_of(net: nn.Module, flat: Tensor) -> Release:
    """The models with these parameters (s, p): the inverse of `Release.flat`."""
    params = trainable(net)
    parts = torch.split(flat, [value.numel() for value in params.values()], 1)
    named = zip(params.items(), parts, strict=True)
    return Release({name: part.reshape(len(flat), *value.shape) for (name, value), part in named})


class Focused(NamedTuple):
    """A prepared MnemonistRecoNN: `second` answers."""

    first: Trained  # on all rows
    explanation: Explanation  # of `first`, on held-out shadow models
    second: Trained  # on rows with negative coefficients

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret."""
        return self.second(release, hints)


@final
@dataclass(frozen=True, kw_only=True)
class MnemonistRecoNN:
    """Prepare RecoNN, let Mnemonist find the rows that it reads records from, and prepare it again on these.

    Rows are chosen on at most `models` held-out shadow models. These also chose when to stop, so both validation errors
    are slightly optimistic.
    """

    attack: RecoNN
    mnemonist: Mnemonist = field(default_factory=Mnemonist)
    models: int = 200

    def __post_init__(self) -> None:
        check_fields(self, models=at_least(2))
        expect(self, "attack", "a RecoNN that trains its shadow models (engine=None)", self.attack.engine is None)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable, or why RecoNN is not."""
        if not knowledge.facts.access.all_weights:
            return (
                f"it chooses among the rows of all layers, but the adversary sees {knowledge.access!r}. Use "
                "access=Weights(), or RecoNN."
            )
        return self.mnemonist.objection(knowledge, self.models) or self.attack.objection(knowledge)

    def facts(self) -> AttackFacts:
        """As RecoNN."""
        return AttackFacts(reads_weights=True, device=self.attack.device, inside=self.attack)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Focused:
        """Train the shadow models, and the decoder twice."""
        return self.learn(*shadow_tables(self.attack, accepted(self, knowledge), seed), seed=seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Focused:
        """The second half of `prepare`, from shadow models that were trained before."""
        first = self.attack.learn(knowledge, shadows, unseen, seed=seed)
        return self.focus(first, knowledge, shadows, unseen, seed=seed)

    def focus(
        self, first: Trained, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int
    ) -> Focused:
        """The second half of `learn`: explain a reconstructor trained on these shadow models, and choose rows."""
        knowledge, sample = accepted(self, knowledge), slice(self.models)
        models, given_numbers = (part[sample] for part in models_and_given(unseen))
        truth = Records(unseen.records.x[sample].unsqueeze(1), unseen.records.y[sample].unsqueeze(1))  # k = 1
        hints = Hints(parts=given_numbers.reshape(truth.x.shape) if unseen.given else None)
        released, masks = release_of(knowledge.net, models), adversary_seed(seed, "masks")
        explanation = self.mnemonist(first, knowledge, released, truth, seed=masks, hints=hints)
        access = Superparameters(explanation.holding() or explanation.rows)  # all rows if none helps
        tables = (seen_by(access, knowledge.net, table) for table in (shadows, unseen))
        second = self.attack.learn(replace(knowledge, access=access), *tables, seed=seed)
        return Focused(first, explanation, second)


class Rebuilt(NamedTuple):
    """An access to a model: the rebuilt input of its first linear layer."""

    embedding: Trained

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features)."""
        return self.embedding(release).records.x.flatten(1)


class Embedded(NamedTuple):
    """A prepared EmbeddingRecoNN; `picture.validation_error` is that of both parts together."""

    embedding: Trained
    picture: Trained

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret, with the label as read off the layer."""
        guess, labels = self.picture(release, hints), self.embedding(release, hints).records.y
        return replace(guess, records=Records(guess.records.x, labels))


@final
@dataclass(frozen=True, kw_only=True)
class EmbeddingRecoNN:
    """Rebuild the input of the first linear layer from that layer, and the record from it.

    A linear layer stores copies of its input (Shamsabadi et al. 2023, Eq. 2 and section 6), after convolutions an
    embedding of the record, here computed with the mean weights of shadow models. `attack` learns to read embeddings
    off the layer, `picture` to turn them into records. If the first layer is linear, use RecoNN.
    """

    attack: RecoNN
    picture: RecoNN

    def __post_init__(self) -> None:
        check_fields(self)
        expect(self, "attack", "a RecoNN that trains its shadow models (engine=None)", self.attack.engine is None)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable, or why one of its parts is not."""
        prior = knowledge.prior
        if not knowledge.facts.access.all_weights:
            return f"it needs all layers, but the adversary sees {knowledge.access!r}. Use access=Weights()."
        if prior.features is not None:
            return "the net trains on features instead of records. Use RecoNN."
        if knowledge.facts.given.parts is not None:
            return "it cannot use the given parts of a record. Use RecoNN."
        layer = _first_linear(knowledge.net)
        if layer is None:
            return "the net trains no linear layer. Use RecoNN."
        if (reason := self.picture.objection(knowledge)) is not None:
            return reason
        layer_input = inputs_of(layer, knowledge.net, trainable(knowledge.net), prior.x[:1].cpu())  # (1, ...)
        embedded = Records(layer_input.to(prior.x).expand(len(prior), *layer_input.shape[1:]), prior.y)
        return self.attack.objection(replace(knowledge, access=_rows(knowledge.net, layer), prior=embedded))

    def facts(self) -> AttackFacts:
        """As RecoNN."""
        return AttackFacts(reads_weights=True, device=self.attack.device, inside=self.attack)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Embedded:
        """Train the shadow models, and both decoders."""
        return self.learn(*shadow_tables(self.attack, accepted(self, knowledge), seed), seed=seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Embedded:
        """The second half of `prepare`, from tables with all weights of shadow models that were trained before."""
        knowledge = accepted(self, knowledge)
        net, layer = knowledge.net, str(_first_linear(knowledge.net))
        released = release_of(net, models_and_given(shadows)[0])
        mean = {name: value.mean(0) for name, value in released.params.items()}

        def embedded(records: Records) -> Records:
            return Records(inputs_of(layer, net, mean, records.x), records.y)

        on_layer = replace(knowledge, access=_rows(net, layer), prior=embedded(knowledge.prior))
        both = shadows, unseen
        tables = [seen_by(on_layer.access, net, source)._replace(records=embedded(source.records)) for source in both]
        embedding = self.attack.learn(on_layer, *tables, seed=seed)
        maps = [
            ShadowTable(table.records.x.flatten(1), source.records) for table, source in zip(tables, both, strict=True)
        ]
        picture = self.picture.learn(replace(knowledge, access=Rebuilt(embedding)), *maps, seed=seed)
        rebuilt = embedding(release_of(net, models_and_given(unseen)[0])).records.x.flatten(1)
        held_out = picture.examples(ShadowTable(rebuilt, unseen.records))
        return Embedded(embedding, picture.with_errors(held_out.features, errors(picture.decoder, held_out)))


def inputs_of(module: str, net: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """The inputs of a module, (n, ...), in a net with these parameters applied to records x."""
    architecture = Architecture.of(net, x.device, x.dtype)
    values = {name: value.detach().to(x) for name, value in params.items()}
    inputs: list[Tensor] = []
    handle = architecture.net.get_submodule(module).register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    with torch.no_grad():
        for part in torch.split(x, RECORDS_AT_A_TIME):
            architecture(values, part)
    handle.remove()
    return torch.cat(inputs)


def _first_linear(net: nn.Module) -> str | None:
    """The first linear layer that is trained, in the order of `net.named_modules()`."""
    trained = trainable(net)
    layers = ((name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Linear))
    return next((name for name, _ in layers if f"{name}.weight".removeprefix(".") in trained), None)


def _rows(net: nn.Module, layer: str) -> Superparameters:
    return Superparameters(tuple(row for row in neurons(net) if row.module == layer))
