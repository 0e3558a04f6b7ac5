"""Rebuild a record by inverting any deterministic training function, with differences of models for derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.fields import at_least, check_fields
from lostwax.games import Attack, AttackFacts, Cohort, Guess, Hints, Knowledge, Noted, Reconstructor, Records, Release
from lostwax.games.facts import notes_of
from lostwax.games.protocols import objection_to
from lostwax.learning.coordinates import Coordinates, as_records, flat
from lostwax.learning.costs import Cost, Rate, predicted
from lostwax.progress import counted

FIRST_DIFFERENCE, MIN_DIFFERENCE = 0.05, 1e-3  # difference that is taken: at first, and at least
OF_STEP = 0.3  # ... over the last step's size
DAMPINGS = (0.0, 1e-6, 1e-4, 1e-2, 1.0)  # of Gauss-Newton steps that are tried, over the mean diagonal
PROGRESS = 0.9  # of the residual: less progress ends the search
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
        """Why it is not applicable."""
        refusal, facts, prior = "Secant is not applicable: ", knowledge.facts, knowledge.prior
        if (sentence := facts.not_one_secret(knowledge.threat, "it solves for the missing record")) is not None:
            return refusal + sentence
        if facts.trainer.differentiable or facts.trainer.objective is not None:
            return refusal + "training can be differentiated, or has an equation. Use Newton or ClosedForm."
        if not facts.trainer.deterministic:
            return refusal + (
                "the weights are not a function of the record alone: training draws private random numbers. If they "
                "are known, use OwnTraining(train, seed=...)."
            )
        if not facts.access.all_weights or facts.given.parts is not None:
            return refusal + "it compares all weights, for the whole record. Use KernelRidge or RecoNN."
        if prior.features is not None or (numbers := prior.x.shape[1:].numel()) > MOST_NUMBERS:
            return refusal + f"it trains a model for each number of a record, for at most {MOST_NUMBERS:,}. Use RecoNN."
        moved = [value for value in knowledge.net.parameters() if value.requires_grad]
        weights = sum(value.numel() for value in moved or knowledge.net.parameters())
        if weights < numbers:
            return refusal + f"the net has {weights} weights, too few to determine the {numbers} secret numbers."
        return objection_to(self.start, knowledge)

    def facts(self) -> AttackFacts:
        """As Newton, at the cost of a training for each number."""
        return AttackFacts(strength=65)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """Models for every number of a record and every step."""
        numbers = knowledge.prior.x.shape[1:].numel()
        first = predicted(self.start, knowledge, games, rate)
        models = self.iterations * (numbers + len(DAMPINGS)) * games
        return Cost(first.seconds + models * rate.training, first.bytes + 8.0 * 2 * numbers * rate.parameters)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Prepare the attack that makes the first guess."""
        objection, known = self.objection(knowledge), knowledge.facts.known
        if objection is not None or known is None:
            raise ValueError(objection)
        return _Solver(knowledge, known, self.start.prepare(knowledge, seed=seed), self.iterations)


class _Found(NamedTuple):
    """Where a search is."""

    a: Tensor  # (r,) coordinates of the record
    weights: Tensor  # (p,) of the model trained on it
    residual: float  # distance from the release
    certified: bool = False


