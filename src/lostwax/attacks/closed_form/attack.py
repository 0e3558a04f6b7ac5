"""Rebuild the one missing row of a linear model's training table in closed form (S1 section III, corrected)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.access import Weights
from lostwax.attacks.closed_form.intercept_free import candidates
from lostwax.attacks.closed_form.known_rows import known_extremes, known_label, known_moments, moments
from lostwax.attacks.closed_form.missing_row import known_rounding, missing_rows
from lostwax.attacks.closed_form.outside_span import outside_candidates
from lostwax.attacks.one_secret import several_secrets
from lostwax.equations import uncertain
from lostwax.nets.linear import linear_layer
from lostwax.threats import Informed
from lostwax.trainers.optimum import Optimum
from lostwax.types import Fitted, Guess, Hints, Knowledge, Reconstructor, Records, Release, Stationary, Sums

GAMES_NUMBERS = 16_000_000  # numbers held for the games played at a time: 128 MB in float64


@dataclass(frozen=True)
class ClosedForm:
    """Subtract the known rows from a published sum; what is left is the missing row.

    At the optimum of a linear model  sum_i r_i (f(x_i), 1)^T = total  (`types.fitted`). With the known rows
    subtracted, one term of rank one is left: its last column is the residual r of the missing row, its other columns
    G = r f(x)^T, so  f(x) = r^T G / |r|^2,  and the residual gives the label (whose formula in Theorem 1 is misprinted:
    docs/closed_form.md). Without an intercept the last column is missing and the label must be known: Theorem 8, and
    its like for other losses. With more features than rows the direction of the weights gives two more candidates, also
    where no residual is left (`outside_span`).
    """

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        answer = _admit(knowledge)
        return answer if isinstance(answer, str) else None

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Nothing needs preparing, and nothing is random."""
        answer = _admit(knowledge)
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer

    def leave_one_out(self, fitted: Fitted, games: Tensor, hints: Hints | None = None) -> Guess:
        """One released model, one adversary a row: rebuild each row of `games` from the model and all other rows."""
        labels = None if hints is None else hints.labels
        size = max(1, GAMES_NUMBERS // _numbers(fitted))
        parts = [
            _rebuild(fitted, games[start : start + size], None if labels is None else labels[start : start + size])
            for start in range(0, len(games), size)
        ]
        return _join(parts)

    @classmethod
    def examples(cls) -> tuple[ClosedForm, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class _Prepared:
    trainer: Optimum
    known: Records

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        labels = None if hints is None else hints.labels
        guess = _join([self._one(release[i], None if labels is None else labels[i]) for i in range(len(release))])
        others = None if guess.alternatives is None else self._shaped(guess.alternatives)
        return Guess(self._shaped(guess.records), guess.confidence, others)

    def _shaped(self, rows: Records) -> Records:
        """Flat rows in the shape of the known records."""
        return Records(rows.x.reshape(*rows.x.shape[:2], *self.known.x.shape[1:]), rows.y)

    def _one(self, params: Mapping[str, Tensor], labels: Tensor | None) -> Guess:
        known = Records(self.known.x.flatten(1).double(), self.known.y)
        model = self.trainer.objective(params, len(known) + 1)
        ones = known.x.new_ones(len(known))
        r, f = model.factors(known, ones)
        left = (model.total() - r.mT @ f)[None]
        mean, spread = moments(known)  # (1, d) twice
        noise = torch.finfo(r.dtype).eps * uncertain(model, known, ones).sum(0).norm()[None]
        if model.bias is None:
            found = _without_intercept(model, left, labels, ones[:1], mean, spread, noise)
        else:
            found = _with_intercept(model, left, ones[:1], mean, noise)
        if found.lost().any():
            table = Records(torch.cat([known.x, mean]), torch.cat([known.y, known.y[:1]]))  # the last row is not used
            last = torch.tensor([len(known)])
            found = _with_outside(found, model, table, last, mean, labels) if len(known) else found
        return found.guess()


def _admit(knowledge: Knowledge) -> _Prepared | str:
    """The prepared attack, or the sentence that says why there can be none."""
    refusal = "ClosedForm cannot play this game: "
    if not isinstance(knowledge.threat, Informed):
        return refusal + (
            "it solves for one missing record and must know all the others, "
            f"but the adversary is {type(knowledge.threat).__name__}."
        )
    if (several := several_secrets("ClosedForm", knowledge)) is not None:
        return several
    if not isinstance(knowledge.access, Weights):
        return refusal + "it needs the weights themselves, access=Weights()."
    if not isinstance(knowledge.trainer, Optimum):
        return refusal + (
            "it needs weights at the optimum of a known objective, trainer=Optimum(...), "
            f"but the trainer is {type(knowledge.trainer).__name__}, which stops short of it."
        )
    if (layer := linear_layer(knowledge.net)) is None:
        return refusal + (
            "it solves one linear layer for its input, and this net is not an nn.Linear "
            "(or nn.Sequential(nn.Flatten(), nn.Linear(...)))."
        )
    if layer.bias is None and not knowledge.threat.label_known:
        return refusal + (
            "without a bias the label must be known (S1 Theorem 8). Use Informed(known, label_known=True), "
            "or a layer with a bias."
        )
    if knowledge.prior.features is not None or knowledge.threat.known.features is not None:
        return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
    return _Prepared(knowledge.trainer, knowledge.threat.known)


def _numbers(fitted: Fitted) -> int:
    """How many a game takes."""
    widths = [fitted.table.x.shape[1], *(sums.total().numel() for sums in fitted.sums)]
    return max(widths if fitted.model is None else [*widths, fitted.model.total().numel()])


def _rebuild(fitted: Fitted, games: Tensor, labels: Tensor | None) -> Guess:
    table, weight, model = fitted.table, fitted.weight, fitted.model
    mean, spread = known_moments(table, games)  # (g, d) twice: the prior, made of the known rows
    left = None if model is None else _collect(model, table, weight, games)  # (g, c, d + 1)
    if fitted.sums:  # they hold to rounding, where a model holds only as far as its solver went
        shares = [_collect(sums, table, weight, games) for sums in fitted.sums]  # (g, groups, d + 1) each
        x, size = _solve(shares[0], weight.new_zeros(len(games)))
        x = torch.where(x.isnan(), mean, x)
        if model is not None and left is not None:
            label = _label(model, left, x, weight[games])
        elif fitted.sums[-1].by_label:
            label = shares[-1][..., -1].argmax(-1)  # naive Bayes: the class that is one short
        else:
            label = known_label(table, games)
        return Guess(Records(x[:, None], label[:, None]), size[:, None])
    if model is None or left is None:
        if not fitted.extremes:
            raise ValueError(f"ClosedForm: {fitted.name} publishes neither a linear model nor sums over its rows.")
        guess = Guess(Records(mean[:, None], known_label(table, games)[:, None]), mean.new_zeros(len(games), 1))
        return _with_extremes(guess, fitted, games)
    noise = known_rounding(model, table, weight, games)
    if model.bias is None:
        found = _without_intercept(model, left, labels, weight[games], mean, spread, noise)
    else:
        found = _with_intercept(model, left, weight[games], mean, noise)
    return _with_extremes(_with_outside(found, model, table, games, mean, labels).guess(), fitted, games)


class _Found(NamedTuple):
    """What explains the release in each game, likeliest first."""

    candidates: Records  # (g, candidates, ...), NaN where there is none
    blind: Records  # (g, 1, ...) for games without any
    size: Tensor  # (g,) |r|

    def guess(self) -> Guess:
        """The first candidate of each game; all of them as alternatives, where there may be several."""
        x, y = self.candidates.x, self.candidates.y
        usable = x.isfinite().all(-1)  # (g, candidates)
        at = (torch.arange(len(x), device=x.device), usable.double().argmax(1))  # the first of the largest
        some = usable.any(1)
        rows = Records(
            torch.where(some[:, None, None], x[at][:, None], self.blind.x),
            torch.where(some.reshape(-1, *[1] * (y.ndim - 1)), y[at][:, None], self.blind.y),
        )
        return Guess(rows, self.size[:, None], self.candidates if x.shape[1] > 1 else None)

    def lost(self) -> Tensor:
        """(g,) whether the likeliest has no trace in the gradient beyond rounding."""
        return self.candidates.x[:, 0].isnan().any(-1)


def _with_outside(
    found: _Found, model: Stationary, table: Records, games: Tensor, mean: Tensor, labels: Tensor | None
) -> _Found:
    """With more features than rows, two more candidates from the direction of the weights (`outside_span`)."""
    outside = outside_candidates(model, table, games, mean)
    if outside is None:
        return found
    x, outputs = outside.x, model.outputs(outside.x)  # (g, 2, d), (g, 2, c)
    y = model.loss.label(outputs, torch.zeros_like(outputs) if table.y.is_floating_point() else outside.residual)
    if labels is not None:  # the sign that suits the label comes first
        y = labels.reshape(len(games), 1, *table.y.shape[1:]).expand_as(y)
        losses = model.loss(outputs.flatten(0, 1), y.flatten(0, 1)).reshape(len(games), 2)
        x = x.gather(1, losses.nan_to_num(nan=torch.inf).argsort(1)[..., None].expand_as(x))
    candidates = _stack([found.candidates, Records(x, y)], 1)
    width = candidates.x.shape[1]
    # they come last, but first where the likeliest of the others has no trace in the gradient
    order = torch.arange(width, device=x.device).roll(2).expand(len(games), -1)
    order = torch.where(found.lost()[:, None], order, torch.arange(width, device=x.device))
    games_first = torch.arange(len(games), device=x.device)[:, None]
    return found._replace(candidates=Records(candidates.x[games_first, order], candidates.y[games_first, order]))


def _with_extremes(guess: Guess, fitted: Fitted, games: Tensor) -> Guess:
    """An extreme that no known row reaches is the missing row's."""
    low, high = (part[:, None] for part in known_extremes(fitted.table, games))

    def replaced(rows: Records) -> Records:
        x = rows.x
        for extreme in fitted.extremes:
            x = torch.where(extreme.low < low, extreme.low, x)
            x = torch.where(extreme.high > high, extreme.high, x)
        return Records(x, rows.y)

    others = None if guess.alternatives is None else replaced(guess.alternatives)
    return Guess(replaced(guess.records), guess.confidence, others)


def _join(parts: Sequence[Guess]) -> Guess:
    """Guesses at some games and at others, as one; those with fewer candidates get empty ones."""
    others = [part.records if part.alternatives is None else part.alternatives for part in parts]
    most = max(rows.x.shape[1] for rows in others)
    return Guess(
        _stack([part.records for part in parts]),
        torch.cat([part.confidence for part in parts]),
        _stack([_padded(rows, most) for rows in others]) if most > 1 else None,
    )


def _padded(rows: Records, most: int) -> Records:
    """(g, candidates, ...) with NaN records up to so many."""
    missing = most - rows.x.shape[1]
    x = torch.cat([rows.x, rows.x[:, :1].expand(-1, missing, *rows.x.shape[2:]) * torch.nan], 1)
    return Records(x, torch.cat([rows.y, rows.y[:, :1].expand(-1, missing, *rows.y.shape[2:])], 1))


def _stack(parts: Sequence[Records], axis: int = 0) -> Records:
    return Records(torch.cat([part.x for part in parts], axis), torch.cat([part.y for part in parts], axis))


def _collect(equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor) -> Tensor:
    parts = list(missing_rows(equation, table, weight, games))
    order = torch.cat([which for which, _ in parts]).argsort()
    return torch.cat([missing for _, missing in parts])[order]


def _solve(missing: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """x = r^T G / |r|^2 and |r|; NaN for a row whose trace r is lost in rounding `noise`."""
    r, gradient = missing[..., -1], missing[..., :-1]  # (g, c), (g, c, d)
    size = r.norm(dim=-1)  # (g,)
    x = torch.einsum("gc,gcd->gd", r, gradient) / size[:, None].square()
    seen = (size > noise) & x.isfinite().all(-1)
    return torch.where(seen[:, None], x, torch.nan), size


def _with_intercept(model: Stationary, missing: Tensor, weight: Tensor, mean: Tensor, noise: Tensor) -> _Found:
    features, size = _solve(missing, noise)
    x = features * model.scale + model.shift
    rows, blind = (Records(part[:, None], _label(model, missing, part, weight)[:, None]) for part in (x, mean))
    return _Found(rows, blind, size)


def _label(model: Stationary, missing: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The label whose residual at x is the missing one."""
    if model.bias is not None:
        residual = missing[..., -1]  # (g, c)
    else:
        f = model.features(x)  # missing = r f^T, so r = missing f / |f|^2
        residual = torch.einsum("gcd,gd->gc", missing, f) / f.square().sum(-1, keepdim=True)
    return model.loss.label(model.outputs(x), residual / weight[:, None])


def _without_intercept(
    model: Stationary,
    missing: Tensor,
    labels: Tensor | None,
    weight: Tensor,
    mean: Tensor,
    spread: Tensor,
    noise: Tensor,
) -> _Found:
    if labels is None:
        raise ValueError(
            "ClosedForm: a model without an intercept can be solved only by an adversary who knows the label "
            "(S1 Theorem 8). Pass hints=Hints(labels=...), or fit with an intercept."
        )
    y = labels.reshape(len(missing), *labels.shape[2:]) if labels.ndim > 1 else labels
    found = candidates(model, missing, y, weight) * model.scale + model.shift  # (g, candidates, d)
    # Which is likelier? The prior is made of the known rows; and x -> r(x) x has a Jacobian of size |r|^(d - 1): of the
    # records that explain the same gradient, those with a small residual r fill more of the space of records.
    unit = (spread + 1e-12 * mean.abs()).clamp_min(torch.finfo(spread.dtype).tiny)[:, None]
    surprise = ((found - mean[:, None]) / unit).square().sum(-1) / 2  # (g, candidates)
    length = torch.linalg.vector_norm(model.features(found), dim=-1)  # |r| is proportional to 1 / |f|
    order = (surprise - (found.shape[-1] - 1) * length.log()).nan_to_num(nan=torch.inf).argsort(1)
    found, length = found.gather(1, order[..., None].expand_as(found)), length.gather(1, order)
    size = missing.square().sum((-1, -2)).sqrt()[:, None] / length  # |r| = |r f^T| / |f|, (g, candidates)
    found = torch.where((size > noise[:, None])[..., None], found, torch.nan)
    rows = Records(found, y[:, None].expand(-1, found.shape[1], *y.shape[1:]))
    return _Found(rows, Records(mean[:, None], y[:, None]), size[:, 0].nan_to_num(nan=0.0))
