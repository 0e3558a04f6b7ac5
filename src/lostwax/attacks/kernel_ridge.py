"""Rebuild a record from any model, by kernel ridge regression on shadow models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.fields import at_least, between, check_fields
from lostwax.games import Access, AttackFacts, Guess, Hints, Knowledge, Records, Release
from lostwax.games.protocols import accepted
from lostwax.learning.costs import DOUBLE, OPERATIONS, Cost, Rate, classes, largest_class
from lostwax.learning.decoders import Span
from lostwax.learning.kernel_regression import CLASS_MODELS, ClassRegression, Regression
from lostwax.learning.shadow_tables import (
    MIN_SHADOWS,
    Shadowed,
    ShadowTable,
    features_seen,
    notes_on,
    seen_and_given,
    shadow_cost,
    shadow_tables,
    with_given,
)

__all__ = ["KernelRidge", "Regressed"]


class Regressed(NamedTuple):
    """A prepared KernelRidge. Confidence is minus the predicted mean squared error, in the coordinates of `Span`."""

    net: nn.Module
    access: Access
    span: Span
    regression: Regression
    classes: Tensor | None  # (classes,) one per group; None where labels are numbers
    classifier: ClassRegression | None  # where there are several classes
    number: Span | None  # of labels that are numbers, which follow the record's own in an answer
    validation_error: float = torch.inf  # mean squared error over held-out shadow models, in the same coordinates
    notes: tuple[str, ...] = ()  # about its shadow models

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret. Labels and numbers that the hints give are returned unchanged."""
        seen = seen_and_given(self.access(self.net, release), hints)  # (m, features)
        home, ours = seen.device, self.span.shift
        labels = None if hints is None or hints.labels is None else hints.labels[:, 0].to(ours.device)
        x, y, variance = self.read(seen.to(ours.device), labels)
        x = with_given(self.span.records(x).unsqueeze(1), hints)  # (m, 1, ...)
        confidence = -self.regression.error * variance.unsqueeze(1)
        return Guess(Records(x.to(home), y.unsqueeze(1).to(home)), confidence.to(home))

    def read(self, seen: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(m, features) -> records (m, ...) in the coordinates of the span, labels (m,) and variances (m,)."""
        answers, variances = self.regression(seen)  # (classes, m, d), (classes, m)
        models, y = torch.arange(len(seen), device=seen.device), labels
        group = variances.argmin(0) if self.classifier is None else self.classifier.predict(seen, variances)  # (m,)
        if labels is not None and self.classes is not None:
            of_label = self.classes.unsqueeze(1) == labels  # (classes, m)
            group = torch.where(of_label.any(0), of_label.int().argmax(0), group)
        chosen, d = answers[group, models].to(self.span.shift), self.span.shift.numel()  # (m, d and the label's)
        x = chosen[:, :d].clamp(0, 1) if self.span.bounded else chosen[:, :d]
        if y is None and self.number is not None:
            y = self.number.records(chosen[:, d:].reshape(-1, *self.number.shift.shape))
        elif y is None:
            y = group if self.classes is None else self.classes[group]
        return x.reshape(-1, *self.span.shift.shape), y, variances[group, models]


KERNEL_SOLVES = 100  # of s^3 operations each, s the shadow models of a class: eigenvectors for three kernels
READING = 1.5e-7  # seconds per number of a shadow model, which is standardised and compared several times
ROWS = 3  # further copies of what is seen: the rows of the classes, and of the classifier
KERNELS = 6  # of s x s numbers: products, similarities, factors, eigenvectors


@dataclass(frozen=True, kw_only=True)
class KernelRidge(Shadowed):
    """Train shadow models on records of the prior, and read the record off a model by kernel ridge regression.

    One regression per class, from the model's similarity to each shadow model to the record. Kernel and ridge minimise
    the leave-one-out error. The class is the one whose shadow models explain the model best, combined with one more
    regression over all classes. There is nothing to tune, but all shadow models are kept in memory, and the cost grows
    with the cube of their number per class. A share `validation` of the prior's records is held out for an unbiased
    error; the other settings are as for RecoNN.
    """

    validation: float = 0.05

    def __post_init__(self) -> None:
        check_fields(self, shadows=at_least(MIN_SHADOWS), validation=between(0, 1, "()"))

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=40, device=self.device, cheaper=self.cheaper)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        shadows, groups = self.shadows or len(knowledge.prior), classes(knowledge)
        of_shadows = shadow_cost(self.engine, knowledge, shadows, rate, games)
        features, size = features_seen(self.engine, rate), knowledge.prior.x.element_size()
        seconds = of_shadows.seconds + READING * shadows * features
        seconds += groups * KERNEL_SOLVES * (shadows / groups) ** 3 / OPERATIONS
        tables = of_shadows.bytes + size * ROWS * (shadows + games / 2) * features
        by_class = shadows / math.ceil(shadows / CLASS_MODELS["cpu"]) if groups > 1 else 0.0  # tells classes apart
        together = max(largest_class(knowledge, shadows), by_class)
        return Cost(seconds, float(tables + DOUBLE * KERNELS * together**2))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Regressed:
        """Train the shadow models and solve. Victims trained with the same seed share no draw."""
        return self.learn(*shadow_tables(self, knowledge, seed))

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable) -> Regressed:
        """The second half of `prepare`, from shadow models that were trained before."""
        knowledge = accepted(self, knowledge)
        shadows, unseen = (table.checked("KernelRidge").to(knowledge.prior.x.device) for table in (shadows, unseen))
        span, y = Span.of(knowledge.prior.x), shadows.records.y
        answers = span.shares(shadows.records.x).flatten(1).double()  # (s, d)
        classes = number = classifier = None
        if y.is_floating_point():
            number = Span.of_deviations(knowledge.prior.y)
            answers = torch.cat([answers, number.shares(y).reshape(len(y), -1).double()], 1)
            rows = [torch.arange(len(y), device=y.device)]
        else:
            classes = y.bincount().nonzero()[:, 0]
            rows = [(y == label).nonzero()[:, 0] for label in classes]
        seen = shadows.seen  # in the victim's dtype until standardised: a record may change the last digits only
        regression = Regression.fit(seen, answers, rows, given=shadows.given, dtype=span.shift.dtype)
        if classes is not None and len(classes) > 1:
            classifier = ClassRegression.fit(regression, seen, torch.searchsorted(classes, y))
        regressed = Regressed(knowledge.net, knowledge.access, span, regression, classes, classifier, number)

        def errors(seen: Tensor) -> Tensor:
            return (regressed.read(seen)[0] - span.shares(unseen.records.x))[:, unseen.target_mask].square()

        return regressed._replace(validation_error=float(errors(unseen.seen).mean()), notes=notes_on(unseen, errors))
