"""Lower bounds on epsilon from one run: the truth, canaries that training permits at best, and real ones.

DP-SGD with Poisson sampling on clusters in 100 dimensions, a net 100-32-10, 1,000 canaries. *At best*: scores are drawn
as if every canary's gradient were orthogonal to all else, and each step were seen: the likelihood ratio of the claim.
*Measured*: `lw.check_dp_once`, by the steps and the losses of one training. *False alarms*: runs of correct code, with
100 canaries. *Faults*: code with a planted fault and the claim of epsilon 2.
"""

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import lostwax as lw
from lostwax.bounds import FullBatch, Poisson
from lostwax.bounds.closed_forms import epsilon_of
from lostwax.claims.one_run import ALARM, Claim, counted, judged, least_epsilon
from lostwax.trainers.dpsgd import noise_for
from lostwax_dev.results import Row, parse, write_rows

DELTA, STEPS, CANARIES = 1e-5, 50, 1000
RATES = {1_000: 0.1, 10_000: 0.02}
Train = Callable[[nn.Module, Tensor, Tensor, int], nn.Module]


def clusters(n: int, seed: int) -> lw.Records:
    draws = torch.Generator().manual_seed(seed)
    centres, y = torch.randn(10, 100, generator=draws), torch.randint(10, (n,), generator=draws)
    return lw.Records(0.5 * centres[y] + torch.randn(n, 100, generator=draws), y)


def trainer(noise: float, rate: float, steps: int, fault: str = "") -> Train:
    """DP-SGD with clipping norm 1."""

    def train(net: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
        draws, clip = torch.Generator().manual_seed(seed), 1.0
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)

        def loss(params: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
            out = torch.func.functional_call(net, params, (record.unsqueeze(0),))
            return nn.functional.cross_entropy(out, label.unsqueeze(0))

        gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        expected = rate * len(x)
        for _ in range(steps):
            drawn = torch.rand(len(x), generator=draws) < (4 * rate if fault == "four times the rate" else rate)
            params = {name: value.detach() for name, value in net.named_parameters()}
            each = gradients(params, x[drawn], y[drawn])
            norms = torch.stack([value.flatten(1).square().sum(1) for value in each.values()]).sum(0).sqrt()
            factor = torch.ones_like(norms) if fault == "no clipping" else (clip / norms).clamp_max(1)
            for name, value in net.named_parameters():
                added = noise * torch.randn(value.shape, generator=draws)
                if fault == "a quarter of the noise":
                    added /= 4
                if fault == "no noise on the last layer" and name.startswith("2."):
                    added *= 0
                value.grad = (torch.einsum("b,b...->...", factor, each[name]) + added) / expected
            optimiser.step()
        return net

    return train


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(100, 32), nn.Tanh(), nn.Linear(32, 10))


