"""How the guesses of many games are judged: paired with secrets, beside baselines, nulls and luck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.audits import told
from lostwax.audits.audit import Finding
from lostwax.audits.choice import Played
from lostwax.audits.judged import Judge, Pairs, chosen, distinct_games, groups_of, strangers
from lostwax.audits.luck import FEWEST, Luck, Rules, Scores, luck, luck_of_strangers
from lostwax.audits.scoring import Scoring
from lostwax.games import Guess, Hints, Records
from lostwax.metrics import Null

BLIND, ORACLE = "blind guess (mean of the prior)", "nearest prior or known record"
MOST_STRANGERS = 60  # games that are attacked once more, with another game's release
BLIND_OF_CLASS, FROM_LABEL = "blind guess (mean of its class)", "blind guess (predicted from the label)"
FROM_PARTS = "predicted from the given numbers"


@dataclass(frozen=True, eq=False)
class Judging:
    """One set of games: what was secret, what the adversary has and is given, and which guess stands for what."""

    secrets: Records  # (m, k, ...)
    pool: Records  # (n, ...) all records that the adversary has
    prior: Records
    hints: Hints | None
    scoring: Scoring
    judge: Judge

    def pairs(self, guess: Guess) -> Pairs:
        """Which guess is held against which secret."""
        return self.judge(guess.records, self.secrets)

    def finding(self, played: Played) -> Finding:
        """One attack's guesses, scored."""
        pairs = self.pairs(played.guess)
        found = self.scoring.finding(
            played.name,
            one_by_one(played.guess, pairs.guess),
            chosen(self.secrets, pairs.secret),
            labels=self.prior.y,
            seconds=played.seconds,
            neurons=played.neurons,
        )
        if told.chance(self.hints) is not None:  # chance is known among candidates
            return found
        return replace(found, null_errors=self._nulls(played), luck=self._luck(played))

    def groups(self, each: int) -> NDArray[np.int64]:
        """(games,) equal numbers for guesses from one release, and for games with the same secrets."""
        return distinct_games(self.secrets).repeat_interleave(each).numpy()

    def baselines(self, truth: Records) -> dict[str, Tensor]:
        """Guesses (n, ...) for secrets that need no release, by name, the oracle last; each knows what is given."""
        if (likeliest := told.likeliest_candidate(self.hints)) is not None:
            return {"likeliest candidate": likeliest}  # it has the secret before it: the nearest record is no measure
        if self._labels is None:
            guesses = {BLIND: self.prior.x.double().cpu().mean(0).expand_as(truth.x)}
        elif truth.y.is_floating_point():
            guesses = {FROM_LABEL: told.predicted_from_label(self.prior, truth)}
        else:
            guesses = {BLIND_OF_CLASS: told.class_means(self.prior, truth.y)}
        if (unknown := told.unknown(self.hints)) is not None:
            guesses[FROM_PARTS] = told.predicted_from_parts(truth.x, self.prior.x.cpu(), unknown)
        nearest = self.scoring.oracle(truth.x, self._pool).nearest
        return {**guesses, ORACLE: self._pool[torch.from_numpy(nearest)]}

    def oracle_percentiles(self, truth: Records) -> Mapping[float, float]:
        """How near other records come; nothing among candidates."""
        return {} if told.chance(self.hints) is not None else self.scoring.oracle(truth.x, self._pool).percentiles

    @cached_property
    def _pool(self) -> Tensor:
        return self.pool.x.double().cpu()

    @property
    def _labels(self) -> Tensor | None:
        """(m, k) where they are given."""
        return None if self.hints is None else self.hints.labels

    def _nulls(self, played: Played) -> dict[Null, NDArray[np.float64]]:
        """The headline error of guesses that can owe nothing to the release, by null: one per guess.

        One other game per guess, not all of them: scores that share a guess or a secret would pass for more evidence
        than they are.
        """
        errors = {}
        if played.untrained is not None:
            errors[Null.GAUSSIAN_WEIGHTS] = self._errors(played.untrained.records, self.secrets)
        if played.strangers is not None:  # a guess is close to its own secret by what is given
            return errors
        others = strangers(self.secrets, self._labels)
        games = (others >= 0).nonzero().flatten()
        if len(games) < 2 or (played.untrained is not None and len(games) < len(others)):
            return errors
        device = self.secrets.x.device
        guesses = played.guess.records[games.to(played.guess.records.x.device)]
        return errors | {Null.OTHER_SECRETS: self._errors(guesses, self.secrets[others[games].to(device)])}

    def _errors(self, guesses: Records, secrets: Records) -> NDArray[np.float64]:
        pairs = self.judge(guesses, secrets)
        return self.scoring.scores(chosen(guesses, pairs.guess).x, chosen(secrets, pairs.secret).x).headline

    def _luck(self, played: Played) -> Luck | None:
        def without(games: Tensor) -> list[Scores]:
            some = self.secrets[games.to(self.secrets.x.device)]
            every = chosen(some, torch.arange(some.x.shape[1]).expand(len(games), -1))
            return [self.scoring.scores(guess, every.x) for guess in self.baselines(every).values()]

        rules = Rules(self.judge, self.scoring.scores, without, self.scoring.threshold)
        if played.strangers is None:
            return luck(rules, played.guess.records, self.secrets, pool=self.pool, given=self._labels)
        games = strangers_for(self.secrets)[0]
        guesses, secrets = (one[games.to(one.x.device)] for one in (played.guess.records, self.secrets))
        return luck_of_strangers(rules, guesses, played.strangers.records, secrets, games)


def needs_strangers(hints: Hints | None) -> bool:
    """Is so much given that a guess can be close to its secret by that alone, and few games are given the same?

    Then luck is what the attack makes of another game's release with the same hints. Candidates have a chance that is
    known.
    """
    if hints is None or hints.candidates is not None:
        return False
    if hints.parts is not None:
        return True
    if hints.labels is None:
        return False
    if hints.labels.is_floating_point():
        return True
    groups = groups_of(hints.labels, len(hints.labels))
    return sum(len(group) for group in groups if len(group) >= FEWEST) < len(hints.labels) / 2


def strangers_for(secrets: Records) -> tuple[Tensor, Tensor]:
    """Some games, and for each another with other secrets, (b,) both."""
    others = strangers(secrets, None)
    games = (others >= 0).nonzero().flatten()[:MOST_STRANGERS]
    return games, others[games]


def one_by_one(guess: Guess, order: Tensor) -> Guess:
    """(m, g, ...) -> (m e, 1, ...), the guesses (m, e) of each game one after the other."""

    def each(part: Tensor) -> Tensor:
        games = torch.arange(len(order), device=part.device).unsqueeze(1)
        return part[games, order.to(part.device)].flatten(0, 1).unsqueeze(1)

    if guess.records.x.shape[1] == 1:
        return guess
    return replace(
        guess,
        records=Records(each(guess.records.x), each(guess.records.y)),
        confidence=each(guess.confidence),
        certified=None if guess.certified is None else each(guess.certified),
        undetermined=None if guess.undetermined is None else each(guess.undetermined),
    )
