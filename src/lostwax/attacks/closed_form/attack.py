"""Rebuild the one missing row of a linear model's training table in closed form (S1 section III, corrected)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.access import Weights
from lostwax.attacks.closed_form.intercept_free import candidates
from lostwax.attacks.closed_form.known_rows import known_extremes, known_moments, moments
from lostwax.attacks.closed_form.missing_row import known_rounding, missing_rows
from lostwax.attacks.one_secret import several_secrets
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
    its like for other losses.
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
        equation = fitted.model if fitted.model is not None else fitted.sums[0]
        size = max(1, GAMES_NUMBERS // equation.total().numel())
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
        if model.bias is None:
            return _without_intercept(model, left, labels, ones[:1], mean, spread)
        return _with_intercept(model, left, ones[:1], mean, torch.finfo(r.dtype).eps * r.abs().sum(0).norm()[None])


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


def _rebuild(fitted: Fitted, games: Tensor, labels: Tensor | None) -> Guess:
    table, weight, model = fitted.table, fitted.weight, fitted.model
    mean, spread = known_moments(table, games)  # (g, d) twice: the prior, made of the known rows
    left = None if model is None else _collect(model, table, weight, games)  # (g, c, d + 1)
    if fitted.sums:  # they hold to rounding, where a model holds only as far as its solver went
        shares = [_collect(sums, table, weight, games) for sums in fitted.sums]  # (g, groups, d + 1) each
        x, size = _solve(shares[0], mean, weight.new_zeros(len(games)))
        if model is None or left is None:
            label = shares[-1][..., -1].argmax(-1)  # naive Bayes: the class that is one short
        else:
            label = _label(model, left, x, weight[games])
        return Guess(Records(x[:, None], label[:, None]), size[:, None])
    if model is None or left is None:
        raise ValueError(f"ClosedForm: {fitted.name} publishes neither a linear model nor sums over its rows.")
    if model.bias is None:
        guess = _without_intercept(model, left, labels, weight[games], mean, spread)
    else:
        noise = known_rounding(model, table, weight, games)
        guess = _with_intercept(model, left, weight[games], mean, noise)
    return _with_extremes(guess, fitted, games)


def _with_extremes(guess: Guess, fitted: Fitted, games: Tensor) -> Guess:
    """An extreme that no known row reaches is the missing row's."""
    x = guess.records.x[:, 0]
    for extreme in fitted.extremes:
        low, high = known_extremes(fitted.table, games)
        x = torch.where(extreme.low < low, extreme.low, x)
        x = torch.where(extreme.high > high, extreme.high, x)
    return Guess(Records(x[:, None], guess.records.y), guess.confidence, guess.alternatives)


def _join(parts: Sequence[Guess]) -> Guess:
    """Guesses at some games and at others, as one."""
    others = [part.alternatives for part in parts if part.alternatives is not None]
    return Guess(
        _stack([part.records for part in parts]),
        torch.cat([part.confidence for part in parts]),
        _stack(others) if others else None,
    )


def _stack(parts: Sequence[Records]) -> Records:
    return Records(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _collect(equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor) -> Tensor:
    parts = list(missing_rows(equation, table, weight, games))
    order = torch.cat([which for which, _ in parts]).argsort()
    return torch.cat([missing for _, missing in parts])[order]


def _solve(missing: Tensor, blind: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """x = r^T G / |r|^2 and |r|; a row whose trace r is lost in rounding `noise` is guessed blind."""
    r, gradient = missing[..., -1], missing[..., :-1]  # (g, c), (g, c, d)
    size = r.norm(dim=-1)  # (g,)
    x = torch.einsum("gc,gcd->gd", r, gradient) / size[:, None].square()
    seen = (size > noise) & x.isfinite().all(-1)
    return torch.where(seen[:, None], x, blind), size


def _with_intercept(model: Stationary, missing: Tensor, weight: Tensor, mean: Tensor, noise: Tensor) -> Guess:
    features, size = _solve(missing, model.features(mean), noise)
    x = features * model.scale + model.shift
    return Guess(Records(x[:, None], _label(model, missing, x, weight)[:, None]), size[:, None])


def _label(model: Stationary, missing: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The label whose residual at x is the missing one."""
    if model.bias is not None:
        residual = missing[..., -1]  # (g, c)
    else:
        f = model.features(x)  # missing = r f^T, so r = missing f / |f|^2
        residual = torch.einsum("gcd,gd->gc", missing, f) / f.square().sum(-1, keepdim=True)
    return model.loss.label(model.outputs(x), residual / weight[:, None])


def _without_intercept(
    model: Stationary, missing: Tensor, labels: Tensor | None, weight: Tensor, mean: Tensor, spread: Tensor
) -> Guess:
    if labels is None:
        raise ValueError(
            "ClosedForm: a model without an intercept can be solved only by an adversary who knows the label "
            "(S1 Theorem 8). Pass hints=Hints(labels=...), or fit with an intercept."
        )
    y = labels.reshape(len(missing), *labels.shape[2:]) if labels.ndim > 1 else labels
    found = candidates(model, missing, y, weight) * model.scale + model.shift  # (g, candidates, d)
    # Which is likelier? The prior is made of the known rows; and x -> r(x) x has a Jacobian of size |r|^(d - 1): of the
    # records that explain the same gradient, those with a small residual r fill more of the space of records.
    surprise = ((found - mean[:, None]) / spread[:, None].clamp_min(1e-12)).square().sum(-1) / 2  # (g, candidates)
    length = torch.linalg.vector_norm(model.features(found), dim=-1)  # |r| is proportional to 1 / |f|
    order = (surprise - (found.shape[-1] - 1) * length.log()).nan_to_num(nan=torch.inf).argsort(1)
    found = found.gather(1, order[..., None].expand_as(found))
    x = torch.where(found[:, 0].isfinite().all(-1, keepdim=True), found[:, 0], mean)
    f = model.features(x)
    size = missing.square().sum((-1, -2)).sqrt() / f.square().sum(-1).sqrt().clamp_min(1e-300)  # |r| = |r f^T| / |f|
    rows = Records(found, y[:, None].expand(-1, found.shape[1], *y.shape[1:]))
    return Guess(Records(x[:, None], y[:, None]), size[:, None], alternatives=rows)
