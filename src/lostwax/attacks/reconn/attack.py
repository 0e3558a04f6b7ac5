"""Rebuild a record from any model, by a net that learned from models like it (S1 section IV)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from lostwax.access import SeenRows, Standardise, rows_objection
from lostwax.attacks.reconn.augment import Augment
from lostwax.attacks.reconn.labels import LabelHead, label_head, solve
from lostwax.attacks.reconn.reconstructor import ErrorLine, Trained, read
from lostwax.attacks.reconn.shadow_table import ShadowTable, adversary_seed
from lostwax.attacks.reconn.shadowed import FEWEST, accepted, shadow_objection, shadow_tables
from lostwax.attacks.reconn.terms import Term
from lostwax.attacks.reconn.training import Examples, errors, torch_seed, train
from lostwax.decoders import Committee, Decoder, MLPDecoder, RowDecoder, Span
from lostwax.threats import Informed
from lostwax.types import Knowledge
from lostwax.types.fields import above, at_least, between, check_fields, expect


@dataclass(frozen=True, kw_only=True)
class RecoNN:
    """Train shadow models on records of the prior, and a decoder that reads the record off the model.

    `shadows` models are trained, None for one a record of the prior; more than that need an `augment`. A share
    `validation` of the prior's records is kept from the decoder: it stops learning when it has read their models no
    better for `patience` epochs (None: never), and its best weights are kept. The loss is
    mae * mean |error| + mse * mean error^2  in the coordinates of `Span`, and further `terms` where images are to look
    right. Of several `members`, decoders that start and learn from other draws, the mean answers.

    All is computed in the dtype of the prior, and on `device`, None for where the prior lies. Shadow models are kept in
    `store`, a folder or URL, where one is named: the same game, played again, takes them from there.
    """

    shadows: int | None = None
    decoder: Decoder | RowDecoder = field(default_factory=MLPDecoder)
    augment: Augment | None = None
    mae: float = 1.0
    mse: float = 1.0
    terms: tuple[Term, ...] = ()
    members: int = 1
    epochs: int = 100
    batch_size: int = 128
    lr: float = 2e-3
    weight_decay: float = 0.01
    validation: float = 0.1
    patience: int | None = 25
    device: str | None = None
    store: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            shadows=at_least(FEWEST),
            mae=at_least(0),
            mse=at_least(0),
            members=at_least(1),
            epochs=at_least(1),
            batch_size=at_least(1),
            lr=above(0),
            weight_decay=at_least(0),
            validation=between(0, 1, "()"),
            patience=at_least(1),
        )
        expect(self, "mse", "above 0 where mae is 0", self.mae + self.mse > 0)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        if (sentence := shadow_objection(self, knowledge)) is not None:
            return sentence
        refusal, prior, decoder = "RecoNN cannot play this game: ", knowledge.prior, self.decoder
        if isinstance(decoder, RowDecoder):
            if (sentence := rows_objection(knowledge.net, knowledge.access)) is not None:
                return refusal + sentence
            decoder = decoder.picture
        try:
            with torch.device("meta"):  # no memory, no draw: only to hear what it says
                decoder.build(1, tuple(prior.x.shape[1:]))
        except ValueError as error:
            return refusal + str(error)
        for term in self.terms:
            if (sentence := term.objection(prior.x)) is not None:
                return refusal + sentence
        return None

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Trained:
        """Train the shadows and the decoder. The seed decides everything; victims trained with it share no draw."""
        return self._taught(*self._untaught(*shadow_tables(self, knowledge, seed), seed), seed)

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, *, seed: int) -> Trained:
        """The second half of `prepare`, from shadow models that were trained before, in other runs perhaps.

        `unseen` are those to be tested on, trained on other records than `shadows`; `validation` has no say.
        """
        knowledge = accepted(self, knowledge)
        models, others = len(shadows.seen), len(unseen.seen)
        if min(models, others) < 2:
            raise ValueError(
                f"RecoNN.learn: expected two shadow models or more to learn from and two to be tested on, got {models} "
                f"and {others}."
            )
        shadows, unseen = (table.checked().to(knowledge.prior.x.device) for table in (shadows, unseen))
        return self._taught(*self._untaught(knowledge, shadows, unseen, seed), seed)

    def tune(self, trained: Trained, knowledge: Knowledge, *, seed: int) -> Trained:
        """Teach a reconstructor to attack another fixed set, from fewer shadows than it was prepared with (S1 Fig. 12).

        It starts as `zero_shot` and learns as in `prepare`; what it knew before stays where that reads unseen models
        better. `trained` itself is left as it is.
        """
        start, examples, held_out = self._transferred(trained, knowledge, seed)
        return self._taught(start, examples, held_out, seed)

    def zero_shot(self, trained: Trained, knowledge: Knowledge, *, seed: int) -> Trained:
        """Carry a reconstructor over to another fixed set without teaching it anything (S1 appendix B).

        Another fixed set moves all weights by many times what one record does, so they must be standardised anew; a few
        dozen shadows suffice for that. The old decoder then reads the same coordinates, in new deviations from a new
        mean. Without, `trained(release)` is worse than a blind guess.
        """
        start, _, held_out = self._transferred(trained, knowledge, seed)
        return _judged(start, held_out, errors(start.decoder, held_out))

    def load(self, folder: str | Path, knowledge: Knowledge) -> Trained:
        """A reconstructor that `save` wrote. The net and the access are not in the files: they are the knowledge's."""
        prior = knowledge.prior.x[:1] if self.device is None else knowledge.prior.x[:1].to(self.device)
        saved = read(folder, prior.device)
        for name, now in self._identity(knowledge).items():
            if saved.words[name] != now:
                raise ValueError(f"RecoNN.load: {folder} was saved with {name} {saved.words[name]}, but this is {now}.")
        with torch_seed(0, prior.device):  # what is drawn here is overwritten
            decoder, label = self._nets(knowledge, saved.standardise, saved.span)
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

    def decoder_for(self, knowledge: Knowledge, standardise: Standardise, span: Span) -> nn.Module:
        """A decoder of what is seen at this scale, as it is before it learns."""
        shape = tuple(span.shift.shape)
        if isinstance(self.decoder, RowDecoder):
            rows = SeenRows.of(knowledge.net, knowledge.access, standardise)
            return self.decoder.build(rows, shape, bounded=span.bounded)
        return self.decoder.build(len(standardise.kept), shape, bounded=span.bounded)

    @classmethod
    def examples(cls) -> tuple[RecoNN, ...]:
        """Instances to test."""
        return (
            cls(decoder=MLPDecoder(width=16), epochs=3),
            cls(
                decoder=MLPDecoder(width=8, depth=1, dropout=0.1),
                shadows=10,
                epochs=2,
                mae=0.0,
                patience=None,
                members=2,
            ),
            cls(decoder=RowDecoder(width=8), epochs=2),
        )

    def _identity(self, knowledge: Knowledge) -> dict[str, object]:
        """What two attacks must have in common to share a decoder."""
        return {"decoder": repr(self.decoder), "members": self.members, "access": repr(knowledge.access)}

    def _untaught(
        self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable, seed: int
    ) -> tuple[Trained, Examples, Examples]:
        """A reconstructor at the scale of the shadows that knows nothing yet, and these."""
        standardise, span = Standardise.fit(shadows.seen, shadows.told), Span.of(knowledge.prior.x)
        examples, held_out = (_examples(table, standardise, span) for table in (shadows, unseen))
        with torch_seed(adversary_seed(seed, "decoder"), span.shift.device):
            decoder, label = self._nets(knowledge, standardise, span)
        any_error = ErrorLine(torch.inf, 0.0), torch.inf  # until it has been taught
        start = Trained(knowledge.net, knowledge.access, standardise, decoder, label, span, *any_error, self)
        return start, examples, held_out

    def _transferred(self, trained: Trained, knowledge: Knowledge, seed: int) -> tuple[Trained, Examples, Examples]:
        """A copy of the reconstructor at the scale of another fixed set's shadows, and these."""
        before = trained.attack._identity(replace(knowledge, access=trained.access))
        for name, now in self._identity(knowledge).items():
            if before[name] != now:
                raise ValueError(
                    f"RecoNN: the reconstructor was trained with {name} {before[name]}, but this is {now}."
                )
        knowledge, shadows, unseen = shadow_tables(self, knowledge, seed)
        standardise = trained.standardise.refit(shadows.seen)
        examples, held_out = (_examples(table, standardise, trained.span) for table in (shadows, unseen))
        decoder, label = deepcopy(trained.decoder), deepcopy(trained.label)
        start = trained._replace(
            net=knowledge.net,
            access=knowledge.access,
            standardise=standardise,
            decoder=decoder,
            label=label,
            attack=self,
        )
        return start, examples, held_out

    def _taught(self, start: Trained, examples: Examples, held_out: Examples, seed: int) -> Trained:
        """Its decoder and label head fitted in place, and the errors that they then make."""
        errors = train(start.decoder, examples, held_out, self, seed=seed)
        solve(start.label, examples.features, examples.y, held_out.features, held_out.y)
        return _judged(start, held_out, errors)

    def _nets(self, knowledge: Knowledge, standardise: Standardise, span: Span) -> tuple[Committee, LabelHead]:
        decoder = Committee(self.decoder_for(knowledge, standardise, span) for _ in range(self.members))
        label = label_head(len(standardise.kept), _labels(knowledge))
        return decoder.to(span.shift).eval(), label.to(span.shift)


def _examples(table: ShadowTable, standardise: Standardise, span: Span) -> Examples:
    features = standardise(table.seen, span.shift.dtype)
    return Examples(features, span.shares(table.records.x), table.records.y, table.sought)


def _judged(trained: Trained, held_out: Examples, errors: Tensor) -> Trained:
    """With what it foretells of its errors, from those on held-out models (v,)."""
    return trained._replace(error_line=ErrorLine.fit(held_out.features, errors), validation_error=float(errors.mean()))


def _labels(knowledge: Knowledge) -> Tensor:
    """All labels that the adversary has seen."""
    known = [knowledge.threat.known.y] if isinstance(knowledge.threat, Informed) else []
    return torch.cat([*known, knowledge.prior.y])
