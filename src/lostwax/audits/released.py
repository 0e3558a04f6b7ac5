"""Audit of this very net: one release, its training set, and the game "which record is missing?" for every record."""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.attacks import Ensemble, KernelRidge, Newton, Secant, Tokens
from lostwax.audits import given
from lostwax.audits.audit import Audit
from lostwax.audits.checks import widened
from lostwax.audits.choice import available_bytes, in_bytes
from lostwax.audits.conclusion import FEW
from lostwax.audits.membership import NOT_MEASURED, SHARE, Asked, was_in_it
from lostwax.audits.play import Answer, Dealt, LeaveOneOut, Settings, filled, judged, play
from lostwax.audits.procedure import MINUTES, trained_victims, victims_seed
from lostwax.audits.retrained import Retrained, known_draws, retrained
from lostwax.audits.scoring import Scoring, all_metrics
from lostwax.clock import Clock, TimeUp, in_words
from lostwax.games import Adversary, Attack, Cohort, Engine, Guess, Hints, Informed, Knowledge, Records, Table, Trainer
from lostwax.games.facts import attack_facts, trainer_facts
from lostwax.games.judges import OneToOne
from lostwax.games.protocols import prepared, refusal
from lostwax.learning.costs import Rate, predicted
from lostwax.progress import progress
from lostwax.provenance import fingerprint
from lostwax.seeds import generator
from lostwax.shadows import Checkpoints, Game, Local
from lostwax.shadows.checkpoints import keeper, kept_or_computed
from lostwax.shadows.identity import describe, identity

CHECKING = 0.2  # of the time, for retraining
ENOUGH = 5  # games that an attack must have time for; otherwise a cheaper one runs
FEWEST_SHADOWS = 20  # of the cheapest
CANDIDATES = 2  # where records are named
WORTH_SAYING = 1e9  # bytes of memory
NAMED = (
    "In each game two records are given, the missing one and another of the data, of any class: to name the right one "
    "it may be enough to know its label. That the other is known to be in the data is not used."
)
CHECKED = (
    "All of training is known, so training on either of them succeeds as soon as a record changes the weights: "
    "a guess can be checked, which does not mean that a record can be rebuilt."
)
MOST_PEOPLE, PEOPLE_SHARE = 60, 0.2  # who are asked about, at most, and of the table
PEOPLE_HELD_OUT = (
    "Every record of this net was trained on, so who was in it was asked of other nets, trained the same way on most "
    "of the data and one of the other records."
)
EASIER = "An easier question, which of two records was trained on, takes less time: attack=lw.attacks.Refit()."
TOO_SHORT = (
    "max_minutes is too short: the attack on the first record was not done in time. Allow twice as much, name a "
    "quicker attack, train in several processes (OwnTraining(train, processes=...)), or freeze all layers but the last "
    f"ones. {EASIER}"
)


