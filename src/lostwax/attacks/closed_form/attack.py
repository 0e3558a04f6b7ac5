"""Rebuild the one missing row of a linear model's training table in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from lostwax.attacks.closed_form.evidence import CandidateRows, candidates_of, missing_label, solve, with_outside
from lostwax.attacks.closed_form.stored import with_stored
from lostwax.games import (
    AttackFacts,
    Extremes,
    Fitted,
    Guess,
    Hints,
    Knowledge,
    Reconstructor,
    Records,
    Release,
    Stationary,
    Sums,
)
from lostwax.games.cells import Kept
from lostwax.games.fitted import blocks, sums_of_others, uncertain
from lostwax.games.protocols import accepted
from lostwax.learning.costs import Cost, Rate
from lostwax.nets import linear_layer
from lostwax.progress import counted, progress

# Statistics of the rows known in each of n games; the missing row is never used.


def known_moments(table: Records, games: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over the rows known in each game, (games, d) twice.

    Columns are shifted by a row s that is known in the game: in  E[x^2] - E[x]^2  a timestamp would cancel, while
    E[(x - s)^2] - E[x - s]^2  loses at most a share n eps of the spread, since s is one of the n rows.
    """
    mean, spread = (table.x.new_empty(len(games), table.x.shape[1]) for _ in range(2))
    for played, row in (((games == 0).nonzero()[:, 0], 1), (games.nonzero()[:, 0], 0)):
        if not len(played):
            continue
        origin = table.x[min(row, len(table) - 1)]

        def powers(rows: slice, origin: Tensor = origin) -> Tensor:  # (b, 2, d)
            away = table.x[rows] - origin
            return torch.stack([away, away.square()], 1)

        for which, sums in _sums_without(powers, lambda rows: powers(rows).sum(0), len(table), games[played]):
            first, second = (sums / max(1, len(table) - 1)).unbind(1)  # (g, d) twice
            mean[played[which]] = origin + first
            spread[played[which]] = (second - first.square()).clamp_min(0).sqrt()
    return mean, spread if len(table) > 2 else torch.full_like(spread, torch.inf)


def known_label(table: Records, games: Tensor) -> Tensor:
    """The most frequent class of the known rows, or their mean target, (games, ...): a blind guess at the label."""
    y = table.y
    if y.is_floating_point():
        return known_moments(Records(y.reshape(len(y), -1), y), games)[0].reshape(len(games), *y.shape[1:])
    counts = torch.bincount(y) - torch.nn.functional.one_hot(y[games], int(y.max()) + 1)  # (games, classes)
    return counts.argmax(1)


