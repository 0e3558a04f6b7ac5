"""S1 Figure 12: a reconstructor trained for one fixed set, tuned to another.

    python papers/s1_figure12.py --device cuda [--rows 100 1000 5000] [--data FOLDER]
    python papers/s1_figure12.py cifar10 --device cuda --store FOLDER [--shadows 5000] [--targets 1000] [--rows ...]

A reconstructor is trained for a fixed set that is disjoint from the victims'. Each row then trains shadow models of
the victims' kind on this many unseen records, and applies the reconstructor without training (they only standardise the
weights), tunes it, or trains one from scratch. S1 in words: tuning with few shadows does what training from
scratch does with many more, and on MNIST even none gives recognisable digits.

On CIFAR-10 shadow models are trained, for those by linear response are in directions of their own set; they are kept in
--store (zarr). The decoder learns from the squared error alone, without S1's LPIPS and discriminator.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import s1_cifar
import torch
from s1_mnist import Game, Split, arguments, knowledge, oracle_row, recipe, rows_of, score, split, write

import lostwax as lw
from lostwax.games import Knowledge

OLD = Game(copies=1)
GAMES = {str(count): Game(prior=count, copies=1) for count in (100, 1_000, 5_000)}
CIFAR10 = s1_cifar.Game(looks=False)


class Attack(NamedTuple):
    """Of a data set."""

    name: str  # with which its rows begin
    game: Game
    recipe: Callable[[Game, int], lw.RecoNN]  # for a prior of this size
    facts: Callable[[Game, Split], Knowledge]


def on_mnist(options: argparse.Namespace) -> Attack:
    return Attack("", OLD, lambda game, records: recipe(game, records, options), knowledge)


def on_cifar10(options: argparse.Namespace) -> Attack:
    attack = replace(s1_cifar.recipe(CIFAR10, options), store=options.store)
    game = replace(OLD, trainer=CIFAR10.trainer)
    return Attack("cifar_", game, lambda game, records: attack, lambda game, data: s1_cifar.knowledge_of(CIFAR10, data))


def play(attack: Attack, old: Split, new: Split, everything: Split, options: argparse.Namespace) -> None:
    """The reconstructor of the old set on its own victims, then every row on those of the new one."""
    torch.set_float32_matmul_precision("high")  # for the decoder
    prepare = attack.recipe(attack.game, len(old.prior)).prepare
    trained = prepare(attack.facts(attack.game, old), seed=options.seed)
    rows = rows_of(f"{attack.name}old", attack.game, score(trained, attack.game, old, options), everything)
    write(__file__, rows, options)
    for name in options.rows:
        game = replace(attack.game, prior=GAMES[name].prior)
        few = new.of(game)
        ours, facts = attack.recipe(game, len(few.prior)), attack.facts(game, few)
        for way, reconstruct in (
            ("zero_shot", ours.zero_shot(trained, facts, seed=options.seed)),
            ("tuned", ours.tune(trained, facts, seed=options.seed)),
            ("scratch", ours.prepare(facts, seed=options.seed)),
        ):
            played = score(reconstruct, game, few, options)
            write(__file__, rows_of(f"{attack.name}{way}_{name}", game, played, everything), options)


def main() -> None:
    cifar = sys.argv[1:2] == ["cifar10"]
    options = s1_cifar.arguments(__doc__ or "", GAMES, sys.argv[2:]) if cifar else arguments(__doc__, GAMES)
    data = s1_cifar.split(options) if cifar else split(options)
    kept = options.known + max(int(name) for name in options.rows)
    last = kept + options.shadows if cifar else len(data.prior)  # of MNIST's, all that is left
    old = data._replace(known=data.prior[: options.known], prior=data.prior[kept:last])
    new = data._replace(prior=data.prior[options.known : kept])
    oracle = oracle_row(data)
    write(__file__, [replace(oracle, id="cifar_oracle", paper=0.0291) if cifar else oracle], options)
    play(on_cifar10(options) if cifar else on_mnist(options), old, new, data, options)


if __name__ == "__main__":
    main()
