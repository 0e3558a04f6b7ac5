"""Rebuild a record from any model, by a net that learned from models like it (S1 section IV)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from lostwax.access import Standardise
from lostwax.attacks.reconn.augment import Augment
from lostwax.attacks.reconn.labels import LabelHead, label_head, solve
from lostwax.attacks.reconn.reconstructor import ErrorLine, Trained, read
from lostwax.attacks.reconn.shadow_table import ShadowTable, adversary_seed, shadow_table
from lostwax.attacks.reconn.training import Examples, train
from lostwax.decoders import Decoder, MLPDecoder, Span
from lostwax.seeds import generator
from lostwax.threats import Informed
from lostwax.types import Knowledge, Records

FEWEST = 4  # two shadow models to learn from, two to be tested on


@dataclass(frozen=True, kw_only=True)
class RecoNN:
    """Train shadow models on records of the prior, and a decoder that reads the record off the model.

    `shadows` models are trained, None for one a record of the prior; more than that need an `augment`. A share
    `validation` of the prior's records is kept from the decoder: it stops learning when it has read their models no
    better for `patience` epochs (None: never), and its best weights are kept. The loss is
    mae * mean |error| + mse * mean error^2  in the coordinates of `Span`.

    All is computed in the dtype of the prior, and on `device`, None for where the prior lies.
    """

    shadows: int | None = None
    decoder: Decoder = field(default_factory=MLPDecoder)
    augment: Augment | None = None
    mae: float = 1.0
    mse: float = 1.0
    epochs: int = 100
    batch_size: int = 128
    lr: float = 2e-3
    weight_decay: float = 0.01
    validation: float = 0.1
    patience: int | None = 25
    device: str | None = None

    def __post_init__(self) -> None:
        for name, wanted, holds in (
            ("shadows", f">= {FEWEST}, or None", self.shadows is None or self.shadows >= FEWEST),
            ("mae", ">= 0", self.mae >= 0),
            ("mse", ">= 0, and above 0 where mae is 0", self.mse >= 0 and self.mae + self.mse > 0),
            ("epochs", ">= 1", self.epochs >= 1),
            ("batch_size", ">= 1", self.batch_size >= 1),
            ("lr", "> 0", self.lr > 0),
            ("weight_decay", ">= 0", self.weight_decay >= 0),
            ("validation", "in (0, 1)", 0 < self.validation < 1),
            ("patience", ">= 1, or None", self.patience is None or self.patience >= 1),
        ):
            if not holds:
                raise ValueError(f"RecoNN: expected {name} {wanted}, got {getattr(self, name)}.")

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        refusal, prior = "RecoNN cannot play this game: ", knowledge.prior
        if not isinstance(knowledge.threat, Informed):
            return refusal + (
                "it rebuilds the one record that an informed adversary does not know, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Informed(known)."
            )
        if not prior.x.is_floating_point():
            return refusal + f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
        if len(prior) < FEWEST:
            return refusal + f"it needs at least {FEWEST} records in the prior, and there are {len(prior)}."
        try:
            with torch.device("meta"):  # no memory, no draw: only to hear what it says
                self.decoder.build(1, tuple(prior.x.shape[1:]))
        except ValueError as error:
            return refusal + str(error)
        if self.shadows is None or self.shadows <= len(prior):
            return None
        if self.augment is None:
            return refusal + (
                f"{self.shadows} shadow models need as many records, and the prior holds {len(prior)}. Ask for at most "
                f"{len(prior)}, bring {self.shadows - len(prior)} more, make them with augment=Shifts(), or, where "
                "training is random, train on each more than once with augment=Repeats()."
            )
        clause = self.augment.objection(prior)
        return None if clause is None else f"{refusal}{clause}."

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Trained:
        """Train the shadows and the decoder. The seed decides everything; victims trained with it share no draw."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        knowledge = self._moved(knowledge)
        learn_from, test_on = self._targets(knowledge.prior, seed)
        shadows = shadow_table(knowledge, learn_from, seed=seed, purpose="shadow")
        unseen = shadow_table(knowledge, test_on, seed=seed, purpose="validation")
        standardise, span = Standardise.fit(shadows.seen), Span.of(knowledge.prior.x)
        examples = _examples(shadows, standardise, span)
        held_out = _examples(unseen, standardise, span)
        del shadows, unseen  # as large as the examples
        with _torch_seed(adversary_seed(seed, "decoder"), span.shift.device):
            decoder, label = self._nets(standardise, span, _labels(knowledge))
            errors = train(decoder, examples, held_out, self)
        solve(label, examples.features, examples.y, held_out.features, held_out.y)
        line = ErrorLine.fit(held_out.features, errors)
        error = float(errors.mean())
        return Trained(knowledge.net, knowledge.access, standardise, decoder, label, span, line, error, self)

    def load(self, folder: str | Path, knowledge: Knowledge) -> Trained:
        """A reconstructor that `save` wrote. The net and the access are not in the files: they are the knowledge's."""
        prior = knowledge.prior.x[:1] if self.device is None else knowledge.prior.x[:1].to(self.device)
        saved = read(folder, prior.device)
        for name, now in (("decoder", repr(self.decoder)), ("access", repr(knowledge.access))):
            if saved.words[name] != now:
                raise ValueError(f"RecoNN.load: {folder} was saved with {name} {saved.words[name]}, but this is {now}.")
        with _torch_seed(0, prior.device):  # what is drawn here is overwritten
            decoder, label = self._nets(saved.standardise, saved.span, _labels(knowledge))
        decoder.load_state_dict(saved.decoder)
        label.load_state_dict(saved.label)
        return Trained(
            knowledge.net,
            knowledge.access,
            saved.standardise,
            decoder,
            label,
            saved.span,
            saved.error_line,
            saved.validation_error,
            self,
        )

    @classmethod
    def examples(cls) -> tuple[RecoNN, ...]:
        """Instances to test."""
        return (
            cls(decoder=MLPDecoder(width=16), epochs=3),
            cls(decoder=MLPDecoder(width=8, depth=1, dropout=0.1), shadows=10, epochs=2, mae=0.0, patience=None),
        )

    def _nets(self, standardise: Standardise, span: Span, y: Tensor) -> tuple[nn.Module, LabelHead]:
        features = len(standardise.kept)
        decoder = self.decoder.build(features, tuple(span.shift.shape), bounded=span.bounded)
        return decoder.to(span.shift).eval(), label_head(features, y).to(span.shift)

    def _moved(self, knowledge: Knowledge) -> Knowledge:
        """The adversary's data on its device."""
        if self.device is None or not isinstance(knowledge.threat, Informed):
            return knowledge
        threat = replace(knowledge.threat, known=knowledge.threat.known.to(self.device))
        return replace(knowledge, threat=threat, prior=knowledge.prior.to(self.device))

    def _targets(self, prior: Records, seed: int) -> tuple[Records, Records]:
        """Records to learn from, augmented where there are not enough, and others, as they are, to be tested on."""
        order = torch.from_numpy(generator(seed, "adversary", "split").permutation(len(prior))).to(prior.x.device)
        shadows = self.shadows or len(prior)
        records = min(shadows, len(prior))
        held_out = min(max(2, round(self.validation * records)), records - 2)
        learn_from, count = prior[order[held_out:shadows]], shadows - held_out
        if self.augment is not None and count > len(learn_from):
            learn_from = self.augment(learn_from, count, seed=adversary_seed(seed, "augment"))
        return learn_from, prior[order[:held_out]]


def _examples(table: ShadowTable, standardise: Standardise, span: Span) -> Examples:
    return Examples(standardise(table.seen, span.shift.dtype), span.shares(table.records.x), table.records.y)


def _labels(knowledge: Knowledge) -> Tensor:
    """All labels that the adversary has seen."""
    known = [knowledge.threat.known.y] if isinstance(knowledge.threat, Informed) else []
    return torch.cat([*known, knowledge.prior.y])


@contextmanager
def _torch_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own draws (weights, batches, noise) from this seed, and the user's generator left as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
