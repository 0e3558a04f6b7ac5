"""Climb the ladder of a fitted model: everybody who has less than the insider of its games.

Insiders who miss several rows solve the equations with as many rows missing. Each rung is small work beside the audit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.attacks.closed_form.missing_rows import missing_rows, most_missing
from lostwax.audits.ladder import Rung
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Columns, Fitted
from lostwax.games.cells import Bools
from lostwax.grades import Grade
from lostwax.progress import progress
from lostwax.seeds import generator

GAMES = 5  # for each number of missing rows
EQUATIONS = "ClosedForm, several rows missing"


def rungs_of_insiders(
    fitted: Fitted, columns: Columns, threshold: float, *, population: int, seed: int
) -> Iterator[Rung]:
    """Insiders who miss 2, 4, 8, ... rows, as many as there are equations for, and one more."""
    table, most = fitted.table, most_missing(fitted)
    scoring = Scoring.of_cells(table.x, columns, threshold)
    playable = np.flatnonzero((fitted.weight > 0).numpy())
    doubling = [2**power for power in range(1, most.bit_length()) if 2**power < most]
    for missing in (*doubling, *([most] if most > 1 else []), most + 1):
        if 2 * missing > len(playable):
            return
        draws = [
            generator(seed, "missing rows", missing, game).permutation(playable)[:missing] for game in range(GAMES)
        ]
        games = torch.from_numpy(np.stack(draws))  # (g, k)
        with progress(f"{missing} rows missing"):
            answer = missing_rows(fitted, games, seed=seed)
        won = _rebuilt(answer.records.x, games, table.x, scoring)
        grade = Grade.EXACT if won.any() else Grade.NOT_FOUND
        attacker = Adversary.insider(population, "row", missing=missing)
        certified = int((won & answer.certified.numpy()).sum())
        yield Rung(attacker, grade, EQUATIONS, int(won.sum()), games.numel(), certified, games=GAMES)


def _rebuilt(guesses: Tensor, games: Tensor, x: Tensor, scoring: Scoring) -> Bools:
    """(g, k) which missing rows come back, by the best pairing of guesses (g, k, d), and are near no other row."""
    k, won = games.shape[1], []
    for guess, rows in zip(guesses, games, strict=True):
        errors = scoring.scores(guess.repeat(k, 1), x[rows].repeat_interleave(k, 0)).criterion.reshape(k, k)
        won.append(errors[linear_sum_assignment(errors)] <= scoring.threshold)  # (k,) of the rows, in their order
    nearest = torch.from_numpy(scoring.nearest_known(x, games.flatten()).rows)
    had = scoring.scores(x[nearest], x[games.flatten()]).criterion <= scoring.threshold
    return np.asarray(np.stack(won) & ~had.reshape(games.shape))
