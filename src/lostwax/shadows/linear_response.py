"""Shadow models by linear response: each costs one record's gradients, however many records are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from lostwax.access import Sketch
from lostwax.fields import at_least, check_fields
from lostwax.games import Knowledge, Records, Release, Trainer
from lostwax.games.facts import ModelPairs, trainer_facts
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.trainers.descent import as_descent
from lostwax.trainers.linear_response import HESSIAN_RECORDS, BaseTrajectory, response_objection
from lostwax.trainers.responses import Adjoints, BaseSetsInTurns, EveryWeight, LeadingHessians, SemiLinear

MIN_R2 = 0.9  # R^2 on trained models: directions below are dropped
MIN_RELIABLE_SHARE = 0.5  # of the directions, and of trained models' variance: else models are trained instead
MIN_COVERED = 0.95  # of what a record changes: if directions hold less, trained models show more
MIN_CHECKED = 8  # trained models that R^2 is computed on
MIN_CHANGE = 0.1  # of what the median record changes: of a record that changes less, the error is rounding
SAMPLED_RECORDS = 32  # records that choose the steps of the sum
SEMI_LINEAR_RANK = 32  # of the semi-linear response that is tried where the linear one fails
BASE_SETS = 3  # of differences of models: each takes a sweep


class Check(NamedTuple):
    """How well responses predict models that were trained."""

    form: str  # "Linear response" or "Semi-linear response"
    r2: Tensor  # (r,) in each direction, the one in which models vary most first
    variance: Tensor  # (r,) of trained models
    covered: float  # share of what a record changes that lies in the directions
    checked: int  # trained models

    @property
    def reliable(self) -> Tensor:
        """(r,) the directions that are used."""
        return self.r2 >= MIN_R2

    @property
    def informative(self) -> Tensor:
        """(r,) those of them along which models vary at all: of the others any response is right."""
        return self.reliable & (self.variance > 0)

    @property
    def holds(self) -> bool:
        """Whether the reliable directions are enough to teach an attack.

        By number too: one direction can hold most of the variance, and a record is not rebuilt from one number.
        """
        informative = self.informative
        many = int(informative.sum()) >= max(1.0, MIN_RELIABLE_SHARE * int((self.variance > 0).sum()))
        return many and bool(self.variance[informative].sum() >= MIN_RELIABLE_SHARE * self.variance.sum())

    @property
    def complete(self) -> bool:
        """Whether an attack sees nearly all of what a record changes."""
        return self.covered >= MIN_COVERED and bool(self.reliable.all())

    def __str__(self) -> str:
        """What an audit says about it."""
        low, median = (
            f"{r2:.3f}" if r2 > -10 else "below -10"  # its size says nothing more; it may be infinite
            for r2 in (float(self.r2.quantile(share)) for share in (0.1, 0.5))
        )
        dropped = int((~self.reliable).sum())
        return (
            f"{self.form} in {len(self.r2)} directions, which hold {self.covered:.0%} of what a record changes: R² "
            f"on {self.checked} trained models is {median} in the median direction, {low} at the tenth "
            f"percentile" + (f". Directions below {MIN_R2:g} were dropped: {dropped}." if dropped else ".")
        )


Answers = Adjoints | SemiLinear | EveryWeight | BaseSetsInTurns


@dataclass(frozen=True, eq=False)
class Responses:
    """What training on one more record changes, in some directions of what the adversary sees."""

    access: Sketch  # the same numbers of a release
    answers: Answers
    shift: Tensor  # (r,) by which trained models differ from responses, on average
    turned: Tensor  # (r, r) orthogonal
    check: Check
    errors: Tensor  # (c, r) on the models that check them, in units of the square of what each record changes

    def __call__(self, records: Records) -> Tensor:
        """(m, r) of m records."""
        return (self.answers(records) + self.shift) @ self.turned.mT

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """(m, k, r) the derivatives at m records, along k directions of them."""
        return self.answers.tangents(records, directions) @ self.turned.mT


@final
@dataclass(frozen=True, kw_only=True)
class LinearResponse:
    """Compute shadow models by the linear response of training, instead of training them.

    One model is trained on the known records alone. What one more record changes in it follows to first order from the
    record's gradients (`trainers/linear_response.py`), in `directions` of what the adversary sees: the principal ones
    of as many trained models. Attacks then see models in these directions only. `checked` more models are trained to
    test the response, on the records held out from learning first. Directions that it predicts badly are dropped; if
    fewer than half are left, or they hold less than half of the variance, shadow models are trained after all. Training
    must be deterministic and differentiable. With 10,000 known records or more, in full batches, the models that choose
    directions are trained on 5,000 of them, and each step's Hessian is estimated from about 5,000. The models that test
    the response are trained on all.

    In the semi-linear response the record's gradient is taken where its own model is, with the leading `rank`
    directions of the known records' Hessians: better where a record is learnt in training, and slower. None: it is
    tried where the linear response fails; 0: never. With as many as the net has weights (small nets), all weights are
    followed, and `Newton` compares all of them, whatever `directions` is.

    Of differences of models (`trainers.Paired`), records answer in turns to the first three base sets.
    """

    directions: int = 256
    checked: int = 64
    rank: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, directions=at_least(1), checked=at_least(MIN_CHECKED), rank=at_least(0))

    def follows_all(self, weights: int) -> bool:
        """Whether the response of every weight of a net is followed."""
        return self.rank is not None and self.rank >= weights

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable, as a clause without its name."""
        known, secrets, *_ = knowledge.facts
        if known is None or secrets != 1:
            return (
                "one record among many known ones is a small change, but the adversary is "
                f"{type(knowledge.threat).__name__}. Train shadow models instead."
            )
        if len(known) == 0:
            return "no records are known, so there is no base model. Train shadow models instead."
        if knowledge.prior.features is not None:
            return "the net trains on features of the records. Train shadow models instead."
        return response_objection(responding(knowledge)[0], knowledge.net, len(known) + 1)

    def prepare(
        self,
        knowledge: Knowledge,
        principal: Tensor | None,
        checked: Tensor,
        records: Records,
        held_out: int | None = None,
        tolerance: float = 1e-2,
    ) -> Responses:
        """From what is seen of trained models: (s, features) that choose directions, None for every feature.

        `checked` (c, features) are trained on the `records` (c, ...). Of these the first `held_out`, by default all,
        chose no directions: they measure how much of a record's effect the directions hold. `tolerance` is that of
        sums over few steps.
        """
        known, objection = knowledge.facts.known, self.objection(knowledge)
        if known is None or objection is not None:
            raise ValueError(f"LinearResponse is not applicable: {objection}")
        known, (trainer, pairs) = known.to(knowledge.prior.x.device), responding(knowledge)
        if pairs is None:
            bases = [BaseTrajectory.of(trainer, knowledge.net, known)]
            end = Release(bases[0].end)
        else:
            sets = [pairs.base(known, number) for number in range(min(BASE_SETS, pairs.bases))]
            bases = [BaseTrajectory.of(trainer, knowledge.net, base) for base in sets]
            end = Release({name: torch.zeros_like(value) for name, value in bases[0].end.items()})
        origin = knowledge.access(knowledge.net, end)[0]  # (features,)
        far = (checked.double() - origin.double()).to(origin)  # (c, features)
        if principal is None:
            directions = torch.eye(len(origin), dtype=origin.dtype, device=origin.device)
        else:
            directions = _principal(principal, self.directions).to(origin)
        sketch, bases = Sketch(knowledge.access, origin, directions), [base.quick() for base in bases]
        along, prior = sketch.along(knowledge.net, end), knowledge.prior
        if self.follows_all(along.shape[1]):
            every = _in_turns([EveryWeight.of(base, along) for base in bases], pairs)
            return _checked("Semi-linear response", sketch, every, far, records, held_out)
        bases = [base.by_parts(HESSIAN_RECORDS) for base in bases]
        drawn = generator(0, "sample").permutation(len(prior))[:SAMPLED_RECORDS]  # priors may be sorted by class
        sample = prior[torch.from_numpy(drawn).to(prior.x.device)]
        with progress("directions", len(bases) * len(directions)) as advance:
            adjoints = [Adjoints.at_few_steps(base, along, sample, advance, tolerance) for base in bases]
        for rank in (0, SEMI_LINEAR_RANK) if self.rank is None else (self.rank,):
            forms = [SemiLinear(each, LeadingHessians.of(each.base, rank)) if rank else each for each in adjoints]
            form = "Semi-linear response" if rank else "Linear response"
            responses = _checked(form, sketch, _in_turns(forms, pairs), far, records, held_out)
            if responses.check.holds:
                break
        return responses


