"""What a sentence does to the weights, to first order, in a few directions; and the search in embedding space.

With a frozen table, what a sentence does to the weights is a smooth function of its embeddings e (length, d). With
more directions than these have numbers, the most probable e is found as in nonlinear least squares,

    min_e  sum_j (target_j - response_j(e))^2 / noise^2 + |e - mean|^2 / variance,

responses in units of their error on models that were trained, mean and variance those of the table. The noise falls to
1 in a few stages: a wide valley first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.least_squares import Dense, GameSearch, Linearised, Point, Rule
from lostwax.games import Records
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
