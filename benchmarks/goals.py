"""What is at risk, played: for every goal of `lw.bound`, the attack that comes nearest to the ceiling, beside it.

The released sums are drawn directly, in the directions of the secrets' gradients: all other coordinates are noise that
tells nothing. Every gradient has the clipping norm, 1. Each attack is the best for its game, by the posterior.
"""

import argparse
import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

import lostwax as lw
from lostwax_dev.results import Row, parse, write_rows

Array = np.ndarray
AT_ONCE = 4_000_000  # normal numbers


def drawn_steps(sampling: lw.bounds.Sampling, steps: int, runs: int, random: np.random.Generator) -> Array:
    """(runs, steps) which steps have the record."""
    if isinstance(sampling, lw.bounds.BallsInBins):
        each = steps // sampling.epochs
        where = random.integers(each, size=(runs, sampling.epochs, 1))
        return (np.arange(each) == where).reshape(runs, steps)
    return random.random((runs, steps)) < sampling.share(steps)


def log_ratio(sampling: lw.bounds.Sampling, x: Array, noise: float) -> Array:
    """(runs, steps) the released sums along a gradient -> (runs,) log of the ratio to training without the record."""
    loss = (2 * x - 1) / (2 * noise**2)
    if isinstance(sampling, lw.bounds.BallsInBins):
        each = x.shape[1] // sampling.epochs
        epochs = loss.reshape(len(x), sampling.epochs, each)
        return np.asarray((logsumexp(epochs, axis=2) - math.log(each)).sum(1))
    rate = sampling.share(x.shape[1])
    if rate == 1:
        return np.asarray(loss.sum(1))
    return np.asarray(np.logaddexp(math.log1p(-rate), math.log(rate) + loss).sum(1))


