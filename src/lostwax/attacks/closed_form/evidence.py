"""Candidates for the missing row, and the size of their error, from what the known rows leave unexplained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.closed_form.ambiguous import candidates, outside_candidates
from lostwax.games import Fitted, Guess, Records, Stationary, Sums
from lostwax.games.cells import Kept
from lostwax.games.fitted import blocks, gap, rounding

CERTAIN = 1e3  # times its rounding error: a residual that is known to 1e-3 and better


class CandidateRows(NamedTuple):
    """The candidates of each game, likeliest first."""

    rows: Records  # (g, candidates, ...), NaN where there is none
    blind: Records  # (g, 1, ...) for games without any
    size: Tensor  # (g,) |r|
    kept: Tensor | None = None  # (g, d) what the equation tells of each feature, a `Kept`; None: all

    def guess(self) -> Guess:
        """The first candidate of each game, with all of them as alternatives if there may be several."""
        x, y = self.rows.x, self.rows.y
        usable = x.isfinite().all(-1)  # (g, candidates)
        at = (torch.arange(len(x), device=x.device), usable.double().argmax(1))  # the first of the largest
        some = usable.any(1)
        rows = Records(
            torch.where(some[:, None, None], x[at][:, None], self.blind.x),
            torch.where(some.reshape(-1, *[1] * (y.ndim - 1)), y[at][:, None], self.blind.y),
        )
        others = self.rows if x.shape[1] > 1 else None
        if self.kept is None:
            return Guess(rows, self.size[:, None], others)
        kept = torch.where(some[:, None], self.kept, Kept.LOST)
        return Guess(rows, self.size[:, None], others, kept=kept[:, None].to(torch.uint8))

    def determined(self) -> Tensor:
        """(g, candidates, d) the features that the equation determines, NaN for all others."""
        x = self.rows.x
        return x if self.kept is None else torch.where((self.kept >= Kept.SET)[:, None], x, torch.nan)

    def lost(self) -> Tensor:
        """(g,) True if the likeliest candidate's residual is lost in rounding."""
        return self.rows.x[:, 0].isnan().any(-1)


def with_outside(
    candidates: CandidateRows,
    model: Stationary,
    table: Records,
    games: Tensor,
    mean: Tensor,
    labels: Tensor | None,
    wanted: Tensor | None = None,
) -> CandidateRows:
    """With more features than rows, two more candidates from the direction of the weights (`ambiguous`).

    For the games that are `wanted`, (g,); None: for all.
    """
    all_rows = not model.sparse and model.known is None  # these are all rows
    outside = outside_candidates(model, table, games, mean, wanted) if all_rows else None
    if outside is None:  # more rows than features; or a penalty under which weights leave the span of the rows
        return candidates
    x, outputs = outside.x, model.outputs(outside.x)  # (g, 2, d), (g, 2, c)
    y = model.loss.label(outputs, torch.zeros_like(outputs) if table.y.is_floating_point() else outside.residual)
    if labels is not None:  # the sign that fits the label first
        y = labels.reshape(len(games), 1, *table.y.shape[1:]).expand_as(y)
        losses = model.loss(outputs.flatten(0, 1), y.flatten(0, 1)).reshape(len(games), 2)
        x = x.gather(1, losses.nan_to_num(nan=torch.inf).argsort(1)[..., None].expand_as(x))
    rows = Records.together([candidates.rows, Records(x, y)], 1)
    order = torch.arange(rows.x.shape[1], device=x.device)
    # last, or first where the likeliest of the others is lost in rounding
    order = torch.where(candidates.lost()[:, None], order.roll(2), order)
    at = torch.arange(len(games), device=x.device)[:, None], order
    return candidates._replace(rows=Records(rows.x[at], rows.y[at]))


