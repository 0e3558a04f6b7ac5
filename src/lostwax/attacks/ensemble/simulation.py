"""Models trained on candidates, by the victim's own trainer, and what they teach about records."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.ensemble.cloud import like_the_prior
from lostwax.attacks.ensemble.frame import Frame
from lostwax.attacks.ensemble.regression import Reading
from lostwax.seeds import generator
from lostwax.shadows import Local
from lostwax.threats.in_order import InOrder
from lostwax.types import Knowledge, Records


class First(NamedTuple):
    """A regression over records like the prior's, of one class."""

    reading: Reading
    seen: Tensor  # (s, features) of its models
    members: Tensor  # (s, q) their records

    @property
    def variance(self) -> float:
        """Of a coordinate of its members, on average."""
        return float(self.members.var(0).mean())


class Simulator(NamedTuple):
    """The adversary's own trainings. Their seed is never the game's: the victim's private draws are not drawn here."""

    knowledge: Knowledge
    known: Records
    frame: Frame
    members: int
    seed: int

    def first(self, label: int, *, attempt: int) -> First:
        """The first ensemble of a class, the same for all games; another at each attempt."""
        prior = self.knowledge.prior
        z = self.frame.coordinates(prior)  # (n, q)
        groups = torch.zeros_like(prior.y, dtype=torch.long) if prior.y.is_floating_point() else prior.y
        classes, group = torch.unique(groups.reshape(len(z), -1)[:, 0], return_inverse=True)
        means = torch.stack([z[group == number].mean(0) for number in range(len(classes))])  # (classes, q)
        random = generator(self.seed, "adversary", "prior", label, attempt)
        drawn = like_the_prior(z[classes[group] == label], z - means[group], self.members, random)
        members = self.frame.within(drawn, torch.full_like(z[0], torch.nan))
        return First(*self._regressed(members, label, "first", attempt))

    def reading(self, members: Tensor, label: int, *purpose: int | str) -> Reading:
        """The regression over models trained on each of the members (s, q)."""
        return self._regressed(members, label, *purpose)[0]

    def _regressed(self, members: Tensor, label: int, *purpose: int | str) -> tuple[Reading, Tensor, Tensor]:
        """It, its models and their records, without those that diverged."""
        seen = self.seen(members, torch.full((len(members),), label), *purpose)
        finite = seen.isfinite().all(1)  # (s,)
        if 2 * int(finite.sum()) < len(seen):
            raise ValueError(
                f"Ensemble: {int((~finite).sum())} of {len(seen)} simulated models hold NaN or infinite numbers: the "
                "victim's training diverges. Lower its learning rate."
            )
        seen, members = seen[finite], members[finite]
        return Reading.fit(seen, members), seen, members

    def seen(self, members: Tensor, labels: Tensor, *purpose: int | str) -> Tensor:
        """(s, features) what would be seen of the victim, had each of the members (s, q) been its secret."""
        net, trainer, access = self.knowledge.net, self.knowledge.trainer, self.knowledge.access
        candidates = self.frame.records(members, labels)
        own_seed = int(generator(self.seed, "adversary", *purpose).integers(2**63))
        chunks = Local()(trainer, net, InOrder(self.known), candidates, models=len(candidates), seed=own_seed)
        return torch.cat([access(net, release) for _, release in chunks]).to(members.device)
