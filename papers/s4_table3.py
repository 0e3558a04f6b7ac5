"""S4 Table 3 and Figures 5 and 7, CIFAR-10: which rows of a ReLU net store the record, and RecoNN taught by these.

    python papers/s4_table3.py --device cuda [--rows relu_1 sigmoid_1 ...] [--attacks reconn rows ...] [--data FOLDER]

The game is that of papers/s4_cifar.py. Table 3 has four initialisations of ReLU, which are the default, with two of
Sigmoid; the rows dying_1, dying_2, ... are ReLU nets that learn too fast.

Every attack learns from the same shadow models and answers the same victims:

    reconn        all rows
    mnemonist     the rows with negative coefficients, as in S4: masks put rows back to their initial values
    mnemonist_mean  ours: masks put rows back to the mean of the shadow models
    random        as a control: as many rows of each layer as `mnemonist` keeps, drawn at random
    rows          ours: all rows, one by one, weighted per model (`lw.decoders.RowDecoder`), none chosen
    kernel        ours: all rows, by a regression in closed form that is taught nothing (`lw.KernelRidge`)

What it costs on an H200, by counting: 40,000 models take 2e15 operations in large products (7 s in TF32) and move 36 TB
of activations between them (12 s). A decoder of 31,060 x 4,096 weights is 2,980 steps, each of which moves 5 GB, most
of it AdamW's (5 to 8 s), and its label head 500 readings of all models (3 s): one such decoder, and four of about half
the size. The regression factorises about 250 matrices of 3,000 in float64 (5 s), and one of 12,700. In all some 70 s a
row, alone on the GPU; beside three or four other jobs a row took 2 to 4 minutes. The script prints
the seconds of every part, and `--minutes` ends it after the current row.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace

import numpy as np
from lib.traces import agreements, row_scales
from numpy.typing import NDArray
from s1_mnist import mean_row, write
from s4_cifar import (
    EXPLAINED,
    FIRST_LAYER,
    GAMES,
    TABLE_3,
    VALIDATION,
    Game,
    Shadows,
    Split,
    Victims,
    arguments,
    in_time,
    losses_of,
    recipe,
    split,
    timed,
    trained,
)

import lostwax as lw
from lostwax.attacks.mnemonist import Focused, seen_by
from lostwax.attacks.reconn import Trained
from lostwax.games import Reconstructor
from lostwax.games.threats import InOrder
from lostwax.seeds import generator
from lostwax_dev.results import Row

DEFAULT = [*(f"relu_{run}" for run in TABLE_3), "sigmoid_1", "sigmoid_2"]
ATTACKS = {
    "reconn": "RecoNN's MAE + MSE",
    "mnemonist": "Mnemonist-RecoNN's",
    "mnemonist_mean": "Mnemonist-RecoNN's, rows put back to the mean",
    "random": "RecoNN's, from as many rows at random as Mnemonist keeps",
    "rows": "RecoNN's, row by row",
    "kernel": "kernel ridge's",
}


def focused(shadows: Shadows, options: argparse.Namespace) -> dict[str, Trained | Focused]:
    """RecoNN, and the attacks of those asked for that teach it again, by some of the rows."""
    ways = {
        "mnemonist": lw.attacks.Mnemonist(masks=options.masks),
        "mnemonist_mean": lw.attacks.Mnemonist(masks=options.masks, erase=lw.attacks.mnemonist.ToMean()),
    }
    wanted = {*options.attacks, *(["mnemonist"] if "random" in options.attacks else [])}  # which tells how many rows
    asked = [name for name in ways if name in wanted]
    if not asked and "reconn" not in wanted:
        return {}
    with timed("reconn"):
        first = recipe(options).learn(*shadows, seed=options.seed)
    learnt: dict[str, Trained | Focused] = {"reconn": first}
    for name in asked:
        attack = lw.attacks.MnemonistRecoNN(attack=recipe(options), mnemonist=ways[name], models=EXPLAINED)
        with timed(name):
            learnt[name] = one = attack.focus(first, *shadows, seed=options.seed)
        if name == "mnemonist" and "random" in options.attacks:
            with timed("random"):
                learnt["random"] = by_chance(one, shadows, options)
    return learnt


def by_chance(chosen: Focused, shadows: Shadows, options: argparse.Namespace) -> Trained:
    """RecoNN, taught by as many rows of each layer as were chosen."""
    access, random = chosen.second.access, generator(options.seed, "rows")
    assert isinstance(access, lw.access.Superparameters)
    drawn: list[lw.access.Neuron] = []
    for module, count in Counter(row.module for row in access.rows).items():
        rows = [row for row in chosen.explanation.rows if row.module == module]
        drawn += [rows[place] for place in sorted(random.permutation(len(rows))[:count])]
    access = lw.access.Superparameters(tuple(drawn))
    knowledge, *tables = shadows
    seen = [seen_by(access, knowledge.net, table) for table in tables]
    return recipe(options).learn(replace(knowledge, access=access), *seen, seed=options.seed)


def play(name: str, game: Game, data: Split, options: argparse.Namespace) -> list[Row]:
    """Let every attack learn from the same shadow models and answer the same victims."""
    shadows, victims = trained(game, data, options)
    learnt: dict[str, Reconstructor] = {**focused(shadows, options)}
    if "rows" in options.attacks:
        by_row = replace(recipe(options), decoder=lw.decoders.RowDecoder(sums=8))
        with timed("rows"):
            learnt["rows"] = by_row.learn(*shadows, seed=options.seed)
    if "kernel" in options.attacks:
        with timed("kernel"):
            learnt["kernel"] = lw.KernelRidge(validation=VALIDATION).learn(*shadows)
    with timed("answers"):
        losses = {attack: victims.losses(reconstruct) for attack, reconstruct in learnt.items()}
    explained = {attack: one for attack, one in learnt.items() if isinstance(one, Focused)}
    with timed("what the rows store"):
        stored = storage_rows(name, shadows, victims, explained, options)
    return [*loss_rows(name, game, losses, data), *stored]


def loss_rows(name: str, game: Game, losses: dict[str, NDArray[np.float64]], data: Split) -> list[Row]:
    """The mean of each attack, and how much less than RecoNN's, target by target."""
    sizes = f"{len(data.known):,} known, {len(data.prior):,} shadow models, {len(data.secrets):,} targets"
    blind = losses_of(data.prior.x.mean(0), data.secrets.x)
    rows = [mean_row("blind", "MAE + MSE of the prior's mean", blind)]
    for attack, loss in losses.items():
        what = f"{name}: {ATTACKS[attack]} ({sizes})"
        rows.append(mean_row(f"{name}.{attack}", what, loss, game.paper.get(attack)))
        if attack != "reconn" and "reconn" in losses:
            paper = game.paper["reconn"] - game.paper[attack] if attack in game.paper else None
            less = f"{name}: how much less than RecoNN's"
            rows.append(mean_row(f"{name}.{attack}_gain", less, losses["reconn"] - loss, paper))
    return rows