def solve(missing: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """x = r^T G / |r|^2 and |r|; NaN for a row whose residual r is lost in rounding `noise`."""
    r, gradient = missing[..., -1], missing[..., :-1]  # (g, c), (g, c, d)
    size = r.norm(dim=-1)  # (g,)
    x = torch.einsum("gc,gcd->gd", r, gradient) / size[:, None].square()
    seen = (size > noise) & x.isfinite().all(-1)
    return torch.where(seen[:, None], x, torch.nan), size


class Determined(NamedTuple):
    """The features of the missing row as far as the equation determines them."""

    x: Tensor  # (g, d); NaN for a row whose residual is lost in rounding
    size: Tensor  # (g,) |r|
    kept: Tensor  # (g, d)


def solve_active(model: Stationary, missing: Tensor, mean: Tensor, spread: Tensor, noise: Tensor) -> Determined:
    """`solve` where weights may be zero: a feature comes from the outputs in which its weight is not.

    For a feature without any weight, the mean of the known rows is moved into the interval that is left for it.
    """
    slack = model.slack()  # (c, d + 1)
    r, gradient = torch.where(slack[:, -1] == 0, missing[..., -1], 0.0), missing[..., :-1]  # (g, c), (g, c, d)
    share = r[..., None] * (slack[:, :-1] == 0)  # (g, c, d)
    size, sizes = r.norm(dim=-1), share.norm(dim=-2)  # (g,), (g, d)
    seen, certain = sizes > noise[:, None], sizes > CERTAIN * noise[:, None]
    # the features f with |gradient - r f| <= slack in every output
    is_seen = r.abs()[..., None] > noise[:, None, None]
    width = torch.where(is_seen, slack[:, :-1] / r.abs()[..., None], torch.inf)  # (g, c, d)
    middle = torch.where(is_seen, gradient / r[..., None], 0.0)
    low = (middle - width).amax(-2) * model.scale + model.shift
    high = (middle + width).amin(-2) * model.scale + model.shift
    bounded = (low <= high) & (high - low < 2 * spread)  # narrow enough to mean something
    kept = torch.where(certain, Kept.EXACT, torch.where(bounded | seen, Kept.INTERVAL, Kept.LOST))
    x = (share * gradient).sum(-2) / sizes.square() * model.scale + model.shift
    x = torch.where(seen, x, torch.where(bounded, mean.clamp(low, high), mean))
    return Determined(torch.where((size > noise)[:, None], x, torch.nan), size, kept)


def candidates_of(
    model: Stationary,
    missing: Tensor,
    labels: Tensor | None,
    weight: Tensor,
    mean: Tensor,
    spread: Tensor,
    noise: Tensor,
) -> CandidateRows:
    """The one record whose term is `missing`, (g, c, d + 1); without an intercept all such records, given the label."""
    if model.bias is None:
        return without_intercept(model, missing, labels, weight, mean, spread, noise)
    if model.sparse:
        x, size, kept = solve_active(model, missing, mean, spread, noise)
    else:
        features, size = solve(missing, noise)
        x, kept = features * model.scale + model.shift, None
    rows, blind = (Records(part[:, None], missing_label(model, missing, part, weight)[:, None]) for part in (x, mean))
    return CandidateRows(rows, blind, size, kept)


def missing_label(model: Stationary, missing: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The label whose residual at x is the missing one."""
    slack = model.slack()
    if model.bias is not None and not slack[:, -1].any():
        residual = missing[..., -1]  # (g, c)
    else:
        f = model.features(x)  # missing = r f^T, so r = missing f / |f|^2, over features with an equation
        d = f.shape[-1]
        holds = (slack[:, :d] == 0).to(f)  # (c, d)
        residual = torch.einsum("gcd,gd,cd->gc", missing[..., :d], f, holds) / (f.square() @ holds.mT)
        if model.bias is not None:
            residual = torch.where(slack[:, -1] == 0, missing[..., -1], residual)
    return model.loss.label(model.outputs(x), residual / weight[:, None])


def certain_labels(model: Stationary, table: Records, weight: Tensor, size: Tensor) -> Tensor:
    """(g,) games in which the missing residual |r'| = `size` is far above what all rows leave unexplained of it."""
    if model.bias is None or model.slack()[:, -1].any():
        return torch.zeros_like(size, dtype=torch.bool)
    left = gap(model, table, weight).abs() + rounding(model, table, weight)  # (c, d + 1)
    return size > CERTAIN * float(left[:, -1].norm())


def without_intercept(
    model: Stationary,
    missing: Tensor,
    labels: Tensor | None,
    weight: Tensor,
    mean: Tensor,
    spread: Tensor,
    noise: Tensor,
) -> CandidateRows:
    """All records whose term is `missing`, (g, c, d), given the label."""
    if labels is None:
        raise ValueError(
            "ClosedForm: a model without an intercept can be solved only by an adversary who knows the label (Balle et "
            "al. 2022, Theorem 8). Pass hints=Hints(labels=...), or fit with an intercept."
        )
    y = labels.reshape(len(missing), *labels.shape[2:]) if labels.ndim > 1 else labels
    holds = (model.slack() == 0).all(0)  # (d,) features with an equation
    x = candidates(model, missing, y, weight) * model.scale + model.shift  # (g, candidates, d)
    x = torch.where(holds | x.isnan(), x, mean[:, None])
    # Order by likelihood: the prior is that of the known rows, and x -> r(x) x has a Jacobian of size |r|^(d - 1), so
    # records with a small residual r fill more of the space of records.
    unit = (spread + 1e-12 * mean.abs()).clamp_min(torch.finfo(spread.dtype).tiny)[:, None]
    negative_log_prior = ((x - mean[:, None]) / unit).square().sum(-1) / 2  # (g, candidates)
    length = torch.linalg.vector_norm(model.features(x) * holds, dim=-1)  # |r| is proportional to 1 / |f|
    order = (negative_log_prior - (int(holds.sum()) - 1) * length.log()).nan_to_num(nan=torch.inf).argsort(1)
    x, length = x.gather(1, order[..., None].expand_as(x)), length.gather(1, order)
    size = (missing * holds).square().sum((-1, -2)).sqrt()[:, None] / length  # |r| = |r f^T| / |f|, (g, candidates)
    x = torch.where((size > noise[:, None])[..., None], x, torch.nan)
    rows = Records(x, y[:, None].expand(-1, x.shape[1], *y.shape[1:]))
    several = x.isfinite().all(-1).sum(1, keepdim=True) > 1
    kept = torch.where(holds, torch.where(several, Kept.SET, Kept.EXACT), Kept.LOST) if model.sparse else None
    return CandidateRows(rows, Records(mean[:, None], y[:, None]), size[:, 0].nan_to_num(nan=0.0), kept)


@dataclass(frozen=True)
class ErrorBars:
    """A predicted size of the error in each feature of each guess, (games, d), in the table's own units."""

    predicted: Tensor  # with the release as it is
    floor: Tensor  # of rounding alone, if the release solved its equation exactly


def leading_equation(fitted: Fitted) -> Stationary | Sums:
    """The equation that is solved: sums hold to rounding, a fitted model only to its solver's tolerance."""
    if fitted.sums:
        return fitted.sums[0]
    if fitted.model is None:
        raise ValueError(f"{fitted.name} publishes neither a linear model nor sums over its rows.")
    return fitted.model


class ErrorScale(NamedTuple):
    """What the errors of all leave-one-out guesses have in common, given the whole table.

    With e what all rows leave unexplained, the adversary sees r' = r - e_0 and G' = r f^T - e, hence
    f' - f = r'^T (e_0 f^T - e) / |r'|^2  exactly. With f measured from the column means m, its size in feature j is
    sqrt(|e_0|^2 s_j^2 + |e_j - e_0 m_j|^2) / |r'|  for a row one deviation s_j away from the mean.
    """

    solver: Tensor  # (d,) times |r'|
    noise: Tensor  # (d,) of rounding, times |r'|
    least: Tensor  # (d,) whatever the residual

    @classmethod
    def of(cls, fitted: Fitted) -> ErrorScale:
        equation = leading_equation(fitted)
        e = gap(equation, fitted.table, fitted.weight)  # (c, d + 1)
        centre, deviation = _feature_moments(equation, fitted)  # (d + 1,) twice
        features = torch.arange(len(centre)) < fitted.table.x.shape[1]
        noise = rounding(equation, fitted.table, fitted.weight, centre * features)
        if isinstance(equation, Stationary):
            scale = equation.scale
            if equation.bias is None:  # no e_0: r' comes from a scalar equation in G'
                e, noise = (torch.cat([part, part.new_zeros(len(part), 1)], 1) for part in (e, noise))
        else:
            scale = torch.ones_like(fitted.table.x[0])
        d = len(scale)
        e = torch.cat([e[:, :d] - e[:, d:] * centre[:d], e[:, d:]], 1)
        squares = (part.square().sum(0) for part in (e, noise))  # (d + 1,): |e_j|^2, and |e_0|^2 last
        solver, floor = ((square[-1] * deviation[:d].square() + square[:-1]).sqrt() * scale for square in squares)
        return cls(solver, floor, torch.finfo(floor.dtype).eps * centre[:d].abs() * scale)

    def bars(self, guess: Guess) -> ErrorBars:
        """The error of each guess, whose confidence is |r'|."""
        size = guess.confidence  # (g, 1)
        floor = self.noise / size + self.least
        if guess.kept is not None:
            floor = torch.where(guess.kept[:, 0] >= Kept.SET, floor, torch.inf)
        return ErrorBars(self.solver / size + floor, floor)


def _feature_moments(equation: Stationary | Sums, fitted: Fitted) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature over all rows, (d + 1,) twice."""

    def features(rows: slice) -> Tensor:
        return equation.factors(fitted.table[rows], fitted.weight[rows])[1]

    n = len(fitted.table)
    mean = torch.stack([features(rows).sum(0) for rows in blocks(fitted.table)]).sum(0) / n
    squares = torch.stack([(features(rows) - mean).square().sum(0) for rows in blocks(fitted.table)]).sum(0)
    return mean, (squares / n).sqrt()
