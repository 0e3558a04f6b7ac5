"""ModelPairs of releases: what one record does to the weights, learned from public records only; and unlearning.

The weights with a record minus those without it hardly depend on the other records: what these add to both cancels to
first order. So an attack that learns from such differences on public base sets reads a pair of releases of which no
training record is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from lostwax.fields import above, at_least, check_fields, expect
from lostwax.games import Cohort, Loss, LossFacts, Records, Release, Trainer, TrainerFacts
from lostwax.games.facts import ModelPairs, loss_facts, trainer_facts
from lostwax.inits import Numbers, Params, StartsFrom
from lostwax.seeds import generator


@dataclass(frozen=True)
class _From:
    """The weights that these models have already."""

    params: Mapping[str, Tensor]  # (m, ...)

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        models = torch.as_tensor(numbers)
        return {name: value[models.to(value.device)].double() for name, value in self.params.items()}


@dataclass(frozen=True)
class Negated:
    """Minus another loss: training on it climbs that loss, as gradient-ascent unlearning does."""

    inner: Loss

    def facts(self, outputs: int) -> LossFacts:
        facts = loss_facts(self.inner, outputs)
        return (facts or LossFacts())._replace(attained=False)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -self.inner(outputs, y)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -self.inner.residual(outputs, y)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        return self.inner.label(outputs, -residual)


@dataclass(frozen=True)
class Unlearned:
    """Approximate unlearning: train on all records, then go on from there so that one is forgotten.

    `by` runs on the other records (`on="rest"`: fine-tuning without the record), or on the record itself
    (`on="erased"`: gradient ascent, with `by=GD(loss=Negated(CrossEntropy()), ...)`).
    """

    trainer: Trainer
    by: Trainer
    on: Literal["rest", "erased"] = "rest"

    def __post_init__(self) -> None:
        check_fields(self)
        expect(self, "by", "to be a trainer with an init, such as GD or Adam", isinstance(self.by, StartsFrom))

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        return self.after(net, cohort, self.trainer(net, cohort, seed=seed), seed=seed)

    def after(self, net: nn.Module, cohort: Cohort, before: Release, *, seed: int) -> Release:
        """The models after unlearning, from those before."""
        numbers, none = torch.arange(len(cohort), device=cohort.index.device), cohort.shared[:0]
        by: Trainer = replace(self.by, init=_From(before.params))  # type: ignore[type-var]
        if self.on == "erased":
            return by(net, Cohort(none, cohort.own, numbers), seed=seed)
        empty = torch.zeros(len(cohort), 0, dtype=torch.long, device=cohort.index.device)
        return by(net, Cohort(cohort.shared, cohort.shared[empty], numbers), seed=seed)

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        return self.trainer.tile_size(net, cohort)

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """As random as either; no attack differentiates through both."""
        inner, by = (trainer_facts(trainer, net, n) for trainer in (self.trainer, self.by))
        return TrainerFacts(
            deterministic=inner.deterministic and by.deterministic, loss=inner.loss, unlearns=self.after
        )


@dataclass(frozen=True)
class Paired:
    """Trained with one record minus trained without it, on `bases` public sets of `size` records of the known ones.

    Models 0 to `block` - 1 have the first base set, and so on in turns. If the inner trainer unlearns, the difference
    is that of unlearning. `scale` multiplies it, where base sets are smaller than the training set was.
    """

    trainer: Trainer
    size: int
    bases: int = 20
    scale: float = 1.0
    block: int = 64

    def __post_init__(self) -> None:
        check_fields(self, size=at_least(1), bases=at_least(1), scale=above(0), block=at_least(1))

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """The difference for each record of the cohort."""
        parts: dict[str, Tensor] = {}
        base_of = cohort.index.cpu() // self.block % self.bases
        for number in range(self.bases):
            models = (base_of == number).nonzero().flatten().to(cohort.index.device)
            if not len(models):
                continue
            with_record, without = self.pair(net, self.base(cohort.shared, number), cohort, models, seed)
            for name, value in with_record.params.items():
                difference = self.scale * (value - without.params[name])
                parts.setdefault(name, value.new_zeros(len(cohort), *value.shape[1:]))[models] = difference
        return Release(parts)

    def base(self, pool: Records, number: int) -> Records:
        """The public base set of this number."""
        rows = generator(0, "base set", number).permutation(len(pool))[: self.size]
        return pool[torch.from_numpy(rows).to(pool.y.device)]

    def pair(self, net: nn.Module, base: Records, cohort: Cohort, models: Tensor, seed: int) -> tuple[Release, Release]:
        """Models trained with each record, (m, ...), and without it, (m, ...) or (1, ...)."""
        stated = trainer_facts(self.trainer, net, len(base) + 1)
        dealt = Cohort(base, cohort.own[models], cohort.index[models])
        if stated.unlearns is not None:
            before = self.trainer.trainer(net, dealt, seed=seed)  # type: ignore[attr-defined]
            return before, stated.unlearns(net, dealt, before, seed=seed)
        last = torch.tensor([[len(base) - 1]], device=base.y.device)
        alone = Cohort(base[:-1], base[last], cohort.index[:1])
        return self.trainer(net, dealt, seed=seed), self.trainer(net, alone, seed=seed)

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        return self.trainer.tile_size(net, cohort)

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """Random: which public base set it is does not matter to the attack."""
        pairs = ModelPairs(self.trainer, self.base, self.bases, self.block, self.scale)
        return TrainerFacts(deterministic=self.bases == 1, ordered=False, pairs=pairs)
