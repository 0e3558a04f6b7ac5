"""What the adversary is given besides the release, and what follows for baselines and errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Hints, Records
from lostwax.seeds import generator

RIDGE = 1e-3  # of the given numbers' variance, where the others are predicted from them
MOST_ROWS = 10_000  # of the prior for that
PENALTIES = 1e-7, 0.1  # of the mean square of a row, where targets are predicted from the other columns
FEWEST_KNOWN, MOST_KNOWN = 100, 500  # rows for that
MOST_PRODUCTS = 2_000_000_000  # of numbers of rows that are compared for that


def in_words(hints: Hints | None) -> str:
    """The end of the sentence "Informed adversary, knows 300 of 301 records"."""
    hints, given = hints or Hints(), []
    if hints.labels is not None:
        given.append("the labels of the secrets")
    if hints.parts is not None:
        given.append(_share(hints.parts))
    if hints.candidates is not None:
        given.append(f"{hints.candidates.x.shape[1]} candidates for each")
    return "".join(f", and {what}" for what in given)


def notes(hints: Hints | None) -> tuple[str, ...]:
    """How the numbers are to be read."""
    given = []
    if hints is not None and hints.parts is not None:
        given.append(f"{_share(hints.parts)} are given to the adversary: errors are over the others.")
    right = chance(hints)
    if hints is not None and hints.candidates is not None and right is not None:
        count = hints.candidates.x.shape[1]
        given.append(f"guessing among the {count} candidates is right in {100 * right:.3g} % of games.")
    return tuple(given)


def chance(hints: Hints | None, groups: NDArray[np.int64] | None = None) -> float | None:
    """How often the best guess among the candidates is right; None where there are none.

    Games of one group (m,), such as those for equal secrets, count as one, as they do among the games won.
    """
    if hints is None or hints.candidates is None:
        return None
    if hints.chances is None and hints.labels is None:
        return 1 / hints.candidates.x.shape[1]
    chances = _chances(hints, hints.candidates)
    right = (chances.amax(1) / chances.sum(1)).numpy()  # (m,) of naming the likeliest
    if groups is None:
        return float(right.mean())
    _, group, size = np.unique(groups, return_inverse=True, return_counts=True)
    return float((right / size[group]).sum() / len(size))


def likeliest_candidate(hints: Hints | None) -> Tensor | None:
    """(games, ...) the best guess among the candidates without a release; they are dealt in no order."""
    if hints is None or hints.candidates is None:
        return None
    best = _chances(hints, hints.candidates).argmax(1)
    return hints.candidates.x.double().cpu()[torch.arange(len(best)), best]


def _chances(hints: Hints, candidates: Records) -> Tensor:
    """(m, c) how likely each candidate is, up to a factor per game, given the hints."""
    y = candidates.y
    chances = torch.ones(y.shape[:2]) if hints.chances is None else hints.chances  # (m, c)
    chances = chances.double().cpu()
    if hints.labels is not None:  # a candidate of another label is out
        chances = chances * (y == hints.labels).view(*y.shape[:2], -1).all(2).cpu()
    return chances


def unknown(hints: Hints | None) -> Tensor | None:
    """(...) of a record's shape: which numbers the adversary is not given; None: all."""
    return None if hints is None or hints.parts is None else hints.parts[0, 0].isnan().cpu()


