"""S1 Figure 12, MNIST: a reconstructor trained for one fixed set, tuned to another.

    python papers/s1_figure12.py --device cuda [--rows 100 1000 5000] [--data FOLDER]

A reconstructor is trained for a fixed set that is disjoint from the victims'. Each row then trains shadow models of
the victims' kind on this many unseen records, and applies the reconstructor without training (they only standardise the
weights), tunes it, or trains one from scratch. S1 in words: tuning with few shadows does what training from
scratch does with many more, and on MNIST even none gives recognisable digits.
"""

import torch
from s1_mnist import Game, arguments, knowledge, oracle_row, recipe, rows_of, score, split, write

OLD = Game(copies=1)
GAMES = {str(count): Game(prior=count, copies=1) for count in (100, 1_000, 5_000)}


def main() -> None:
    options = arguments(__doc__, GAMES)
    data = split(options)
    torch.set_float32_matmul_precision("high")  # for the decoder
    kept = options.known + max(int(name) for name in options.rows)
    old = data._replace(known=data.prior[: options.known], prior=data.prior[kept:])
    new = data._replace(prior=data.prior[options.known : kept])
    write(__file__, [oracle_row(data)], options)
    trained = recipe(OLD, len(old.prior), options).prepare(knowledge(OLD, old), seed=options.seed)
    write(__file__, rows_of("old", OLD, score(trained, OLD, old, options), data), options)
    for name in options.rows:
        game = GAMES[name]
        few = new.of(game)
        attack, facts = recipe(game, len(few.prior), options), knowledge(game, few)
        for way, reconstruct in (
            ("zero_shot", attack.zero_shot(trained, facts, seed=options.seed)),
            ("tuned", attack.tune(trained, facts, seed=options.seed)),
            ("scratch", attack.prepare(facts, seed=options.seed)),
        ):
            write(__file__, rows_of(f"{way}_{name}", game, score(reconstruct, game, few, options), data), options)


if __name__ == "__main__":
    main()