def membership(sampling: lw.bounds.Sampling, noise: float, steps: int, runs: int, seed: int = 0) -> tuple[Array, Array]:
    """(runs,) scores of training sets without the record, and with it."""
    random = np.random.default_rng(seed)
    without, within = [], []
    for first in range(0, runs, at_once := max(1, AT_ONCE // steps)):
        size = (min(at_once, runs - first), steps)
        without.append(log_ratio(sampling, noise * random.standard_normal(size), noise))
        moved = drawn_steps(sampling, steps, size[0], random) + noise * random.standard_normal(size)
        within.append(log_ratio(sampling, moved, noise))
    return np.concatenate(without), np.concatenate(within)


def true_positives(without: Array, within: Array, fpr: float) -> float:
    """The share of members above the threshold that this share of others exceeds."""
    return float((within > np.quantile(without, 1 - fpr)).mean())


def attribute(
    sampling: lw.bounds.Sampling, noise: float, steps: int, prior: Sequence[float], runs: int, seed: int = 0
) -> float:
    """How often the likeliest value is right. Two values have opposite gradients, more have orthogonal ones."""
    random, p = np.random.default_rng(seed), np.asarray(prior)
    secret = random.choice(p.size, size=runs, p=p)
    there = drawn_steps(sampling, steps, runs, random)
    scores = np.tile(np.log(p), (runs, 1))  # (runs, values)
    if p.size == 2:
        x = there * np.where(secret == 0, 1.0, -1.0)[:, None] + noise * random.standard_normal((runs, steps))
        scores += np.stack([log_ratio(sampling, x, noise), log_ratio(sampling, -x, noise)], 1)
    else:
        for value in range(p.size):
            x = there * (secret == value)[:, None] + noise * random.standard_normal((runs, steps))
            scores[:, value] += log_ratio(sampling, x, noise)
    return float((scores.argmax(1) == secret).mean())


def signs_along_one_line(noise: float, n: int, runs: int, seed: int = 0) -> Array:
    """(runs,) how many of n signs are right, whose gradients lie on one line: all are guessed to be that of the sum."""
    random = np.random.default_rng(seed)
    positive = random.binomial(n, 0.5, runs)
    seen = 2 * positive - n + noise * random.standard_normal(runs)
    return np.where(seen > 0, positive, n - positive)


def gaussian_numbers(noise: float, steps: int, dimension: int, runs: int, seed: int = 0) -> float:
    """Mean squared error of the linear estimate of N(0, I), whose gradient is the record over its own length."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((runs, dimension))
    g = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), math.sqrt(dimension))
    y = g + noise / math.sqrt(steps) * random.standard_normal(x.shape)
    weight = float((x * y).sum() / (y * y).sum())
    return float(np.mean((x - weight * y) ** 2))


def column(noise: float, steps: int, values: Array, prior: Array, runs: int, seed: int = 0) -> float:
    """Mean squared error of the posterior mean of a number that sets the gradient along a line, full batches."""
    random = np.random.default_rng(seed)
    middle, half = (values.max() + values.min()) / 2, (values.max() - values.min()) / 2
    push = (values - middle) / half  # from -1 to 1
    secret = random.choice(values.size, size=runs, p=prior)
    y = push[secret] + noise / math.sqrt(steps) * random.standard_normal(runs)
    log_posterior = np.log(prior) - (y[:, None] - push) ** 2 * steps / (2 * noise**2)
    weight = np.exp(log_posterior - logsumexp(log_posterior, axis=1, keepdims=True))
    return float(np.mean((values[secret] - weight @ values) ** 2))


def banded(c: Array, rate: float, noise: float, steps: int, runs: int, seed: int = 0) -> tuple[Array, Array]:
    """Scores of C G + Z without the record and with it: in every b-th step with this probability; b coefficients c."""
    random = np.random.default_rng(seed)
    b, norm = c.size, float(np.linalg.norm(c))
    own = math.ceil(steps / b)

    def scores(there: Array) -> Array:
        released = noise * random.standard_normal((len(there), own * b))
        for i in range(own):  # column i b of C
            released[:, i * b : (i + 1) * b] += there[:, i, None] * c
        along = released.reshape(len(there), own, b) @ (c / norm)
        return log_ratio(lw.bounds.Poisson(rate), along / norm, noise / norm)

    return scores(np.zeros((runs, own))), scores(random.random((runs, own)) < rate)


def copies(noise: float, number: int, candidates: int, runs: int, seed: int = 0) -> float:
    """How often the right candidate is named, one full-batch step, if the training set holds `number` copies of it."""
    random = np.random.default_rng(seed)
    secret = random.integers(candidates, size=runs)
    y = number * (np.arange(candidates) == secret[:, None]) + noise * random.standard_normal((runs, candidates))
    return float((y.argmax(1) == secret).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000, help="games of each kind")
    parser.add_argument("--riskcal", help="the Python of an environment with riskcal, to compare with")
    options = parse(parser)
    runs = options.runs
    bounds, rows = lw.bounds, []

    def show(name: str, ceiling: float, played: float, what: str = "ceiling") -> None:
        print(f"{name:<86} {what} {ceiling:.4f}  played {played:.4f}")
        rows.append(Row(f"{name}-{what}", f"{name}: {what}", ceiling))
        rows.append(Row(f"{name}-played", f"{name}: played, {runs:,} games", played, seed=0))

    loops = {"Poisson(0.05)": bounds.Poisson(0.05), "BallsInBins(5)": bounds.BallsInBins(5), "Cyclic(1)": None}
    for name, sampling in loops.items():
        run = {"noise_multiplier": 1.0, "steps": 100, "sampling": sampling}
        if sampling is None:
            sampling, run = bounds.FullBatch(), {"noise_multiplier": 1.0, "steps": 1}
            name = "one full batch"
        steps = int(str(run["steps"]))
        without, within = membership(sampling, 1.0, steps, runs)
        for fpr in (0.1, 0.01):
            ceiling = lw.bound(**run, goal=bounds.Membership(fpr)).upper
            show(f"{name}: true positives at {fpr:g}", ceiling, true_positives(without, within, fpr))
        accuracy = float((within > 0).mean() + (without <= 0).mean()) / 2
        show(f"{name}: membership, accuracy", lw.bound(**run, goal=bounds.Membership()).upper, accuracy)
        for prior in ((0.5, 0.5), (0.9, 0.1), (0.6, 0.3, 0.1)):
            ceiling = lw.bound(**run, goal=bounds.Attribute(prior)).upper
            played = attribute(sampling, 1.0, steps, prior, runs)
            show(f"{name}: attribute, prior {', '.join(map(str, prior))}", ceiling, played)

    for n, k in ((10, 5), (10, 8), (10, 10), (100, 60), (100, 70)):
        run = {"noise_multiplier": 3.0, "steps": 1, "baseline": 0.5}
        ceiling = lw.bound(**run, goal=bounds.Records(k, of=n))
        one = lw.bound(noise_multiplier=3.0, goal=bounds.Attribute((0.5, 0.5))).lower
        random = np.random.default_rng(0)
        alone = float((random.binomial(n, one, runs) >= k).mean())
        along = float((signs_along_one_line(3.0, n, runs) >= k).mean())
        show(f"at least {k} of {n} signs, noise 3", ceiling.upper, max(alone, along))

    for noise, steps, dimension in ((1.0, 1, 10), (1.0, 10, 100), (1.0, 100, 100), (1.0, 100, 784)):
        floor = lw.bound(noise_multiplier=noise, steps=steps, goal=bounds.MeanSquaredError([1.0] * dimension)).error
        name = f"squared error of {dimension} Gaussian numbers, {steps} full batches"
        show(name, floor, gaussian_numbers(noise, steps, dimension, max(100, runs // dimension)), "floor")
    ages = {float(age): 1 / 8 for age in range(20, 100, 10)}
    values, prior = np.array([*ages]), np.array([*ages.values()])
    for noise in (3.0, 1.0):
        floor = lw.bound(noise_multiplier=noise, goal=bounds.MeanSquaredError(ages)).error
        show(f"squared error of an age, noise {noise:g}", floor, column(noise, 1, values, prior, runs), "floor")

    c = np.array([1.0, 0.5, 0.375])
    run = {"noise_multiplier": 1.0, "steps": 300, "baseline": 0.1}
    ceiling = lw.bound(**run, sampling=bounds.Correlated.of(c, bounds.Poisson(0.05))).upper
    show("banded noise, Poisson(0.05), 300 steps", ceiling, true_positives(*banded(c, 0.05, 1.0, 300, runs // 4), 0.1))

    alone = lw.bound(noise_multiplier=10.0, baseline=0.1)
    together = lw.bound(noise_multiplier=10.0, baseline=0.1, goal=bounds.Records(20))
    played = copies(10.0, 20, 10, runs)
    show("20 copies, ceiling of one record (does not hold)", alone.upper, played)
    show("20 copies, ceiling of the group", together.upper, played)
    if options.riskcal is not None:
        rows += beside_riskcal(options.riskcal, runs)
    write_rows(__file__, rows, keep_others=options.riskcal is None)


def beside_riskcal(python: str, runs: int) -> list[Row]:
    """1 - f(baseline) at small baselines, and an attribute of two values by the Bayes risk of add-or-remove."""
    noise, rate, steps = 1.0, 0.01, 1000
    baselines, priors = [0.1, 1e-3, 1e-6, 1e-9], [0.5, 0.1]
    question = {"noise": noise, "rate": rate, "steps": steps, "baselines": baselines, "priors": priors}
    script = Path(__file__).parent / "peers" / "riskcal_rates.py"
    asked = [python, str(script), json.dumps(question)]
    answer = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    run = {"noise_multiplier": noise, "steps": steps, "sampling": lw.bounds.Poisson(rate)}
    rows = []
    for kappa, theirs in zip(baselines, answer["success"], strict=True):
        ceiling = lw.bound(**run, baseline=kappa)
        print(f"baseline {kappa:g}: certified {ceiling.lower:.6g} to {ceiling.upper:.6g}, riskcal {theirs:.6g}")
        rows.append(Row(f"riskcal-{kappa:g}", f"riskcal, baseline {kappa:g}, noise 1, rate 0.01, 1000 steps", theirs))
        ends = {"low": ceiling.lower, "high": ceiling.upper}
        rows.append(Row(f"beside-riskcal-{kappa:g}", f"certified, baseline {kappa:g}, the same", ceiling.upper, **ends))
    for p, theirs in zip(priors, answer["attribute"], strict=True):
        ceiling = lw.bound(**run, goal=lw.bounds.Attribute([p, 1 - p])).upper
        played = attribute(run["sampling"], noise, steps, [p, 1 - p], runs // 10)
        print(f"attribute {p:g}, {1 - p:g}: ceiling {ceiling:.4f}, played {played:.4f}, riskcal {theirs:.4f}")
        rows.append(Row(f"riskcal-attribute-{p:g}", f"riskcal, attribute {p:g}, the same", theirs))
        rows.append(Row(f"ceiling-attribute-{p:g}", f"ceiling, attribute {p:g}, the same", ceiling))
        rows.append(Row(f"played-attribute-{p:g}", f"played, attribute {p:g}, {runs // 10:,} games", played, seed=0))
    return rows


if __name__ == "__main__":
    main()
