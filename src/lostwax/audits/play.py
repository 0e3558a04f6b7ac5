"""One way through an audit: games are played by an attack, its answer is judged, and the findings fill an `Audit`.

Guesses are paired with secrets, and scored beside baselines, nulls and luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form.stored import row_keys
from lostwax.audits import given
from lostwax.audits.audit import Audit, Finding, TargetRead
from lostwax.audits.luck import Luck, Rules, Scores, luck, luck_of_swapped, some_records, swapped_games
from lostwax.audits.scoring import Scoring, targets_right
from lostwax.fields import redacted
from lostwax.games import Attack, Attacker, Columns, Engine, Guess, Hints, Noted, Records
from lostwax.games.facts import attack_name
from lostwax.games.judges import Judge, NearestAlternative, OneToOne, Pairs, chosen, distinct_games, other_games
from lostwax.games.notes import as_notes
from lostwax.metrics import NearestKnown, Null
from lostwax.progress import progress
from lostwax.provenance import fingerprint, machine, versions

BLIND_TOKENS = "blind guess (most frequent tokens)"
BLIND, ORACLE = "blind guess (mean of the prior)", "nearest prior or known record"
BLIND_OF_CLASS, FROM_LABEL = "blind guess (mean of its class)", "blind guess (predicted from the label)"
FROM_PARTS = "predicted from the given numbers"

Errors = Mapping[str, NDArray[np.float64]]  # metric -> (games,)


class Settings(NamedTuple):
    """The arguments of `lw.audit` that every kind of audit takes."""

    games: int | None = None  # None: all
    seed: int = 0
    threshold: float = 0.05
    max_minutes: float | None = None
    attackers: tuple[Attacker, ...] | None = None  # who is tried beside the adversary of the games; None: all
    engine: Engine | None = None  # where models are trained; None: here

    def tries(self, kind: Attacker) -> bool:
        """Whether attackers of this kind are tried."""
        return self.attackers is None or kind in self.attackers


class Answer(NamedTuple):
    """One attack's answer to all games."""

    attack: object  # an attack, or a method of whole tables
    guess: Guess
    seconds: float  # of guessing; preparing is not counted
    untrained: Guess | None = None  # its answer to Gaussian weights, where the judge asks for that null
    swapped: Guess | None = None  # its answer to other games' releases, where more is given than a class
    notes: tuple[Noted, ...] = ()  # what the prepared attack says about itself

    @property
    def name(self) -> str:
        """What the attack is called."""
        return attack_name(self.attack)


def check_shape(judge: Judge, answer: Answer, secrets: Records) -> None:
    """Refuse an answer that the judge cannot pair with the secrets."""
    if (wrong := judge.check(answer.guess, secrets)) is not None:
        raise ValueError(f"audit: {answer.name} gave an answer of the wrong shape: {wrong}.")


class OneGamePerRow:
    """Games about rows of one training set: each guess (m, 1, ...) is compared with its own row."""

    secrets: Records  # (m, ...)
    scoring: Scoring

    @property
    def labels(self) -> Tensor:
        """The labels whose scale counts."""
        return self.secrets.y

    def without_model(self) -> dict[str, Tensor]:
        """Guesses (m, ...) that need no release, by name, the oracle last."""
        raise NotImplementedError

    def luck(self, guess: Guess) -> Luck | None:
        """What chance gives; None where that is told otherwise."""

    @cached_property
    def errors_without_model(self) -> dict[str, Errors]:
        """Those of `without_model`."""
        return {name: self.scoring.errors(guess, self.secrets.x) for name, guess in self.without_model().items()}

    def finding(self, answer: Answer) -> Finding:
        """One attack's guesses, scored; an answer of the wrong shape is refused."""
        return self.scored(answer)

    def scored(self, answer: Answer) -> Finding:
        """The guesses beside their rows."""
        check_shape(OneToOne(), answer, Records(self.secrets.x.unsqueeze(1), self.secrets.y.unsqueeze(1)))
        return self.scoring.finding(
            "as released",
            answer.guess,
            self.secrets,
            labels=self.labels,
            seconds=answer.seconds,
            luck=self.luck(answer.guess),
        )

    def truth(self, answer: Answer) -> Records:
        """(n, ...) the secret that each scored guess is compared with."""
        return self.secrets

    def groups(self, each: int) -> NDArray[np.int64] | None:
        """(games,) equal numbers for games that are not independent; None: all are."""
        return None

    def baselines(self, truth: Records) -> dict[str, Errors]:
        """Errors of guesses that need no release, by name, the oracle last."""
        return self.errors_without_model

    def oracle_percentiles(self, truth: Records) -> Mapping[float, float]:
        """How near other records come, where this is measured."""
        return {}


