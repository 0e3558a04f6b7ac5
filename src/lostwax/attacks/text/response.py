"""What a sentence does to the weights, to first order, in a few directions; and its derivative in embedding space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
        found = torch.cat([adjoints(bank[first : first + AT_A_TIME]) for first in range(0, len(bank), AT_A_TIME)])
        scale = found.std(0).clamp_min(torch.finfo(found.dtype).tiny)
        net = adjoints.base.net
        name = f"{table}.weight"
        rows = adjoints.base.states[0].params[name][0] if name in adjoints.base.end else net.constants[name]
        return cls(adjoints, directions, scale, bank, found / scale, table, rows)

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
            found: Tensor = torch.func.vmap(response)(e, y)
        return found

    def linearised(self, e: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and its derivative with respect to the embeddings, (m, r, length, d)."""
        with self._embedded() as response:

            def twice(e: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
                found = response(e, y)
                return found, found

            jacobian, value = torch.func.vmap(torch.func.jacfwd(twice, has_aux=True))(e, y)
        return value, jacobian

    @contextmanager
    def _embedded(self) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
        """The response of one sentence (length, d) with a label, as a function: its embeddings replace the table's."""
        base, held = self.adjoints.base, [self.embeddings]
        numbers = self.bank.inputs.new_zeros(self.bank.inputs.shape[1])

        def response(e: Tensor, y: Tensor) -> Tensor:
            held[0] = e
            total = torch.zeros_like(self.scale)
            for step, push in self.adjoints.swept:
                slope = torch.cat([value.flatten() for value in base.slope(step, numbers, y).values()])
                total = total + push @ slope
            return total / self.scale

        table = base.net.net.get_submodule(self.table)
        hook = table.register_forward_hook(lambda _, inputs, out: held[0].expand_as(out))
        try:
            with quiet():
                yield response
        finally:
            hook.remove()
