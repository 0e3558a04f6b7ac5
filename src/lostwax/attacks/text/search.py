"""The search for a sentence: which tokens moved, where each of them stands, and whether training confirms it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.attacks.text.response import EmbeddingSpace, SentenceResponse
from lostwax.games import Cohort, Guess, Hints, Records, Release
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.trainers.stacked import flat

VOCABULARY = 2  # times the length: rows of the table, the most moved first, that the search considers
SHUFFLED = 4  # tokens of the best sentence, for every other start
CLOSE = 0.3  # of the record's effect: a model nearer than this to the release corrects the response
SHORT = 16  # tokens: of a sentence up to this long, every two neighbouring parts are exchanged
MARGIN = 10.0  # times the rounding of one training, up to which weights count as equal


class Sentence(NamedTuple):
    """What was found in one game."""

    tokens: Tensor  # (length,)
    label: Tensor  # ()
    residual: float  # of the weights of a model trained on it, relative to the record's effect; 0: explained
    certified: bool


@dataclass(frozen=True, eq=False)
class TokenSearch:
    """A prepared attack."""

    net: nn.Module
    known: Records
    response: SentenceResponse
    rounding: float  # of weights, as a distance
    starts: int
    shortlist: int
    seed: int

    def moved_rows(self, release: Release) -> Tensor | None:
        """(m, v) how far each row of the embedding table is from where the known sentences alone bring it.

        None if the table is frozen. Rows of tokens that no known sentence has move only if the secret has them.
        """
        name = f"{self.response.table}.weight"
        end = self.response.adjoints.base.end
        return (release.params[name] - end[name]).norm(dim=2) if name in end else None

    def bag(self, release: Release) -> Tensor | None:
        """(m, length) the tokens whose rows moved most, the farthest first; None if the table is frozen."""
        rows = self.moved_rows(release)
        return None if rows is None else rows.topk(self.known.inputs.shape[1]).indices

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        sentences = self.search(release, hints)
        tokens, labels = (torch.stack(part) for part in zip(*(each[:2] for each in sentences), strict=True))
        confidence = torch.tensor([[-sentence.residual] for sentence in sentences], dtype=torch.float64)
        certified = torch.tensor([[sentence.certified] for sentence in sentences])
        return Guess(Records(tokens.unsqueeze(1), labels.unsqueeze(1)), confidence, certified=certified)

    def search(self, release: Release, hints: Hints | None = None) -> list[Sentence]:
        rows, weights = self.moved_rows(release), release.flat()
        labels = None if hints is None or hints.labels is None else hints.labels[:, 0]
        sentences = []
        for game in counted(range(len(release)), "sentences", len(release)):
            draw = generator(self.seed, "tokens")
            tokens = None if rows is None else self._considered(rows[game])
            sentences.append(self._game(weights[game], tokens, None if labels is None else labels[game], draw))
        return sentences

    def _considered(self, moved: Tensor) -> Tensor:
        """Tokens whose rows (v,) moved most, and the one that fills sentences up, whose row never moves."""
        most = moved.topk(min(VOCABULARY * self.known.inputs.shape[1], len(moved))).indices
        filling = getattr(self.net.get_submodule(self.response.table), "padding_idx", None)
        return most if filling is None or filling in most else torch.cat([most, most.new_tensor([filling])])

    def _game(
        self, weights: Tensor, vocabulary: Tensor | None, label: Tensor | None, draw: np.random.Generator
    ) -> Sentence:
        """Descents from several starts until one is certified; else the best."""
        seen = self.response.seen(weights.unsqueeze(0))[0]  # (r,)
        effect = max(float((weights - flat(self.response.adjoints.base.end)).norm()), 1e-300)
        labels = torch.unique(self.response.bank.y) if label is None else label.reshape(1)
        target, answer = seen, None
        best = {int(y): (x, math.inf) for x, y in self._first(seen, vocabulary, labels)}  # of each label
        for turn in range(self.starts):
            start, label = self._start(turn, best, target, vocabulary, draw)
            score = best[int(label)][1]
            x, here = self._descend(start, label, target, vocabulary, (1 + turn // len(best)) * self.shortlist)
            if here >= score:
                continue
            best[int(label)], trained = (x, here), self._trained(x, label)
            distance = float((trained - weights).norm())
            sure = distance <= MARGIN * self.rounding and self._determined(x, label, vocabulary, labels)
            if answer is None or distance / effect < answer.residual:
                answer = Sentence(x, label, distance / effect, sure)
            if sure:
                break
            if distance < CLOSE * effect:  # correct what the response gets wrong here
                predicted = self.response(x[None], label[None])[0]
                target = seen - (self.response.seen(trained.unsqueeze(0))[0] - predicted)
                best = {int(label): (x, float((predicted - target).norm()))}
        if answer is None:
            raise ValueError("Tokens: the response of training is not finite, so no sentence can be compared.")
        return answer

    def _start(
        self,
        turn: int,
        best: Mapping[int, tuple[Tensor, float]],
        target: Tensor,
        vocabulary: Tensor | None,
        draw: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """A sentence and its label: the labels take turns, each from its best so far, later a few tokens shuffled.

        If the table is frozen, every other start is a solution in embedding space, the others come from the best label.
        """
        if vocabulary is None and turn % 2 == 0:
            return EmbeddingSpace(self.response).sentence(target, torch.tensor(list(best)), draw)
        label = min(best, key=lambda y: best[y][1]) if vocabulary is None else list(best)[turn % len(best)]
        x = best[label][0]
        return x if vocabulary is not None and turn < len(best) else _shuffled(x, draw), torch.tensor(label)

    def _first(self, seen: Tensor, vocabulary: Tensor | None, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of each label the sentence of the bank that explains most, or the tokens that moved; the likeliest first."""
        far = (self.response.bank_responses - seen).norm(dim=1)
        rows = [torch.where(self.response.bank.y == label, far, torch.inf).argmin() for label in labels]
        rows.sort(key=lambda row: float(far[row]))
        length = self.known.inputs.shape[1]
        return [
            (self.response.bank.x[row] if vocabulary is None else vocabulary[:length], self.response.bank.y[row])
            for row in rows
        ]

    def _descend(
        self, x: Tensor, y: Tensor, target: Tensor, vocabulary: Tensor | None, shortlist: int
    ) -> tuple[Tensor, float]:
        """Swap and replace tokens while that explains more; and how much is left unexplained."""
        best, before = float((self.response(x[None], y[None])[0] - target).norm()), math.inf
        while best < before:
            before = best
            swapped = math.inf
            while best < swapped:
                swapped = best
                x, best = self._better(x, y, target, best, _swapped(x))
            tokens = self._tokens(x, y, target, vocabulary, shortlist)
            for place in range(len(x)):
                x, best = self._better(x, y, target, best, _replaced(x, place, tokens[place]))
        return x, best

    def _better(self, x: Tensor, y: Tensor, target: Tensor, best: float, others: Tensor) -> tuple[Tensor, float]:
        """The best of some other sentences if it explains more, else the sentence itself."""
        far = (self.response(others, y.expand(len(others))) - target).norm(dim=1)
        place = int(far.argmin())
        return (others[place], float(far[place])) if float(far[place]) < best else (x, best)

    def _tokens(self, x: Tensor, y: Tensor, target: Tensor, vocabulary: Tensor | None, shortlist: int) -> Tensor:
        """(length, shortlist) the vocabulary, or the tokens nearest to where a step of Gauss-Newton leads."""
        if vocabulary is not None:
            return vocabulary.expand(len(x), -1)
        return EmbeddingSpace(self.response).nearest(self.response.embeddings[x], y, shortlist, target)

    def _determined(self, x: Tensor, y: Tensor, vocabulary: Tensor | None, labels: Tensor) -> bool:
        """Whether every similar sentence would give other weights, by more than rounding: also the same one shifted."""
        here = self.response(x[None], y[None])
        tokens = self._tokens(x, y, here[0], vocabulary, self.shortlist)
        others = torch.cat([*(_replaced(x, place, tokens[place]) for place in range(len(x))), _swapped(x), _shifted(x)])
        others = others[(others != x).any(1)]
        same = [self.response(others, y.expand(len(others)))] if len(others) else []
        if len(labels) > 1:
            wrong = labels[labels != y]
            same.append(self.response(x.expand(len(wrong), -1), wrong))
        differences = torch.cat([*(each - here for each in same), here]) * self.response.scale
        return bool(differences.norm(dim=1).min() > 2 * MARGIN * self.rounding)

    def _trained(self, x: Tensor, y: Tensor) -> Tensor:
        """(p,) the weights of a model trained on the known sentences and this one."""
        zero = torch.zeros(1, dtype=torch.long)
        cohort = Cohort(self.known, Records(x[None, None], y[None, None]), zero)
        return self.response.adjoints.base.trainer(self.net, cohort, seed=0).flat()[0]