@dataclass(frozen=True)
class BlindGuess:
    """In place of an attack where none was done in time: a blind guess, without the model."""


class Played(NamedTuple):
    """What came of one attack."""

    answer: Answer
    finding: Finding


class Games(Protocol):
    """Games that an audit plays: the secrets are dealt, the releases made."""

    @property
    def judging(self) -> OneGamePerRow | Dealt:
        """How answers are judged."""

    def answer(self, attack: Attack) -> Answer:
        """Prepare the attack, and let it guess the secrets of all games."""


def play(games: Games, attack: Attack) -> Played:
    """All games by one attack: prepared, answered, checked, judged."""
    with progress(attack_name(attack)):
        answer = games.answer(attack)
    return judged(games.judging, answer)


def judged(judging: OneGamePerRow | Dealt, answer: Answer) -> Played:
    """One attack's answer to all games, scored."""
    with progress("scores"):
        return Played(answer, judging.finding(answer))


def named(columns: Columns) -> dict[str, Any]:
    """The fields of an audit about the columns of its table."""
    categories = columns.categories if any(columns.categories) else ()
    return {"columns": columns.names, "columns_are_words": columns.are_words, "categories": categories}


def of_table(table: Records) -> dict[str, Any]:
    """The provenance of an audit of a fitted table."""
    data = fingerprint(table.x, table.y.double())
    return {"data": data, "rows": len(table), "features": table.x.shape[1]}


def filled(
    judging: OneGamePerRow | Dealt,
    lines: Sequence[Played],
    *,
    numbers: Tensor,
    seed: int,
    truth: Records | None = None,
    population: int | None = None,
    provenance: dict[str, Any],
    notes: Iterable[Noted] = (),
    **more: Any,
) -> Audit:
    """The audit of games with these numbers (m,), the best line first; `more` are further fields of it.

    `population` is how many games there could have been; None: any number. `truth` are the secrets in the shape in
    which they are shown, where that is not how they are scored.
    """
    best, scoring = lines[0], judging.scoring
    scored = judging.truth(best.answer)
    each = len(scored) // len(numbers)
    baselines = judging.baselines(scored)
    without_credentials = {
        name: redacted(value) if isinstance(value, str) else value for name, value in provenance.items()
    }
    return Audit(
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=scoring.threshold,
        games=numbers.repeat_interleave(each).cpu().numpy(),
        groups=judging.groups(each),
        population=len(scored) if population is None else population,
        truth=scored if truth is None else truth,
        findings=tuple(line.finding for line in lines),
        baselines=baselines,
        oracle=list(baselines)[-1],
        oracle_percentiles=judging.oracle_percentiles(scored),
        provenance={"versions": versions(), "machine": machine(), "seed": seed, **without_credentials},
        notes=as_notes(notes),
        **more,
    )


