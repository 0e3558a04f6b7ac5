"""Shadow models: the records they are trained on, and the tables that attacks learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Cohort, Hints, Knowledge, Reconstructor, Records, Release
from lostwax.games.nouns import with_records
from lostwax.games.protocols import accepted
from lostwax.learning.augment import Augment
from lostwax.learning.costs import TABLES, VICTIMS, Cost, Rate, in_training
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.shadows import Game, LinearResponse, Local, Store, models_of
from lostwax.shadows.linear_response import BASE_SETS, MIN_CHECKED, few_known, responding, share_for_directions

MIN_SHADOWS = 4  # two shadow models to learn from, two held out
PARTS = 20  # chunks, where the trainer's tiles allow, so that progress shows
ROWS_AT_A_TIME = 4_096
RESPONSES = 16_384  # models computed by linear response between two steps of the progress bar


class ShadowTable(NamedTuple):
    """s shadow models: what is seen of each, and the record it was trained on."""

    seen: Tensor  # (s, features)
    records: Records  # (s, ...) each model's secret
    given: int = 0  # how many features, the last, are numbers of the secret that the adversary is given
    responses: Tensor | None = None  # (s, features) the same by linear response, where models were trained to check it
    notes: tuple[str, ...] = ()  # about how the models were made

    @property
    def target_mask(self) -> Tensor:
        """(...) which numbers of a record are not given, and must be read off the model."""
        shape = self.records.x.shape[1:]
        if self.given == 0:
            return torch.ones(shape, dtype=torch.bool, device=self.seen.device)
        return self.seen[0, -self.given :].isnan().view(shape)

    def to(self, device: torch.device | str) -> ShadowTable:
        responses = None if self.responses is None else self.responses.to(device)
        return self._replace(seen=self.seen.to(device), records=self.records.to(device), responses=responses)

    def checked(self, attack: str = "RecoNN") -> ShadowTable:
        """Itself; raises unless there is one record per model and every model is finite. Errors name the attack."""
        if len(self.seen) != len(self.records):
            raise ValueError(
                f"ShadowTable: expected one record per model, got {len(self.records)} for {len(self.seen)} models."
            )
        finite_models(attack, self.seen[:, : self.seen.shape[1] - self.given])
        return self


def finite_models(attack: str, seen: Tensor, kind: str = "shadow", *, broken_share: float = 0.0) -> Tensor:
    """(s,) which models (s, features) hold finite numbers alone; raises if more than a share do not."""
    finite = torch.cat([part.isfinite().all(1) for part in torch.split(seen, ROWS_AT_A_TIME)])
    broken = int((~finite).sum())
    if broken > broken_share * len(seen):
        raise ValueError(
            f"{attack}: {broken} of {len(seen)} {kind} models hold NaN or infinite numbers: the victim's training "
            "diverges. Lower its learning rate."
        )
    return finite


def seen_and_given(seen: Tensor, hints: Hints | None) -> Tensor:
    """What is seen of each model (m, features), then its secret (Balle et al. 2022, section II-C), nan if not given."""
    if hints is None or hints.parts is None:
        return seen
    return torch.cat([seen, hints.parts[:, 0].flatten(1).to(seen)], 1)  # k = 1


def with_given(x: Tensor, hints: Hints | None) -> Tensor:
    """Rebuilt records (m, 1, ...), with the given numbers in place."""
    if hints is None or hints.parts is None:
        return x
    given_numbers = hints.parts.to(x)
    return torch.where(given_numbers.isnan(), x, given_numbers)


def _shadow_table(
    attack: Shadowed,
    knowledge: Knowledge,
    targets: Records,
    purpose: str,
    responses: Callable[[Records], Tensor] | None = None,
    *,
    seed: int,
) -> ShadowTable:
    """Train one model per target with the victim's own trainer, and keep what the adversary sees of it.

    No private randomness that victims draw from `seed` is drawn here. A store supplies models that were trained before.
    With `responses` no model is trained: they say what is seen.
    """
    own_seed = adversary_seed(seed, purpose)
    seen, given_count, parts = torch.empty(0), 0, list[Records]()
    game = Game(knowledge.net, knowledge.trainer, knowledge.threat, targets, own_seed)
    if responses is None:
        trained = _chunks(knowledge, game, attack.store, announce=purpose == "shadow")
        chunks = ((cohort, knowledge.access(knowledge.net, release)) for cohort, release in trained)
    else:
        spans = (range(len(targets))[first : first + RESPONSES] for first in range(0, len(targets), RESPONSES))
        chunks = ((cohort, responses(_secrets(cohort))) for cohort in map(game.deal, spans))
    with progress(f"{purpose} models", len(targets)) as advance:
        for cohort, models in chunks:  # (chunk, features)
            part = seen_and_given(models, knowledge.threat.hints(cohort, targets, seed=own_seed))
            if not parts:
                seen, given_count = part.new_empty(len(targets), part.shape[1]), part.shape[1] - models.shape[1]
            seen[cohort.index] = part
            parts.append(_secrets(cohort))
            advance(len(cohort))
    return ShadowTable(seen, Records.together(parts), given_count).checked(type(attack).__name__)


def _secrets(cohort: Cohort) -> Records:
    """(m, ...) each model's one secret."""
    return Records(cohort.own.x[:, 0], cohort.own.y[:, 0])  # k = 1


