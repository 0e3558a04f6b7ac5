"""A record's gradients at all steps of a training, from those at few.

Along a trajectory, grad l(theta_t, z) of a record z changes smoothly, and much alike for all records. So the steps have
an interpolative decomposition (Cheng, Gimbutas, Martinsson and Rokhlin 2005): some are picked, and the gradient at
every step t is a mix of theirs,

    grad l(theta_t, z)  =  sum_s mix[s, t] grad l(theta_s, z)      for all z, approximately.
"""

from __future__ import annotations

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
    def every(cls, steps: int) -> FewSteps:
        """Each step stands for itself."""
        return cls(np.arange(steps), np.eye(steps))

    @classmethod
    def of(cls, ours: Gram, others: Gram, tolerance: float) -> FewSteps:
        """As few as give the gradients of other records to the tolerance: root mean squares, error over gradient.

        Cholesky with pivoting picks, one after another, the step whose gradients the picked ones span worst; mixes are
        those of least squares. If half of the steps are not enough, all are kept.
        """
        steps, size = len(ours), np.trace(others)
        if not (np.isfinite(ours).all() and np.isfinite(others).all()):  # training that grows without bound
            return cls.every(steps)
        left, rows, picked = np.diag(ours).copy(), np.empty((0, steps)), np.empty(0, np.intp)
        while 2 * len(picked) < steps and left.max() > ROUNDING * ours.max():
            worst = left.argmax()
            row = (ours[worst] - rows[:, worst] @ rows) / np.sqrt(left[worst])
            rows, picked = np.vstack([rows, row]), np.append(picked, worst)  # rows^T rows = ours, where picked
            left = left - np.square(row)
            left[picked] = 0.0
            mix = solve_triangular(rows[:, picked], rows)  # (k, t)
            error = size + (mix * (others[np.ix_(picked, picked)] @ mix - 2 * others[picked])).sum()
            if error <= tolerance**2 * size:
                order = np.argsort(picked)
                return cls(picked[order], mix[order])
        return cls.every(steps)