def class_means(prior: Records, labels: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
    """(n, ...) for each label the mean of the prior's records with it; of all where it has none."""
    x, y, every = prior.x.double().cpu(), prior.y.cpu(), torch.unique(labels).tolist()
    of = {label: mean(x[y == label]) if bool((y == label).any()) else mean(x) for label in every}
    return torch.stack([of[label] for label in labels.tolist()])


def predicted_from_parts(truth: Tensor, prior: Tensor, unknown: Tensor) -> Tensor:
    """(n, ...) the given numbers of the secrets, and the others as ridge regression on the prior predicts them."""
    mask, rows, wanted = unknown.flatten(), prior.flatten(1).double(), truth.flatten(1).double()
    filled = wanted.clone()
    filled[:, mask] = _regressed(rows[:, ~mask], rows[:, mask], wanted[:, ~mask])
    return filled.reshape(truth.shape)


def predicted_from_label(prior: Records, truth: Records) -> Tensor:
    """(n, ...) the records that ridge regression on the prior predicts from real-valued labels."""
    given, asked = (part.y.double().cpu().reshape(len(part), -1) for part in (prior, truth))
    return _regressed(given, prior.x.double().cpu().flatten(1), asked).reshape(truth.x.shape)


def targets_without_model(table: Records, features: Tensor, games: Tensor, nearest: Tensor) -> list[Tensor]:
    """Guesses at the targets of some rows, (g, ...) each, from their other columns and all other rows.

    The most frequent target, that of the `nearest` other row (g,), and those of ridge regressions on `features` (n, D).
    """
    columns = []  # the most frequent value of each target in all rows except the game's own
    for column in table.y.reshape(len(table), -1).unbind(1):
        values, place, number = torch.unique(column, return_inverse=True, return_counts=True)
        often, which = number.topk(min(2, len(values)))
        own_is_first = (place[games] == which[0]) & (often[0] - 1 < often[-1])
        columns.append(values[torch.where(own_is_first, which[-1], which[0])])
    frequent = torch.stack(columns, 1).reshape(len(games), *table.y.shape[1:])
    return [frequent, table.y[nearest], *_by_ridge(table.y, features, games)]


def _by_ridge(y: Tensor, features: Tensor, games: Tensor) -> list[Tensor]:
    """(g, ...) for each penalty what ridge regression on (some of) the other rows predicts."""
    features = features.double().nan_to_num()
    features = torch.cat([features - features.mean(0), features.new_ones(len(features), 1)], 1)  # (n, D + 1)
    targets = y.double().reshape(len(y), -1) if y.is_floating_point() else torch.nn.functional.one_hot(y).double()
    wanted = MOST_PRODUCTS // (len(games) * features.shape[1])
    known = torch.from_numpy(generator(0, "targets").permutation(len(y))[: max(FEWEST_KNOWN, min(MOST_KNOWN, wanted))])
    place = torch.full((len(y),), -1)
    place[known] = torch.arange(len(known))
    rows, centre = features[known], targets[known].mean(0)
    products, unit = rows @ rows.mT, torch.eye(len(known), dtype=rows.dtype)
    guesses = []
    for penalty in PENALTIES:
        inverse = torch.linalg.inv(products + penalty * products.diagonal().mean() * unit)
        weights = inverse @ (targets[known] - centre)  # (k, t)
        predicted = centre + features[games] @ (rows.mT @ weights)
        own = place[games]  # of a row that is one of those, the prediction without it
        without = targets[games] - weights[own] / inverse.diagonal()[own, None]
        predicted = torch.where((own >= 0)[:, None], without, predicted)
        guesses.append(predicted.reshape(len(games), *y.shape[1:]) if y.is_floating_point() else predicted.argmax(1))
    return guesses


def _regressed(given: Tensor, wanted: Tensor, asked: Tensor) -> Tensor:
    """(n, v) what rows of `given` (N, u) and `wanted` (N, v) predict for `asked` (n, u)."""
    given, wanted = given[:MOST_ROWS], wanted[:MOST_ROWS]
    centre, target = given.mean(0), wanted.mean(0)
    scale = (given - centre).square().mean(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    features = (given - centre) / scale  # (N, u)
    gram = features.mT @ features / len(given) + RIDGE * torch.eye(features.shape[1], dtype=features.dtype)
    weights = torch.linalg.solve(gram, features.mT @ (wanted - target) / len(given))  # (u, v)
    predicted: Tensor = target + ((asked - centre) / scale) @ weights
    return predicted


def _share(parts: Tensor) -> str:
    one = parts[0, 0]
    return f"{int((~one.isnan()).sum())} of the {one.numel()} numbers of each secret"
