"""Shadow heads to learn from, made when they are asked for and never kept: they are cheaper to train than to store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lostwax.games import Release
from lostwax.learning.standardise import Standardise
from lostwax.shadows import Game

if TYPE_CHECKING:
    pass


class Scale(NamedTuple):
    """What is read of a head, in deviations from the mean head."""

    standardise: Standardise
    alike: bool  # tokens have one mean and deviation, so that they can change places

    @classmethod
    def fit(cls, seen: Tensor, *, alike: bool) -> Scale:
        """From (m, tokens, numbers). A number that does not move is read as its mean: tokens keep their size."""
        moving = Standardise.fit(_rows(seen, alike))
        count, kept = moving.features, moving.kept
        mean = moving.mean.new_zeros(count).index_copy(0, kept, moving.mean)
        deviation = moving.mean.new_full((count,), torch.inf).index_copy(0, kept, moving.deviation)
        every = torch.arange(count, device=kept.device)
        return cls(Standardise(every, mean, deviation, count, moving.reach), alike)

    def __call__(self, seen: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, tokens, numbers) twice."""
        return self.standardise(_rows(seen, self.alike), dtype).view(seen.shape)


class Heads(NamedTuple):
    """The shadow heads of a game, each beside its secrets.

    The game's pool holds records in the decoder's coordinates (Span) as x, and what the head trains on as features.
    """

    game: Game
    see: Callable[[Release], Tensor]  # (m, tokens, numbers)
    scale: Scale

    @classmethod
    def of(cls, game: Game, see: Callable[[Release], Tensor], *, alike: bool, models: int) -> Heads:
        """At the scale of the first so many heads."""
        tile = game.tile()
        cut = (range(start, min(start + tile, models)) for start in range(0, models, tile))
        seen = torch.cat([see(game.trainer(game.net, game.deal(some), seed=game.seed)) for some in cut])
        broken = int((~seen.flatten(1).isfinite().all(1)).sum())
        if broken:
            raise ValueError(
                f"WeakRecoNN: {broken} of {models} shadow models hold NaN or infinite numbers: the victim's training "
                "diverges. Lower its learning rate."
            )
        return cls(game, see, Scale.fit(seen, alike=alike))

    def made(self, numbers: range) -> tuple[Tensor, Tensor]:
        """The heads with these numbers: what is read of them (m, tokens, numbers), and their secrets (m, k, ...)."""
        cohort = self.game.deal(numbers)
        seen = self.see(self.game.trainer(self.game.net, cohort, seed=self.game.seed))
        return self.scale(seen, cohort.own.x.dtype), cohort.own.x

    def batches(self, steps: range, size: int, shadows: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """The batch of each step: fresh heads, or those of a fixed set of `shadows` over and over.

        A batch that comes to the end of the set goes on at its beginning, so that all are learnt from, equally often.
        Heads are trained a tile at a time, many steps' worth, and nothing waits for the device in between.
        """
        tile = self.game.tile()
        while steps:
            first, together = steps.start * size, min(max(tile // size, 1), len(steps))
            if shadows is not None:
                first %= shadows
                together = max(min(together, (shadows - first) // size), 1)
            last = first + together * size
            over = 0 if shadows is None else max(last - shadows, 0)  # of heads that are the set's first again
            parts = [self.made(some) for some in (range(first, last - over), range(over)) if some]
            tokens, secrets = (torch.cat(part) for part in zip(*parts, strict=True))
            for rows in torch.split(torch.randperm(len(tokens), device=tokens.device), size):
                yield tokens[rows], secrets[rows]
            steps = steps[together:]


def _rows(seen: Tensor, alike: bool) -> Tensor:
    return seen.flatten(0, 1) if alike else seen.flatten(1)
