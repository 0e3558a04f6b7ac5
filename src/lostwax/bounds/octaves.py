"""The law of a sum of independent log-normal variables, enclosed: what a record in one random batch per epoch causes.

Points are spaced like floating-point numbers: x = origin + unit k, where k runs through 0..m-1 (row 0) and
2^(r-1) (m..2m-1) (row r). Log-normal tails then need tens of rows, not billions of points, and two laws are added row
by row: row r of one with all that is not above row r of the other, on the spacing of row r.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from lostwax.bounds.ceiling import Array
from lostwax.bounds.step_law import RULES, UNIT, mass_error, split_masses

LOWEST = 9.5  # deviations below which the left tail of one variable is merged
RAISED_MEAN = 1e-11  # by how much the mean may rise each time the left tail is merged
ADDED_VARIANCE = 4.0  # of the log that one rounding may add, as a multiple of 1 / m^2 of what there is
WIDE_RULES = (*RULES, (60.0, 40))
OVER, UNDER, FIRST = 0, 1, 2


class Shift(NamedTuple):
    """One z, of unknown number, is N(size, 1) instead of N(0, 1); the law is to be bounded from above or below."""

    size: float
    above: bool = False


@dataclass(frozen=True)
class SumLaw:
    """Laws of X = Y_1 + ... + Y_count after randomised rounding to the points, Y = exp(z / s - 1 / (2 s^2)).

    masses (laws, rows, m): an upper and a lower bound of the law if every z is N(0, 1), and, from `FIRST` on, a bound
    for every shift. Each rounding moves a mass to the two neighbouring points and keeps its mean, or raises it at the
    left end, so that E[(X - t)_+] only grows; `escaped` / `count` bounds what is lost of it at the right end, where
    masses are moved down. A test that sees the rounded X is a test.
    """

    masses: Array
    origin: float
    unit: float
    count: int
    escaped: float
    shifts: tuple[Shift, ...]

    @property
    def points(self) -> Array:
        """The values of X."""
        return self.origin + self.unit * _multiples(*self.masses.shape[1:])

    def __add__(self, other: SumLaw) -> SumLaw:
        """The law of the sum of two independent variables on points of the same unit.

        The shifted z is equally likely to be any of them. (Always in the first part is another law: its roundings are
        not those of the second.)
        """
        origin, count = self.origin + other.origin, self.count + other.count
        rows = max(self.masses.shape[1], other.masses.shape[1])
        a, b = _Rows.of(self.masses, rows), _Rows.of(other.masses, rows)
        masses = [a.plus(b, OVER, OVER).at_most(), a.plus(b, UNDER, UNDER).at_least()]
        for number, shift in enumerate(self.shifts, start=FIRST):
            unshifted = OVER if shift.above else UNDER
            law = a.plus(b, number, unshifted)
            if other is not self:
                law = law.mixed(a.plus(b, unshifted, number), other.count / count)
            masses.append(law.at_most() if shift.above else law.at_least())
        escaped = self.escaped + other.escaped
        return SumLaw(np.stack(masses), origin, self.unit, count, escaped, self.shifts)

    def rounded(self, origin: float, unit: float, top: float) -> SumLaw:
        """On other points, up to `top` at least."""
        m = self.masses.shape[2]
        rows = 2 + max(0, math.ceil(math.log2(max((top - origin) / unit / m, 1.0))))
        size = rows * m
        k = (self.points - origin) / unit
        last = float(_multiples(rows, m)[-1])
        flat = self.masses.reshape(len(self.masses), -1)
        escaped = float(flat[OVER] @ np.maximum(k - last, 0.0)) * unit * (1 + 1e-9)
        k = k.clip(0.0, last)
        row = np.maximum(np.frexp(k / m)[1], 0)  # k < m: 0; m 2^(r-1) <= k < m 2^r: r
        place = np.ldexp(k, 1 - np.maximum(row, 1))
        lower = np.floor(place)
        share = place - lower  # of the upper neighbour
        index = (lower - np.where(row > 0, m, 0)).astype(int) + row * m
        above = np.minimum(index + 1, size - 1)
        masses = np.stack(
            [
                np.bincount(index, mass * (1 - share), minlength=size)
                + np.bincount(above, mass * share, minlength=size)
                for mass in flat
            ]
        )
        added = np.bincount(index, minlength=size) + np.bincount(above, minlength=size)
        masses *= 1 + _sides(self.shifts) * UNIT * (8 + added)
        masses = masses.reshape(-1, rows, m)
        return SumLaw(masses, origin, unit, self.count, self.escaped + escaped, self.shifts)

    def settled(self, negligible: float) -> SumLaw:
        """With points that suit the law: `negligible` is what a cut on the right may take off the mean of X / count."""
        m = self.masses.shape[2]
        x, mass = self.points, self.masses[OVER].ravel()
        origin = float(x[self._first()])
        top = float(x[self._last(negligible)])
        unit = _unit(np.maximum(x, origin), mass, m)
        if unit > 1.9 * self.unit:
            return self.rounded(origin, unit, top)
        return self if top > x[-m - 1] else self.rounded(self.origin, self.unit, top)

    def _first(self) -> int:
        """The last point x with E[(x - X)_+] / count at most `RAISED_MEAN`."""
        x, mass = self.points, self.masses[OVER].ravel()
        raised = x * np.cumsum(mass) - np.cumsum(mass * x)
        return int(np.flatnonzero(raised <= RAISED_MEAN * self.count)[-1])

    def _last(self, negligible: float) -> int:
        """The first point x with E[(X - x)_+] / count at most `negligible`."""
        x, mass = self.points, self.masses[OVER].ravel()
        tail = np.cumsum(mass[::-1])[::-1]
        lost = np.cumsum((mass * x)[::-1])[::-1] - x * tail  # to rounding
        return int(np.flatnonzero(lost <= negligible * self.count + 1e-12 * tail * x)[0])

    def cut(self, negligible: float) -> SumLaw:
        """With both tails merged: at high tilts their rounding errors would outweigh all that matters."""
        x, flat = self.points, self.masses.reshape(len(self.masses), -1).copy()
        first, last = self._first(), self._last(negligible)
        escaped = float(flat[OVER] @ np.maximum(x - x[last], 0.0)) * (1 + 1e-9)
        rounding = 1 + 1e-12 * _sides(self.shifts)[:, 0]
        flat[:, last] += flat[:, last + 1 :].sum(1) * rounding
        flat[:, first] += flat[:, :first].sum(1) * rounding
        flat[:, last + 1 :] = flat[:, :first] = 0
        return replace(self, masses=flat.reshape(self.masses.shape), escaped=self.escaped + escaped)


def sum_of(
    noise: float, count: int, points: int, *, highest: float, negligible: float, shifts: tuple[Shift, ...]
) -> SumLaw:
    """The law of the sum of `count` variables by doubling; z beyond `highest` is cut off."""
    single = total = _single(noise, points, highest, shifts)
    for bit in f"{count:b}"[1:]:
        total = (total + total).settled(negligible)
        if bit == "1":
            total = (total + single.rounded(single.origin, total.unit, float(single.points[-1]))).settled(negligible)
    return total.cut(negligible)


def _sides(shifts: tuple[Shift, ...]) -> Array:
    """1 for upper bounds, -1 for lower ones: (laws, 1)."""
    return np.array([1, -1, *(1 if shift.above else -1 for shift in shifts)])[:, None]


def _single(noise: float, m: int, highest: float, shifts: tuple[Shift, ...]) -> SumLaw:
    """The law of a single Y: the mass of each cell between two points is split so that its mean is kept."""
    half = 1 / (2 * noise**2)
    # ADDED_VARIANCE / m^2 = E[(unit / Y)^2] / 6 / Var(log Y), with E[Y^-2] = exp(3 / s^2)
    unit = math.sqrt(6 * ADDED_VARIANCE) / noise * math.exp(-3 * half) / m
    origin = max(math.exp(-LOWEST / noise - half), unit)
    top = math.exp(highest / noise - half)
    rows = 2 + max(0, math.ceil(math.log2(max((top - origin) / unit / m, 1.0))))
    y = origin + unit * _multiples(rows, m)
    z = noise * np.log(y) + 1 / (2 * noise)
    width = noise * np.log1p(np.diff(y) / y[:-1])
    sizes = [0.0, 0.0, *(shift.size for shift in shifts)]
    relative = mass_error(noise, float(np.abs(z[[0, -1]]).max()) + max(sizes))
    laws = []
    for size in sizes:
        start = z[:-1] - size
        reach = width * (np.abs(start) + width + 3 + 1 / noise)
        if float(reach.max()) > WIDE_RULES[-1][0]:
            raise ArithmeticError(f"A cell is too wide to be integrated (noise {noise}). This is a bug in lostwax.")
        down, up = split_masses(start, width, reach, np.ones((1, width.size)), noise, WIDE_RULES)
        scale = width * np.exp(-start * start / 2) / math.sqrt(2 * math.pi)
        law = np.append(scale * down, math.exp(log_ndtr(size - z[-1])))
        law[1:] += scale * up
        law[0] += math.exp(log_ndtr(z[0] - size))
        laws.append(law)
    masses = np.stack(laws) * (1 + _sides(shifts) * relative)
    escaped = math.exp(log_ndtr(1 / noise - z[-1])) * (1 + 1e-9)  # E[Y; beyond]
    return SumLaw(masses.reshape(-1, rows, m), origin, unit, 1, escaped, shifts)


def _unit(x: Array, mass: Array, m: int) -> float:
    """The unit u with E[(u / X)^2] / 6 = ADDED_VARIANCE / m^2 Var(log X)."""
    logs = np.log(x)
    total = float(mass.sum())
    mean = float(mass @ logs) / total
    variance = float(mass @ (logs - mean) ** 2) / total
    return math.sqrt(6 * ADDED_VARIANCE * variance * total / float(mass @ x**-2.0)) / m


def _multiples(rows: int, m: int) -> Array:
    k = np.arange(m, dtype=float)
    return np.concatenate([k, *(np.ldexp(m + k, r - 1) for r in range(1, rows))])


def _below(masses: Array) -> Array:
    """All rows below row r on the spacing of row r: (laws, rows, m + 1), odd multiples split evenly."""
    laws, rows, m = masses.shape
    below = np.zeros((laws, rows, m + 1))
    below[:, 1, :m] = masses[:, 0]
    for r in range(1, rows - 1):
        both = np.concatenate([below[:, r, :m], masses[:, r]], axis=1)  # (laws, 2m)
        both[:, m] += below[:, r, m]
        half = both[:, 1::2] / 2
        below[:, r + 1, :m] = both[:, 0::2] + half
        below[:, r + 1, 1:] += half
    return below


@dataclass(frozen=True)
class _Rows:
    """Rows, and all that is below each, with their transforms and norms, to be added to others."""

    row: Array
    below: Array
    row_norm: Array
    below_norm: Array
    m: int

    @staticmethod
    def of(masses: Array, rows: int) -> _Rows:
        masses = np.pad(masses, ((0, 0), (0, rows - masses.shape[1]), (0, 0)))
        below, m = _below(masses), masses.shape[2]
        norms = np.linalg.norm(masses, axis=-1), np.linalg.norm(below, axis=-1)
        return _Rows(np.fft.rfft(masses, 3 * m), np.fft.rfft(below, 3 * m), *norms, m)

    def plus(self, other: _Rows, i: int, j: int) -> _Sums:
        """Law i of these plus law j of the others.

        Transforms err by at most 8 u log2(n) of their norm, as in `composed`, and so does every number that comes back,
        relative to the mean modulus of what is turned back: it is a sum of n terms over paths of that length.
        """
        n = 3 * self.m
        third = np.exp(-2j * np.pi / 3 * (np.arange(n // 2 + 1) % 3))  # moves by m
        product = self.row[i] * (other.below[j] + third * other.row[j]) + self.below[i] * other.row[j]
        product[0] = self.row[i, 0] * other.row[j, 0]
        size = self.row_norm[i] * (other.below_norm[j] + other.row_norm[j]) + self.below_norm[i] * other.row_norm[j]
        error = (24 * math.log2(n) + 32) * UNIT * size + 1e-290 * (size > 0)
        return _Sums(np.fft.irfft(product, n), error[:, None])


@dataclass(frozen=True)
class _Sums:
    """mass (rows, 3m): mass[r, i] belongs to 2^(r-1) (m + i), in row 0 to i; each is right up to its row's error."""

    mass: Array
    error: Array

    def mixed(self, other: _Sums, weight: float) -> _Sums:
        mass = (1 - weight) * self.mass + weight * other.mass
        return _Sums(mass, (1 - weight) * self.error + weight * other.error)

    @property
    def _folding(self) -> float:
        """Relative error of the sums before and after: `_below` adds up to four numbers per row."""
        return (128 + 4 * len(self.mass)) * UNIT

    def at_most(self) -> Array:
        return _folded((self.mass + self.error).clip(0.0) * (1 + self._folding))

    def at_least(self) -> Array:
        return _folded((self.mass - self.error).clip(0.0) * (1 - self._folding))


def _folded(mass: Array) -> Array:
    """One row more: what exceeds a row goes to the next, odd multiples split evenly."""
    rows, m = len(mass), mass.shape[1] // 3
    mass[:, -1] = 0  # beyond the largest sum
    mass[0, 2 * m - 1 :] = 0
    total = np.zeros((rows + 1, m))
    total[:rows] = mass[:, :m]
    total[1] += mass[0, m : 2 * m]
    half = mass[1:, m + 1 :: 2] / 2
    total[2:] += mass[1:, m::2] + half
    total[2:, 1:] += half[:, :-1]
    return total
