"""Dealing candidates: the secret among decoys (S1 Algorithm 2)."""

from __future__ import annotations

import numpy as np
import torch

from lostwax.seeds import generator
from lostwax.types import Cohort, Records


def line_up(cohort: Cohort, pool: Records, count: int, *, seed: int) -> Records:
    """(m, count, ...) each model's secret at a random place among other records of the pool it was dealt from.

    From the same pool, and in no order: nothing but the release tells the secret from the decoys. All of a model's
    candidates differ from each other in x, so that naming one of them is right or wrong. The draws depend on the seed
    and the model's number alone. Each model is one adversary's game: a secret here is a decoy elsewhere, and who
    compared the candidates of many games could tell more than Algorithm 2 allows.
    """
    m = len(cohort)
    both = _secrets_and_pool(cohort.own, pool)  # (m + n, ...)
    in_pool = both[:m].matches(pool).numpy()  # (m,) the row of each secret
    distinct = np.unique(pool.matches(pool).numpy())  # the first row of every record that the pool holds
    dealt = np.empty((m, count), dtype=np.int64)
    for game, number in enumerate(cohort.index.tolist()):
        random = generator(seed, "candidates", number)
        others = distinct[distinct != in_pool[game]]
        if len(others) < count - 1:
            raise ValueError(
                f"Informed.hints: {count} candidates need {count - 1} records besides the secret, and the pool of "
                f"{len(pool)} holds {len(others)} that differ from it. Bring more records, or ask for fewer candidates."
            )
        decoys = random.choice(others, count - 1, replace=False)
        dealt[game] = np.insert(m + decoys, random.integers(count), game)  # row `game` of both is the secret
    return both[torch.from_numpy(dealt).to(both.x.device)]


def _secrets_and_pool(own: Records, pool: Records) -> Records:
    """The one secret of each model (k = 1), and then the pool."""
    features = None
    if own.features is not None and pool.features is not None:
        features = torch.cat([own.features[:, 0], pool.features])
    return Records(torch.cat([own.x[:, 0], pool.x]), torch.cat([own.y[:, 0], pool.y]), features)
