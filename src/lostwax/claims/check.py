"""Does a training function keep its claim of differential privacy? Games, and bets on them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lostwax.bounds import Ceiling, Sampling, bound
from lostwax.bounds.last_weights import seen_batches
from lostwax.claims.games import Function, Player
from lostwax.claims.pairs import pairs
from lostwax.claims.rules import Claimed
from lostwax.claims.slopes import Loss, Slopes, trainable
from lostwax.claims.strategy import FEWEST_TRIALS, Fortune, Strategy, fewest_games
from lostwax.claims.symptoms import symptoms
from lostwax.fields import shown
from lostwax.games import Records
from lostwax.progress import counted, progress
from lostwax.seeds import generator

ALARM = 1e-3  # a claim is called false at a smaller p-value


@dataclass(frozen=True)
class ClaimCheck:
    """How often the game was won, and how often the claim permits that.

    `refuted` is a proof, up to the error rate of 0.001. Its absence is no proof of the contrary: another data set or
    another attack may do better.
    """

    won: int
    games: int  # that were played
    ceiling: Ceiling  # for one of two equally likely records
    p_value: float  # of a fortune as large as that of the bets on these games, or less
    pair: str  # the two training sets of the last game
    rule: str  # how they were distinguished
    look_for: str  # the usual reasons for that
    notes: tuple[str, ...]
    contradicted: bool  # by a note, whatever the test says: runs without any randomness under a claim of noise
    seconds: float

    @property
    def refuted(self) -> bool:
        """True if p < 0.001."""
        return self.p_value < ALARM

    @property
    def success(self) -> float:
        """The share of games that were won."""
        return self.won / self.games

    def __str__(self) -> str:
        """A few lines in words."""
        share = f"{self.won} of {self.games} games won ({self.success:.3f}); the claim permits {self.ceiling.upper:.3f}"
        if self.refuted:
            lines = [f"The claim is false (p < {ALARM:g}): {share} in the long run."]
            lines += [f"Distinguished: {self.pair}.", f"By: {self.rule}.", f"Look for {self.look_for}."]
        elif self.contradicted:
            lines = [f"The test does not contradict the claim (p = {self.p_value:.2g}: {share}), but this does:"]
        else:
            lines = [f"The claim is not contradicted (p = {self.p_value:.2g}): {share}. This is not a proof."]
        return "\n".join([*lines, *self.notes])


def check_dp(
    net: nn.Module,
    data: Any,
    train: Function,
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    sampling: Sampling | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    games: int = 2000,
    trials: int = 40,
    bounded: bool = False,
    loss: Loss | None = None,
    seed: int = 0,
) -> ClaimCheck:
    """Does this training function keep its claim of differential privacy?

        def train(net, x, y, seed):
            ...
            return net

        print(lw.check_dp(net, (X, y), train, noise_multiplier=1.0, steps=20, sampling=lw.bounds.Poisson(0.1)))

    The function is called some hundred times, on training sets that differ in one record. An adversary who knows both
    sets and sees the weights after every step says which it was; under the claim, no adversary is right more often than
    the ceiling for a baseline of 1/2. Which pair of sets and which rule are best is learned from the games before. On
    every game the adversary bets part of a fortune, at odds that are fair if the claim is used up; a true claim lets it
    grow a thousandfold in one of a thousand checks at most. Then the claim is called false (p < 0.001), and the games
    end. They also end if the best rule is clearly below what the claim permits.

    Code is checked, not a model: a small net, few records and few steps with much noise show the same faults as large
    ones, sooner. `lw.check_dp_once` gives a lower bound on epsilon from one run of the real size.

    Args:
        net: The net to train, as it is before training.
        data: `(X, y)` or `Records`: examples of records, and their number.
        train: `function(net, x, y, seed)`, which trains the net on x and y and returns it, or its state_dict, or a list
            of these after every step. Without a list, a claim of noise is checked on those steps of torch's optimisers
            too that lead to what is returned; a claim of `epsilon` only on what is returned. Its random numbers derive
            from `seed`, from the global generators of torch, numpy and random, or are unpredictable.
        noise_multiplier: As claimed; so are the next three: see `lw.bound`.
        sample_rate: The rate of Poisson sampling, unless `sampling` is given.
        steps: The number of noisy steps.
        sampling: How batches are drawn, a value of `lw.bounds`.
        epsilon: Instead of the noise: the claim is (epsilon, delta)-DP, adding or removing one record.
        delta: Of that claim.
        games: The most games that are played with a bet; easy faults take less than a hundred.
        trials: Number of games before them, for each of four pairs of training sets, to learn from.
        bounded: True if the claim is about records like those of `data` only: these, the same with smaller numbers, and
            blank ones. Otherwise canaries are up to 1,000 times as large, and numeric labels leave their range.
        loss: What the adversary takes for the loss; None for the usual one: cross-entropy for classes.
        seed: Seed of every random draw.
    """
    start, records = time.perf_counter(), records_of(net, data)
    if not callable(train):
        raise TypeError(f"check_dp: expected a function(net, x, y, seed), got {shown(train)}.")
    for name, value, least in (("games", games, 1), ("trials", trials, FEWEST_TRIALS)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"check_dp: expected {name} to be a whole number >= {least}, got {shown(value)}.")
    claim: dict[str, Any] = {"noise_multiplier": noise_multiplier, "steps": steps, "sampling": sampling}
    claim |= {"sample_rate": sample_rate, "epsilon": epsilon, "delta": delta}
    ceiling = bound(**claim, baseline=0.5)
    if (claimed_size := getattr(sampling, "n", None)) not in (None, len(records)):
        raise ValueError(f"check_dp: the claim is about {claimed_size} records, and data holds {len(records)}.")
    _check_refutable(ceiling, games, trials)
    noise, rate = 1.0 if noise_multiplier is None else float(noise_multiplier), 1.0
    if epsilon is None:
        rate = seen_batches(sampling, sample_rate, steps).share(steps)
    slopes = Slopes.of(net, records, loss)
    player = Player(net, train, slopes, seed, reads_steps=epsilon is None)
    every = pairs(records, slopes, bounded=bounded)
    strategy = Strategy(every, list(trainable(net)), Claimed(noise, rate, steps))
    with progress("check_dp"):
        player = player.where_it_tells(every[0])
        _learn(strategy, player, trials)
        lost, first = strategy.not_finite, list(strategy.runs[0])
        fortune = _bet(strategy, player, ceiling.upper, games, seed)
    p_value, pair, cut = fortune.p_value, strategy.pair, strategy.cut
    signs = symptoms(first, cut.score, net, steps if epsilon is None else None)
    look_for = next((sign.look_for for sign in signs if sign.look_for), pair.look_for)
    noted = [sign for sign in signs if p_value < ALARM or sign.certain or not sign.look_for]
    notes = tuple(f"{sign.note} Look for {sign.look_for}." if sign.certain else sign.note for sign in noted)
    notes += tuple(f"Not tested, for weights were not finite in any run: {name}." for name in lost)
    contradicted = noise_multiplier is not None and any(sign.certain for sign in signs)
    seconds = time.perf_counter() - start
    words = (pair.name, str(cut.score), look_for, notes, contradicted)
    return ClaimCheck(fortune.won, fortune.games, ceiling, p_value, *words, seconds)


def _learn(strategy: Strategy, player: Player, trials: int) -> None:
    """Play games without a bet, as many of each pair."""
    turns = [(k, number) for k in range(len(strategy.pairs)) for number in range(trials)]
    for k, number in counted(turns, "trial games", len(turns)):
        strategy.add(k, number % 2, player(strategy.pairs[k], number % 2, "trial", k, number))
    if strategy.nothing_moved:
        raise ValueError(
            "check_dp: the function returned the weights that it was given, in every run: nothing is trained."
        )
    if len(strategy.not_finite) == len(strategy.pairs):
        raise ValueError(
            "check_dp: the function returned weights that are not finite, in every run. Try a smaller learning rate, "
            "or bounded=True."
        )


def _bet(strategy: Strategy, player: Player, permitted: float, games: int, seed: int) -> Fortune:
    """Play games with a bet on each, until the claim is refuted, or that is hopeless."""
    fortune = Fortune(permitted)
    worlds = generator(seed, "check_dp", "worlds").integers(2, size=games)
    for number, world in counted(enumerate(worlds), "games", games):
        if strategy.is_due(number):
            strategy.choose()
            if fortune.games and strategy.is_hopeless(permitted):
                break
        bet = fortune.bet(strategy.hope)
        run = player(strategy.pair, int(world), "game", number)
        right = bool(strategy.cut([run])[0] == world)
        fortune.settle(bet, right)
        strategy.settle(right)
        strategy.add(strategy.number, int(world), run)
        if fortune.p_value < ALARM:
            break
    return fortune


def records_of(net: nn.Module, data: Any) -> Records:
    """The data of a check, in the net's dtype."""
    if not isinstance(data, Records):
        if not isinstance(data, list | tuple) or len(data) != 2:
            raise TypeError(f"check_dp: expected data=(X, y) or lw.Records, got {type(data).__name__}.")
        x, y = (torch.as_tensor(np.asarray(part)) for part in data)
        data = Records(x, y)
    records: Records = data
    dtype = next((value.dtype for value in net.parameters() if value.is_floating_point()), torch.float32)
    if not records.x.is_floating_point() or len(records) < 2:
        raise ValueError("check_dp: expected two records or more, whose features are floating-point numbers.")
    return records.detached().to(dtype)


def _check_refutable(ceiling: Ceiling, games: int, trials: int) -> None:
    """Raise if winning every game would not contradict the claim."""
    needed = fewest_games(ceiling.upper, ALARM, trials)
    if games < needed:
        more = f"games={needed}, or more" if needed <= 10_000 else "more"
        raise ValueError(
            f"check_dp: the claim permits an adversary to win {ceiling.upper:.6g} of all games, so {games} won games "
            f"would not contradict it. Train with {more} noise or fewer steps: the code is the same."
        )
