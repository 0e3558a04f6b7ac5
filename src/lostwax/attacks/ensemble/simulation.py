"""Models trained on candidates, by the victim's own trainer, and what they teach about records."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.ensemble.regression import Reading
from lostwax.games import Hints, Knowledge, Records
from lostwax.games.informed import InOrder
from lostwax.learning.coordinates import Coordinates, as_records, flat
from lostwax.seeds import generator
from lostwax.shadows import Local

# A record as a row of numbers, to be regressed, drawn and clipped.


class Frame(NamedTuple):
    """Coordinates of a record, one a number, and of its label where that is a number too.

    A class is no coordinate: every class has an ensemble of its own.
    """

    unknowns: Coordinates
    like: Records  # one record, for shapes and dtypes

    @classmethod
    def of(cls, prior: Records) -> Frame:
        """The frame of records like the prior's."""
        return cls(Coordinates.of(prior, constants=True), prior[:1])

    @property
    def device(self) -> torch.device:
        """Where all is computed."""
        return self.unknowns.origin.device

    @property
    def unit(self) -> Tensor:
        """(q,) what one of each coordinate is in the record's own numbers."""
        return self.unknowns.directions.diagonal()

    def coordinates(self, records: Records) -> Tensor:
        """(n, q) in float64."""
        return self.unknowns.of_records(flat(records))

    def records(self, coordinates: Tensor, classes: Tensor) -> Records:
        """(n, q) and (n,) -> records in the prior's dtype; where labels are numbers, the classes are not used."""
        return as_records(self.unknowns(coordinates), classes, self.like)

    def within(self, coordinates: Tensor, told: Tensor) -> Tensor:
        """(n, q) moved into the prior's range, and as told (q,) where something is; nan where it is not."""
        inside = self.unknowns.clamped(coordinates)
        return torch.where(told.isnan(), inside, told)

    def told(self, hints: Hints | None, game: int) -> Tensor:
        """(q,) the coordinates of a game's secret that the hints tell, nan for the others."""
        x, y = (part.new_full(part.shape, torch.nan, dtype=torch.float64) for part in (self.like.x, self.like.y))
        if hints is not None and hints.parts is not None:
            x = hints.parts[game].to(x)  # (1, ...), k = 1
        if hints is not None and hints.labels is not None:
            y = hints.labels[game].to(y)
        z = flat(Records(x, y if self.like.y.is_floating_point() else self.like.y))[0]  # (q,)
        numbers = self.unknowns.of_records(torch.where(z.isnan(), self.unknowns.origin, z))
        return torch.where(z.isnan(), torch.nan, numbers)


# Candidate records: around a point, or like the prior's.


class Cloud(NamedTuple):
    """A Gaussian cloud, told by deviations rather than by a covariance: theirs is  deviations^T deviations / s."""

    centre: Tensor  # (q,)
    deviations: Tensor  # (s, q)

    @property
    def variance(self) -> float:
        """Of a coordinate, on average."""
        return float(self.deviations.square().mean())

    def no_wider_than(self, variance: float) -> Cloud:
        """The cloud shrunk, where it must be: what the models do not tell would otherwise grow from round to round."""
        if self.variance <= variance:
            return self
        return self._replace(deviations=self.deviations * math.sqrt(variance / self.variance))

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """(count, q) random sums of deviations: their covariance, without a matrix of it."""
        s = len(self.deviations)
        weights = torch.from_numpy(random.standard_normal((count, s))).to(self.deviations)
        return self.centre + weights @ self.deviations / math.sqrt(s)


def inflation(novelty: float, margin: float) -> float:
    """What the covariance of the errors on members left out is multiplied by, to draw the next cloud.

    A constant cannot serve: at 1 some clouds close beside the record and never find it, at 6 all close slowly. The
    novelty of the release makes of the members' errors its own: a cloud that missed the record is followed by a larger
    one, one that has it in its middle by a smaller (`benchmarks/ensemble_inflation.py`).
    """
    return margin * novelty


def like_the_prior(own: Tensor, pooled: Tensor, count: int, random: np.random.Generator) -> Tensor:
    """(count, q) records of one class: as many of its own (n, q) as there are, and then draws.

    These scatter around the mean of the class as all records do around the means of theirs, by the deviations `pooled`
    (s, q): the few records of a small class would span too little.
    """
    chosen, scattered = (
        part[torch.from_numpy(random.permutation(len(part))[:count]).to(part.device)] for part in (own, pooled)
    )
    more = Cloud(own.mean(0), scattered).draw(count - len(chosen), random)
    return torch.cat([chosen, more])


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
