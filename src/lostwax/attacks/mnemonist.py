"""Which rows store a record, and RecoNN on these rows (Shamsabadi et al. 2023).

Erasing the rows that store a record raises a reconstructor's error (section 5.1); `MnemonistRecoNN` is Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, final, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.access import Neuron, Superparameters, neurons, row_layers
from lostwax.attacks.reconn import RecoNN, Trained
from lostwax.defences import undefended
from lostwax.fields import at_least, check_fields, expect
from lostwax.games import Access, AttackFacts, Guess, Hints, Knowledge, Reconstructor, Records, Release
from lostwax.games.protocols import accepted, objection_to
from lostwax.inits import StartsFrom, trainable
from lostwax.learning.shadow_tables import ShadowTable, adversary_seed, shadow_tables
from lostwax.seeds import generator

__all__ = ["Explanation", "Focused", "Mnemonist", "MnemonistRecoNN", "ToMean", "ToStart"]

MASKS_PER_ROW = 2  # at least: fewer errors than that determine no regression
MASKED_NUMBERS = 2**26  # of masked models in memory at a time


@runtime_checkable
class Erasure(Protocol):
    """What erased rows are set to: a model that stores none of the secrets."""

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        """Why it does not apply to this many models of this game, as a sentence."""

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        """Its parameters, (...) each, in place of those of m models."""


@final
@dataclass(frozen=True)
class ToStart:
    """The initial values, as in Shamsabadi et al. (2023). The row then stores none of the known records either."""

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        trainer = undefended(knowledge.trainer)
        if not isinstance(trainer, StartsFrom):
            return (
                f"rows are reset to their initial values, and the trainer, {type(trainer).__name__}, has no `init`. "
                "Use erase=ToMean()."
            )
        if knowledge.facts.trainer.private_start:
            return (
                "rows are reset to their initial values, but these are private. Use erase=ToMean(), or a public "
                "initialisation (init=LeCunNormal(seed=0))."
            )
        return None

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        trainer = undefended(knowledge.trainer)
        assert isinstance(trainer, StartsFrom)  # else there was an objection
        return {name: value[0] for name, value in trainer.init(knowledge.net, [0], seed=0).items()}


@final
@dataclass(frozen=True)
class ToMean:
    """The mean of the explained models, near the rows that a reconstructor was trained on: only one record is lost."""

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        if models < 2:
            return "rows are reset to the mean of all explained models, and there is one model. Use erase=ToStart()."
        return None

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        """The mean, in float64."""
        return {name: value.double().mean(0) for name, value in release.params.items()}


class Explanation(NamedTuple):
    """How much each row, as trained, adds to the error of a reconstruction; negative where the row helps."""

    rows: tuple[Neuron, ...]
    coefficients: Tensor  # (m, rows) float64, in mean squared error
    standard_errors: Tensor  # (m, rows)

    def overall(self) -> Explanation:
        """The mean over models, (1, rows), with a standard error that includes differences between models."""
        models = len(self.coefficients)
        if models == 1:
            return self
        deviation, mean = torch.std_mean(self.coefficients, 0, keepdim=True)
        return Explanation(self.rows, mean, deviation / models**0.5)

    def holding(self, *, by: float = 0.0) -> tuple[Neuron, ...]:
        """The rows whose mean coefficient is negative by more than `by` standard errors."""
        _, (coefficients,), (standard_errors,) = self.overall()
        negative = (coefficients < -by * standard_errors).tolist()
        return tuple(row for row, stores in zip(self.rows, negative, strict=True) if stores)


@final
@dataclass(frozen=True, kw_only=True)
class Mnemonist:
    """Explains a prepared reconstructor, such as `RecoNN(...).prepare(...)`, on models whose secret is known.

    The reconstructor reads each model `masks` times, every row as released or, with probability 1/2, as `erase` resets
    it. The squared error is regressed on the mask: one coefficient per row.
    """

    masks: int = 500
    erase: Erasure = field(default_factory=ToStart)

    def __post_init__(self) -> None:
        check_fields(self, masks=at_least(4))

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        """Why this many models of this game cannot be explained, as a sentence."""
        rows = len(neurons(knowledge.net))
        if rows == 0:
            return "the net trains no linear or convolutional layer, so it has no rows."
        if self.masks < MASKS_PER_ROW * rows:
            return (
                f"a regression on the net's {rows} rows needs at least {MASKS_PER_ROW * rows} errors, but masks is "
                f"{self.masks}. Use masks={10 * rows}."
            )
        return self.erase.objection(knowledge, models)

    def __call__(
        self,
        reconstruct: Reconstructor,
        knowledge: Knowledge,
        release: Release,
        truth: Records,
        *,
        seed: int,
        hints: Hints | None = None,
        only: Sequence[int] | None = None,
    ) -> Explanation:
        """Explain m models with these secrets `truth`, (m, k, ...), or `only` some; all count in a mean."""
        if (objection := self.objection(knowledge, len(release))) is not None:
            raise ValueError(f"Mnemonist: {objection}")
        if len(truth) != len(release):
            raise ValueError(f"Mnemonist: expected the truth of {len(release)} models, got that of {len(truth)}.")
        net, rows, erased = knowledge.net, neurons(knowledge.net), self.erase(knowledge, release)
        at_a_time = max(1, MASKED_NUMBERS // sum(value.numel() for value in erased.values()))
        regressions = []
        for model in range(len(release)) if only is None else only:
            masks = torch.from_numpy(generator(seed, "masks", model).random((self.masks, len(rows))) < 0.5)
            missed = []
            for mask_rows in torch.split(masks, at_a_time):
                model_hints = None if hints is None else hints[torch.full((len(mask_rows),), model)]
                guess = reconstruct(put_back(net, release[model], erased, mask_rows), model_hints)
                wrong = (guess.records.x - truth.x[model].to(guess.records.x)).double()  # (masks, k, ...)
                missed.append(wrong.square().flatten(1).mean(1))
            errors = torch.cat(missed)  # (masks,)
            regressions.append(regress(errors, masks.to(errors)))
        coefficients, standard_errors = (torch.stack(part) for part in zip(*regressions, strict=True))
        return Explanation(rows, coefficients, standard_errors)


def put_back(net: nn.Module, model: Mapping[str, Tensor], erased: Mapping[str, Tensor], kept: Tensor) -> Release:
    """One model per mask (masks, rows): a row is  w  where kept, else  w_init  (Shamsabadi et al. 2023, Eq. 5)."""
    layers = row_layers(net)
    params = {name: value.expand(len(kept), *value.shape) for name, value in model.items()}
    of_layers = torch.split(kept, [layer.neurons for layer in layers.values()], 1)
    for layer, mask in zip(layers.values(), of_layers, strict=True):  # (masks, neurons)
        for name in layer.params:
            value = model[name]  # (neurons, ...)
            along = mask.to(value.device).reshape(*mask.shape, *[1] * (value.ndim - 1))
            params[name] = torch.where(along, value, erased[name].to(value))
    return Release(params)


def regress(errors: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares of errors (n,) on masks (n, rows) and a constant: coefficients and standard errors, (rows,) each.

    b = (X^T X)^-1 X^T e,  var b = s^2 (X^T X)^-1,  s^2 = |e - X b|^2 / (n - rows - 1),  e and X less their means.
    """
    n, rows = kept.shape
    design, centred = kept - kept.mean(0), errors - errors.mean()
    factor, failed = torch.linalg.cholesky_ex(design.mT @ design)
    if failed:
        raise ValueError(f"Mnemonist: {n} random masks cannot separate {rows} rows. Use masks={10 * max(rows, n)}.")
    inverse = torch.cholesky_inverse(factor)
    coefficients = inverse @ (design.mT @ centred)
    variance = (centred - design @ coefficients).square().sum() / (n - rows - 1)
    return coefficients, (variance * inverse.diagonal()).sqrt()


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
        if not knowledge.facts.access.all_weights:
            return (
                f"it chooses among the rows of all layers, but the adversary sees {knowledge.access!r}. Use "
                "access=Weights(), or RecoNN."
            )
        return self.mnemonist.objection(knowledge, self.models) or objection_to(self.attack, knowledge)

    def facts(self) -> AttackFacts:
        return AttackFacts(device=self.attack.device, inside=self.attack)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Focused:
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