def responding(knowledge: Knowledge) -> tuple[Trainer, ModelPairs | None]:
    """The trainer whose response it is, and how differences of its models are dealt, if these are released."""
    pairs = trainer_facts(knowledge.trainer, knowledge.net, len(knowledge.facts.known_records) + 1).pairs
    return (knowledge.trainer if pairs is None else pairs.trainer), pairs


def _in_turns(answers: Sequence[Adjoints | SemiLinear | EveryWeight], pairs: ModelPairs | None) -> Answers:
    return answers[0] if pairs is None else BaseSetsInTurns(tuple(answers), pairs.block, pairs.scale)


def _checked(
    form: str, sketch: Sketch, answers: Answers, far: Tensor, records: Records, held_out: int | None
) -> Responses:
    """Compare answers with models that were trained on records (c, ...), seen `far` (c, features) from the origin."""
    seen, predicted = far @ sketch.directions.mT, answers(records)  # (c, r) each
    size = seen.norm(dim=1, keepdim=True)  # (c, 1)
    size = size.clamp_min(max(MIN_CHANGE * float(size.median()), torch.finfo(far.dtype).eps))
    # other arithmetic moves all models alike; errors of the response are a share of what a record changes
    precision = (size.min() / size).square()
    shift = (precision * (seen - predicted)).sum(0) / precision.sum()
    left, variance = (part.square().sum(0) for part in (seen - predicted - shift, seen - seen.mean(0)))
    inside, total = (part[:held_out].square().sum() for part in (seen, far))
    covered = float(inside / total.clamp_min(torch.finfo(far.dtype).tiny))
    r2 = torch.where(left == 0, 1.0, (1 - left / variance).nan_to_num(-torch.inf))  # also where no model varies
    check = Check(form, r2, variance, covered, len(seen))
    reliable = check.reliable.nonzero()[:, 0]
    turned = _rotation(len(reliable)).to(far)
    access = replace(sketch, directions=turned @ sketch.directions[reliable])
    errors = ((seen - predicted - shift) / size.square())[:, reliable] @ turned.mT
    return Responses(access, answers.along(reliable), shift[reliable], turned, check, errors)