@dataclass(frozen=True, eq=False)
class Dealt:
    """Games that were dealt: one release each, and an adversary with a prior."""

    secrets: Records  # (m, k, ...)
    pool: Records  # (n, ...) all records that the adversary has
    prior: Records
    hints: Hints | None
    scoring: Scoring
    judge: Judge
    independent: bool = False  # the secret of each game was drawn whatever those of others are

    def _check(self, answer: Answer) -> None:
        """Refuse an answer of the wrong shape, or one that is none of the candidates."""
        check_shape(self.judge, answer, self.secrets)
        if self.hints is not None and self.hints.candidates is not None:
            x = answer.guess.records.x  # (m, 1, ...)
            named = (self.hints.candidates.x.to(x) == x).flatten(2).all(2).any(1)
            if not named.all():
                raise ValueError(
                    f"audit: {answer.name} answered {int((~named).sum())} of {len(named)} games with a record that is "
                    f"none of the candidates. Use lw.attacks.NearestCandidate({answer.name}(...))."
                )

    def pairs(self, guess: Guess) -> Pairs:
        """Which guess is compared with which secret."""
        return self.judge.pairs(guess.records, self.secrets)

    def truth(self, answer: Answer) -> Records:
        """(n, ...) the secret that each scored guess is compared with."""
        return chosen(self.secrets, self.pairs(answer.guess).secret)

    def finding(self, answer: Answer) -> Finding:
        """One attack's guesses, scored."""
        self._check(answer)
        pairs = self.pairs(answer.guess)
        found = self.scoring.finding(
            answer.name,
            one_by_one(answer.guess, pairs.guess),
            chosen(self.secrets, pairs.secret),
            labels=self.prior.y,
            seconds=answer.seconds,
        )
        if given.chance(self.hints) is not None:  # chance is known among candidates
            return found
        return replace(found, null_errors=self._nulls(answer), luck=self._luck(answer))

    def blind_answer(self) -> Answer:
        """The first baseline, as an answer."""
        m, k = self.secrets.x.shape[:2]
        every = chosen(self.secrets, torch.arange(k).expand(m, -1))
        x = next(iter(self.blind(every).values()))  # (m k, ...)
        y = self.prior.y.mode(0).values.expand(self.secrets.y.shape) if self._labels is None else self._labels
        return Answer(BlindGuess(), Guess(Records(x.reshape(m, k, *x.shape[1:]), y.cpu()), torch.zeros(m, k)), 0.0)

    def groups(self, each: int) -> NDArray[np.int64]:
        """(games,) equal numbers for guesses from one release, and for games with the same secrets."""
        games = torch.arange(len(self.secrets)) if self.independent else distinct_games(self.secrets)
        return games.repeat_interleave(each).numpy()

    def baselines(self, truth: Records) -> dict[str, Errors]:
        """Errors of guesses for secrets that need no release, by name, the oracle last; each knows what is given."""
        return {name: self.scoring.errors(guess, truth.x) for name, guess in self.blind(truth).items()}

    def blind(self, truth: Records) -> dict[str, Tensor]:
        """The guesses behind `baselines`, (n, ...) each."""
        if (likeliest := given.likeliest_candidate(self.hints)) is not None:
            return {"likeliest candidate": likeliest}  # it has the secret before it: the nearest record is no measure
        if self._labels is None or (self.scoring.of_tokens and truth.y.is_floating_point()):
            name = BLIND_TOKENS if self.scoring.of_tokens else BLIND
            guesses = {name: self.scoring.typical(self.prior.x.double().cpu()).expand_as(truth.x)}
        elif truth.y.is_floating_point():
            guesses = {FROM_LABEL: given.predicted_from_label(self.prior, truth)}
        else:
            guesses = {BLIND_OF_CLASS: given.class_means(self.prior, truth.y, self.scoring.typical)}
        if (unknown := given.unknown(self.hints)) is not None:
            guesses[FROM_PARTS] = given.predicted_from_parts(truth.x, self.prior.x.cpu(), unknown)
        nearest = self.scoring.oracle(truth.x, self._pool).nearest
        return {**guesses, ORACLE: self._pool[torch.from_numpy(nearest)]}

    def oracle_percentiles(self, truth: Records) -> Mapping[float, float]:
        """How near other records come; nothing among candidates."""
        return {} if given.chance(self.hints) is not None else self.scoring.oracle(truth.x, self._pool).percentiles

    @cached_property
    def _pool(self) -> Tensor:
        return self.pool.x.double().cpu()

    @property
    def _labels(self) -> Tensor | None:
        """(m, k) where they are given."""
        return None if self.hints is None else self.hints.labels

    def _nulls(self, answer: Answer) -> dict[Null, NDArray[np.float64]]:
        """The headline error of guesses that can owe nothing to the release, by null: one per guess.

        One other game per guess, not all of them: scores that share a guess or a secret would pass for more evidence
        than they are.
        """
        errors = {}
        if answer.untrained is not None:
            errors[Null.GAUSSIAN_WEIGHTS] = self._errors(answer.untrained.records, self.secrets)
        if answer.swapped is not None:  # a guess is close to its own secret by what is given
            return errors
        others = other_games(self.secrets, self._labels)
        games = (others >= 0).nonzero().flatten()
        if len(games) < 2 or (answer.untrained is not None and len(games) < len(others)):
            return errors
        guesses = answer.guess.records[games.to(answer.guess.records.x.device)]
        secrets = self.secrets[others[games].to(self.secrets.x.device)]
        return errors | {Null.OTHER_SECRETS: self._errors(guesses, secrets)}

    def _errors(self, guesses: Records, secrets: Records) -> NDArray[np.float64]:
        pairs = self.judge.pairs(guesses, secrets)
        return self.scoring.scores(chosen(guesses, pairs.guess).x, chosen(secrets, pairs.secret).x).headline

    def _luck(self, answer: Answer) -> Luck | None:
        def without(games: Tensor) -> list[Scores]:
            some = self.secrets[games.to(self.secrets.x.device)]
            every = chosen(some, torch.arange(some.x.shape[1]).expand(len(games), -1))
            return [self.scoring.scores(guess, every.x) for guess in self.blind(every).values()]

        rules = Rules(self.judge, self.scoring.scores, without, self.scoring.threshold)
        if answer.swapped is None:
            return luck(rules, answer.guess.records, self.secrets, pool=self.pool, given=self._labels)
        games = swapped_games(self.secrets)[0]
        guesses, secrets = (one[games.to(one.x.device)] for one in (answer.guess.records, self.secrets))
        return luck_of_swapped(rules, guesses, answer.swapped.records, secrets, games)


