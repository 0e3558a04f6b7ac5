"""What if the informed adversary does not know everything else? S1's MNIST victim, with k unknown training records.

    python papers/s1_partly_informed.py [--unknown 1 10 100 1000] [--attack kernel reconn] [--device cuda]
    python papers/s1_partly_informed.py --digits    # everything small, on a CPU, in a minute

S1 (section VII) leaves it open: "trade off knowledge of the fixed dataset with the diffusion of the prior". Here the
training set has 10,001 records, of which the adversary knows all but k; the others are drawn like the prior. One of the
k is the target, whose label is given; k = 1 is S1's game.

Shadow sets are the known records, k - 1 draws of the prior, and a candidate. None is trained: to first order the
unknown records only add their own linear responses, which are computed once, one for each record of the prior, around
one base model for all k. Its training set holds public stand-ins in the places of the most unknown records; for a
smaller k the first k - 1 of them stand in, and the others are known records. Shadow set i is then seen as

    response(candidate i) + sum_j response(unknown j) - sum_j response(stand-in j).

`--checked` sets are trained, to see how much of this is true (R^2), and as the held-out set of the attacks. Victims are
trained. Errors are mean squared over pixels. "Nearest unknown" is the error beside the nearest of all k unknown
records: the attack cannot know which of them is meant.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from s1_mnist import VICTIM, mean_row, rate_row, squared_errors, write
from torch import Tensor

import lostwax as lw
from lostwax.games import Cohort, Hints, Knowledge, Records, Release
from lostwax.learning.shadow_tables import ShadowTable, shadow_tables, targets
from lostwax.metrics import nearest_neighbour
from lostwax.seeds import generator
from lostwax_dev.results import Row, add_options

LARGE = {"records": 10_000, "shadows": 45_000, "targets": 200, "checked": 64, "directions": 512}
SMALL = {"records": 200, "shadows": 1_000, "targets": 20, "checked": 32, "directions": 64}


@dataclass(frozen=True)
class Data:
    """Disjoint parts of the data set, on the device."""

    known: Records
    prior: Records
    secrets: Records
    crowd: Records  # the unknown records of victims, beside the target

    @classmethod
    def of(cls, options: argparse.Namespace) -> Data:
        """All that is left of the data set is the crowd."""
        data = lw.records.digits() if options.digits else lw.records.mnist("all", root=options.data)
        sizes = [options.records, options.shadows, options.targets]
        parts = data.split(*sizes, len(data) - sum(sizes), seed=options.seed)
        return cls(*(part.to(options.device) for part in parts))


@dataclass(frozen=True)
class Sets:
    """Training sets that share the known records: `own` begins with the candidate."""

    shared: Records
    own: Records  # (m, k, ...)

    def train(self, knowledge: Knowledge, seed: int) -> Release:
        """A model for each."""
        index = torch.arange(len(self.own), device=self.own.x.device)
        return knowledge.trainer(knowledge.net, Cohort(self.shared, self.own, index), seed=seed)


def drawn(records: Records, first: Tensor, others: int, *purpose: int | str) -> Tensor:
    """(m, k) rows of a pool: one that is given, then others at random."""
    rng = generator(*purpose)
    rest = np.stack([rng.choice(len(records), others, replace=False) for _ in first])
    return torch.cat([first[:, None], torch.from_numpy(rest).to(first)], 1)


def rows_of(records: Records, pool: Records) -> Tensor:
    """The rows of a pool where these records are."""
    places = {row.tobytes(): place for place, row in enumerate(pool.x.flatten(1).cpu().numpy())}
    return torch.tensor([places[row.tobytes()] for row in records.x.flatten(1).cpu().numpy()], dtype=torch.long)


@dataclass(frozen=True)
class Base:
    """The model around which responses are computed, and those of the records that no training set holds."""

    knowledge: Knowledge  # as the attack sees models
    single: ShadowTable  # responses; of the stand-ins the first
    known: Records  # by every k
    stand_ins: Records

    @classmethod
    def of(cls, attack: lw.KernelRidge, data: Data, most: int, seed: int) -> Base:
        """One for up to `most` unknown records."""
        known = data.known[: len(data.known) - (most - 1)]
        stand_ins = targets(attack, data.prior, seed)[0][: most - 1]
        base = Records.together([known, stand_ins])
        net = lw.nets.mlp(data.prior.x[0].numel(), 10, 10)
        knowledge = Knowledge(net, VICTIM, lw.Informed(base), lw.access.Weights(), data.prior)
        knowledge, single, _ = shadow_tables(attack, knowledge, seed)
        if not single.seen.shape[1] <= attack.engine.directions:
            raise RuntimeError("training does not respond linearly: see the attack's notes")
        places = rows_of(stand_ins, single.records)
        others = torch.ones(len(single.records), dtype=torch.bool)
        others[places] = False
        order = torch.cat([places, others.nonzero()[:, 0]]).to(single.seen.device)
        return cls(knowledge, ShadowTable(single.seen[order], single.records[order]), known, stand_ins)

    def known_of(self, k: int) -> Records:
        """What the adversary knows who misses k records."""
        return Records.together([self.known, self.stand_ins[k - 1 :]])

    def tables(self, k: int, options: argparse.Namespace) -> tuple[ShadowTable, ShadowTable, float]:
        """Shadow sets, trained ones, and how far responses explain those (R^2)."""
        away = self.single.seen[: k - 1].sum(0)  # (r,)
        free = ShadowTable(*(part[len(self.stand_ins) :] for part in self.single[:2]))
        shadows = len(free.records)
        rows = drawn(free.records, torch.arange(shadows), k - 1, options.seed, "shadow sets", k).to(free.seen.device)
        seen = torch.nn.functional.embedding_bag(rows, free.seen, mode="sum") - away
        some = rows[:: max(1, shadows // options.checked)][: options.checked]
        sets = Sets(self.known_of(k), free.records[some])
        trained = self.knowledge.access(self.knowledge.net, sets.train(self.knowledge, options.seed + 1))
        expected = seen[some[:, 0]]
        left, spread = trained - expected, trained - trained.mean(0)
        r2 = float(1 - (left - left.mean(0)).square().sum() / spread.square().sum())
        held_out = torch.ones(shadows, dtype=torch.bool, device=seen.device)
        held_out[some[:, 0]] = False
        table = ShadowTable(seen[held_out], free.records[held_out])
        return table, ShadowTable(trained, free.records[some[:, 0]], responses=expected), r2


def play(k: int, data: Data, base: Base, kernel: lw.KernelRidge, options: argparse.Namespace) -> list[Row]:
    """All attacks against the same victims, with k unknown records."""
    knowledge, (shadows, unseen, r2) = base.knowledge, base.tables(k, options)
    count, device = len(data.secrets), data.secrets.x.device
    others = drawn(data.crowd, torch.arange(count, device=device), k - 1, options.seed, "crowd", k)[:, 1:]
    own = Records.together([data.secrets[torch.arange(count, device=device)[:, None]], data.crowd[others]], 1)
    release = Sets(base.known_of(k), own).train(knowledge, options.seed)
    hints = Hints(labels=data.secrets.y[:, None])
    rows = [Row(f"{k}.r2", f"{k} unknown: R^2 of responses, {len(unseen.records)} trained sets", r2)]
    for name in options.attack:
        if name == "kernel":
            learnt = kernel.learn(knowledge, shadows, unseen)
        else:
            learnt = lw.RecoNN(epochs=options.epochs).learn(knowledge, shadows, unseen, seed=options.seed)
        guess = learnt(release, hints).records.x[:, 0]
        apart = (own.x - guess[:, None]).double().square().flatten(2).mean(2)  # (targets, k)
        errors, nearest = apart[:, 0].cpu().numpy(), apart.amin(1).cpu().numpy()
        what = f"{k} unknown, {name}"
        rows += [
            mean_row(f"{k}.{name}", f"{what}: mean MSE ({count} targets, label given)", errors),
            mean_row(f"{k}.{name}.nearest", f"{what}: mean MSE beside the nearest unknown record", nearest),
            rate_row(f"{k}.{name}.beats", f"{what}: share nearer than class mean and nearest prior record",
                     errors < np.minimum(*baselines(data))),
        ]  # fmt: skip
    return rows


def baselines(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """(targets,) errors of the mean of the target's class, and of the nearest record of prior and known ones."""
    means = torch.stack([data.prior.x[data.prior.y == label].mean(0) for label in range(10)])
    pool = torch.cat([data.prior.x, data.known.x]).double()
    nearest = nearest_neighbour(data.secrets.x.double(), pool, percentiles=()).errors
    return squared_errors(means[data.secrets.y], data.secrets.x), nearest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unknown", type=int, nargs="+", help="records that the adversary does not know")
    parser.add_argument("--attack", nargs="+", choices=["kernel", "reconn"], default=["kernel"])
    parser.add_argument("--digits", action="store_true", help="small, with scikit-learn's digits")
    parser.add_argument("--data", help="folder of the data sets; else LOSTWAX_DATA")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=30, help="of RecoNN's decoder")
    parser.add_argument("--seed", type=int, default=0)
    for name, size in LARGE.items():
        parser.add_argument(f"--{name}", type=int, help=f"default {size:,}")
    add_options(parser, LARGE)
    options = parser.parse_args()
    sizes = SMALL if options.digits else LARGE
    for name, size in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, size)
    options.unknown = options.unknown or ([1, 3, 10, 30] if options.digits else [1, 10, 100, 1_000])
    data = Data.of(options)
    mean, nearest = baselines(data)
    write(__file__, [
        mean_row("class_mean", "mean MSE of the mean of the target's class", mean),
        mean_row("nearest", "mean MSE of the nearest record of prior and known ones", nearest),
    ], options)  # fmt: skip
    kernel = lw.KernelRidge(engine=lw.shadows.LinearResponse(directions=options.directions, checked=options.checked))
    base = Base.of(kernel, data, max(options.unknown), options.seed)
    for k in options.unknown:
        write(__file__, play(k, data, base, kernel, options), options)


if __name__ == "__main__":
    main()
