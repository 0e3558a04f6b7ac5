"""The search for a sentence: which tokens moved, where each of them stands, and whether training confirms it.

With a frozen table, what a sentence does to the weights, to first order and in a few directions, is a smooth function
of its embeddings e (length, d). With more directions than these have numbers, the most probable e is found as in
nonlinear least squares,

    min_e  sum_j (target_j - response_j(e))^2 / noise^2 + |e - mean|^2 / variance,

responses in units of their error on models that were trained, mean and variance those of the table. The noise falls to
1 in a few stages: a wide valley first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.attacks.least_squares import Dense, GameSearch, Linearised, Point, Rule
from lostwax.games import Cohort, Guess, Hints, Records, Release
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.trainers.descent import quiet
from lostwax.trainers.responses import Adjoints
from lostwax.trainers.stacked import flat

AT_A_TIME = 256  # sentences


@dataclass(frozen=True, eq=False)
class SentenceResponse:
    """Responses in directions of weight space, in units of their deviation over the bank of sentences at first."""

    adjoints: Adjoints
    directions: Tensor  # (r, p)
    scale: Tensor  # (r,)
    bank: Records  # known and prior sentences, with each label
    bank_responses: Tensor  # (b, r)
    table: str  # the name of the embedding
    embeddings: Tensor  # (v, d) at the start

    @classmethod
    def of(cls, adjoints: Adjoints, directions: Tensor, sentences: Records, table: str) -> SentenceResponse:
        """Of all sentences of the bank."""
        labels, n = torch.unique(sentences.y), len(sentences)
        bank = Records(sentences.x.repeat(len(labels), 1), labels.repeat_interleave(n))
        parts = [adjoints(bank[first : first + AT_A_TIME]) for first in range(0, len(bank), AT_A_TIME)]
        responses, base, name = torch.cat(parts), adjoints.base, f"{table}.weight"
        scale = responses.std(0).clamp_min(torch.finfo(responses.dtype).tiny)
        rows = base.states[0].params[name][0] if name in base.end else base.net.constants[name]
        return cls(adjoints, directions, scale, bank, responses / scale, table, rows)

    def in_units_of(self, unit: Tensor) -> SentenceResponse:
        """The same with every direction (r,) divided by a unit, in present units."""
        return replace(self, scale=self.scale * unit, bank_responses=self.bank_responses / unit)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(m, r) of sentences (m, length) with labels (m,)."""
        parts = zip(torch.split(x, AT_A_TIME), torch.split(y, AT_A_TIME), strict=True)
        return torch.cat([self.adjoints(Records(*part)) for part in parts]) / self.scale

    def seen(self, weights: Tensor) -> Tensor:
        """(m, r) the same of released weights (m, p)."""
        return (weights - flat(self.adjoints.base.end)) @ self.directions.mT / self.scale

    def of_embeddings(self, e: Tensor, y: Tensor) -> Tensor:
        """(m, r) of sentences of embeddings (m, length, d), if the table is frozen."""
        with self._embedded() as response:
            values: Tensor = torch.func.vmap(response)(e, y)
        return values

    def linearised(self, e: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and its derivative with respect to the embeddings, (m, r, length, d)."""
        with self._embedded() as response:

            def twice(e: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
                value = response(e, y)
                return value, value

            jacobian, value = torch.func.vmap(torch.func.jacfwd(twice, has_aux=True))(e, y)
        return value, jacobian

    @contextmanager
    def _embedded(self) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
        """The response of one sentence (length, d) with a label, as a function: its embeddings replace the table's."""
        base, current = self.adjoints.base, [self.embeddings]
        numbers = self.bank.inputs.new_zeros(self.bank.inputs.shape[1])

        def response(e: Tensor, y: Tensor) -> Tensor:
            current[0] = e
            total = torch.zeros_like(self.scale)
            for step, push in self.adjoints.swept:
                slope = torch.cat([value.flatten() for value in base.slope(step, numbers, y).values()])
                total = total + push @ slope
            return total / self.scale

        table = base.net.net.get_submodule(self.table)
        hook = table.register_forward_hook(lambda _, inputs, out: current[0].expand_as(out))
        try:
            with quiet():
                yield response
        finally:
            hook.remove()


STAGES = ((10.0, 12), (3.0, 10), (1.0, 10))  # the noise, and steps
START = 0.3  # deviation of a start from the table's mean, in deviations of the table
TOGETHER = 2  # starts of each label
DAMPING = 1.0  # of Levenberg and Marquardt, at first
RULE = Rule((1.0,), stalled=1.0, raised=4.0, eased=1 / 3, damping_range=(1e-6, 1e6))


@dataclass(frozen=True, eq=False)
class EmbeddingSpace(Dense[GameSearch[Linearised]]):
    """The search in embedding space; unknowns are the n = length d numbers of a sentence's embeddings."""

    response: SentenceResponse  # in units of its error
    noise: float = 1.0

    def sentence(self, target: Tensor, labels: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The tokens (length,) nearest to the best solution from a few starts with each of some labels; its label."""
        table, length = self.response.embeddings, self.response.bank.inputs.shape[1]
        y = labels.to(table.device).repeat_interleave(TOGETHER)
        drawn = torch.from_numpy(draw.standard_normal((len(y), length, table.shape[1]))).to(table)
        e = table.mean(0) + START * table.std() * drawn
        value, jacobian = self.response.linearised(e, y)
        searches = [
            GameSearch(Point(*each[:3]), Linearised.of(each[3]), target, fresh=True)
            for each in zip(e.flatten(1), y, value - target, jacobian.flatten(2), strict=True)
        ]
        for noise, steps in STAGES:
            stage = replace(self, noise=noise)
            self.linearise([search for search in searches if not search.fresh])
            for search in searches:
                search.damping = DAMPING
            stage.descend(searches, RULE, steps - 1)
        a, residual = (torch.stack([search.point[place] for search in searches]).unsqueeze(1) for place in (0, 2))
        best = searches[int(stage.values(searches, a, residual).argmin())].point
        return self.nearest(best.a.view(length, -1).to(table), best.label, 1)[:, 0], best.label

    def nearest(self, e: Tensor, y: Tensor, shortlist: int, target: Tensor | None = None) -> Tensor:
        """(length, shortlist) the tokens nearest to embeddings (length, d), in the metric of their precision.

        With a target, nearest to where one step of Gauss-Newton leads; the noise is then what is left, or 1.
        """
        value, jacobian = self.response.linearised(e[None], y.to(e.device)[None])
        length, d = e.shape
        residual = torch.zeros_like(value[0]) if target is None else value[0] - target
        point = Point(e.flatten(), y, residual)
        here = replace(self, noise=max(1.0, float(residual.square().mean().sqrt())))
        precision, slope, _ = here.quadratic(GameSearch(point, Linearised.of(jacobian[0].flatten(1)), residual))
        table, place = self.response.embeddings.double(), e.double()
        if target is not None:
            place = place - torch.linalg.solve(precision, slope).view(length, d)
        spread = torch.linalg.inv(precision).view(length, d, length, d)
        tokens = []
        for position in range(length):
            away = table - place[position]  # (v, d)
            far = (away @ torch.linalg.inv(spread[position, :, position]) * away).sum(1)
            tokens.append(far.topk(min(shortlist, len(table)), largest=False).indices)
        return torch.stack(tokens)

    def residuals(self, searches: Sequence[GameSearch[Linearised]], tried: Tensor) -> Tensor:
        """(g, f, r) the response at embeddings (g, f, n), less the target."""
        y = torch.stack([search.point.label for search in searches]).repeat_interleave(tried.shape[1])
        value = self.response.of_embeddings(self._embeddings(tried.flatten(0, 1)), y).view(*tried.shape[:2], -1)
        return value - torch.stack([search.released for search in searches]).unsqueeze(1)

    def values(self, searches: Sequence[GameSearch[Linearised]], tried: Tensor, residuals: Tensor) -> Tensor:
        """(g, f) the sum that is minimised."""
        mean, variance = self._prior(tried)
        return (residuals / self.noise).square().sum(2) + (tried - mean).square().sum(2) / variance

    def linearise(self, searches: Sequence[GameSearch[Linearised]]) -> None:
        if searches:
            e = self._embeddings(torch.stack([search.point.a for search in searches]))
            _, jacobian = self.response.linearised(e, torch.stack([search.point.label for search in searches]))
            for search, each in zip(searches, jacobian.flatten(2), strict=True):
                search.linear, search.fresh, search.jacobians = Linearised.of(each), True, search.jacobians + 1

    def quadratic(self, search: GameSearch[Linearised]) -> tuple[Tensor, Tensor, Tensor]:
        """Half of the sum's Hessian (n, n) and half its gradient (n,), by Gauss-Newton; damped as by Marquardt."""
        mean, variance = self._prior(search.point.a)
        jacobian, normal = search.linear
        unit = torch.eye(len(normal), dtype=torch.float64, device=normal.device)
        pulled = jacobian.double().mT @ search.point.residual.double()
        slope = pulled / self.noise**2 + ((search.point.a - mean) / variance).double()
        precision = normal / self.noise**2 + unit / float(variance)
        return precision, slope, precision.diagonal()

    def _embeddings(self, a: Tensor) -> Tensor:
        table = self.response.embeddings
        return a.to(table).view(len(a), -1, table.shape[1])

    def _prior(self, a: Tensor) -> tuple[Tensor, Tensor]:
        table = self.response.embeddings
        return table.mean(0).repeat(a.shape[-1] // table.shape[1]), table.var(0).mean()


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
        table = self.net.get_submodule(self.response.table)
        filling = table.padding_idx if isinstance(table, nn.Embedding) else None
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