@dataclass(frozen=True, eq=False)
class LeaveOneOut(OneGamePerRow):
    """Games about one training set: in each the adversary knows all rows but one."""

    table: Records  # (n, ...)
    rows: Tensor  # (m,) the missing row of each game
    scoring: Scoring
    blind: Tensor  # (m, ...) mean of the known rows
    noun: str = "row"
    label_given: bool = False
    secrets: Records = field(init=False)  # (m, ...) the missing rows

    def __post_init__(self) -> None:
        object.__setattr__(self, "secrets", Records(self.table.x[self.rows], self.table.y[self.rows]))

    @property
    def labels(self) -> Tensor:
        """Of the whole table."""
        return self.table.y

    def finding(self, answer: Answer) -> Finding:
        """The guesses, scored, all their labels among them."""
        return self.with_target(self.scored(answer))

    def with_target(self, finding: Finding, known: Tensor | None = None, certain: Tensor | None = None) -> Finding:
        """The finding with the targets that come back; as it is where they are given, or the same in all rows.

        Of shape (m,) or (m, targets): which are `known`, more than a blind guess (None: all), and which are `certain`,
        since they follow from the release (None: none).
        """
        y = self.table.y
        if self.label_given or bool((y == y[0]).all()):
            return finding
        read = targets_right(finding.guess.records.y[:, 0].cpu(), self.secrets.y, y)
        if known is not None:
            read &= known.numpy().reshape(len(read), -1)
        sure = np.zeros_like(read) if certain is None else read & certain.numpy().reshape(len(read), -1)
        return replace(finding, target=TargetRead(read, self._targets_guessed, sure, self._different))

    def without_model(self) -> dict[str, Tensor]:
        """The mean of the known rows, and the nearest of them."""
        near = self._nearest
        others = f"nearest known {self.noun}" if near.whole else f"nearest of {near.compared:,} known {self.noun}s"
        blind = BLIND_TOKENS if self.scoring.of_tokens else "blind guess (mean of the known)"
        return {blind: self.blind, others: self.table.x[torch.from_numpy(near.rows)]}

    def blind_answer(self) -> Answer:
        """The mean of the known rows, as an answer."""
        y = self.table.y.mode(0).values.expand(self.secrets.y.shape)
        guess = Records(self.blind.unsqueeze(1), y.unsqueeze(1))
        return Answer(BlindGuess(), Guess(guess, torch.zeros(len(y), 1)), 0.0)

    @cached_property
    def _targets_guessed(self) -> NDArray[np.bool_]:
        """(m, targets) is the best guess without the model right? The best of several for each target."""
        nearest = torch.from_numpy(self._nearest.rows)
        guesses = given.targets_without_model(self.table, self.scoring.features(self.table.x), self.rows, nearest)
        right = np.stack([targets_right(guess, self.secrets.y, self.table.y) for guess in guesses])  # (guesses, m, t)
        best = right.sum(1).argmax(0)  # (t,)
        return np.asarray(np.take_along_axis(right, best[None, None], 0)[0])

    @cached_property
    def _different(self) -> NDArray[np.bool_]:
        """(m,) the first game of each record with its target."""
        whole = torch.cat([self.secrets.x.flatten(1).double(), self.secrets.y.reshape(len(self.rows), -1).double()], 1)
        different = np.zeros(len(whole), np.bool_)
        different[np.unique(row_keys(whole), return_index=True)[1]] = True
        return different

    @cached_property
    def _nearest(self) -> NearestKnown:
        return self.scoring.nearest_known(self.table.x, self.rows)

    def luck(self, guess: Guess) -> Luck | None:
        """What guesses reach that are compared with other rows."""

        def without(games: Tensor) -> list[Scores]:
            rows = games.numpy()
            names = self.scoring.headline.name, self.scoring.criterion.name
            return [Scores(*(errors[name][rows] for name in names)) for errors in self.errors_without_model.values()]

        truth, offered = self.secrets, guess.records if guess.alternatives is None else guess.alternatives
        scoring = self.scoring.viewed()
        judge = NearestAlternative(lambda guess, truth: scoring.scores(guess, truth).criterion)
        rules = Rules(judge, scoring.scores, without, scoring.threshold)
        x = offered.x.double().cpu().reshape(len(truth), -1, *truth.x.shape[1:])  # (games, candidates, ...)
        secrets = Records(self.scoring.view(truth.x).unsqueeze(1), truth.y.unsqueeze(1))
        labels = secrets.y if self.label_given and not secrets.y.is_floating_point() else None
        pool = some_records(self.table.without(truth), 0)
        viewed = Records(self.scoring.view(pool.x), pool.y)
        return luck(rules, Records(self.scoring.view(x), offered.y), secrets, pool=viewed, given=labels)


def one_by_one(guess: Guess, order: Tensor) -> Guess:
    """(m, g, ...) -> (m e, 1, ...), the guesses (m, e) of each game one after the other."""

    def each(part: Tensor) -> Tensor:
        games = torch.arange(len(order), device=part.device).unsqueeze(1)
        return part[games, order.to(part.device)].flatten(0, 1).unsqueeze(1)

    if guess.records.x.shape[1] == order.shape[1] == 1:
        return guess
    return replace(
        guess,
        records=Records(each(guess.records.x), each(guess.records.y)),
        confidence=each(guess.confidence),
        certified=None if guess.certified is None else each(guess.certified),
        undetermined=None if guess.undetermined is None else each(guess.undetermined),
    )
