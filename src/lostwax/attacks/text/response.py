"""What a sentence does to the weights, to first order, in a few directions; and its derivative in embedding space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.games import Records
from lostwax.trainers.derivatives import quiet
from lostwax.trainers.linear_response import Adjoints, BaseStep, flat

AT_A_TIME = 256  # sentences


@dataclass(frozen=True, eq=False)
class SentenceResponse:
    """Responses in directions of weight space, in units of their deviation over the bank of sentences."""

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
        rows = adjoints.base.kept[0].params[name][0] if name in adjoints.base.end else net.constants[name]
        return cls(adjoints, directions, scale, bank, found / scale, table, rows)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """(m, r) of sentences (m, length) with labels (m,)."""
        parts = zip(torch.split(x, AT_A_TIME), torch.split(y, AT_A_TIME), strict=True)
        return torch.cat([self.adjoints(Records(*part)) for part in parts]) / self.scale

    def seen(self, weights: Tensor) -> Tensor:
        """(m, r) the same of released weights (m, p)."""
        return (weights - flat(self.adjoints.base.end)) @ self.directions.mT / self.scale

    def jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """(r, length, d) the derivative of one sentence's response with respect to its embeddings."""
        base, moved = self.adjoints.base, torch.zeros(len(x), self.embeddings.shape[1]).to(self.embeddings)
        held = [moved]
        hook = base.net.net.get_submodule(self.table).register_forward_hook(lambda _, inputs, out: out + held[0])

        def response(offset: Tensor) -> Tensor:
            held[0] = offset
            total = self.scale.new_zeros(len(self.scale))
            for (step, push), weight in zip(self.adjoints.swept, self.adjoints.weights, strict=True):
                total = total + weight * (push @ _slope(step))
            return total / self.scale

        def _slope(step: BaseStep) -> Tensor:
            return torch.cat([value.flatten() for value in base.slope(step, x, y).values()])

        try:
            with quiet():
                found: Tensor = torch.func.jacfwd(response)(moved)
        finally:
            hook.remove()
        return found