def storage_rows(
    name: str, shadows: Shadows, victims: Victims, explained: dict[str, Focused], options: argparse.Namespace
) -> list[Row]:
    """What the first layer stores (S4 Fig. 5), and whether explanations go with it (Fig. 7).

    S4 compares ten rows, each by its mean over records. So few say little: here the ten rows are compared within each
    of the explained shadow models, and the mean is over these. A record that no row stores agrees with nothing.
    """
    knowledge, _, test_on = shadows
    trainer, threat = knowledge.trainer, knowledge.threat
    assert isinstance(trainer, lw.GD)
    assert isinstance(threat, lw.Informed)
    scales = row_scales(trainer, knowledge.net, victims.cohort, seed=options.seed).of(FIRST_LAYER)
    stored = scales.stored.double().mean(2).cpu().numpy()  # (targets, steps)
    words = f"{name}: share of first-layer rows"
    rows = [
        mean_row(f"{name}.stored", f"{words} and steps that store a target", stored.mean(1)),
        mean_row(f"{name}.stored_first", f"{words} that store a target in the first step", stored[:, 0]),
        mean_row(f"{name}.stored_last", f"{words} that store a target in the last step", stored[:, -1]),
    ]
    if not explained:
        return rows
    cohort = InOrder(threat.known).deal(test_on.records, min(EXPLAINED, len(test_on.records)), seed=options.seed)
    scales = row_scales(trainer, knowledge.net, cohort, seed=options.seed).of(FIRST_LAYER)
    for attack, (_, explanation, _) in explained.items():
        every, kept = len(explanation.rows), len(explanation.holding())
        words = f"{name}: Spearman's within a model, coefficients ({attack}) and scales of the first layer"
        agreed = np.nan_to_num(agreements(explanation, scales))
        rows += [
            Row(f"{name}.{attack}_kept", f"{name}: rows with a negative coefficient ({attack}), of {every}", kept),
            mean_row(f"{name}.{attack}_agreements", words, agreed),
        ]
    return rows


if __name__ == "__main__":
    made = arguments(__doc__ or "", DEFAULT)
    made.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="attacks to run")
    options = made.parse_args()
    data = split(options)
    for name in in_time(options.rows, options):
        write(__file__, play(name, GAMES[name], data, options), options)
