"""Words of a fine-tuning set, from the files of a public model and of the model that was made of it.

No text is known, nothing is trained. What a row of the table of embeddings does depends on how the model was tuned:

- An encoder trains the rows of the words that occur, and no other. With weight decay the others shrink alike.
- With a softmax over the table (a causal model with tied weights, or its head) each word that does not occur is pushed
  away from every hidden state. Adam gives each push the same length, so these rows move alike; a row of a word that
  occurs is drawn the other way once, by a gradient so large that Adam hardly moves the row afterwards. SGD moves rows
  as far as their gradients: likely words far, but against the others only if they occur.

In the second case a row is described by four numbers: how far it agrees with the common movement, its size, how even
its numbers are, and how much it moves of what its embedding predicts. A quadratic score of them was learned once
(`benchmarks/words.py --fit`); it is fitted again to the audited model, without texts. The list is cut where the tail of
the scores of silent tokens, which hardly any text has, predicts a share of wrong words (Marandon et al. 2022 prove that
nulls which were not trained on calibrate any score). With SGD, where silent tokens move less than likely words do, what
is cut is how far a row moves against the others. Without enough silent tokens there is a ranking and no list.

With a frozen table, what q, k and v of the first layer moved by is a sum over words: some vector times the word's
embedding. There are more words than numbers in an embedding, but fewer than the squares of these: words are ranked by
what they are needed for to explain the movement's second moments (sparse Bayesian learning, Wipf and Rao 2007; the
multiplicative steps of SPICE, Stoica et al. 2011). Adam divides by sizes of gradients, so that all columns move alike:
those of embeddings are scaled alike too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betainc, gammaincinv
from torch import Tensor

from lostwax.fields import between, check_fields

BLOCK = 2**20  # numbers of a table that are read at a time
SAMPLE = 8_192  # rows that common movements are learned from
RIDGE = 0.1  # of the prediction of a row's movement by its embedding, in mean squares of embeddings
SAME, QUIET = 64.0, 0.5  # roundings within which a row stays; share of rows that stay where only words move
SPREAD = 1.0  # of logarithms of sizes: below, all steps are of one size
BOUND = 10.0  # of a feature, in spreads
TAIL, FEWEST = 0.3, 200  # share of the silent tokens that make the tail; fewest silent tokens
EXTREME, LEVEL = 5, 0.01  # words are there if more tokens than by chance are above the silent one of this rank; and
# the probability with which the tail of silent tokens falls more slowly than it is taken to
MARGIN = 1.5  # times as many wrong words are reckoned with: words that nearly occur are no silent tokens
HIDDEN = 0.1  # share of a row's numbers that change: below, rounding decides which rows move
TOGETHER, CROWD = 0.25, 100  # mean of unit movements, of as many rows at least: they are pushed one way
ROUNDS, UNEXPLAINED = 8, 1e-3  # of sparse Bayesian learning; share of the movement that no word explains at least
ALIKE, WIDEST = 0.02, 640  # share of the directions of the movement in which words move it alike; most of the others

# constant, then agreement c, size s, evenness l, predicted part p: c s l p cc cs cl cp ss sl sp ll lp pp
ADAM = (-5.787, 0.057, 1.898, 1.066, 3.932, 0.068, -0.298, -0.46, -0.27, -0.292, -0.221, 1.108, -0.088, -0.429, 1.212)
SGD = (-10.68, 0.006, 1.316, 0.489, -0.056, 0.036, 0.105, 0.012, -0.004, 0.431, 0.353, 0.024, 0.214, 0.005, 0.013)

TABLES = ("embed_tokens", "word_embeddings", "wte", "token_embd", "tok_embeddings", "embed_in", "shared")
HEADS = ("lm_head", "embed_out", "output")
FIRST_LAYER = re.compile(
    r"(?:^|\.)(?:layers?|h|blk)\.0\.(?:.*\.)?(?:q_proj|k_proj|v_proj|gate_proj|up_proj|query|key|value|c_attn|"
    r"attn_q|attn_k|attn_v|ffn_gate|ffn_up)\.weight$"
)
FIRST_NORM = re.compile(r"(?:^|\.)(?:layers?|h|blk)\.0\.(?:input_layernorm|attn_norm|ln_1|input_norm)\.weight$")
LATER = re.compile("gate|up")  # parts of it whose inputs are no embeddings

Array = NDArray[np.float64]


class StoredRows(Protocol):
    """A matrix whose rows are read when they are asked for; a tensor is one."""

    @property
    def shape(self) -> Any:
        """(rows, columns)."""

    @property
    def dtype(self) -> torch.dtype:
        """As it is stored."""

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class Movement(StrEnum):
    """What the difference of the two files shows of the fine-tuning."""

    NONE = "nothing moved"
    ROWS = "some rows of the table moved, the others stayed"
    STEPS = "every row moved, by steps of one size, as with Adam"
    GRADIENTS = "every row moved, as far as its gradients, as with SGD"
    FROZEN = "the table stayed, the first layer moved"
    OTHER = "the table stayed, and no first layer that moved was recognised"


@dataclass(frozen=True, eq=False)
class WordList:
    """All tokens of the vocabulary, the likeliest words first, and how many of them are listed."""

    movement: Movement
    order: Tensor  # (v,) token numbers
    probability: Array = field(repr=False)  # (v,) in this order, that the token occurs; 0 where no list holds
    listed: int  # of them
    fdr: float  # the share of the listed that are wrong, as predicted
    unlisted_because: str = ""  # why there is no list
    assumption: str = ""  # what the list rests on

    @property
    def words(self) -> Tensor:
        """(listed,) the tokens of the list."""
        return self.order[: self.listed]


@dataclass(frozen=True, kw_only=True)
class TunedWords:
    """List the words of a fine-tuning set from two models' tensors, with a share of at most `fdr` wrong words.

        words = lw.attacks.TunedWords()(base.state_dict(), tuned.state_dict(), silent=range(994)).words

    `silent` are tokens that hardly any text has: reserved ones, and letters of other scripts. Tensors may be any
    objects with a shape, a dtype and rows by slices: those of `lostwax.adapters.language_models` stay on disk.
    """

    fdr: float = 0.05

    def __post_init__(self) -> None:
        check_fields(self, fdr=between(0, 1, "()"))

    def __call__(
        self, base: Mapping[str, StoredRows], tuned: Mapping[str, StoredRows], *, silent: Sequence[int] | Tensor = ()
    ) -> WordList:
        before, after = _table(base), _table(tuned)
        if before.shape[1] != after.shape[1]:
            raise ValueError(
                f"words: the tables of embeddings have rows of {before.shape[1]} and {after.shape[1]} numbers: the "
                "models are not a base and what was made of it. Pass the base that was fine-tuned."
            )
        table = _Pair(before, after)
        quiet = torch.zeros(len(table), dtype=torch.bool)
        numbers = torch.as_tensor(silent, dtype=torch.long)
        quiet[numbers[(numbers >= 0) & (numbers < len(table))]] = True
        stays = table.stays()
        if bool(stays.all()):
            head, tuned_head = _head(base), _head(tuned)
            if head is None or tuned_head is None:
                return _of_first_layer(before, base, tuned)
            table = _Pair(head, tuned_head)
            quiet, stays = quiet[: len(table)], table.stays()
            if bool(stays.all()):
                return _of_first_layer(before, base, tuned)
        if float(stays.double().mean()) > QUIET and not (table.hidden or table.pushed(stays)):
            rows = self._moved_rows(table, stays, quiet)
            if rows.listed or int(quiet.sum()) < FEWEST:
                return rows
        return self._scored(table, quiet)

    def _moved_rows(self, table: _Pair, stays: Tensor, silent: Tensor) -> WordList:
        """The rows that moved, the farthest first; no list if silent tokens moved as well."""
        size = table.residuals().masked_fill(stays, -1.0)
        order, moved, known = size.argsort(descending=True), int((~stays).sum()), int(silent.sum())
        fdr = min(1.0, len(stays) / max(1, moved) * int((silent & ~stays).sum()) / max(1, known))
        why = _too_few(known) if known < FEWEST else "rows of silent tokens moved too." if fdr > self.fdr else ""
        listed = 0 if why else moved
        probability = np.where(np.arange(len(stays)) < listed, 1 - fdr, 0.0)
        rests = f"The rows of {int((silent & stays).sum()):,} of {known:,} silent tokens stayed."
        return WordList(Movement.ROWS, order, probability, listed, 0.0 if why else fdr, why, rests)

    def _scored(self, table: _Pair, silent: Tensor) -> WordList:
        """Every row moved: ranked by the score, and cut by the tail of silent tokens."""
        features, spread, against = _features(table)
        movement = Movement.STEPS if spread < SPREAD and not table.hidden else Movement.GRADIENTS
        terms = _quadratic(features)
        score = terms @ np.array(ADAM if movement is Movement.STEPS else SGD)
        unread = WordList(movement, torch.from_numpy(np.argsort(-score, kind="stable")), np.zeros(len(score)), 0, 0.0)
        if movement is Movement.GRADIENTS and (table.hidden or table.kept.itemsize < 4):
            why = f"{_kind(table.kept)} hides small movements, and silent tokens say too little of others."
            return replace(unread, unlisted_because=why)
        if int(silent.sum()) < FEWEST:
            return replace(unread, unlisted_because=_too_few(int(silent.sum())))
        if movement is Movement.STEPS:
            return self._cut(movement, _refitted(terms, score), silent.numpy())
        certain = self._cut(movement, against, silent.numpy())  # the others stay ranked by the score
        order = torch.cat([certain.words, unread.order[~torch.isin(unread.order, certain.words)]])
        return replace(
            certain, order=order, probability=np.where(np.arange(len(order)) < certain.listed, certain.probability, 0.0)
        )

    def _cut(self, movement: Movement, score: Array, silent: NDArray[np.bool_]) -> WordList:
        order, quiet = np.argsort(-score, kind="stable"), np.sort(score[silent])[::-1]
        # of exchangeable tokens, the share above the fifth silent one has this beta distribution
        above = float((score >= quiet[EXTREME - 1]).mean()) / MARGIN
        by_chance = 1 - float(betainc(EXTREME, len(quiet) - EXTREME + 1, min(1.0, above)))
        wrong = MARGIN * len(score) * _tail(score[order], quiet)  # expected so far
        shares = np.minimum(1.0, wrong / np.arange(1, len(score) + 1))
        within = np.flatnonzero((shares <= self.fdr) & (by_chance <= LEVEL))
        listed = int(within[-1]) + 1 if len(within) else 0
        each = _rising(np.diff(wrong, prepend=0.0)) if by_chance <= LEVEL else np.ones(len(score))
        why = "" if listed else "no word stands out from what silent tokens reach."
        rests = (
            f"Assumed: other tokens that do not occur look like words at most {MARGIN:g} times as often as the silent."
        )
        return WordList(
            movement,
            torch.from_numpy(order),
            1 - each,
            listed,
            float(shares[listed - 1]) if listed else 0.0,
            why,
            rests,
        )


class _Pair:
    """A table before and after, its rows read in blocks; the one before is rounded as the one after is."""

    def __init__(self, before: StoredRows, after: StoredRows) -> None:
        self.before, self.after = before, after
        self.rows: int = min(before.shape[0], after.shape[0])  # a vocabulary that grew has new rows at its end
        self.kept = self._rounding()
        before_rows, change = self.sample
        shrinks = -(change * before_rows).sum(1) / before_rows.square().sum(1).clamp_min(1e-30)
        self.decay = float(shrinks.median())
        changed = (change != 0).double().mean(1)
        self.hidden = float(changed[changed > 0].median()) < HIDDEN  # False if nothing moved

    def __len__(self) -> int:
        return self.rows

    @property
    def step(self) -> int:
        return max(1, self.rows // SAMPLE)

    def blocks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows before, and what was added to them, in float32."""
        each = max(1, BLOCK // self.before.shape[1])
        for first in range(0, self.rows, each):
            part = slice(first, min(self.rows, first + each))
            before = self.before[part].to(self.kept).float()
            yield part, before, self.after[part].float() - before

    @property
    def sample(self) -> tuple[Tensor, Tensor]:
        shape = (len(range(0, self.rows, self.step)), self.before.shape[1])
        before, change = torch.empty(shape), torch.empty(shape)  # filled in place: views would keep all rows
        for part, *several in self.blocks():
            for sampled, rows in zip((before, change), several, strict=True):
                some = rows[-part.start % self.step :: self.step]
                first = -(-part.start // self.step)
                sampled[first : first + len(some)] = some
        return before, change

    def residuals(self) -> Tensor:
        """(v,) how far each row is from where weight decay alone brings it, relative to its size."""
        far = torch.empty(
            self.rows
        )  # filled in place, as all that is kept of blocks: small pieces would break up memory
        for part, before, change in self.blocks():
            far[part] = (change + self.decay * before).norm(dim=1) / before.norm(dim=1).clamp_min(1e-30)
        return far

    def stays(self) -> Tensor:
        """(v,) which rows did not move, weight decay apart."""
        unmoved = torch.empty(self.rows, dtype=torch.bool)
        for part, _, change in self.blocks():
            unmoved[part] = (change == 0).all(1)
        if self.kept.itemsize < 4 or self.decay == 0 or bool(unmoved.all()):
            return unmoved
        return unmoved | (self.residuals() <= SAME * torch.finfo(self.kept).eps)

    def pushed(self, stays: Tensor) -> bool:
        """Did the rows that hardly moved go one way, as a softmax pushes them?"""
        before, change = self.sample
        few = stays[:: self.step] & (change != 0).any(1)
        mean = _mean_direction(_without_decay(before[few], change[few]))
        return int(few.sum()) >= CROWD and float(mean.norm()) > TOGETHER

    def _rounding(self) -> torch.dtype:
        """The precision that the tuned table has gone through, whatever it is stored in."""
        kind: torch.dtype = self.after.dtype
        if kind.itemsize < 4:
            return kind
        after = self.after[slice(0, min(self.rows, 1 + BLOCK // self.before.shape[1]))].float()
        kinds = (torch.bfloat16, torch.float16)
        return next((kind for kind in kinds if bool((after.to(kind).float() == after).all())), torch.float32)


def _features(table: _Pair) -> tuple[Array, float, Array]:
    """(v, 4) agreement, size, evenness and predicted part of each row's movement, in spreads; the spread of sizes
    without weight decay; (v,) how far each row moves against the others, by its size."""
    before, change = table.sample
    common, pushed = _mean_direction(change), _mean_direction(_without_decay(before, change))
    common /= common.norm().clamp_min(1e-30)
    pushed /= pushed.norm().clamp_min(1e-30)
    centre, mean = before.mean(0), change.mean(0)
    before -= centre
    change -= mean
    gram = before.mT @ before
    gram.diagonal().add_(RIDGE * float(gram.diagonal().mean()) + 1e-30)
    map_ = torch.linalg.solve(gram, before.mT @ change)  # (d, d) embedding -> movement
    del before, change
    every, against, sizes = torch.empty(len(table), 4), torch.empty(len(table)), torch.empty(len(table))
    for part, before, change in table.blocks():
        size, free = change.norm(dim=1), _without_decay(before, change)
        against[part] = -(free @ pushed) / before.norm(dim=1).clamp_min(1e-30)  # roundings are as large as rows
        sizes[part] = (free.norm(dim=1) + 1e-12).log()
        predicted = (before - centre) @ map_ + mean
        columns = (
            -(change @ common) / size.clamp_min(1e-30),
            (size + 1e-12).log(),
            change.abs().mean(1) / size.clamp_min(1e-30) * math.sqrt(change.shape[1]),
            -(change * predicted).sum(1) / predicted.square().sum(1).clamp_min(1e-30),
        )
        every[part] = torch.stack(columns, 1)
    values = every.double().numpy()
    low, middle, high = np.quantile(values, [0.16, 0.5, 0.84], axis=0)
    spread = (high - low) / 2
    least, most = np.quantile(sizes.double().numpy(), [0.16, 0.84])
    scaled = np.clip((values - middle) / (spread + 1e-9), -BOUND, BOUND)
    return scaled, float(most - least) / 2, against.double().numpy()


def _mean_direction(change: Tensor) -> Tensor:
    """(d,) the mean of the directions in which rows move."""
    mean: Tensor = (change / change.norm(dim=1, keepdim=True).clamp_min(1e-30)).mean(0)
    return mean


def _without_decay(before: Tensor, change: Tensor) -> Tensor:
    """What is left of movements without their parts along the rows themselves, as weight decay moves them."""
    along = (change * before).sum(1, keepdim=True) / before.square().sum(1, keepdim=True).clamp_min(1e-30)
    return change - along * before


def _quadratic(x: Array) -> Array:
    """(v, 15) one, the features, and their products."""
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([np.ones((len(x), 1)), x, x[:, first] * x[:, second]], 1)


def _refitted(terms: Array, score: Array) -> Array:
    """The score of a logistic regression on the probabilities that the score gives: it takes up this model's shapes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x = StandardScaler().fit_transform(terms[:, 1:])
    occurs = 1 / (1 + np.exp(-np.clip(score, -500, 500)))
    weight, twice = np.concatenate([occurs, 1 - occurs]), np.concatenate([x, x])
    model = LogisticRegression(C=0.1, max_iter=300)
    fitted: Array = model.fit(twice, np.repeat([1, 0], len(x)), weight).decision_function(x)
    return fitted


def _tail(score: Array, silent: Array) -> Array:
    """The share of tokens that do not occur and have this score or more: an exponential tail of the silent ones.

    It falls as slowly as so few silent tokens leave possible: the list lies far beyond them, and a mean rate, extended
    that far, would promise several times too few wrong words.
    """
    count = max(10, round(TAIL * len(silent)))
    start = silent[count]
    rate = float(gammaincinv(count, LEVEL)) / max(float(np.sum(silent[:count] - start)), 1e-12)
    return np.where(score > start, (count + 1) / (len(silent) + 1) * np.exp(-rate * np.maximum(score - start, 0)), 1.0)


def _rising(each: Array) -> Array:
    """The nearest sequence that does not fall, within 0 and 1."""
    from sklearn.isotonic import IsotonicRegression

    rising: Array = IsotonicRegression(y_min=0.0, y_max=1.0).fit_transform(np.arange(len(each)), np.clip(each, 0, 1))
    return rising


def _of_first_layer(table: StoredRows, base: Mapping[str, StoredRows], tuned: Mapping[str, StoredRows]) -> WordList:
    """Words ranked by what they are needed for to explain how the first layer moved."""
    rows, width = table.shape
    changes = {}
    for name, before in base.items():
        if FIRST_LAYER.search(name) and name in tuned and before.shape == tuned[name].shape:
            every = slice(0, before.shape[0])
            change = tuned[name][every].float() - before[every].float()
            change = change if change.shape[1] == width else change.mT
            if change.shape[1] == width and bool(change.any()):
                changes[name] = change
    none = WordList(Movement.FROZEN, torch.arange(rows), np.zeros(rows), 0, 0.0, "no threshold for a list holds.")
    if not changes:
        same = all(
            name in tuned and _Pair(base[name], tuned[name]).stays().all()
            for name in base
            if len(base[name].shape) == 2
        )
        return replace(none, movement=Movement.NONE if same else Movement.OTHER)
    by_words = [change for name, change in changes.items() if not LATER.search(name)] or list(changes.values())
    norms = [tensor for name, tensor in base.items() if FIRST_NORM.search(name) and len(tensor.shape) == 1]
    scale = norms[0][slice(0, width)].float() if norms else torch.ones(width)
    return replace(none, order=_explained(table, scale, torch.cat(by_words)).argsort(descending=True))


def _explained(table: StoredRows, scale: Tensor, change: Tensor) -> Tensor:
    """(v,) how much of the second moments of (m, d) movements each word explains, over what it would by chance."""
    rows, width = table.shape
    each = max(1, BLOCK // width)

    def units() -> Iterator[tuple[slice, Tensor]]:
        for first in range(0, rows, each):
            x = table[part := slice(first, min(rows, first + each))].float()
            yield part, x * scale / x.norm(dim=1, keepdim=True).clamp_min(1e-30)

    moments = sum((x.mT @ x for _, x in units()), torch.zeros(width, width))
    columns = moments.diagonal().double().sqrt().clamp_min(1e-30)  # (d,)
    rounded = float((change == 0).double().mean())  # numbers that stayed, as half-precision files hide small movements
    change = (change / change.square().mean(0).sqrt().clamp_min(1e-30)).double()
    sizes, directions = (part.flip(-1) for part in torch.linalg.eigh(change.mT @ change))  # the largest first
    alike = int(ALIKE * int((sizes > 1e-6 * sizes[0]).sum()))
    window = slice(alike, alike + WIDEST)
    seen = (sizes[window] / sizes[window].sum()).diag()  # (k, k)
    basis = (directions / columns.unsqueeze(1))[:, window].float()  # (d, k)
    weight, score = torch.full((rows,), 1.0 / width), torch.zeros(rows)
    total = basis.mT @ moments @ basis / width
    for _ in range(ROUNDS):
        inverse = torch.linalg.inv(total.double() + (UNEXPLAINED + rounded) / len(seen) * torch.eye(len(seen)))
        middle, inverse = (inverse @ seen @ inverse).float(), inverse.float()
        total.zero_()
        for part, x in units():
            x = x @ basis
            score[part] = ((x @ middle) * x).sum(1) / ((x @ inverse) * x).sum(1).clamp_min(1e-30)
            weight[part] *= score[part].clamp_min(0).sqrt()
            total += (x * weight[part].unsqueeze(1)).mT @ x
    return score


def _table(tensors: Mapping[str, StoredRows]) -> StoredRows:
    """The table of embeddings, by the names that models give it; else the longest matrix called an embedding."""
    matrices = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) == 2}
    for ending in TABLES:
        for name, tensor in matrices.items():
            if name.removesuffix(".weight").rpartition(".")[2] == ending:
                return tensor
    others = [tensor for name, tensor in matrices.items() if "emb" in name.lower() and "posi" not in name.lower()]
    if not others:
        raise ValueError(
            "words: no table of embeddings was recognised among the tensors. Pass a language model's, with a matrix "
            "called ...embed_tokens.weight or ...embedding.weight."
        )
    return max(others, key=lambda tensor: tensor.shape[0])


def _head(tensors: Mapping[str, StoredRows]) -> StoredRows | None:
    """The matrix that turns hidden states into scores of words, where it is not the table itself."""
    for name, tensor in tensors.items():
        if name.removesuffix(".weight").rpartition(".")[2] in HEADS and len(tensor.shape) == 2:
            return tensor
    return None


def _too_few(silent: int) -> str:
    return f"{silent} silent tokens are known, and a threshold takes {FEWEST}: pass the tokenizer."


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
