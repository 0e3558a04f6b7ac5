"""Rebuild a record by inverting any deterministic training function, with differences of models for derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.attacks.least_squares import Dense, GameSearch, Linearised, Point, Rule
from lostwax.fields import at_least, check_fields
from lostwax.games import Attack, AttackFacts, Cohort, Guess, Hints, Knowledge, Noted, Reconstructor, Records, Release
from lostwax.games.facts import notes_of
from lostwax.games.protocols import accepted, objection_to
from lostwax.learning.coordinates import Coordinates, as_records, flat, unsolvable
from lostwax.learning.costs import Cost, Rate, predicted
from lostwax.progress import counted

FIRST_DIFFERENCE, MIN_DIFFERENCE = 0.05, 1e-3  # difference that is taken: at first, and at least
OF_STEP = 0.3  # ... over the last step's size
RULE = Rule((0.0, 1e-6, 1e-4, 1e-2, 1.0), stalled=0.9)  # dampings over the mean diagonal
RESIDUAL_ROUNDING = 100  # times eps of the weights' norm: a residual below is rounding
SURE = 0.05  # in units of a coordinate: a certificate says that the weights determine the record to this
MOST_NUMBERS = 4_096  # of a record: as many models are trained for each step


@dataclass(frozen=True, kw_only=True)
class Secant:
    """Solve  A(z) = theta  for the record z, as Newton does, by training again on records that differ a little.

    For training that is deterministic and cannot be differentiated, such as `OwnTraining` with a known seed. It starts
    from the guess of another attack and from the mean of its class, whichever model is nearer to the release. Each of
    at most `iterations` takes as many models as a record has numbers; none leaves the guess as it is.
    """

    iterations: int = 6
    start: Attack = field(default_factory=KernelRidge)

    def __post_init__(self) -> None:
        check_fields(self, iterations=at_least(0))

    def objection(self, knowledge: Knowledge) -> str | None:
        facts, prior = knowledge.facts, knowledge.prior
        work = "it solves for the missing record"
        if (reason := facts.not_one_secret(knowledge.threat, work) or unsolvable(knowledge)) is not None:
            return reason
        if facts.trainer.differentiable or facts.trainer.objective is not None:
            return "training can be differentiated, or has an equation. Use Newton or ClosedForm."
        if not facts.trainer.deterministic:
            return (
                "the weights are not a function of the record alone: training draws private random numbers. If they "
                "are known, use OwnTraining(train, seed=...)."
            )
        if not facts.access.all_weights:
            return "it compares all weights. Use KernelRidge or RecoNN."
        if (numbers := prior.x.shape[1:].numel()) > MOST_NUMBERS:
            return f"it trains a model for each number of a record, for at most {MOST_NUMBERS:,}. Use RecoNN."
        moved = [value for value in knowledge.net.parameters() if value.requires_grad]
        weights = sum(value.numel() for value in moved or knowledge.net.parameters())
        if weights < numbers:
            return f"the net has {weights} weights, too few to determine the {numbers} secret numbers."
        return objection_to(self.start, knowledge)

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=65)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        numbers = knowledge.prior.x.shape[1:].numel()
        first = predicted(self.start, knowledge, games, rate)
        models = self.iterations * (numbers + len(RULE.dampings)) * games
        return Cost(first.seconds + models * rate.training, first.bytes + 8.0 * 2 * numbers * rate.parameters)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        knowledge = accepted(self, knowledge)
        return _Solver(knowledge, self.start.prepare(knowledge, seed=seed), self.iterations)


class _Solver(NamedTuple):
    knowledge: Knowledge
    first: Reconstructor
    iterations: int

    @property
    def notes(self) -> tuple[Noted, ...]:
        return notes_of(self.first)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Search for each model's secret; the label is the first attack's, or given."""
        guess, prior, released = self.first(release, hints), self.knowledge.prior, release.flat().double()  # (m, p)
        fit = _Fit(self.knowledge, Coordinates.of(prior))
        enough = RESIDUAL_ROUNDING * torch.finfo(next(iter(release.params.values())).dtype).eps * released.norm(dim=1)
        points, certified = [], []
        for game in counted(range(len(released)), "Secant: games", len(released)):
            start = Records(guess.records.x[game], guess.records.y[game])  # (1, ...)
            same = prior if prior.y.is_floating_point() else prior[prior.y == start.y.to(prior.y)]
            mean = flat(same if len(same) else prior).mean(0, keepdim=True)
            starts = fit.coordinates.of_records(torch.cat([flat(start).to(mean), mean]))  # (2, r)
            residuals = fit.models(starts, start.y) - released[game]
            nearest = int(residuals.norm(dim=1).nan_to_num(torch.inf).argmin())
            search = _Search(
                Point(starts[nearest], start.y, residuals[nearest]), None, released[game], float(enough[game])
            )
            if self.iterations:
                fit.linearise([search])
                fit.descend([search], RULE, self.iterations - 1)
            certified.append(search.certified)
            points.append(search.point if self.iterations else search.point._replace(a=starts[0]))
        z = fit.coordinates(torch.stack([point.a for point in points]))  # (m, u)
        rebuilt = as_records(z, guess.records.y[:, 0], prior[:1])
        x, y = rebuilt.x.unsqueeze(1).to(guess.records.x), rebuilt.y.unsqueeze(1).to(guess.records.y)
        scale = released.norm(dim=1).clamp_min(1e-300)
        residual = torch.tensor([point.distance for point in points]).nan_to_num(torch.inf).to(scale)
        return Guess(
            Records(x, y), -(residual / scale)[:, None], certified=torch.tensor(certified, device=x.device)[:, None]
        )


