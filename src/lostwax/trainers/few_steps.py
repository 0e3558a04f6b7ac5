"""A record's gradients at all steps of a training, from those at few.

Along a trajectory, grad l(theta_t, z) of a record z changes smoothly, and much alike for all records. So the steps have
an interpolative decomposition (Cheng, Gimbutas, Martinsson and Rokhlin 2005): some are picked, and the gradient at
every step t is a mix of theirs,

    grad l(theta_t, z)  =  sum_s mix[s, t] grad l(theta_s, z)      for all z, approximately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Gram = NDArray[np.float64]  # (t, t) inner products of gradients at any two steps, summed over records
ROUNDING = 1e-13  # of inner products, relative to the largest


class FewSteps(NamedTuple):
    """The steps that are picked, in order, and all steps as mixes of them."""

    picked: NDArray[np.intp]  # (k,)
    mix: NDArray[np.float64]  # (k, t)

    @classmethod
    def of(cls, gram: Gram, error: Callable[[FewSteps], float], tolerance: float) -> FewSteps | None:
        """About as few as keep the error within the tolerance, by bisection; None if half of the steps do not."""
        if not np.isfinite(gram).all():  # training that grows without bound
            return None
        order, rows = _pivoted(gram)

        def first(count: int) -> FewSteps:
            picked = order[:count]
            mix = solve_triangular(rows[:count, picked], rows[:count])  # least squares
            ascending = np.argsort(picked)
            return cls(picked[ascending], mix[ascending])

        low, high = 0, min(1, len(order))
        while high and not error(first(high)) <= tolerance:
            if high == len(order):
                return None
            low, high = high, min(2 * high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if error(first(middle)) <= tolerance else (middle, high)
        return first(high) if high else None


def _pivoted(gram: Gram) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Half of the steps (k,), each the one that those before it span worst, and rows (k, t): Cholesky with pivoting.

    rows^T rows = gram, exactly at the picked steps.
    """
    steps, left = len(gram), np.diag(gram).copy()
    rows, order = np.zeros((steps // 2, steps)), np.zeros(steps // 2, np.intp)
    for count in range(steps // 2):
        worst = left.argmax()
        if left[worst] <= ROUNDING * gram.max():
            return order[:count], rows[:count]
        rows[count] = (gram[worst] - rows[:count, worst] @ rows[:count]) / np.sqrt(left[worst])
        order[count] = worst
        left = left - np.square(rows[count])
        left[order[: count + 1]] = 0.0
    return order, rows
