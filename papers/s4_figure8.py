"""S4 Figure 8, CIFAR-10: do rows with small coefficients rebuild records best, when RecoNN has each alone?

    python papers/s4_figure8.py --device cuda [--rows relu_1 relu_2 ...] [--data FOLDER]

The game of papers/s4_table3.py with half of its shadow models. RecoNN is explained, by rows put back to their initial
values as in S4 and by rows put back to the mean; then it learns from every row of the first layer alone. S4 shows a
scatter, and finds that the smaller the coefficient, the smaller the loss: a correlation of +1 would be best.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from s1_mnist import mean_row, write
from s4_table3 import EXPLAINED, FIRST_LAYER, GAMES, TABLE_3, Game, Split, arguments, recipe, split, trained

import lostwax as lw
from lostwax.attacks.mnemonist.erasures import Erasure
from lostwax.attacks.mnemonist.tables import seen_by
from lostwax.metrics import correlation
from lostwax.reports.results import Row

ERASURES: dict[str, Erasure] = {"start": lw.ToStart(), "mean": lw.ToMean()}


def play(name: str, game: Game, data: Split, options: argparse.Namespace) -> list[Row]:
    """The loss from each row of the first layer, its coefficients, and how they go together."""
    (knowledge, *tables), victims = trained(game, data, options)
    attack, seed = recipe(options), options.seed
    whole = attack.learn(knowledge, *tables, seed=seed)
    cohort, some = victims.cohort, range(min(EXPLAINED, len(victims.release)))
    explanations = {
        way: lw.Mnemonist(masks=options.masks, erase=erase)(
            whole, knowledge, victims.release, cohort.own, seed=seed, only=some
        )
        for way, erase in ERASURES.items()
    }
    every = explanations["start"].rows
    places = [place for place, row in enumerate(every) if row.module == FIRST_LAYER]
    rows, alone = [], []
    for place in places:
        access = lw.Superparameters((every[place],))
        seen = [seen_by(access, knowledge.net, table) for table in tables]
        loss = victims.losses(attack.learn(replace(knowledge, access=access), *seen, seed=seed))
        alone.append(float(loss.mean()))
        rows.append(mean_row(f"{name}.{every[place]}", f"{name}: RecoNN's MAE + MSE, from row {every[place]}", loss))
    for way, found in explanations.items():
        coefficients = found.overall().coefficients[0, places].cpu().numpy()
        rows += [
            Row(f"{name}.{every[place]}.{way}", f"{name}: coefficient of row {every[place]} (to {way})", float(value))
            for place, value in zip(places, coefficients, strict=True)
        ]
        words = f"{name}: Spearman's, coefficients (to {way}) and losses from single rows"
        rows.append(Row(f"{name}.{way}_agreement", words, *correlation(coefficients, np.array(alone)).spearman[:3]))
    return rows


if __name__ == "__main__":
    options = arguments(__doc__ or "", [f"relu_{run}" for run in TABLE_3], shadows=20_000)
    data = split(options)
    for name in options.rows:
        write(__file__, play(name, GAMES[name], data, options), options)
