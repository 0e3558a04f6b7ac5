"""Rebuild records from a head that was trained on a few unknown ones (Maciazek and Allison 2025)."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.weak import training
from lostwax.attacks.weak.objectives import Augmented, LogError, Objective
from lostwax.attacks.weak.readers import Reader, SetReader
from lostwax.attacks.weak.training import HEADS_AT_A_TIME, HeadScale, ReadAndDecode, TrainingData, dealt_classes
from lostwax.fields import above, at_least, check_fields, expect, redacted
from lostwax.games import Access, AttackFacts, Guess, Hints, Knowledge, Records, Release, Threat
from lostwax.games.facts import stated
from lostwax.games.protocols import accepted
from lostwax.inits import trainable
from lostwax.learning.costs import Cost, Rate
from lostwax.learning.decoders import Decoder, ResidualDecoder, Span
from lostwax.learning.shadow_tables import adversary_seed
from lostwax.learning.training import (
    RANGES,
    UNKNOWN_ERRORS,
    Calibration,
    ErrorLine,
    SavedFolder,
    Term,
    TermFacts,
    answer,
    check_same,
    part,
    torch_seed,
    unlearnable,
)
from lostwax.provenance import fingerprint
from lostwax.shadows import Checkpoints, Game
from lostwax.shadows.identity import describe, identity

LEARNING = 0.6  # share of the time that goes into learning; the rest is for preparing and guessing


class TrainedOnHeads(NamedTuple):
    """A prepared WeakRecoNN: one guess per class for every head, or one of any class (label -1).

    Confidence is minus the predicted mean squared error to the nearest record, in the coordinates of `Span`.
    """

    net: nn.Module
    access: Access
    classes: tuple[int, ...]  # of the guesses
    scale: HeadScale
    reads: ReadAndDecode
    span: Span
    error_line: ErrorLine
    validation_error: float  # mean squared error on held-out heads
    attack: WeakRecoNN

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild a record of each class; hints are not used, as the classes of a set are known."""
        home = next(iter(release.params.values())).device
        tokens = self.tokens(release)
        x = self.span.records(answer(self.reads, tokens, HEADS_AT_A_TIME))  # (m, g, ...)
        y = torch.tensor(self.classes or [-1], device=home).expand(len(x), -1)  # (m, g)
        features = answer(self.reads.reader, tokens, HEADS_AT_A_TIME).flatten(0, 1)
        predicted = self.error_line(features).view(y.shape)
        return Guess(Records(x.to(home), y), -predicted.to(home))

    def tokens(self, release: Release) -> Tensor:
        """(m, tokens, numbers) standardised heads."""
        seen = self.attack.reader.see(self.net, self.access, release).to(self.span.shift.device)
        return self.scale(seen, self.span.shift.dtype)

    def save(self, folder: str | Path, *, half: bool = False) -> Path:
        """Write tensors (safetensors) and settings (JSON) into `folder`, for `WeakRecoNN.load`.

        `half` rounds the net's weights to bfloat16, in which it learns on a GPU: half the size.
        """
        tensors = {
            f"reads.{name}": value.bfloat16() if half and value.ndim > 1 else value  # except normalisation
            for name, value in self.reads.state_dict().items()
        }
        words = {"attack": redacted(repr(self.attack)), **self.attack._architecture(self.net, self.access)}
        words |= {"guesses": self.classes, "alike": self.scale.alike}
        calibration = Calibration(self.scale.standardise, self.span, self.error_line, self.validation_error)
        return SavedFolder.of(words, tensors, calibration, scale="scale").write(folder)