def share_for_directions(trainer: Trainer, known: int) -> float:
    """The share of the known records that models which choose directions are trained on, and Hessians estimated from.

    All of them with mini-batches: on fewer records, training would have fewer steps, and records other effects.
    """
    full = as_descent(trainer).batches.size is None
    return HESSIAN_RECORDS / known if full and known >= 2 * HESSIAN_RECORDS else 1.0


def few_known(trainer: Trainer, known: Records) -> Records:
    """A random part of many known records, on which models that choose directions are trained faster."""
    if (share := share_for_directions(trainer, len(known))) == 1:
        return known
    drawn = generator(0, "known").permutation(len(known))[: round(share * len(known))]
    return known[torch.from_numpy(drawn).to(known.y.device)]


def _principal(seen: Tensor, count: int) -> Tensor:
    """(r, features) the directions in which models (s, features) vary most, by the smaller of two products."""
    far = seen.double() - seen.double().mean(0)
    sizes, along = torch.linalg.eigh(far @ far.mT)
    order = sizes.argsort(descending=True)[:count]
    order = order[sizes[order] >= torch.finfo(torch.float32).eps * sizes.max()]  # all, if no model differs
    orthonormal: Tensor = torch.linalg.qr(far.mT @ along[:, order]).Q.mT
    return orthonormal


def _rotation(size: int) -> Tensor:
    """(r, r) orthogonal, the same every time.

    It spreads principal directions over all numbers: attacks scale each number to unit deviation, and would otherwise
    make the smallest direction as large as the first.
    """
    drawn = generator(0, "rotation").standard_normal((size, size))
    turned: Tensor = torch.linalg.qr(torch.from_numpy(drawn)).Q
    return turned
