"""How often `lw.check_dp` finds planted faults in settings that it was not tuned on.

Every check has its own net, data, batches, noise, clipping norm and learning rate, drawn at random from its number. The
settings follow the advice of docs/dp_claims.md (a small net, noise such that the claim says something), and no more.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import lostwax as lw
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, write_rows

FIRST = 5000  # settings of smaller seeds were seen while the rules were chosen
FAULTS = {
    "clean": "none",
    "noise by batch size": "the noise is divided by the batch size twice",
    "clip after averaging": "the mean gradient is clipped, not each record's",
    "last weights": "the weights of the last layer get no noise",
    "last bias": "the bias of the last layer gets no noise",
    "shuffled": "batches of a shuffled order, called Poisson sampling",
    "accumulation": "four batches are added up and counted as one",
    "batch norm": "batch norm mixes the records of a batch; its averages are not released",
    "batch norm, buffers": "the same, and its averages are released",
    "fixed seed": "the noise generator is seeded by a constant in every run",
    "seed of every step": "the noise generator is seeded again in every step, with the run's seed",
}


@dataclass(frozen=True)
class Setting:
    """A training with a claim."""

    features: int
    hidden: tuple[int, ...]
    classes: int
    records: int
    per_epoch: int
    epochs: int
    noise: float
    clip: float
    lr: float
    tanh: bool
    seed: int

    @classmethod
    def drawn(cls, seed: int) -> "Setting":
        """Random, but such that the claim permits between 0.6 and 0.85 of the games."""
        random = np.random.default_rng([26, seed])
        while True:
            hidden = tuple(random.integers(4, 17, size=random.integers(1, 3)).tolist())
            sizes = random.integers([4, 2, 40, 4, 2], [17, 5, 121, 13, 5]).tolist()  # features ... epochs
            low, high = np.log([0.5, 0.1, 0.03]), np.log([1.5, 0.6, 0.3])
            noise, clip, lr = np.exp(random.uniform(low, high)).tolist()
            found = cls(sizes[0], hidden, *sizes[1:], noise, clip, lr, bool(random.integers(2)), seed)
            if 0.6 <= lw.bound(**found.claim, baseline=0.5, tolerance=1e-2).upper <= 0.85:
                return found

    @property
    def claim(self) -> dict:
        """What the code says of itself."""
        sampling = lw.bounds.Poisson(1 / self.per_epoch)
        return {"noise_multiplier": self.noise, "steps": self.per_epoch * self.epochs, "sampling": sampling}

    def net(self, fault: str) -> nn.Sequential:
        torch.manual_seed(self.seed)
        layers: list[nn.Module] = []
        width = self.features
        for size in self.hidden:
            layers.append(nn.Linear(width, size))
            if fault.startswith("batch norm"):
                layers.append(nn.BatchNorm1d(size, affine=False, track_running_stats=fault.endswith("buffers")))
            layers.append(nn.Tanh() if self.tanh else nn.ReLU())
            width = size
        return nn.Sequential(*layers, nn.Linear(width, self.classes))

    def data(self) -> lw.Records:
        draws = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.records, self.features, generator=draws)
        return lw.Records(x, torch.arange(self.records) % self.classes)


def slopes(net: nn.Sequential, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Per linear layer: (b, out) the slope of each record's loss by its outputs, and (b, in + 1) its inputs."""
    given, inputs = [], []
    for layer in net:
        if isinstance(layer, nn.Linear):
            inputs.append(torch.cat([x.detach(), torch.ones(len(x), 1)], 1))
            x = layer(x)
            given.append(x)
        else:
            x = layer(x)
    loss = nn.functional.cross_entropy(x, y, reduction="sum")
    return list(zip(torch.autograd.grad(loss, given), inputs, strict=True))


def batches(setting: Setting, fault: str, records: int, draws: torch.Generator) -> list[Tensor]:
    """The records of every step."""
    per_epoch, epochs = setting.per_epoch, setting.epochs
    if fault == "shuffled":
        return [
            part for _ in range(epochs) for part in torch.randperm(records, generator=draws).tensor_split(per_epoch)
        ]
    times = 4 if fault == "accumulation" else 1
    drawn = [torch.rand(times, records, generator=draws) < 1 / per_epoch for _ in range(per_epoch * epochs)]
    return [one.nonzero()[:, 1] for one in drawn]