@dataclass(frozen=True, kw_only=True)
class WeakRecoNN:
    """Train heads on sets of the prior's records, and a net that reads a record of every class off the head.

    `reader` reads the head and `decoder` makes the records, one of each of `classes` (None: all that a set has). The
    error of a guess is the softmin (inverse temperature `softmin`) of its errors to the set's records of its class,
    mse * mean error^2 + mae * mean |error|  (Maciazek and Allison 2025, Eq. 3). The loss is `aim` of the errors, plus
    further `terms` relative to the nearest record. (The paper: mse=0.5, mae=0.5, aim=MeanError(); for CelebA
    classes=(1,), the rare one.)

    Every step learns from `batch_size` fresh heads, or from a fixed set of `shadows`. Training stops after `steps` or
    `minutes`, whichever comes first, and keeps the weights with the least loss on heads of held-out records: a share
    `validation` of the prior, but at least eight training sets' worth or half of it. `augment` makes more of the rest.

    On a GPU it computes in bfloat16 if `half`, and with torch.compile if `compile`; all on `device` (None: the
    prior's). With a folder as `checkpoint`, the same call resumes an interrupted training.
    """

    reader: Reader = field(default_factory=SetReader)
    decoder: Decoder = field(default_factory=ResidualDecoder)
    classes: tuple[int, ...] | None = None
    softmin: float = 100.0
    mse: float = 1.0
    mae: float = 0.0
    aim: Objective = field(default_factory=LogError)
    terms: tuple[Term, ...] = ()
    steps: int = 20_000
    minutes: float | None = 10.0
    batch_size: int = 128
    lr: float = 1e-3
    augment: Augmented | None = None
    shadows: int | None = None
    validation: float = 0.05
    half: bool = True
    compile: bool = False
    checkpoint: str | Path | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        ranges = {"classes": at_least(0), "steps": at_least(1), "batch_size": at_least(2)}
        check_fields(self, **RANGES, **ranges, softmin=above(0), minutes=above(0))
        expect(self, "mae", "above 0 where mse is 0", self.mae + self.mse > 0)
        enough = self.shadows is None or self.shadows >= self.batch_size
        expect(self, "shadows", f">= batch_size={self.batch_size}, or None", enough)
        if self.checkpoint is not None and any(stated(term, TermFacts()).learns for term in self.terms):
            raise ValueError(
                "WeakRecoNN: a checkpoint does not include the discriminator of terms=(Adversarial(), ...). Leave out "
                "one of the two."
            )

    def objection(self, knowledge: Knowledge) -> str | None:
        prior = knowledge.prior
        if knowledge.facts.known is not None or not isinstance(knowledge.threat, Threat):
            return (
                f"it rebuilds training sets of which no record is known, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Weak(size), or RecoNN."
            )
        if not prior.x.is_floating_point():
            return f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
        try:
            cohort = knowledge.threat.deal(prior, 2, seed=0)
        except ValueError as error:
            return str(error)
        try:
            knowledge.trainer.tile_size(knowledge.net, cohort[:1])
        except (TypeError, ValueError) as error:
            head = " Pass as net only the layers that were trained behind the backbone."
            return str(error) if prior.features is None else f"{error}{head}"
        if (reason := self.reader.objection(knowledge) or training.too_few(knowledge)) is not None:
            return reason
        labels = cohort.own.y  # (2, k)
        if not labels.is_floating_point() and not torch.equal(labels[0], labels[1]):
            return "it needs the same labels, in the same order, in every training set. Use threat=Weak(size)."
        if self.classes is not None and self.reader.guesses(self.classes) != self.classes:
            return (
                f"{type(self.reader).__name__} makes one guess, of any class, and classes={self.classes}. Leave out "
                "classes, or use reader=SetReader()."
            )
        dealt = dealt_classes(knowledge)
        if self.classes is not None and not 0 < len(set(self.classes) & set(dealt)) == len(self.classes):
            return (
                f"it should rebuild records of classes={self.classes}, and a training set has records of {dealt}. Name "
                "some of those, each once."
            )
        if self.augment is not None and (reason := self.augment.objection(prior)) is not None:
            return reason
        return unlearnable(self.decoder, self.terms, prior.x)

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=30, device=self.device, within=self.within, minutes=self.minutes)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        return Cost(math.inf if self.minutes is None else 60 * self.minutes)

    def within(self, seconds: float) -> WeakRecoNN:
        if seconds == math.inf:
            return self
        minutes = LEARNING * seconds / 60
        return replace(self, minutes=minutes if self.minutes is None else min(self.minutes, minutes))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> TrainedOnHeads:
        """Train heads and the net that reads them; reproducible without `minutes` and on a CPU."""
        knowledge = accepted(self, knowledge)
        classes, span = self.reader.guesses(self._asked(knowledge)), Span.of(knowledge.prior.x)
        data = training.training_data(self, knowledge, span, classes, seed)
        with torch_seed(adversary_seed(seed, "decoder"), span.shift.device):
            reads = self._net(knowledge, span)
        parts = knowledge.net, knowledge.access, classes, data.heads.scale, reads, span
        return self._trained(TrainedOnHeads(*parts, *UNKNOWN_ERRORS, self), knowledge, data, seed)

    def tune(self, trained: TrainedOnHeads, knowledge: Knowledge, *, seed: int) -> TrainedOnHeads:
        """Adapt a copy of a reconstructor to other heads, such as those of DP-SGD (Maciazek and Allison 2025)."""
        knowledge = accepted(self, knowledge)
        before = trained.attack._architecture(trained.net, trained.access)
        now = self._architecture(knowledge.net, knowledge.access)
        check_same("WeakRecoNN.tune: the reconstructor was trained", before, now, "Tune it with")
        data = training.training_data(self, knowledge, trained.span, trained.classes, seed)
        start = trained._replace(net=knowledge.net, scale=data.heads.scale, reads=deepcopy(trained.reads), attack=self)
        return self._trained(start, knowledge, data, seed)

    def load(self, folder: str | Path, knowledge: Knowledge) -> TrainedOnHeads:
        """A reconstructor that `save` wrote, for the knowledge's net and access, which are not saved."""
        device = knowledge.prior.x.device if self.device is None else torch.device(self.device)
        saved = SavedFolder.read("WeakRecoNN.load", folder, device)
        architecture = self._architecture(knowledge.net, knowledge.access)
        check_same(f"WeakRecoNN.load: {folder} was saved", saved.words, architecture, "Load it with")
        standardise, span, line, error = saved.calibration(scale="scale")
        with torch_seed(0, device):  # the draws are overwritten
            reads = self._net(knowledge, span)
        reads.load_state_dict(part(saved.tensors, "reads."))
        classes, scale = tuple(saved.words["guesses"]), HeadScale(standardise, saved.words["alike"])
        return TrainedOnHeads(knowledge.net, knowledge.access, classes, scale, reads, span, line, error, self)

    def _asked(self, knowledge: Knowledge) -> tuple[int, ...]:
        return dealt_classes(knowledge) if self.classes is None else self.classes

    def _architecture(self, net: nn.Module, access: Access) -> dict[str, object]:
        """What two attacks must share to exchange nets."""
        kinds = {"reader": self.reader, "decoder": self.decoder, "access": access, "net": net, "classes": self.classes}
        return {name: repr(value) for name, value in kinds.items()}

    def _net(self, knowledge: Knowledge, span: Span) -> ReadAndDecode:
        untrained = Release({name: value.unsqueeze(0) for name, value in trainable(knowledge.net).items()})
        _, tokens, numbers = self.reader.see(knowledge.net, knowledge.access, untrained).shape
        reader = self.reader.build(knowledge.net, tokens, numbers, self._asked(knowledge))
        with torch.no_grad():
            features = reader(torch.zeros(1, tokens, numbers)).shape[-1]
        decoder = self.decoder.build(features, tuple(span.shift.shape), bounded=span.bounded)
        reads = ReadAndDecode(reader, decoder).to(span.shift).eval()
        return reads.to(memory_format=torch.channels_last) if span.shift.is_cuda else reads  # faster on tensor cores

    def _trained(self, start: TrainedOnHeads, knowledge: Knowledge, data: TrainingData, seed: int) -> TrainedOnHeads:
        """Fit the net in place, and measure its errors."""
        checkpoint = None
        if self.checkpoint is not None:
            checkpoint = Checkpoints(self.checkpoint).state(self._determined_by(start, knowledge, seed))
        training.train(start.reads, data, self, checkpoint, seed=seed)
        wrong, _ = training.errors(start.reads, data)  # (v, g)
        features = answer(start.reads.reader, data.unseen[0], HEADS_AT_A_TIME).flatten(0, 1)
        line = ErrorLine.fit(features, wrong.flatten())
        return start._replace(error_line=line, validation_error=float(wrong.mean()))

    def _determined_by(self, start: TrainedOnHeads, knowledge: Knowledge, seed: int) -> dict[str, str]:
        """All that determines a training."""
        settings = replace(self, checkpoint=None, device=None, augment=None)
        return {
            **describe("attack", settings),
            "attack.augment": repr(self.augment),
            "access": repr(start.access),
            "start": fingerprint(*start.reads.state_dict().values()),
            **identity(Game(knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior, seed)),
        }
