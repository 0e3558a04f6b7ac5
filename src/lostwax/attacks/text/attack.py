"""Rebuild the missing sentence of a text model: read moved embeddings, then search tokens and their order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lostwax.attacks.text.search import SentenceResponse, TokenSearch
from lostwax.fields import at_least, check_fields
from lostwax.games import AttackFacts, Cohort, Knowledge, Records
from lostwax.games.protocols import accepted
from lostwax.learning.costs import DOUBLE, Cost, Rate
from lostwax.learning.shadow_tables import SWEEP
from lostwax.seeds import generator
from lostwax.trainers.descent import Descent, as_descent
from lostwax.trainers.linear_response import BaseTrajectory, response_objection
from lostwax.trainers.responses import Adjoints
from lostwax.trainers.stacked import flat

SAMPLE = 24  # sentences on which the steps of the response are chosen
PCA_STEPS = 4  # steps whose gradients give the directions
TRIED = 6  # models that a game trains, about
MOVED = 64  # directions if the table is trained
SPARE = 4 / 3  # directions for each number of embedding space
LEAST_ERROR = 1e-4  # of a response, in deviations over sentences


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Search the sentence that explains the release, by the linear response of training in some `directions`.

    If the embedding table was trained, the rows that moved give away which tokens the sentence has: the search is then
    restricted to the rows that moved most. If it was frozen, the sentence is solved for in embedding space, and each
    position gets a `shortlist` of the tokens nearest to the solution. From each of `starts` sentences, tokens are
    swapped and replaced while that explains the release better, and a model is trained on each result that is the best
    yet. A guess is certified if its model has the released weights to rounding and no similar sentence does.

    By default there are 64 directions if the table was trained, and a third more than numbers in embedding space
    otherwise.
    """

    directions: int | None = None
    starts: int = 24
    shortlist: int = 12

    def __post_init__(self) -> None:
        check_fields(self, directions=at_least(1), starts=at_least(1), shortlist=at_least(2))

    def objection(self, knowledge: Knowledge) -> str | None:
        facts = knowledge.facts
        if knowledge.prior.inputs.dtype != torch.int64 or knowledge.prior.inputs.ndim != 2:
            return "it searches sentences of token numbers (n, length) in int64. Use Newton for other records."
        if facts.known is None or facts.secrets != 1:
            return (
                "it solves for one missing sentence and must know all others, but the adversary is "
                f"{knowledge.threat!r:.60}. Use threat=Informed(known)."
            )
        if facts.given.parts is not None or facts.given.candidates is not None:
            return "it cannot use known parts or candidates. Use Refit for candidates."
        if not facts.access.all_weights:
            return f"it compares all weights, but the adversary sees {knowledge.access!r}."
        if (sentence := response_objection(knowledge.trainer, knowledge.net, len(facts.known) + 1)) is not None:
            return sentence
        try:
            as_descent(knowledge.trainer)
            table_of(knowledge.net, facts.known.inputs[:1])
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    def _count(self, knowledge: Knowledge) -> int:
        """The number of directions."""
        if self.directions is not None:
            return self.directions
        sentences = knowledge.prior.inputs
        table = knowledge.net.get_submodule(table_of(knowledge.net, sentences[:1])).get_parameter("weight")
        return MOVED if table.requires_grad else math.ceil(SPARE * sentences.shape[1] * table.shape[1])

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=72)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        directions = self._count(knowledge)
        trainings = SWEEP * directions + SAMPLE + TRIED * games
        return Cost(trainings * rate.training, float(DOUBLE * directions * 4 * rate.features))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> TokenSearch:
        """Train on the known sentences, and sweep the response of training backward, once for all games."""
        knowledge = accepted(self, knowledge)
        known = knowledge.facts.known_records
        trainer, prior = as_descent(knowledge.trainer), knowledge.prior
        bank = Records(torch.cat([known.inputs, prior.inputs]), torch.cat([known.y, prior.y]))
        base = BaseTrajectory.of(trainer, knowledge.net, known)
        name = table_of(knowledge.net, known.inputs[:1])
        directions = _directions(base, bank, f"{name}.weight", self._count(knowledge))
        draw = torch.from_numpy(generator(seed, "tokens").permutation(len(bank))[:SAMPLE])
        adjoints = Adjoints.at_few_steps(base, directions, bank[draw])
        response = SentenceResponse.of(adjoints, directions, bank, name)
        if f"{name}.weight" not in base.end:
            response = response.in_units_of(_errors(response, trainer, knowledge.net, known, prior[:SAMPLE]))
        tolerance = _rounding(trainer, knowledge.net, known, bank[draw[:1]])
        return TokenSearch(knowledge.net, known, response, tolerance, self.starts, self.shortlist, seed)


def _errors(response: SentenceResponse, trainer: Descent, net: nn.Module, known: Records, some: Records) -> Tensor:
    """(r,) the root mean square error of the response on models trained on some sentences."""
    numbers = torch.arange(len(some))
    trained = trainer(net, Cohort(known, some[numbers.unsqueeze(1)], numbers), seed=0).flat()
    errors = response(some.inputs, some.y) - response.seen(trained)
    return errors.square().mean(0).sqrt().clamp_min(LEAST_ERROR)


def table_of(net: nn.Module, x: Tensor) -> str:
    """The name of the embedding whose rows are looked up by the sentences (1, length) themselves."""
    tables: list[str] = []
    hooks = [
        module.register_forward_pre_hook(
            lambda _, inputs, name=name: tables.append(name) if torch.equal(inputs[0], x) else None
        )
        for name, module in net.named_modules()
        if isinstance(module, nn.Embedding)
    ]
    try:
        with torch.no_grad():
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    if len(set(tables)) != 1:
        raise ValueError(f"expected one nn.Embedding that is given the token numbers, got {len(set(tables))}.")
    return tables[0]


def _directions(base: BaseTrajectory, bank: Records, table: str, most: int) -> Tensor:
    """(r, p) principal directions in which sentences push all weights but the embedding table."""
    steps = [step for step in base.steps() if step.secret] or list(base.steps())
    picked = {steps[int(i)].number for i in torch.linspace(0, len(steps) - 1, PCA_STEPS).round()}
    names = [name for name in base.end if name != table]
    pushed: dict[str, Tensor] = {}
    for step in steps:
        if step.number in picked:
            for name, slope in base.slopes(step, bank).items():
                if name in names:
                    pushed[name] = pushed.get(name, 0.0) + slope
    basis = torch.linalg.svd(flat({name: pushed[name] for name in names}), full_matrices=False).Vh[:most]
    parts = dict(zip(names, torch.split(basis, [base.end[name].numel() for name in names], 1), strict=True))
    return torch.cat(
        [parts[name] if name in parts else basis.new_zeros(len(basis), v.numel()) for name, v in base.end.items()], 1
    )


def _rounding(trainer: Descent, net: nn.Module, known: Records, sentence: Records) -> float:
    """How far rounding moves the weights: the same training in float32 and float64, scaled to the dtype of training."""
    cohort = Cohort(known, sentence[torch.zeros(1, 1, dtype=torch.long)], torch.zeros(1, dtype=torch.long))
    ends = [
        replace(trainer, dtype=dtype)(net, cohort, seed=0).flat().double() for dtype in (torch.float32, torch.float64)
    ]
    unit = torch.finfo(trainer.computes_in(net)).eps / torch.finfo(torch.float32).eps
    return float((ends[0] - ends[1]).norm()) * unit
