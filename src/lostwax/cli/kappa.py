"""`lostwax kappa`: which baseline, the success of the best blind guess, belongs to what I fear?"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def candidates(number: int) -> None:
    """The record is one of so many candidates, each as likely.

    Args:
        number: How many candidates.
    """
    if number < 2:
        raise ValueError(f"kappa candidates: expected number >= 2, got {number}.")
    _show(-math.log(number))


def ball(eta: float, dimension: int) -> None:
    """The record is uniform in the unit ball.

    Args:
        eta: A guess within this distance counts as rebuilt.
        dimension: How many numbers a record has.
    """
    from lostwax.bounds import log_kappa_ball

    _show(log_kappa_ball(eta, dimension))


def gaussian(eta: float, sigma: float, dimension: int) -> None:
    """The record is Gaussian, its numbers independent.

    Args:
        eta: A guess within this distance counts as rebuilt.
        sigma: Standard deviation of each number.
        dimension: How many numbers a record has.
    """
    from lostwax.bounds import log_kappa_gaussian

    _show(log_kappa_gaussian(eta, sigma, dimension))


def pixels(dimension: int, tolerance: float, fraction: float) -> None:
    """The record is an image of independent pixels, uniform in [0, 1].

    Args:
        dimension: How many pixels.
        tolerance: A pixel within this distance is right.
        fraction: This share of right pixels counts as rebuilt.
    """
    from lostwax.bounds import log_kappa_pixels

    _show(log_kappa_pixels(dimension, tolerance, fraction))


def sample(path: Path, eta: float, confidence: float = 0.95) -> None:
    """An upper limit from records of your own.

    Args:
        path: A .npy file, one row a record.
        eta: A guess whose root mean squared error is within this counts as rebuilt.
        confidence: The chance that the limit holds.
    """
    import numpy as np

    from lostwax.bounds import kappa_from_samples

    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"kappa sample: cannot read {path} as an array. Write it with numpy.save.") from error
    if rows.ndim < 2:
        raise ValueError(f"kappa sample: expected an array with one row a record in {path}, got shape {rows.shape}.")
    _show(math.log(kappa_from_samples(rows.reshape(len(rows), -1).astype(float), _distance, eta, confidence)))


def _distance(samples: np.ndarray, centre: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(np.sqrt(np.mean((samples - centre) ** 2, 1)))


def _show(log_kappa: float) -> None:
    if log_kappa > -700:
        kappa = _rounded_up(math.exp(log_kappa))
        if float(kappa) >= 1:
            raise ValueError(
                "kappa: a blind guess always succeeds, or all but always: lower eta. No bound helps there."
            )
        print(f"baseline {kappa} (lostwax bound --baseline {kappa} ...)")
    else:
        shown = f"{math.ceil(log_kappa * 1e6) / 1e6:.6f}"
        print(f"log baseline {shown} (lostwax bound --log-baseline {shown} ...)")


def _rounded_up(value: float) -> str:
    """Six digits, not below the value (to 1e-12): a baseline that is too small makes a ceiling that does not hold."""
    if float(f"{value:.6g}") >= value * (1 - 1e-12):
        return f"{value:.6g}"
    return f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(value):g}"