def audit_released(
    net: nn.Module,
    table: Records,
    settings: Settings,
    *,
    trainer: Trainer,
    attack: Attack | None,
) -> Audit:
    """Play records that are drawn by the seed against the weights that the net holds.

    In each the adversary knows all other records and how the net was trained; the attack is prepared anew. Unless named
    it is Newton (of sentences Tokens), Secant where training cannot be differentiated, or one that averages over
    private draws. Models that are trained one by one take long: an attack that fits into `max_minutes` is chosen, and
    as many games as fit are played, unless `games` says how many. An attack that names candidates is given the missing
    record and another one.

    That the trainer, on this very data, ends at these very weights is checked first; with private draws, that they are
    as near to retrained weights as those are to each other. A small miss can still hide records: each one that is not
    rebuilt is played for again, against the weights that the trainer does end at, and where it is rebuilt from those,
    the audit is undecided.
    """
    games, seed, threshold, max_minutes, *_ = settings
    minutes = MINUTES if max_minutes is None else max_minutes
    clock = Clock.started(minutes)
    trainer, randomness = known_draws(trainer, net, table)
    facts = trainer_facts(trainer, net, len(table))
    rows = Table(table).draw(games, seed)
    again = retrained(net, table, trainer, rows, CHECKING * 60 * minutes)
    at_start = deepcopy(net)  # what an attack prepares with holds no release
    at_start.load_state_dict(again.start)
    as_time_allows = games is None and (facts.one_by_one or not facts.deterministic)
    limited = as_time_allows or max_minutes is not None
    alarm = clock if limited else Clock()
    game = _Released(at_start, table, trainer, again, seed, alarm, rows, settings.engine)
    automatic, skipped = attack is None, tuple[str, ...]()
    if attack is None and facts.differentiable and facts.deterministic:
        attack = Newton(bank=100) if table.x.is_floating_point() else Tokens()
    elif attack is None:
        wanted = ENOUGH if games is None else len(rows)
        attack, skipped = _chosen(game.known(rows[0]), again.rate, clock.left, wanted, limited)
    asked = _was_in_it(at_start, table, trainer, again.rate, clock, settings) if automatic else Asked()
    game.among = CANDIDATES if attack_facts(attack).names_candidates else None
    knowledge = game.known(rows[0])
    if (sentence := refusal(attack, knowledge)) is not None:
        raise ValueError(f"audit: {sentence}")
    cost = predicted(attack, knowledge, 1, again.rate)
    if as_time_allows:
        affordable = int(clock.left / max(cost.seconds, 1e-9)) if cost.seconds < math.inf else 1
        game.rows = Table(table).draw(min(max(1, affordable), len(table)), seed)
    if cost.bytes >= WORTH_SAYING:
        game.memory = (f"The attack needs about {in_bytes(cost.bytes)} of memory.",)
    planned = len(game.rows)
    game.deal(threshold)
    try:
        line = play(game, attack)
    except TimeUp:
        line, skipped = judged(game.judging, game.judging.blind_answer()), (*skipped, TOO_SHORT)
    line = line._replace(finding=replace(line.finding, name="as released"))
    easier = automatic and facts.one_by_one and not line.finding.rebuilt.any()
    return filled(
        game.judging,
        [line],
        subject=f"{type(net).__name__} with these weights, trained by {type(trainer).__name__}",
        kind="this model",
        adversary=Adversary.insider(len(table)),
        threat="the adversary knows every record but one"
        + ("" if game.among is None else f", and {game.among} candidates for it"),
        attack=line.answer.name,
        numbers=game.rows,
        population=len(table),
        chance=given.chance(game.hints),
        chance_by_victims=given.chance(game.hints, game.judging.groups(1)),
        seed=seed,
        provenance={
            "net": repr(net),
            "trainer": repr(trainer),
            **({} if facts.steps is None else {"steps": facts.steps}),
            "attack": repr(attack),
            "data": fingerprint(table.x, table.y),
            "weights": fingerprint(*again.released.params.values()),
        },
        notes=(
            *([] if game.hints is None else [NAMED]),
            *([CHECKED] if game.hints is not None and facts.deterministic else []),
            *given.notes(game.hints),
            *randomness,
            *game.notes(line.answer.guess, planned),
            *([EASIER] if easier else []),
            *([PEOPLE_HELD_OUT] if asked.membership is not None else []),
        ),
        unanswered=(*game.only_retrained(), *skipped, *sorted(game.unanswered), *asked.unanswered),
        left_out=asked.left_out,
        membership=asked.membership,
    )