def _replaced(x: Tensor, place: int, tokens: Tensor) -> Tensor:
    """(k, length) the sentence with each of k tokens at one position."""
    others = x.repeat(len(tokens), 1)
    others[:, place] = tokens
    return others


def _shuffled(x: Tensor, draw: np.random.Generator) -> Tensor:
    """The sentence with a few of its tokens in another order."""
    places = draw.permutation(len(x))[:SHUFFLED]
    other = x.clone()
    other[torch.from_numpy(places)] = x[torch.from_numpy(draw.permutation(places))]
    return other


def _swapped(x: Tensor) -> Tensor:
    """(pairs, length) the sentence with two positions exchanged."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    others = x.repeat(len(first), 1)
    rows = torch.arange(len(first))
    others[rows, first], others[rows, second] = x[second], x[first]
    return others


def _shifted(x: Tensor) -> Tensor:
    """(others, length) the sentence backwards, and with neighbouring parts exchanged: rotated, or one part moved.

    A circular convolution takes all rotations for the same sentence, one with padding takes some. Of long sentences one
    of the parts is an end of the sentence, or one token.
    """
    length, every = len(x), len(x) <= SHORT
    order = [list(reversed(range(length)))]
    for first in range(length - 1):
        for middle in range(first + 1, length):
            for last in range(middle + 1, length + 1):
                if every or (first == 0 and last == length) or 1 in (middle - first, last - middle):
                    order.append([*range(first), *range(middle, last), *range(first, middle), *range(last, length)])
    return x[torch.tensor(order, device=x.device)]