def at_best(noise: float, rate: float, steps: int, inside: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(m,) log-likelihood ratios of canaries that nothing else hides."""
    drawn = inside[:, None] & (random.random((len(inside), steps)) < rate)
    x = drawn + noise * random.standard_normal(drawn.shape)
    return np.asarray(np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / noise**2).sum(1))


def calibrated(epsilon: float) -> float:
    """The noise of one Gaussian step."""
    low, high = 0.05, 50.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of(middle, 1.0, 1, DELTA) > epsilon else (low, middle)
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alarms", type=int, default=200, help="runs of correct code")
    parser.add_argument("--parts", nargs="+", default=["best", "gaussian", "measured", "alarms", "faults"])
    options, rows = parse(parser), []
    for n, rate in RATES.items() if {"best", "measured"} & {*options.parts} else ():
        for epsilon in (1.0, 2.0, 4.0, 8.0):
            noise = noise_for(epsilon, DELTA, steps=STEPS, sample_rate=rate)
            words, key = f"epsilon {epsilon:g}, {n:,} records, {CANARIES:,} canaries", f"{n}-{epsilon:g}"
            claim = Claim(noise, STEPS, Poisson(rate), None, DELTA)
            results: dict[str, lw.claims.OneRun] = {}
            if "best" in options.parts:
                random = np.random.default_rng(0)
                inside = random.random(CANARIES) < 0.5
                results["best"] = judged(claim, {"steps": at_best(noise, rate, STEPS, inside, random)}, inside)
            if "measured" in options.parts:
                run = {"noise_multiplier": noise, "sample_rate": rate, "steps": STEPS, "delta": DELTA}
                train = trainer(noise, rate, STEPS)
                results["measured"] = lw.claims.check_dp_once(network(), clusters(n, 1), train, **run)
            for name, result in results.items():
                counts = f"{result.guesses.right} of {result.guesses.number} by {result.scored}"
                least = f"{result.epsilon:.3f}, {result.mechanism_epsilon:.3f}"
                print(f"{words}, {name}: {least}, p = {result.p_value:.3g}, {counts}", flush=True)
                rows += [
                    Row(f"{name}-{key}", f"{name}, any training: {words}", result.epsilon, seed=0),
                    Row(
                        f"{name}-{key}-mechanism", f"{name}, this mechanism: {words}", result.mechanism_epsilon, seed=0
                    ),
                    Row(f"{name}-{key}-p", f"{name}, p-value of the claim: {words}", result.p_value, seed=0),
                ]
            write_rows(__file__, rows, keep_others=True)
    if "gaussian" in options.parts:  # one Gaussian step of epsilon 8, scored perfectly, without a choice of guesses
        random, noise = np.random.default_rng(0), calibrated(8.0)
        inside = random.random(CANARIES) < 0.5
        scores = random.standard_normal(CANARIES) + inside / noise
        guesses = next(part for part in counted(scores, inside) if part.number == 100)
        least = (
            least_epsilon(DELTA, guesses, 0.05),
            Claim(noise, 1, FullBatch(), None, DELTA).least_epsilon([guesses], 0.05),
        )
        words = f"{guesses.right} of 100 guesses, one Gaussian step of epsilon 8"
        print(f"{words}: {least[0]:.3f}, {least[1]:.3f}")
        rows += [Row(f"gaussian-{k}", f"{kind}: {words}", least[k], seed=0) for k, kind in enumerate(("any", "this"))]
    rate, n = 0.1, 1_000
    noise = noise_for(2.0, DELTA, steps=STEPS, sample_rate=rate)
    run = {"noise_multiplier": noise, "sample_rate": rate, "steps": STEPS, "delta": DELTA}
    faults = ("a quarter of the noise", "no clipping", "four times the rate", "no noise on the last layer")
    for fault in faults if "faults" in options.parts else ():
        result = lw.claims.check_dp_once(network(), clusters(n, 1), trainer(noise, rate, STEPS, fault), **run)
        print(f"{fault}: p = {result.p_value:.3g}, epsilon at least {result.epsilon:.3f}", flush=True)
        rows += [
            Row(f"fault-{fault}", f"p-value, {fault}, claimed epsilon 2", result.p_value, seed=0),
            Row(f"fault-{fault}-epsilon", f"epsilon at least, {fault}, claimed epsilon 2", result.epsilon, seed=0),
        ]
    if "alarms" in options.parts:
        alarms, start, smallest = 0, time.perf_counter(), 1.0
        noise = noise_for(4.0, DELTA, steps=10, sample_rate=0.2)
        run = {"noise_multiplier": noise, "sample_rate": 0.2, "steps": 10, "delta": DELTA, "canaries": 100}
        for seed in range(options.alarms):
            train = trainer(noise, 0.2, 10)
            result = lw.claims.check_dp_once(network(), clusters(200, seed), train, **run, seed=seed)
            alarms, smallest = alarms + (result.p_value < ALARM), min(smallest, result.p_value)
        print(
            f"{alarms} of {options.alarms} false alarms, smallest p {smallest:.3g}, {time.perf_counter() - start:.0f} s"
        )
        rows += [
            Row("alarms", f"true claims called false at 1 %, of {options.alarms} runs", alarms, seed=0),
            Row("smallest", f"smallest p-value of {options.alarms} true claims", smallest, seed=0),
        ]
    write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