class _Search(GameSearch[Linearised | None]):
    """One game's search."""

    @property
    def certified(self) -> bool:
        """True if the residual is rounding, and the weights determine the record beyond it."""
        if self.linear is None or not self.point.distance <= self.enough:  # nor is NaN
            return False
        return SURE * float(torch.linalg.svdvals(self.linear.jacobian)[-1]) > self.enough


@dataclass(frozen=True, eq=False)
class _Fit(Dense[_Search]):
    """The model as a function of the coordinates."""

    knowledge: Knowledge
    coordinates: Coordinates

    def models(self, a: Tensor, label: Tensor) -> Tensor:
        """(q, r) of a label (1, ...) -> (q, p) in float64."""
        net, trainer, known = self.knowledge.net, self.knowledge.trainer, self.knowledge.facts.known_records
        label = label.expand(len(a), *label.shape[1:])
        records = as_records(self.coordinates(a), label, self.knowledge.prior[:1])
        secrets = Records(records.x.unsqueeze(1), records.y.unsqueeze(1))
        cohort = Cohort(known, secrets, torch.zeros(len(a), dtype=torch.long, device=a.device))
        return trainer(net, cohort, seed=0).flat().double()

    def residuals(self, searches: Sequence[_Search], tried: Tensor) -> Tensor:
        pairs = zip(searches, tried, strict=True)
        return torch.stack([self.models(a, search.point.label) - search.released for search, a in pairs])

    def linearise(self, searches: Sequence[_Search]) -> None:
        """By differences of models, a share of the last step apart."""
        for search in searches:
            a, label, residual = search.point
            last = torch.inf if search.moved is None else OF_STEP * float(search.moved.abs().mean())
            size = min(FIRST_DIFFERENCE, max(MIN_DIFFERENCE, last))
            there = torch.where(a + size > self.coordinates.high, -size, size)  # (r,)
            moved = self.models(a + torch.diag(there), label) - search.released - residual  # (r, p)
            search.linear = Linearised.of((moved / there.unsqueeze(1)).mT)
            search.jacobians, search.fresh = search.jacobians + 1, True

    def quadratic(self, search: _Search) -> tuple[Tensor, Tensor, Tensor | float]:
        assert search.linear is not None
        jacobian, normal = search.linear
        squares = normal.diagonal()
        lifted = normal + torch.finfo(normal.dtype).eps * squares.amax().clamp_min(1e-300) * torch.eye(len(normal)).to(
            normal
        )
        return lifted, jacobian.mT @ search.point.residual, squares.mean()

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.coordinates.low, self.coordinates.high