def _was_in_it(net: nn.Module, table: Records, trainer: Trainer, rate: Rate, clock: Clock, settings: Settings) -> Asked:
    """Who was trained on, asked of nets that are trained for it on a part of the table, if there is time for them."""
    if trainer_facts(trainer, net, len(table)).deterministic:
        known = "all of training is known, and whoever knows all other records can check a guess by training on it."
        return Asked(left_out=(f"{NOT_MEASURED} {known}",))
    seed, engine = settings.seed, settings.engine
    people, in_time = min(MOST_PEOPLE, int(PEOPLE_SHARE * len(table))), SHARE * clock.left / max(rate.training, 1e-9)
    if people < FEW:
        needs = f"it takes {FEW} records that are a fifth of the data at most."
        measure = "Audit the way of training (trainer, threat, prior, secrets) to measure it."
        return Asked(unanswered=(f"{NOT_MEASURED} {needs} {measure}",))
    people = min(people, int(in_time))
    if people < FEW:
        takes = in_words(FEW * rate.training)
        return Asked(
            unanswered=(f"{NOT_MEASURED} {FEW} trainings take {takes}, more than a quarter of the time left.",)
        )
    secret = torch.zeros(len(table), dtype=torch.bool)
    secret[torch.from_numpy(generator(seed, "people held out").permutation(len(table))[:people])] = True
    threat = Informed(table[~secret])
    knowledge = Knowledge(net, trainer, threat, Weights(), threat.known, engine)
    cohort = threat.deal(table[secret], people, seed=victims_seed(seed))
    try:
        release = clock.run(lambda: trained_victims(knowledge, cohort, seed))
    except TimeUp:
        return Asked(unanswered=(f"{NOT_MEASURED} {people} trainings were not done in time.",))
    own_seed = int(generator(seed, "adversary").integers(2**62))
    return was_in_it(knowledge, cohort, release, seed=own_seed, clock=clock, rate=rate)


def _chosen(
    knowledge: Knowledge, rate: Rate, seconds: float, games: int, strict: bool
) -> tuple[Attack, tuple[str, ...]]:
    """The strongest attack that plays these games in time and in memory, and what is said of stronger ones.

    Where none does, it is the cheapest; if the time is `strict`, that must be done with one game in it.
    """
    fewer = min(len(knowledge.prior), max(FEWEST_SHADOWS, int(seconds / max(rate.training, 1e-9) / games)))
    forms = (Secant(), Ensemble(members=100, rounds=4, restarts=0), KernelRidge(), KernelRidge(shadows=fewer))
    refusals = [(form, refusal(form, knowledge)) for form in forms]
    able = [form for form, sentence in refusals if sentence is None]
    if not able:
        raise ValueError(f"audit: no attack is applicable. {' '.join(str(sentence) for _, sentence in refusals)}")
    costs = [predicted(form, knowledge, 1, rate) for form in able]
    free = available_bytes(knowledge.prior.x.device)
    fits = [cost.bytes <= free for cost in costs]
    if not any(fits):
        least = min(cost.bytes for cost in costs)
        raise ValueError(
            f"audit: {rate.parameters:,} numbers are released, and an attack would need about {in_bytes(least)} of "
            f"memory; {in_bytes(free)} are free. Audit fewer layers: set requires_grad=False for all parameters but "
            "those of the last layers, in the net and in its training."
        )
    said: list[str] = []
    for form, cost, fit in zip(able, costs, fits, strict=True):
        if fit and games * cost.seconds <= seconds:
            return form, tuple(said)
        takes = in_words(cost.seconds) + (f" and {in_bytes(cost.bytes)} of memory" if not fit else "")
        said.append(f"{type(form).__name__} would take {takes} per record. It might find more.")
    last = able[max(place for place, fit in enumerate(fits) if fit)]
    needed = predicted(last, knowledge, 1, rate).seconds
    if strict and needed > seconds:
        raise ValueError(
            f"audit: max_minutes is too short: one training takes {in_words(rate.training)}, and the cheapest attack "
            f"{in_words(needed)} per record. Allow more, such as max_minutes={math.ceil(2 * needed / 60)}, train in "
            f"several processes (OwnTraining(train, processes=...)), or freeze all layers but the last ones. {EASIER}"
        )
    return last, tuple(said[:-1])