def train(net: nn.Sequential, x: Tensor, y: Tensor, seed: int, *, setting: Setting, fault: str) -> nn.Module:
    """DP-SGD with per-record gradients from layer inputs and output slopes, as libraries do, with one fault or none."""
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    optimiser = torch.optim.SGD(net.parameters(), lr=setting.lr)
    clip, expected = setting.clip, len(x) / setting.per_epoch
    draws, noise = (torch.Generator().manual_seed(2 * seed + k) for k in (0, 1))
    if fault == "fixed seed":
        noise.manual_seed(0)
    for batch in batches(setting, fault, len(x), draws):
        if fault == "seed of every step":
            noise.manual_seed(seed)
        totals = [torch.zeros(layer.out_features, layer.in_features + 1) for layer in linear]
        if len(batch) > fault.startswith("batch norm"):
            parts = slopes(net, x[batch], y[batch])
            if fault == "clip after averaging":
                means = [slope.mT @ before / len(batch) for slope, before in parts]
                norm = torch.cat([value.flatten() for value in means]).norm().clamp_min(1e-12)
                totals = [value * (clip / norm).clamp_max(1) * expected for value in means]
            else:
                squares = sum(slope.square().sum(1) * before.square().sum(1) for slope, before in parts)
                factor = (clip / squares.sqrt().clamp_min(1e-12)).clamp_max(1).unsqueeze(1)
                totals = [(slope * factor).mT @ before for slope, before in parts]
        for layer, total in zip(linear, totals, strict=True):
            scale = torch.full_like(total, setting.noise * clip / (expected if fault == "noise by batch size" else 1))
            if layer is linear[-1] and fault.startswith("last"):
                scale[:, slice(-1) if fault == "last weights" else slice(-1, None)] = 0.0
            noisy = (total + scale * torch.randn(total.shape, generator=noise)) / expected
            layer.weight.grad, layer.bias.grad = noisy[:, :-1], noisy[:, -1]
        optimiser.step()
    return net


def check(fault: str, seed: int, games: int, trials: int) -> lw.claims.ClaimCheck:
    setting = Setting.drawn(seed)
    function = partial(train, setting=setting, fault=fault)
    return lw.check_dp(
        setting.net(fault), setting.data(), function, **setting.claim, seed=seed, games=games, trials=trials
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=20, help="of each fault")
    parser.add_argument("--clean", type=int, default=100, help="settings without a fault")
    parser.add_argument("--games", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=40, help="per pair of training sets")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="part k of n, for several processes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no check after these")
    parser.add_argument("--only", choices=FAULTS, nargs="+", default=list(FAULTS), help="these faults")
    parser.add_argument("--keep", type=Path, help="a file of finished checks, one per line: continued if it is there")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="such files of all parts: write results only")
    parser.add_argument("--machine", default="", help="that the merged parts ran on")
    options = parse(parser)
    done, files = {}, options.merge or ([options.keep] if options.keep is not None and options.keep.exists() else [])
    for file in files:
        done |= {(one["fault"], one["seed"]): one for one in map(json.loads, file.read_text().splitlines())}
    planned = [
        (fault, FIRST + number * len(FAULTS) + place)  # no two checks share a setting
        for number in range(max(options.settings, options.clean))
        for place, fault in enumerate(FAULTS)
        if fault in options.only and number < (options.clean if fault == "clean" else options.settings)
    ]
    start, (part, parts) = time.monotonic(), options.part
    for fault, seed in planned[part::parts] if not options.merge else []:
        if (fault, seed) in done or time.monotonic() - start > 60 * options.minutes:
            continue
        found = check(fault, seed, options.games, options.trials)
        one = {"fault": fault, "seed": seed, "won": found.success, "games": found.games, "p": found.p_value}
        one |= {"permitted": found.ceiling.upper, "noise": Setting.drawn(seed).noise, "seconds": found.seconds}
        one |= {"contradicted": found.contradicted, "pair": found.pair, "rule": found.rule}
        done[fault, seed] = one
        print(one, flush=True)
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps(one) + "\n")
    if parts == 1:
        rows = [replace(row, machine=options.machine) for row in rows_of(list(done.values()))]
        write_rows(__file__, [*rows, *best_rows()], keep_others=True)


