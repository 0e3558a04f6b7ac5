"""RecoNN for nets that begin with convolutions, by way of what their first linear layer is shown (S4 section 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.access import Superparameters, Weights, neurons
from lostwax.attacks.mnemonist.tables import models_and_told, release_of, seen_by
from lostwax.attacks.reconn import RecoNN, ShadowTable, Trained
from lostwax.attacks.reconn.reconstructor import ErrorLine
from lostwax.attacks.reconn.shadowed import accepted, shadow_tables
from lostwax.attacks.reconn.training import Examples, errors
from lostwax.decoders import MLPDecoder
from lostwax.inits import trainable
from lostwax.threats import Informed
from lostwax.trainers.stacked import Architecture
from lostwax.types import Guess, Hints, Knowledge, Records, Release
from lostwax.types.fields import check_fields

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

    attack: RecoNN
    picture: RecoNN

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game: for its own reason, or for that of one of its parts."""
        refusal, prior, threat = "EmbeddingRecoNN cannot play this game: ", knowledge.prior, knowledge.threat
        if not isinstance(knowledge.access, Weights):
            return refusal + f"it needs all layers, but the adversary sees {knowledge.access!r}. Use access=Weights()."
        if prior.features is not None:
            return refusal + "the net is shown features, and no records. Use RecoNN."
        if isinstance(threat, Informed) and threat.parts is not None:
            return refusal + "it cannot make use of the parts of a record that are told. Use RecoNN."
        layer = _first_linear(knowledge.net)
        if layer is None:
            return refusal + "the net trains no linear layer. Use RecoNN."
        if (sentence := self.picture.objection(knowledge)) is None:
            shown = shown_to(layer, knowledge.net, trainable(knowledge.net), prior.x[:1].cpu())  # (1, ...)
            embedded = Records(shown.to(prior.x).expand(len(prior), *shown.shape[1:]), prior.y)
            sentence = self.attack.objection(replace(knowledge, access=_rows(knowledge.net, layer), prior=embedded))
        return None if sentence is None else refusal + sentence.removeprefix("RecoNN cannot play this game: ")

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

    @classmethod
    def examples(cls) -> tuple[EmbeddingRecoNN, ...]:
        """Instances to test."""
        small = RecoNN(decoder=MLPDecoder(width=16), epochs=3)
        return (cls(attack=small, picture=small),)


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
