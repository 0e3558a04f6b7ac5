"""DP code that lies: seven planted faults, the games that find them, and a hundred clean runs."""

import argparse
import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lostwax as lw
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, write_rows

NOISE, CLIP, RATE, STEPS, LR = 0.7, 0.25, 0.1, 20, 0.1
CLAIM = {"noise_multiplier": NOISE, "steps": STEPS, "sampling": lw.bounds.Poisson(RATE)}
RECORDS, FEATURES, ACCUMULATED = 80, 8, 4
FAULTS = {
    "clean": "none",
    "noise by batch size": "the noise is divided by the batch size twice",
    "clip after averaging": "the mean gradient is clipped, not each record's",
    "no noise on one layer": "the weights of the last layer get no noise",
    "shuffled": "batches of a shuffled order, called Poisson sampling",
    "accumulation": f"{ACCUMULATED} batches are added up and counted as one",
    "batch norm": "batch norm mixes the records of a batch; its averages are not released",
    "batch norm, buffers": "the same, and its averages are released",
    "fixed seed": "the noise generator is seeded by a constant in every run",
    "seed of every step": "the noise generator is seeded again in every step, with the run's seed",
}


def net(fault: str = "clean") -> nn.Module:
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(6, track_running_stats=fault.endswith("buffers"))] if fault.startswith("batch norm") else []
    return nn.Sequential(nn.Linear(FEATURES, 6), *norm, nn.Tanh(), nn.Linear(6, 2))


def data() -> lw.Records:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, FEATURES, generator=draws)
    return lw.Records(x, (x[:, 0] > 0).long())