def best_rows() -> list[Row]:
    """The best test of shuffled batches that are called Poisson sampling, and the games that it needs.

    All other records are copies whose gradients oppose the canary's: a step with it is off by 2 in noise s. A fortune
    grows by the divergence of both chances per game.
    """
    random, rows = np.random.default_rng(0), []
    for noise, per_epoch, epochs in ((0.64, 9, 2), (1.4, 6, 2)):
        z, far = random.standard_normal((2, 100_000, epochs, per_epoch)), 2 / noise
        z[1, :, :, 0] += far
        without, within = np.log(np.exp(far * z - far**2 / 2).mean(3)).sum(2)
        best = float((without <= 0).mean() + (within > 0).mean()) / 2
        sampling = lw.bounds.Poisson(1 / per_epoch)
        permitted = lw.bound(noise_multiplier=noise, steps=per_epoch * epochs, sampling=sampling, baseline=0.5).upper
        rate = best * math.log(best / permitted) + (1 - best) * math.log((1 - best) / (1 - permitted))
        name = f"noise {noise}, {epochs} epochs of {per_epoch} steps"
        print(f"{name}: best test {best:.3f}, permitted {permitted:.3f}, games {math.log(1000) / rate:.0f}")
        what = f"success of the best test of shuffled batches, {name} (paper: what Poisson sampling permits)"
        rows.append(Row(f"best-{noise}", what, best, paper=permitted, seed=0))
        rows.append(Row(f"needs-{noise}", f"games that the best test needs, {name}", math.log(1000) / rate, seed=0))
    return rows


def rows_of(checks: list[dict]) -> list[Row]:
    """Detection rates, with intervals of Clopper and Pearson."""
    rows: list[Row] = []
    for fault in FAULTS:
        several = [one for one in checks if one["fault"] == fault]
        if not several:
            continue
        found = sum(one["p"] < 1e-3 for one in several)
        low, high = clopper_pearson(found, len(several))
        name = f"share of {len(several)} fresh settings called false at p < 0.001, fault: {FAULTS[fault]}"
        rows.append(Row(f"found-{fault}", name, found / len(several), low=low, high=high, seed=FIRST))
        worst = max(one["seconds"] for one in several)
        median = math.exp(np.median([math.log10(max(one["p"], 1e-300)) for one in several]) * math.log(10))
        rows.append(Row(f"p-{fault}", f"median p-value, fault: {FAULTS[fault]}", median, seed=FIRST))
        rows.append(Row(f"time-{fault}", f"most seconds, fault: {FAULTS[fault]}", worst, paper="goal 600", seed=FIRST))
        print(f"{fault}: {found} of {len(several)} ({low:.2f} to {high:.2f}), median p {median:.1g}")
        games = float(np.median([one["games"] for one in several]))
        rows.append(Row(f"games-{fault}", f"median number of games, fault: {FAULTS[fault]}", games, seed=FIRST))
    for name, low, high in (("below 1", 0.0, 1.0), ("of 1 or more", 1.0, math.inf)):
        some = [one for one in checks if one["fault"] == "shuffled" and low <= one["noise"] < high]
        if some:
            found = sum(one["p"] < 1e-3 for one in some)
            ends = clopper_pearson(found, len(some))
            what = f"share of {len(some)} fresh settings with noise {name} called false, fault: {FAULTS['shuffled']}"
            rows.append(Row(f"found-shuffled-{low:g}", what, found / len(some), *ends, seed=FIRST))
            print(f"shuffled, noise {name}: {found} of {len(some)} ({ends[0]:.2f} to {ends[1]:.2f})")
    return rows


if __name__ == "__main__":
    main()
