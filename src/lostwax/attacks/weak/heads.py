"""Shadow heads to learn from, trained when needed and not stored: training them is cheaper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Release
from lostwax.learning.standardise import Standardise
from lostwax.shadows import Game


class HeadScale(NamedTuple):
    """What is read of a head, standardised."""

    standardise: Standardise
    alike: bool  # all tokens share one mean and deviation

    @classmethod
    def fit(cls, seen: Tensor, *, alike: bool) -> HeadScale:
        """From (m, tokens, numbers). A constant number is read as its mean, so that tokens keep their size."""
        moving = Standardise.fit(_rows(seen, alike))
        count, kept = moving.features, moving.kept
        mean = moving.mean.new_zeros(count).index_copy(0, kept, moving.mean)
        deviation = moving.mean.new_full((count,), torch.inf).index_copy(0, kept, moving.deviation)
        every = torch.arange(count, device=kept.device)
        return cls(Standardise(every, mean, deviation, count, moving.reach), alike)

    def __call__(self, seen: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, tokens, numbers) -> the same shape."""
        return self.standardise(_rows(seen, self.alike), dtype).view(seen.shape)


class Heads(NamedTuple):
    """The shadow heads of a game, with their secrets.

    The game's pool holds records in the decoder's coordinates (Span) as x, and the head's inputs as features.
    """

    game: Game
    see: Callable[[Release], Tensor]  # (m, tokens, numbers)
    scale: HeadScale

    @classmethod
    def of(cls, game: Game, see: Callable[[Release], Tensor], *, alike: bool, models: int) -> Heads:
        """Standardised over the first `models` heads."""
        tile = game.tile()
        cut = (range(start, min(start + tile, models)) for start in range(0, models, tile))
        seen = torch.cat([see(game.trainer(game.net, game.deal(some), seed=game.seed)) for some in cut])
        broken = int((~seen.flatten(1).isfinite().all(1)).sum())
        if broken:
            raise ValueError(
                f"WeakRecoNN: {broken} of {models} shadow models hold NaN or infinite numbers: the victim's training "
                "diverges. Lower its learning rate."
            )
        return cls(game, see, HeadScale.fit(seen, alike=alike))

    def trained(self, numbers: range) -> tuple[Tensor, Tensor]:
        """Train the heads with these numbers: what is read of them (m, tokens, numbers), and secrets (m, k, ...)."""
        cohort = self.game.deal(numbers)
        seen = self.see(self.game.trainer(self.game.net, cohort, seed=self.game.seed))
        return self.scale(seen, cohort.own.x.dtype), cohort.own.x

    def batches(self, steps: range, size: int, shadows: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """The batch of each step: fresh heads, or those of a fixed set of `shadows`, cyclically.

        Heads are trained a tile at a time, for many steps, without waiting for the device.
        """
        tile = self.game.tile()
        while steps:
            first, together = steps.start * size, min(max(tile // size, 1), len(steps))
            if shadows is not None:
                first %= shadows
                together = max(min(together, (shadows - first) // size), 1)
            last = first + together * size
            over = 0 if shadows is None else max(last - shadows, 0)  # beyond the end of the set: its first ones again
            parts = [self.trained(some) for some in (range(first, last - over), range(over)) if some]
            tokens, secrets = (torch.cat(part) for part in zip(*parts, strict=True))
            for rows in torch.split(torch.randperm(len(tokens), device=tokens.device), size):
                yield tokens[rows], secrets[rows]
            steps = steps[together:]


def _rows(seen: Tensor, alike: bool) -> Tensor:
    return seen.flatten(0, 1) if alike else seen.flatten(1)