def _chunks(
    knowledge: Knowledge, game: Game, store: str | Path | None, *, announce: bool
) -> Iterator[tuple[Cohort, Release]]:
    models = len(game.pool)
    if store is not None:
        return Store(store).simulate(game, models=models, engine=knowledge.engine or Local(), announce=announce)
    chunk = max(1, models // PARTS)
    return models_of(knowledge, game.threat, game.pool, models=models, seed=game.seed, chunk=chunk)


def adversary_seed(seed: int, *purpose: int | str) -> int:
    """The adversary's seed for one purpose, different from the game's."""
    return int(generator(seed, "adversary", *purpose).integers(2**63))


ENGINES = tuple(LinearResponse(directions=count) for count in (256, 64, 16))  # where training all models is too slow


@dataclass(frozen=True, kw_only=True)
class Shadowed(ABC):
    """The settings of an attack that learns from shadow models, and where it applies. `RecoNN` says what they mean."""

    shadows: int | None = None
    augment: Augment | None = None
    validation: float = 0.1
    device: str | None = None
    store: str | Path | None = None
    engine: LinearResponse | None = None

    @abstractmethod
    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Train the shadow models and learn from them. Victims trained with the same seed share no draw."""

    def objection(self, knowledge: Knowledge) -> str | None:
        prior = knowledge.prior
        work = "it rebuilds the one record that an informed adversary does not know"
        if (reason := knowledge.facts.not_one_secret(knowledge.threat, work)) is not None:
            return reason
        if not prior.x.is_floating_point():
            return f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
        if len(prior) < MIN_SHADOWS:
            return f"it needs at least {MIN_SHADOWS} records in the prior, and there are {len(prior)}."
        if self.engine is not None and (reason := self.engine.objection(knowledge)) is not None:
            return reason
        if self.engine is not None and (records := min(self.shadows or len(prior), len(prior))) < MIN_CHECKED:
            return (
                f"linear response is checked on at least {MIN_CHECKED} trained models, and {records} shadow models are "
                "asked for. Train them instead (engine=None)."
            )
        if self.shadows is None or self.shadows <= len(prior):
            return None
        if self.augment is None:
            return (
                f"{self.shadows} shadow models need as many records, and the prior holds {len(prior)}. Ask for at most "
                f"{len(prior)}, bring {self.shadows - len(prior)} more, make them with augment=Shifts() or Affine(), "
                "or, where training is random, train on each more than once with augment=Repeats()."
            )
        return self.augment.objection(prior)

    def cheaper(self, knowledge: Knowledge) -> tuple[Shadowed, ...]:
        """The same attack by linear response, where that is possible, the dearest form first."""
        forms = [replace(self, engine=engine) for engine in (() if self.engine else ENGINES)]
        return tuple(form for form in forms if form.objection(knowledge) is None)


SWEEP = 4  # trainings that one direction takes, about
STEPS_KEPT = 30  # of the sum over steps, about
ONE_RECORD = 3  # passes over one record, in passes of training over the known ones


def features_seen(engine: LinearResponse | None, rate: Rate) -> int:
    """Numbers that an attack sees of each model."""
    return rate.features if engine is None else min(engine.directions, rate.features)


def shadow_cost(engine: LinearResponse | None, knowledge: Knowledge, shadows: int, rate: Rate, games: int = 0) -> Cost:
    """Of making this many shadow models, and of the tables of what is seen of them and of the victims."""
    known, features, size = knowledge.facts.known, features_seen(engine, rate), knowledge.prior.x.element_size()
    if engine is None or known is None:
        tables = float(size * (TABLES * shadows + VICTIMS * games) * features)
        return Cost(shadows * rate.training, tables + in_training(rate))
    trainer, pairs = responding(knowledge)
    share, sets = share_for_directions(trainer, len(known)), 1 if pairs is None else BASE_SETS
    trainings = engine.checked + share * (1 + sets * SWEEP) * features + shadows * ONE_RECORD / (1 + len(known))
    numbers = features * (TABLES * shadows + VICTIMS * games + STEPS_KEPT * rate.parameters)
    return Cost(trainings * rate.training, float(size * numbers))


def _without_candidates(knowledge: Knowledge) -> Knowledge:
    """The same adversary, who is given no candidates, as long as the threat is a dataclass."""
    threat = knowledge.threat
    if not is_dataclass(threat) or isinstance(threat, type):
        return knowledge
    nothing = {field.name: None for field in fields(threat) if field.name == "candidates"}
    return replace(knowledge, threat=replace(threat, **nothing)) if nothing else knowledge


def shadow_tables(attack: Shadowed, knowledge: Knowledge, seed: int) -> tuple[Knowledge, ShadowTable, ShadowTable]:
    """The knowledge on the attack's device, shadow models to learn from, and held-out ones."""
    knowledge = _without_candidates(accepted(attack, knowledge))
    learn_from, test_on = targets(attack, knowledge.prior, seed)
    table = partial(_shadow_table, attack, knowledge, seed=seed)
    if attack.engine is None:
        return knowledge, table(learn_from, "shadow"), table(test_on, "validation")
    engine, unseen = attack.engine, table(test_on[: attack.engine.checked], "validation")
    trained, given_numbers = unseen.seen.tensor_split([unseen.seen.shape[1] - unseen.given], 1)
    checked, records = trained, unseen.records
    if (missing := engine.checked - len(checked)) > 0:  # R^2 needs trained models, but not held-out ones
        more = table(learn_from[-missing:], "check")
        checked = torch.cat([checked, more.seen[:, : trained.shape[1]]])
        records = Records.together([records, more.records])
    principal = None  # every feature
    if trained.shape[1] > engine.directions:
        known, few = knowledge.facts.known_records, few_known(responding(knowledge)[0], knowledge.facts.known_records)
        threat = with_records(knowledge.threat, lambda records: few if records is known else records)
        drawn = learn_from[: engine.directions + 1]
        models = _shadow_table(attack, replace(knowledge, threat=threat), drawn, "directions", seed=seed)
        principal = models.seen[:, : trained.shape[1]]
    responses = engine.prepare(knowledge, principal, checked, records, len(trained))
    if not responses.check.holds:
        note = f"{responses.check} That is too little to learn from: shadow models were trained instead."
        return knowledge, table(learn_from, "shadow"), table(test_on, "validation")._replace(notes=(note,))
    seen, predicted = (
        torch.cat([part, given_numbers], 1) for part in (responses.access.reduced(trained), responses(unseen.records))
    )
    caveat = "" if responses.check.complete else " An attack that learns from trained models might find more."
    unseen = unseen._replace(seen=seen, responses=predicted, notes=(f"{responses.check}{caveat}",))
    return replace(knowledge, access=responses.access), table(learn_from, "shadow", responses), unseen


def notes_on(unseen: ShadowTable, errors: Callable[[Tensor], Tensor]) -> tuple[str, ...]:
    """How held-out models were made, and what linear response costs: `errors` are those of models (s, features)."""
    if unseen.responses is None:
        return unseen.notes
    trained, computed = (float(errors(seen).mean()) for seen in (unseen.seen, unseen.responses))
    size = f"{trained:.2g} on models that were trained, {computed:.2g} on their responses"
    return (*unseen.notes, f"The error is {size} (mean squared, {len(unseen.seen)} held-out records).")


def targets(attack: Shadowed, prior: Records, seed: int) -> tuple[Records, Records]:
    """Records to learn from, augmented if there are too few, and held-out records."""
    order = torch.from_numpy(generator(seed, "adversary", "split").permutation(len(prior))).to(prior.x.device)
    shadows = attack.shadows or len(prior)
    records = min(shadows, len(prior))
    held_out = min(max(2, round(attack.validation * records)), records - 2)
    learn_from, count = prior[order[held_out:shadows]], shadows - held_out
    if attack.augment is not None and count > len(learn_from):
        learn_from = attack.augment(learn_from, count, seed=adversary_seed(seed, "augment"))
    return learn_from, prior[order[:held_out]]