def batches(fault: str, records: int, draws: torch.Generator) -> list[torch.Tensor]:
    """The records of every step."""
    if fault == "shuffled":
        epochs = round(RATE * STEPS)
        return [part for _ in range(epochs) for part in torch.randperm(records, generator=draws).chunk(STEPS // epochs)]
    times = ACCUMULATED if fault == "accumulation" else 1
    drawn = [torch.rand(times, records, generator=draws) < RATE for _ in range(STEPS)]
    return [one.nonzero()[:, 1] for one in drawn]


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, seed: int, *, fault: str = "clean") -> nn.Module:
    """DP-SGD as many write it, with one fault or none."""
    parameters, expected = list(net.parameters()), RATE * len(x)
    optimiser = torch.optim.SGD(parameters, lr=LR)
    draws, noise = (torch.Generator().manual_seed(2 * seed + k) for k in (0, 1))
    if fault == "fixed seed":
        noise.manual_seed(0)
    for batch in batches(fault, len(x), draws):
        if fault == "seed of every step":
            noise.manual_seed(seed)
        slope = [torch.zeros_like(value) for value in parameters]
        if len(batch) and not (fault.startswith("batch norm") and len(batch) == 1):
            losses = nn.functional.cross_entropy(net(x[batch]), y[batch], reduction="none")
            each = torch.autograd.grad(losses, parameters, torch.eye(len(batch)), is_grads_batched=True)
            if fault == "clip after averaging":
                each = [value.mean(0, keepdim=True) for value in each]
            norms = sum(value.flatten(1).square().sum(1) for value in each).sqrt()
            factor = (CLIP / norms.clamp_min(1e-12)).clamp_max(1)
            if fault == "clip after averaging":
                factor = factor * expected
            slope = [torch.einsum("b,b...->...", factor, value) for value in each]
        for value, total in zip(parameters, slope, strict=True):
            scale = NOISE * CLIP / (expected if fault == "noise by batch size" else 1)
            if fault == "no noise on one layer" and value is parameters[-2]:
                scale = 0.0
            value.grad = (total + scale * torch.randn(value.shape, generator=noise)) / expected
        optimiser.step()
    return net


def linear(net: nn.Module, x: torch.Tensor, y: torch.Tensor, seed: int, *, rate: float, steps: int, noise: float):
    """Correct DP-SGD for a linear layer, quickly: gradients of records are outer products."""
    draws, optimiser = torch.Generator().manual_seed(seed), torch.optim.SGD(net.parameters(), lr=LR)
    ones = torch.cat([x, torch.ones(len(x), 1)], 1)
    lengths = ones.norm(dim=1)
    for _ in range(steps):
        drawn = (torch.rand(len(x), generator=draws) < rate).float()
        with torch.no_grad():
            residual = net(x).softmax(1) - nn.functional.one_hot(y, 2)
            factor = drawn * (CLIP / (residual.norm(dim=1) * lengths).clamp_min(1e-12)).clamp_max(1)
            slope = (residual * factor.unsqueeze(1)).T @ ones
            slope = (slope + noise * CLIP * torch.randn(slope.shape, generator=draws)) / (rate * len(x))
        net.weight.grad, net.bias.grad = slope[:, :-1], slope[:, -1]
        optimiser.step()
    return net


def check(fault: str, *, seed: int = 0, games: int = 2000) -> lw.claims.ClaimCheck:
    return lw.check_dp(net(fault), data(), partial(train, fault=fault), **CLAIM, seed=seed, games=games)


CLEAN = {"full batches": (1.0, 4, 2.0), "Poisson sampling": (0.1, 20, 0.7)}  # rate, steps, noise


def clean(name: str, seed: int) -> lw.claims.ClaimCheck:
    """A check of code that keeps its claim."""
    rate, steps, noise = CLEAN[name]
    claim = {"noise_multiplier": noise, "steps": steps, "sampling": lw.bounds.Poisson(rate)}
    torch.manual_seed(seed)
    function = partial(linear, rate=rate, steps=steps, noise=noise)
    return lw.check_dp(nn.Linear(FEATURES, 2), data(), function, **claim, seed=seed, games=1000, trials=24)


@dataclass(frozen=True)
class Checked:
    """The outcome of one check."""

    name: str  # a fault, or a kind of clean run
    seed: int
    won: int
    games: int
    permitted: float
    p_value: float
    seconds: float
    words: str

    @classmethod
    def of(cls, name: str, seed: int) -> "Checked":
        found = clean(name, seed) if name in CLEAN else check(name, seed=seed)
        print(f"{name}: {FAULTS.get(name, 'none')}\n{found}\n{found.seconds:.1f} s\n", flush=True)
        return cls(name, seed, found.won, found.games, found.ceiling.upper, found.p_value, found.seconds, str(found))


def rows_of(found: Checked) -> list[Row]:
    low, high = clopper_pearson(found.won, found.games)
    name = found.name
    won = f"share of {found.games} games won, {name} (paper: what the claim permits)"
    return [
        Row(f"won-{name}", won, found.won / found.games, low=low, high=high, paper=found.permitted, seed=0),
        Row(f"p-{name}", f"p-value, {name}", found.p_value, seed=0),
        Row(f"time-{name}", f"seconds, {name}", found.seconds, paper="goal 600", seed=0),
    ]


def clean_rows(name: str, several: list[Checked]) -> list[Row]:
    p_values = np.array([one.p_value for one in several])
    of = f"of {len(several)} clean runs, {name}"
    counts = {level: int((p_values < level).sum()) for level in (1e-3, 0.05, 0.5)}
    success = float(np.mean([one.won / one.games for one in several if one.games]))
    permitted = several[0].permitted
    print(f"{of}: p-values below {counts}, mean success {success:.3f} of {permitted:.3f}")
    rows = [Row(f"clean-{name}-{k}", f"p-values below {k:g} {of}", counts[k], paper=k * len(several)) for k in counts]
    rows.append(Row(f"clean-{name}", f"mean success {of}", success, paper=permitted))
    return [*rows, Row(f"clean-{name}-time", f"median seconds {of}", float(np.median([x.seconds for x in several])))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", type=int, default=50, help="clean runs of each kind")
    parser.add_argument("--only", choices=FAULTS, help="one fault")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="part k of n, for several processes")
    parser.add_argument("--keep", type=Path, help="a file to add the checks of this part to, one per line")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="such files of all parts: write results only")
    options = parse(parser)
    planned = [(fault, 0) for fault in ([options.only] if options.only else FAULTS)]
    planned += [(name, seed) for seed in range(options.clean) for name in CLEAN]
    done = [Checked(**json.loads(line)) for file in options.merge for line in file.read_text().splitlines()]
    part, parts = options.part
    for name, seed in planned[part::parts] if not options.merge else []:
        done.append(Checked.of(name, seed))
        if options.keep is not None:
            with options.keep.open("a") as file:
                file.write(json.dumps(asdict(done[-1])) + "\n")
    if parts > 1:
        return
    rows: list[Row] = [row for one in done if one.name in FAULTS for row in rows_of(one)]
    for name in CLEAN:
        several = [one for one in done if one.name == name]
        rows += clean_rows(name, several) if several else []
    write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
