"""A solved regression: from what is seen of a release to a guess."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.kernel_ridge.regression import Regression
from lostwax.attacks.kernel_ridge.witness import Witness
from lostwax.attacks.reconn.shadow_table import seen_and_told
from lostwax.decoders import Span
from lostwax.types import Access, Guess, Hints, Records, Release


class Regressed(NamedTuple):
    """A prepared KernelRidge.

    Guesses come in the dtype of the prior and on the device of the release. A class is guessed by doubts and witness.
    Confidence is minus the predicted mean squared error, in the coordinates of `Span`.
    """

    net: nn.Module
    access: Access
    span: Span
    regression: Regression
    classes: Tensor | None  # (classes,) one a group; None where labels are numbers
    witness: Witness | None  # where there are several classes
    number: Span | None  # of labels that are numbers, answered behind the record's own
    validation_error: float = torch.inf  # mean squared error over held-out shadow models, in the same coordinates

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret; what the hints tell of it, its label or some of its numbers, is as they say."""
        seen = seen_and_told(self.access(self.net, release), hints)  # (m, features)
        home, ours = seen.device, self.span.shift
        labels = None if hints is None or hints.labels is None else hints.labels[:, 0].to(ours.device)
        x, y, doubt = self.read(seen.to(ours.device), labels)
        x = self.span.records(x).unsqueeze(1)  # (m, 1, ...)
        if hints is not None and hints.parts is not None:
            told = hints.parts.to(x)
            x = torch.where(told.isnan(), x, told)
        confidence = -self.regression.error * doubt.unsqueeze(1)
        return Guess(Records(x.to(home), y.unsqueeze(1).to(home)), confidence.to(home))

    def read(self, seen: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(m, features) -> records (m, ...) in the coordinates of the span, labels (m,) and doubts (m,)."""
        answers, doubts = self.regression(seen)  # (classes, m, d), (classes, m)
        place, models = self._class(seen, doubts, labels), torch.arange(len(seen), device=seen.device)
        chosen, d = answers[place, models].to(self.span.shift), self.span.shift.numel()  # (m, d and the label's)
        x = chosen[:, :d].clamp(0, 1) if self.span.bounded else chosen[:, :d]
        y = self._label(place, chosen[:, d:]) if labels is None else labels
        return x.reshape(-1, *self.span.shift.shape), y, doubts[place, models]

    def _class(self, seen: Tensor, doubts: Tensor, labels: Tensor | None) -> Tensor:
        """(m,) which group answers: the one told, else the likeliest."""
        place = doubts.argmin(0) if self.witness is None else self.witness.verdict(seen, doubts)
        if labels is None or self.classes is None:
            return place
        told = self.classes.unsqueeze(1) == labels  # (classes, m)
        return torch.where(told.any(0), told.int().argmax(0), place)

    def _label(self, place: Tensor, answer: Tensor) -> Tensor:
        """(m,) or (m, targets): the group's class, or what it answers (m, numbers) for the label."""
        if self.number is not None:
            return self.number.records(answer.reshape(-1, *self.number.shift.shape))
        return place if self.classes is None else self.classes[place]