class _Solver(NamedTuple):
    knowledge: Knowledge
    known: Records
    first: Reconstructor
    iterations: int

    @property
    def notes(self) -> tuple[Noted, ...]:
        """Those of the first attack."""
        return notes_of(self.first)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Search for each model's secret; the label is the first attack's, or given."""
        guess, prior = self.first(release, hints), self.knowledge.prior
        coordinates = Coordinates.of(prior)
        released = release.flat().double()  # (m, p)
        precision = RESIDUAL_ROUNDING * torch.finfo(next(iter(release.params.values())).dtype).eps
        results, every = [], counted(range(len(released)), "Secant: games", len(released))
        for game in every:
            start = Records(guess.records.x[game], guess.records.y[game])  # (1, ...)
            search = _Search(self.knowledge, self.known, coordinates, start.y, prior[:1])
            results.append(search(self._starts(start, coordinates), released[game], self.iterations, precision))
        z = coordinates(torch.stack([result.a for result in results]))  # (m, u)
        rebuilt = as_records(z, guess.records.y[:, 0], prior[:1])
        x, y = rebuilt.x.unsqueeze(1).to(guess.records.x), rebuilt.y.unsqueeze(1).to(guess.records.y)
        scale = released.norm(dim=1).clamp_min(1e-300)
        confidence = -torch.tensor([[result.residual] for result in results]).to(scale) / scale.unsqueeze(1)
        certified = torch.tensor([[result.certified] for result in results], device=x.device)
        return Guess(Records(x, y), confidence, certified=certified)

    def _starts(self, guess: Records, coordinates: Coordinates) -> Tensor:
        """(2, r) the guess and the mean of its class."""
        prior = self.knowledge.prior
        same = prior if prior.y.is_floating_point() else prior[prior.y == guess.y.to(prior.y)]
        mean = flat(same if len(same) else prior).mean(0, keepdim=True)
        return coordinates.of_records(torch.cat([flat(guess).to(mean), mean]))


class _Search(NamedTuple):
    """One game: the model as a function of the coordinates."""

    knowledge: Knowledge
    known: Records
    coordinates: Coordinates
    label: Tensor  # (1,)
    like: Records

    def models(self, a: Tensor) -> Tensor:
        """(q, r) -> (q, p) in float64."""
        records = as_records(self.coordinates(a), self.label.expand(len(a), *self.label.shape[1:]), self.like)
        secrets = Records(records.x.unsqueeze(1), records.y.unsqueeze(1))
        numbers = torch.zeros(len(a), dtype=torch.long, device=a.device)
        return self.knowledge.trainer(self.knowledge.net, Cohort(self.known, secrets, numbers), seed=0).flat().double()

    def best(self, a: Tensor, released: Tensor) -> _Found:
        """Of several records (q, r) that whose model is nearest to the release."""
        weights = self.models(a)
        residuals = (weights - released).norm(dim=1).nan_to_num(torch.inf)
        place = int(residuals.argmin())
        return _Found(a[place], weights[place], float(residuals[place]))

    def __call__(self, starts: Tensor, released: Tensor, iterations: int, precision: float) -> _Found:
        best, size = self.best(starts, released), FIRST_DIFFERENCE
        if iterations == 0:
            return best._replace(a=starts[0])
        low, high = self.coordinates.low, self.coordinates.high
        enough = precision * float(released.norm())
        for _ in range(iterations):
            there = torch.where(best.a + size > high, -size, size)  # (r,)
            jacobian = ((self.models(best.a + torch.diag(there)) - best.weights) / there.unsqueeze(1)).mT  # (p, r)
            steps = _steps(jacobian, released - best.weights)  # (dampings, r)
            then = self.best(torch.minimum(torch.maximum(best.a + steps, low), high), released)
            least = float(torch.linalg.svdvals(jacobian)[-1])
            if then.residual >= best.residual:
                break
            size = min(FIRST_DIFFERENCE, max(MIN_DIFFERENCE, OF_STEP * float((then.a - best.a).abs().mean())))
            slow, best = then.residual > PROGRESS * best.residual, then
            if best.residual <= enough:
                return best._replace(certified=SURE * least > enough)  # beyond rounding
            if slow:
                break
        return best


def _steps(jacobian: Tensor, residual: Tensor) -> Tensor:
    """(dampings, r) Gauss-Newton steps, from the singular value decomposition of the Jacobian (p, r)."""
    left, values, right = torch.linalg.svd(jacobian, full_matrices=False)
    squares, along = values.square(), left.mT @ residual  # (r,)
    floor = torch.finfo(values.dtype).eps * squares[0].clamp_min(1e-300)
    return torch.stack([(values * along / (squares + ridge * squares.mean() + floor)) @ right for ridge in DAMPINGS])
