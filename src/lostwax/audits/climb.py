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
from lostwax.audits.play import Settings
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Columns, Fitted
from lostwax.games.cells import Bools
from lostwax.grades import Grade
from lostwax.progress import progress
from lostwax.seeds import generator

GAMES = 5  # for each number of missing rows
MOST = 64  # missing rows
QUICK, FEASIBLE = 2_000, 20_000  # numbers in the equations: more take long, and are solved only where that is asked for
EQUATIONS = "ClosedForm, several rows missing"


def rungs_of_insiders(fitted: Fitted, columns: Columns, settings: Settings, population: int) -> Iterator[Rung]:
    """Insiders who miss 2, 4, 8, ... rows: as many as there are equations for, then more until none comes back.

    Beyond the count a row can still come back that stands out: its share of the sum is nearly all.
    """
    table, seed = fitted.table, settings.seed
    is_asked = settings.attackers is not None or settings.max_minutes is not None
    numbers = sum(sums.total().numel() for sums in fitted.sums)
    numbers += 0 if fitted.model is None else fitted.model.total().numel()
    if numbers > (FEASIBLE if is_asked else QUICK):
        reason = "" if is_asked else 'Its equations are large: allow max_minutes, or name attackers=["insider"].'
        yield Rung(Adversary.insider(population, "row", missing=2), None, EQUATIONS, reason=reason)
        return
    most, scoring = most_missing(fitted), Scoring.of_cells(table.x, columns, settings.threshold)
    playable = np.flatnonzero((fitted.weight > 0).numpy())
    for missing in _numbers(most):
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
        if missing > most and not won.any():
            return


def _numbers(most: int) -> Iterator[int]:
    """2, 4, 8, ..., as many rows as there are equations for, one more, and on."""
    yield from (2**power for power in range(1, most.bit_length()) if 2**power < most)
    if most > 1:
        yield most
    yield most + 1
    yield from (2**power for power in range((most + 1).bit_length(), MOST.bit_length()))


def _rebuilt(guesses: Tensor, games: Tensor, x: Tensor, scoring: Scoring) -> Bools:
    """(g, k) which missing rows come back, by the best pairing of guesses (g, k, d), and are near no other row."""
    k, won = games.shape[1], []
    for guess, rows in zip(guesses, games, strict=True):
        errors = scoring.scores(guess.repeat(k, 1), x[rows].repeat_interleave(k, 0)).criterion.reshape(k, k)
        won.append(errors[linear_sum_assignment(errors)] <= scoring.threshold)  # (k,) of the rows, in their order
    nearest = torch.from_numpy(scoring.nearest_known(x, games.flatten()).rows)
    had = scoring.scores(x[nearest], x[games.flatten()]).criterion <= scoring.threshold
    return np.asarray(np.stack(won) & ~had.reshape(games.shape))