def known_extremes(table: Records, games: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of each column over the rows known in each game, (games, d) twice."""
    return _known_minimum(table, games, 1), -_known_minimum(table, games, -1)


def _known_minimum(table: Records, games: Tensor, sign: int) -> Tensor:
    """Smallest value of sign * x over the rows known in each game: the smallest of all, or else the next one.

    NaN counts as the largest value, so that one in row i does not change game i.
    """
    lowest = table.x.new_full((2, table.x.shape[1]), torch.inf)
    at = torch.full_like(lowest, -1, dtype=torch.long)  # the rows they are in
    for rows in blocks(table):
        lowest, place = torch.cat([lowest, sign * table.x[rows]]).topk(2, dim=0, largest=False)  # (2, d)
        at = torch.where(place < 2, at.gather(0, place.clamp_max(1)), place - 2 + rows.start)
    return torch.where(games[:, None] == at[0], lowest[1], lowest[0])


BLOCK_NUMBERS = 4_000_000  # numbers held at a time: 32 MB in float64
SMALL_NUMBERS = 100_000  # below this one block is quicker


def collected(equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor) -> Tensor:
    """(g, c, d + 1) what the known rows leave of the total in each game i: total - sum_{j != i} row_j."""

    def terms(rows: slice) -> Tensor:
        r, f = equation.factors(table[rows], weight[rows])
        return r[:, :, None] * f[:, None, :]  # (b, c, d + 1)

    def sum_of(rows: slice) -> Tensor:
        r, f = equation.factors(table[rows], weight[rows])
        return r.mT @ f

    total = equation.total()  # (c, d + 1)
    left = weight.new_empty(len(games), *total.shape)
    with progress("known rows subtracted: games", len(games)) as advance:
        for which, sums in _sums_without(terms, sum_of, len(table), games):
            left[which] = total - sums
            advance(len(which))
    return left


def _sums_without(
    terms: Callable[[slice], Tensor], sum_of: Callable[[slice], Tensor], n: int, games: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (games, sums): which games, and for each the sum over all other rows of their `terms`, (b, ...).

    The sum of game i adds the rows before i and those after i. Row i is never added and subtracted again, so it cannot
    leak by rounding: a NaN in row i does not change game i. Rows are processed in blocks: memory does not grow with n.
    `sum_of` is the sum of a block's terms.
    """
    if not n:
        return
    width = max(1, sum_of(slice(0, 1)).numel())
    size = max(math.isqrt(n), SMALL_NUMBERS // width)  # as many blocks as rows per block, or one small block
    size = max(1, min(size, BLOCK_NUMBERS // width))
    parts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    others = sums_of_others(torch.stack([sum_of(block) for block in parts]))  # what all other blocks sum to
    order = games.argsort()  # in the order of rows
    starts = torch.tensor([*(block.start for block in parts), n], device=games.device)
    bounds = torch.searchsorted(games[order], starts).tolist()
    for block, outside, first, last in zip(parts, others, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            which = order[first:last]
            yield which, outside + sums_of_others(terms(block))[games[which] - block.start]


def known_rounding(equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor) -> Tensor:
    """The rounding error in the missing residual r of each game: that of the known rows' residuals, (games,)."""
    known = sums_of_others(uncertain(equation, table, weight))[games]  # (games, c)
    known = torch.finfo(known.dtype).eps * known
    outside = equation.known_rounding if isinstance(equation, Stationary) else None
    size: Tensor = vector_norm(known if outside is None else known + outside, dim=-1)
    return size


DOUBTFUL = 1e6  # times its rounding error: a smaller residual may not give the row
GAMES_NUMBERS = 16_000_000  # numbers held for the games computed at a time: 128 MB in float64


@dataclass(frozen=True)
class ClosedForm:
    """Subtract the known rows from a published sum; what is left is the missing row.

    At the optimum of a linear model  sum_i r_i (f(x_i), 1)^T = total  (`games.fitted`). Subtracting the known rows
    leaves one term of rank one: its last column is the residual r of the missing row, the others are G = r f(x)^T, so
    f(x) = r^T G / |r|^2,  and the residual gives the label (Balle et al. 2022, Theorem 1, with a misprint corrected:
    docs/closed_form.md). Without an intercept there is no last column and the label must be known (their Theorem 8,
    here for all losses). With more features than rows the direction of the weights gives two more candidates, even
    where no residual is left (`ambiguous`).
    """

    def objection(self, knowledge: Knowledge) -> str | None:
        answer = _admit(knowledge)
        return answer if isinstance(answer, str) else None

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Nothing to prepare; nothing is random."""
        answer = _admit(accepted(self, knowledge))
        assert not isinstance(answer, str)
        return answer

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=90)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        return Cost(0.0)

    def leave_one_out(
        self, fitted: Fitted, games: Tensor, hints: Hints | None = None, *, at_optimum: bool = False
    ) -> Guess:
        """Rebuild each row of `games` from one released model and all other rows."""
        labels = None if hints is None else hints.labels
        n, d = fitted.table.x.shape
        shared = 4 if n <= d else 1  # then games share much work, and a table is as large as its guesses
        size = max(1, shared * GAMES_NUMBERS // fitted.numbers_per_game)
        parts = [slice(start, start + size) for start in range(0, len(games), size)]
        guesses = [
            _rebuild(fitted, games[part], None if labels is None else labels[part], at_optimum)
            for part in counted(parts, "closed form: blocks of rows", len(parts))
        ]
        return with_stored(_join(guesses), fitted, games)


@dataclass(frozen=True)
class _Prepared:
    objective: Callable[[Mapping[str, Tensor], int], Stationary]
    known: Records

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        labels = None if hints is None else hints.labels
        models = counted(range(len(release)), "closed form: models", len(release))
        guess = _join([self._one(release[i], None if labels is None else labels[i]) for i in models])
        others = None if guess.alternatives is None else self._shaped(guess.alternatives)
        return Guess(self._shaped(guess.records), guess.confidence, others)

    def _shaped(self, rows: Records) -> Records:
        return Records(rows.x.reshape(*rows.x.shape[:2], *self.known.x.shape[1:]), rows.y)

    def _one(self, params: Mapping[str, Tensor], labels: Tensor | None) -> Guess:
        known = Records(self.known.x.flatten(1).double(), self.known.y)
        unknown = Records(known.x.new_zeros(1, known.x.shape[1]), known.y.new_zeros(1, *known.y.shape[1:]))  # not read
        table, game = Records.together([known, unknown]), torch.tensor([len(known)], device=known.x.device)
        model, ones = self.objective(params, len(table)), known.x.new_ones(len(table))
        return found_by(model, table, ones, game, labels, at_optimum=True).guess()


def _admit(knowledge: Knowledge) -> _Prepared | str:
    """The prepared attack, or why it is not applicable."""
    facts = knowledge.facts
    work = "it solves for one missing record and must know all the others"
    if (sentence := facts.not_one_secret(knowledge.threat, work)) is not None or facts.known is None:
        return str(sentence)
    if not facts.access.all_weights:
        return "it needs the weights themselves, access=Weights()."
    if facts.trainer.objective is None:
        return (
            "it needs weights at the optimum of a known objective, trainer=Optimum(...), "
            f"but the trainer is {type(knowledge.trainer).__name__}, which stops short of it."
        )
    if (layer := linear_layer(knowledge.net)) is None:
        return (
            "it solves one linear layer for its input, and this net is not an nn.Linear "
            "(or nn.Sequential(nn.Flatten(), nn.Linear(...)))."
        )
    if layer.bias is None and not facts.given.labels:
        return (
            "without a bias the label must be known (Balle et al. 2022, Theorem 8). Use Informed(known, "
            "label_known=True), or a layer with a bias."
        )
    if knowledge.prior.features is not None or facts.known.features is not None:
        return "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
    return _Prepared(facts.trainer.objective, facts.known)


def _rebuild(fitted: Fitted, games: Tensor, labels: Tensor | None, at_optimum: bool) -> Guess:
    table, weight, model = fitted.table, fitted.weight, fitted.model
    if model is not None and not fitted.sums:
        candidates = found_by(model, table, weight, games, labels, at_optimum=at_optimum)
        return _with_extremes(candidates.guess(), fitted, games)
    mean = known_moments(table, games)[0]  # (g, d)
    if fitted.sums:  # exact to rounding, a model only to its solver's tolerance
        left = None if model is None else collected(model, table, weight, games)  # (g, c, d + 1)
        shares = [collected(sums, table, weight, games) for sums in fitted.sums]  # (g, groups, d + 1) each
        x, size = solve(shares[0], weight.new_zeros(len(games)))
        x = torch.where(x.isnan(), mean, x)
        by_label = [share for share, sums in zip(shares, fitted.sums, strict=True) if sums.by_label]
        if by_label:
            label = by_label[-1][..., -1].argmax(-1)  # naive Bayes: the class with one row missing
        elif model is not None and left is not None:
            label = missing_label(model, left, x, weight[games])
        else:
            label = known_label(table, games)
        return Guess(Records(x[:, None], label[:, None]), size[:, None])
    if not fitted.extremes and not fitted.stored:
        raise ValueError(f"ClosedForm: {fitted.name} publishes neither a linear model nor sums over its rows.")
    guess = Guess(Records(mean[:, None], known_label(table, games)[:, None]), mean.new_zeros(len(games), 1))
    return _with_extremes(guess, fitted, games)


def found_by(
    model: Stationary,
    table: Records,
    weight: Tensor,
    games: Tensor,
    labels: Tensor | None,
    *,
    at_optimum: bool = False,
) -> CandidateRows:
    """The candidates for the missing row of each game that a linear model gives."""
    mean, spread = known_moments(table, games)  # (g, d) twice: the known rows are the prior
    left = collected(model, table, weight, games)  # (g, c, d + 1)
    noise = known_rounding(model, table, weight, games)
    candidates = candidates_of(model, left, labels, weight[games], mean, spread, noise)
    # at the optimum the equation gives the row, except where its residual is near rounding
    doubtful = (candidates.size < DOUBTFUL * noise) | candidates.lost() if at_optimum else None
    return with_outside(candidates, model, table, games, mean, labels, doubtful)


def extreme_values(extremes: Extremes, table: Records, games: Tensor) -> Tensor:
    """(g, d) an extreme that no known row reaches belongs to the missing row; NaN elsewhere."""
    low, high = known_extremes(table, games)
    x = torch.where(extremes.low < low, extremes.low, torch.nan)
    return torch.where(extremes.high > high, extremes.high, x)


def _with_extremes(guess: Guess, fitted: Fitted, games: Tensor) -> Guess:
    for extremes in fitted.extremes:
        x = extreme_values(extremes, fitted.table, games)[:, None]
        others = None if guess.alternatives is None else _with_values(guess.alternatives, x)
        kept = None if guess.kept is None else torch.where(x.isnan(), guess.kept, Kept.EXACT)
        guess = replace(guess, records=_with_values(guess.records, x), alternatives=others, kept=kept)
    return guess


def _with_values(rows: Records, x: Tensor) -> Records:
    """The rows, with the values of x (g, 1, d) that are known."""
    return Records(torch.where(x.isnan(), rows.x, x), rows.y)


def _join(parts: Sequence[Guess]) -> Guess:
    """Concatenate guesses; missing candidates are NaN."""
    others = [part.records if part.alternatives is None else part.alternatives for part in parts]
    most = max(rows.x.shape[1] for rows in others)

    def padded(rows: Records) -> Records:
        missing = most - rows.x.shape[1]
        x = torch.cat([rows.x, rows.x[:, :1].expand(-1, missing, *rows.x.shape[2:]) * torch.nan], 1)
        return Records(x, torch.cat([rows.y, rows.y[:, :1].expand(-1, missing, *rows.y.shape[2:])], 1))

    kept = [part.kept for part in parts if part.kept is not None]
    return Guess(
        Records.together([part.records for part in parts]),
        torch.cat([part.confidence for part in parts]),
        Records.together(list(map(padded, others))) if most > 1 else None,
        kept=torch.cat(kept) if kept else None,
    )