@dataclass(eq=False)
class _Released:
    """One release and its training set; each game has its own adversary, who knows all records but one."""

    net: nn.Module  # as training starts
    table: Records
    trainer: Trainer
    retrained: Retrained
    seed: int
    clock: Clock
    rows: Tensor  # (m,) the missing record of each game
    engine: Engine | None
    among: int | None = None  # how many candidates are given; None: records are rebuilt
    memory: tuple[str, ...] = ()  # what the attack needs, in words, if that is much: said before it is taken
    hints: Hints | None = None  # the candidates of each game
    hidden: int = 0  # records that only the retrained weights give away
    unanswered: set[str] = field(default_factory=set)  # what no adversary could have tried

    def known(self, row: Tensor) -> Knowledge:
        """What the adversary of one game knows: in a known order of records, also where the missing one stands."""
        threat, trainer = replace(Table(self.table).without(int(row)), candidates=self.among), self.trainer
        ordered = trainer_facts(trainer, self.net, len(self.table)).ordered
        if ordered and is_dataclass(trainer) and not isinstance(trainer, type):
            trainer = replace(trainer, place=int(row))
        prior = widened(threat.known, self.table).prior
        return Knowledge(self.net, trainer, threat, Weights(), prior, self.engine)

    def deal(self, threshold: float) -> None:
        """Set how answers are scored; and the candidates of each game: the missing record, and others of the table."""
        table, there = self.table, self.rows.to(self.table.x.device)
        self.scoring = Scoring.of(table.x.double().cpu(), threshold if self.among is None else 0.0, with_secrets=True)
        if not table.x.is_floating_point():
            self.scoring = Scoring.of_sentences(all_metrics(table.x, (), of_tokens=True))
        if self.among is None:
            return
        if len(torch.unique(table.x.flatten(1), dim=0)) < self.among:
            raise ValueError("audit: the records are all alike, so there is no other candidate.")
        cohort = Cohort(table[:0], table[there.unsqueeze(1)], there)  # (m, 1, ...)
        self.hints = Informed(table[:0], candidates=self.among).hints(cohort, table, seed=self.seed)

    @cached_property
    def judging(self) -> LeaveOneOut | Dealt:
        """Records that are rebuilt beside the mean of the others, or candidates that are named."""
        table = Records(self.table.x.double().cpu(), self.table.y.cpu())
        if self.hints is None:
            blind = self.scoring.typical_others(table.x, self.rows)
            return LeaveOneOut(table, self.rows, self.scoring, blind, noun="record")
        secrets = Records(table.x[self.rows].unsqueeze(1), table.y[self.rows].unsqueeze(1))
        return Dealt(secrets, table, table, self.hints, self.scoring, OneToOne())

    def answer(self, attack: Attack) -> Answer:
        """Prepare the attack for each game anew, and play it; the games that are done when the time is over."""
        start, played = time.perf_counter(), dict[int, Guess]()
        order = generator(self.seed, "games of a release").permutation(len(self.rows)).tolist()  # what is cut is random
        stated = trainer_facts(self.trainer, self.net, len(self.table))
        engine = self.engine or Local()
        if stated.one_by_one or stated.publishes_steps:  # games stay here, and their models go to the workers
            engine = Checkpoints(keeping.folder) if (keeping := keeper(engine)) is not None else Local()
        games = kept_or_computed(engine, partial(self._played, attack), order, partial(self._words, attack))
        with progress(" ".join((*self.memory, "games")), len(self.rows)) as advance:
            for _ in order:
                try:
                    game, tensors = self.clock.run(partial(next, games))
                except TimeUp:
                    if not played:
                        raise
                    break
                records = Records(tensors["x"], tensors["y"])
                played[game] = Guess(records, tensors["confidence"], certified=tensors.get("certified"))
                known = Table(self.table).without(int(self.rows[game])).known
                self.hidden += bool(tensors["hidden"])
                self.unanswered |= set(widened(known, self.table).unanswered)
                advance(1)
        done = torch.tensor(sorted(played))
        self.rows, self.hints = self.rows[done], None if self.hints is None else self.hints[done]
        guesses = [played[game] for game in sorted(played)]
        certified = [guess.certified for guess in guesses if guess.certified is not None]
        guess = Guess(
            Records.together([guess.records for guess in guesses]),
            torch.cat([guess.confidence for guess in guesses]),
            certified=torch.cat(certified) if len(certified) == len(guesses) else None,
        )
        return Answer(attack, guess, time.perf_counter() - start)

    def notes(self, guess: Guess, planned: int) -> tuple[str, ...]:
        """How well retraining agrees with the release, what the attack needed, and how far it came."""
        played = len(self.rows)
        certified = 0 if guess.certified is None else int(guess.certified.sum())
        return (
            *([] if self.retrained.private is None else [self.retrained.private]),
            self.retrained.note,
            *self.memory,
            *([f"the time was over after {played} of {planned} records."] if played < planned else []),
            *([f"the attack itself certifies {certified} of {played} guesses."] if certified else []),
        )

    def only_retrained(self) -> tuple[str, ...]:
        """That some records are found only in the weights of a retraining, if there are any."""
        if not self.hidden:
            return ()
        source = "of another retraining, with other private draws."
        if self.retrained.private is None:
            source = (
                f"that {type(self.trainer).__name__} itself ends at: {self.retrained.note} Pass the very trainer "
                "(init, lr, steps, weight_decay, dtype, ...) that made them."
            )
        count, how = f"{self.hidden} of {len(self.rows)} records", "rebuilt" if self.hints is None else "named"
        return (f"{count} are not {how} from the released weights, but are from the weights {source}",)

    def __getstate__(self) -> dict[str, Any]:
        """On a worker there is no limit of time, and no other worker."""
        return {**vars(self), "clock": Clock(), "engine": None}

    def _words(self, attack: Attack, game: int) -> dict[str, str] | None:
        """All that determines a game; None if the attack has no stable description."""
        row = self.rows[game]
        known, truth = self.known(row), self.table[row[None]]
        weights = self.retrained.released.params, self.retrained.release.params
        try:
            words = identity(Game(known.net, known.trainer, known.threat, known.prior, self.seed))
            return words | describe("game", (attack, self.scoring.threshold, row, truth.x, truth.y, *weights))
        except ValueError:
            return None

    def _played(self, attack: Attack, game: int) -> dict[str, Tensor]:
        """The guess of one game; `hidden`: only the retrained weights give the record away."""
        row, seed, hints = self.rows[game], self.seed, None
        if self.hints is not None:  # each game draws its own
            hints = self.hints[game : game + 1]
            seed = int(generator(seed, "candidates", int(row)).integers(2**62))
        reconstruct = prepared(attack, self.known(row), seed=seed)
        guess = reconstruct(self.retrained.released, hints)
        by_chance = hints is not None and self.retrained.private is not None  # another draw names half of them
        hidden = False
        if self.retrained.miss != 0 and not by_chance and not self._rebuilt(guess, row):
            hidden = self._rebuilt(reconstruct(self.retrained.release, hints), row)
        tensors = {"x": guess.records.x, "y": guess.records.y, "confidence": guess.confidence}
        certified = {} if guess.certified is None else {"certified": guess.certified}
        return {**tensors, **certified, "hidden": torch.tensor(hidden)}

    def _rebuilt(self, guess: Guess, row: Tensor) -> bool:
        """Is the one guess within the threshold of the record?"""
        truth = self.table.x[row].double().cpu()
        x = guess.records.x[:, 0].double().cpu().reshape(1, *truth.shape)
        return bool(self.scoring.rebuilt(self.scoring.errors(x, truth.unsqueeze(0)))[0])
