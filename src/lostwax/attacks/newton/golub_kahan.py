"""The part of a Jacobian that a few products with it show."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Products = Callable[[Tensor], Tensor]
TINY = 1e-300


class Shown(NamedTuple):
    """J V^T = U B on a small space, for each of m games: V (k, r) and U (k + 1, p) have orthonormal rows.

    U begins with the residual, so that  |J s + residual|  for  s = V^T y  is  |B y + length e_1|.
    """

    basis: Tensor  # (m, k, r) V: where the residual points first, what J makes of it next, and so on
    bidiagonal: Tensor  # (m, k + 1, k) B
    length: Tensor  # (m,) |residual|

    @property
    def unexplained(self) -> Tensor:
        """(m,) the share of the squared residual that no step within the space takes away,  min |B y + e_1|^2."""
        left, sizes, _ = torch.linalg.svd(self.bidiagonal.nan_to_num(0.0), full_matrices=False)  # (m, k + 1, k), (m, k)
        seen = sizes > torch.finfo(sizes.dtype).eps * sizes[:, :1] * sizes.shape[1]
        explained: Tensor = (left[:, 0].square() * seen).sum(1)
        return 1 - explained

    def steps(self, dampings: Tensor, noise: Tensor, from_mean: Tensor) -> Tensor:
        """The minima of  |J s + residual|^2 + noise |s + from_mean|^2 + damping |s|^2  within the space, (m, f, r).

        One for each of f dampings, in shares of the largest curvature, and at no further product. The noise (m,) is
        that of a weight; from_mean (m, r) is how far the unknowns are from the prior's mean, in its deviations.
        """
        normal = self.bidiagonal.mT @ self.bidiagonal  # (m, k, k)
        lifted = noise.unsqueeze(1) + dampings * normal.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)  # (m, f)
        slope = self.length.unsqueeze(1) * self.bidiagonal[:, 0]  # (m, k) B^T (length e_1)
        slope = slope + noise.unsqueeze(1) * (self.basis @ from_mean.unsqueeze(2)).squeeze(2)
        curvature = normal.unsqueeze(1) + torch.diag_embed(lifted.unsqueeze(2).expand(-1, -1, slope.shape[1]))
        y = -torch.linalg.solve(curvature, slope.unsqueeze(1).expand(-1, len(dampings), -1))  # (m, f, k)
        steps: Tensor = y @ self.basis
        return steps


def golub_kahan(forward: Products, backward: Products, residual: Tensor, slope: Tensor, count: int) -> Shown:
    """`count` products with J and as many with J^T, beginning with residuals (m, p); every vector is kept.

    The first with J^T is the slope, J^T residual (m, r): who holds unknowns at their bounds has it already.

    Golub and Kahan (1965), as in LSQR (Paige and Saunders 1982). A new vector is made orthogonal to all before it: in
    float32 the short recurrence would soon lose that.
    """
    length = residual.norm(dim=1)
    lefts = (residual / length.clamp_min(TINY).unsqueeze(1)).unsqueeze(1)  # (m, 1, p)
    rights = residual.new_zeros(len(residual), 0, 0)
    entries: list[tuple[Tensor, Tensor]] = []
    for turn in range(count):
        back = backward(lefts[:, -1]) if turn else slope / length.clamp_min(TINY).unsqueeze(1)
        towards, onto = _apart(back.double(), rights)
        rights = towards.unsqueeze(1) if turn == 0 else torch.cat([rights, towards.unsqueeze(1)], 1)
        moved, beside = _apart(forward(towards).double(), lefts)
        lefts = torch.cat([lefts, moved.unsqueeze(1)], 1)
        entries.append((onto, beside))
    bidiagonal = residual.new_zeros(len(residual), count + 1, count)
    for turn, (onto, beside) in enumerate(entries):
        bidiagonal[:, turn, turn], bidiagonal[:, turn + 1, turn] = onto, beside
    return Shown(rights, bidiagonal, length)


def _apart(new: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """A new row (m, n) less its share in the rows before (m, j, n), of length one; and what its length was, (m,)."""
    for _ in range(2 if before.numel() else 0):  # twice is enough
        new = new - ((new.unsqueeze(1) @ before.mT) @ before).squeeze(1)
    length = new.norm(dim=1)
    return new / length.clamp_min(TINY).unsqueeze(1), length
