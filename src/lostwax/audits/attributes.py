"""Which value has a secret record in one column, if all its other cells and its label are known?

Candidates differ in that column alone. Columns are correlated, so naming the value often is no leak yet: the attack is
compared with itself, given the model of another game, and with a prediction from the other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from torch import Tensor, nn

from lostwax.adapters.sklearn.refitting import Estimator, Refits, SealedEstimator
from lostwax.attacks.membership import LikeliestRefit
from lostwax.audits.procedure import trained
from lostwax.games import Access, Cohort, Columns, Engine, Hints, Informed, Knowledge, Note, Records, Topic
from lostwax.learning.candidates import side_by_side
from lostwax.seeds import generator

COLUMNS = 3  # that are tried, the first ones of categories
VALUES = 6  # of a column, at most
GAMES = 30  # at most


class Inferred(NamedTuple):
    """What came of the games about one column."""

    column: str
    games: int
    right: int  # the value is named, given the game's own model
    swapped: int  # ... another game's
    predicted: int  # ... none, only the other columns
    pairs: tuple[int, int]  # games won with the own model only, with the other only

    @property
    def chance(self) -> float:
        """The probability of as many pairs in favour of the own model, if either is as likely."""
        won, lost = self.pairs
        return 1.0 if won == 0 else float(bdtrc(won - 1, won + lost, 0.5))

    def note(self) -> Note:
        """For the report."""
        return Note(str(self), Topic.ATTRIBUTE, self.column, (self.right, self.games))

    def __str__(self) -> str:
        return (
            f"Attribute inference of {self.column}: to somebody who knows all other rows and cells, the value is named "
            f"in {self.right} of {self.games} games; given another game's model in {self.swapped}, and predicted from "
            f"the other columns in {self.predicted} (p = {self.chance:.2g})."
        )


@dataclass(frozen=True, eq=False)
class InferenceRows:
    """The rows of an audit: in the owner's units, as cells, and as numbers."""

    estimator: Estimator
    cells: Records
    columns: Columns
    encode: Callable[[Tensor], Tensor]
    known: Tensor
    examples: Tensor
    secrets: Tensor

    def guessable(self) -> tuple[int, ...]:
        """The columns of categories that can be changed: those of a data frame."""
        X, found = self.estimator.X, []
        for column, values in enumerate(self.columns.categories):
            if hasattr(X, "iloc") and 2 <= len(values) <= VALUES and self.columns.names[column] in X.columns:
                found += [column] if len(self._codes(column)) > 1 else []
        return tuple(found[:COLUMNS])

    def fits(self, column: int, repeats: int) -> int:
        """How many models are fitted for a column."""
        return min(len(self.secrets), GAMES) * len(self._codes(column)) * (repeats + 1)

    def _codes(self, column: int) -> Tensor:
        """(v,) the values of a column that known rows have."""
        known = self.cells.x[self.known, column]
        codes: Tensor = torch.unique(known[~known.isnan()])
        return codes

    def games(self, column: int) -> _Games:
        """Each secret beside its copies with other values in the column, as rows after those of the table."""
        codes, cells = self._codes(column), self.cells.x[self.secrets, column]
        secrets = self.secrets[torch.isin(cells, codes)][:GAMES]
        own = torch.searchsorted(codes, self.cells.x[secrets, column].contiguous())  # (s,)
        copies = secrets.repeat_interleave(len(codes))  # (s v,)
        x = self.cells.x[copies].clone()
        x[:, column] = codes.repeat(len(secrets))
        numbers = torch.arange(len(copies)) + len(self.cells)
        changed = Records(self.encode(x), self.cells.y[copies], numbers.double().unsqueeze(1))
        values = [self.columns.categories[column][int(code)] for code in codes.repeat(len(secrets))]
        estimator = _extended(self.estimator, copies.numpy(), self.columns.names[column], values, numbers.numpy())
        candidates = changed[torch.arange(len(copies)).view(len(secrets), -1)]  # (s, v, ...)
        return _Games(estimator, candidates, own, self._predicted(column, codes, secrets))

    def _predicted(self, column: int, codes: Tensor, secrets: Tensor) -> Tensor:
        """(s, v) the chance of each value, by a regression on the other columns and the label."""
        x = self.cells.x.clone()
        x[:, column] = torch.nan
        y = self.cells.y
        labels = y.reshape(len(y), -1).double() if y.is_floating_point() else torch.nn.functional.one_hot(y).double()
        scale = labels.std(0, correction=0)
        features = torch.cat([self.encode(x), labels / torch.where(scale > 0, scale, 1.0)], 1)
        rows = torch.cat([self.known, self.examples])
        rows = rows[torch.isin(self.cells.x[rows, column], codes)]
        model = LogisticRegression(max_iter=1_000).fit(features[rows].numpy(), self.cells.x[rows, column].numpy())
        return torch.from_numpy(model.predict_proba(features[secrets].numpy()))


class _Games(NamedTuple):
    estimator: Estimator
    candidates: Records  # (s, v, ...)
    own: Tensor  # (s,) which of them is the secret
    chances: Tensor  # (s, v)


def infer(
    table: InferenceRows,
    column: int,
    *,
    trainer: Callable[[SealedEstimator], Refits],
    access: Access,
    repeats: int,
    seed: int,
    engine: Engine | None = None,
) -> Inferred:
    """Fit a victim on each secret, and name its value in the column."""
    estimator, candidates, own, chances = table.games(column)
    games, numbers = torch.arange(len(own)), candidates.features
    if numbers is None:
        raise ValueError("infer: candidates have no row numbers.")
    rows = tuple(numbers.long().flatten().tolist())
    x = table.encode(table.cells.x)
    numbered = Records(x, table.cells.y, torch.arange(len(x), dtype=torch.float64).unsqueeze(1))
    known, prior = numbered[table.known], numbered[table.examples]
    ours, net = trainer(SealedEstimator(estimator, rows)), nn.Identity()
    place = (games * candidates.x.shape[1] + own).unsqueeze(1)
    secrets = side_by_side(candidates)[place]  # (s, 1, ...)
    victims = Cohort(known, secrets, games)
    threat = Informed(known, candidates=candidates.x.shape[1])
    knowledge = Knowledge(net, ours, threat, access, prior, engine)
    release = trained(knowledge, victims, int(generator(seed, "victims", "attribute", column).integers(2**62)))
    attack = LikeliestRefit(repeats, rows)
    own_seed = int(generator(seed, "adversary", "attribute", column).integers(2**62))
    reconstruct = attack.prepare(knowledge, seed=own_seed)
    hints = Hints(candidates=candidates, chances=chances)
    truth = candidates.x[games, own]  # (s, ...)
    named, swapped = (
        (reconstruct(release.chosen(models), hints).records.x[:, 0] == truth).all(1)
        for models in (games, games.roll(1))
    )
    return Inferred(
        table.columns.names[column],
        len(games),
        int(named.sum()),
        int(swapped.sum()),
        int((chances.argmax(1) == own).sum()),
        (int((named & ~swapped).sum()), int((swapped & ~named).sum())),
    )


def _extended(
    estimator: Estimator, copies: NDArray[np.int64], column: str, values: Sequence[object], numbers: NDArray[np.int64]
) -> Estimator:
    """The estimator with copies of some rows after its own, whose cells in a column are replaced."""
    X, y, weight = estimator.X, estimator.y, estimator.sample_weight
    changed: Any = X.iloc[copies].assign(**{column: values}).astype({column: X.dtypes[column]})
    return replace(
        estimator,
        X=import_module("pandas").concat([X, changed], ignore_index=True),
        y=None if y is None else np.concatenate([np.asarray(y), np.asarray(_safe_indexing(y, copies))]),
        sample_weight=None if weight is None else np.concatenate([weight, weight[copies]]),
        probes={**estimator.probes, "candidates": numbers},
    )
