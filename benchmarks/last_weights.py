"""What is gained where only the last weights go out: noise, accuracy of heads, and the best test on logistic heads.

Three parts. *Noise*: the least noise multiplier for one ceiling, by composition and by the last weights. *Tests*: a
record is in or out of a logistic head's training set; the last weights of 10,000 noisy runs of each are separated by
Fisher's discriminant of one half, counted on the other. *Heads*: softmax heads of the digits by noisy descent, in the
manner of Maciazek and Allison's; at one certified ceiling their accuracy by either noise, and the success of an attack
that knows all other records, trains without noise on each of ten candidates and names the nearest to the last weights.
"""

import argparse
import math

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

import lostwax as lw
from lostwax.bounds import FullBatch, LastWeights, bound, calibrate
from lostwax_dev.results import Row, parse, write_rows

Array = np.ndarray
NORM, KAPPA = 1.0, 0.1


def noises() -> list[Row]:
    """The least noise multiplier with a ceiling of 0.3, for one of ten candidates."""
    rows = []
    law = {"baseline": KAPPA, "max_success": 0.3, "sampling": FullBatch()}
    for steps in (100, 1_000, 10_000):
        every = calibrate(**law, steps=steps).noise_multiplier
        rows.append(Row(f"noise-{steps}-all", f"noise multiplier, all steps, {steps:,} steps", every))
        for decay in (1e-1, 1e-2, 1e-3, 0.0):
            released = LastWeights(lr=1.0, smoothness=1.0, convexity=decay)
            least = calibrate(**law, steps=steps, released=released).noise_multiplier
            words = f"noise multiplier, last weights, {steps:,} steps, lr times weight decay {decay:g}"
            rows.append(Row(f"noise-{steps}-{decay:g}", words, least))
            print(f"{words}: {least:.4g} (all steps {every:.4g})")
    for epochs, per_epoch in ((1, 100), (10, 100), (100, 100)):
        cyclic = lw.bounds.Cyclic(epochs)
        law["sampling"] = cyclic
        every = calibrate(**law, steps=epochs * per_epoch).noise_multiplier
        released = LastWeights(lr=1.0, smoothness=1.0)
        least = calibrate(**law, steps=epochs * per_epoch, released=released).noise_multiplier
        words = f"noise multiplier, {epochs} epochs of {per_epoch} steps in a fixed order, no weight decay"
        rows += [
            Row(f"turns-{epochs}-all", f"{words}, all steps", every),
            Row(f"turns-{epochs}-last", f"{words}, last weights", least),
        ]
        print(f"{words}: all steps {every:.4g}, last weights {least:.4g}")
    return rows


def logistic_runs(x: Array, y: Array, present: Array, start: Array, law: LastWeights, noise: float, steps: int,
                  runs: int, random: np.random.Generator) -> Array:  # fmt: skip
    """(runs, d) last weights of noisy descent on the sum of logistic losses; noise is over the longest slope."""
    theta = np.broadcast_to(start, (runs, x.shape[1])).copy()
    longest = float(np.linalg.norm(x, axis=1).max())
    for _ in range(steps):
        slope = (present * (expit(theta @ x.T) - y)) @ x / len(x)
        slope += longest / len(x) * noise * random.standard_normal(theta.shape)
        theta -= law.lr * (slope + law.convexity * theta)
    return theta


def separated(runs: list[Array], kappa: float) -> tuple[float, float]:
    """True positives of Fisher's discriminant at a false-positive rate of `kappa`, and their standard error."""
    half = len(runs[0]) // 2
    fitted, asked = [value[:half] for value in runs], [value[half:] for value in runs]
    spread = np.cov(np.concatenate([value - value.mean(0) for value in fitted]).T)
    direction = np.linalg.solve(np.atleast_2d(spread), fitted[1].mean(0) - fitted[0].mean(0))
    scores = [value @ direction for value in asked]
    power = float((scores[1] > np.quantile(scores[0], 1 - kappa)).mean())
    return power, math.sqrt(2 * power * (1 - power) / half)


def tests(runs: int) -> list[Row]:
    """The best test that we can build, on ordinary records and on a pair that is chosen for it."""
    digits = lw.records.digits()
    binary = digits.y < 2
    x = digits.x[binary].flatten(1).double().numpy()
    x = np.hstack([x / np.linalg.norm(x, axis=1, keepdims=True) * NORM, np.ones((len(x), 1))])
    y = digits.y[binary].double().numpy()
    rows, random = [], np.random.default_rng(0)
    for name, n, decay, steps, lr, noise in (
        ("digits 0 and 1", 40, 0.05, 50, 0.5, 3.0),
        ("digits 0 and 1", 40, 0.05, 400, 0.5, 6.0),
        ("digits 0 and 1, the record's label changed", 40, 0.05, 200, 0.5, 5.0),
        ("copies of one record, the last with the other label", 40, 1e-3, 200, 0.5, 8.0),
        ("copies of one record, the last with the other label", 40, 1e-2, 1000, 0.5, 12.0),
    ):
        if "copies" in name:
            features, labels = np.ones((n, 1)), np.ones(n)
            labels[-1], start = 0.0, np.full(1, 6.0 if decay < 0.01 else 2000.0)  # which the decay takes back
        else:
            features, labels, start = x[:n], y[:n].copy(), np.zeros(x.shape[1])
            labels[-1] = 1 - labels[-1] if "changed" in name else labels[-1]
        square = float((features**2).sum(1).max())
        law = LastWeights(lr=lr, smoothness=square / 4 + decay, convexity=decay)
        worlds = []
        for present in (0.0, 1.0):
            inside = np.ones(n)
            inside[-1] = present
            worlds.append(logistic_runs(features, labels, inside, start, law, noise, steps, runs, random))
        power, error = separated(worlds, KAPPA)
        run = {"noise_multiplier": noise, "steps": steps, "baseline": KAPPA, "sampling": FullBatch()}
        last, every = bound(**run, released=law).upper, bound(**run).upper
        words = f"{name}, n = {n}, {steps} steps, weight decay {decay:g}, noise {noise:g}"
        print(f"{words}: test {power:.3f} +- {error:.3f}, ceiling {last:.3f}, all steps {every:.3f}")
        key = f"test-{name}-{steps}-{decay:g}"
        rows += [
            Row(key, f"best test: {words}", power, low=power - 2 * error, high=power + 2 * error, seed=0),
            Row(f"{key}-ceiling", f"ceiling, last weights: {words}", last),
            Row(f"{key}-all", f"ceiling, all steps: {words}", every),
        ]
    return rows


def heads(x: Tensor, y: Tensor, law: LastWeights, noise: float, steps: int, seed: int) -> Tensor:
    """(m, 10, d) softmax heads on m training sets (m, n, d): clipping at 2 cuts nothing."""
    models, n, d = x.shape
    draws = torch.Generator().manual_seed(seed)
    theta, onehot = torch.zeros(models, 10, d), torch.nn.functional.one_hot(y, 10).float()
    for _ in range(steps):
        slope = ((x @ theta.mT).softmax(-1) - onehot).mT @ x  # (m, 10, d)
        slope = (slope + 2 * noise * torch.randn(theta.shape, generator=draws)) / n
        theta = theta - law.lr * (slope + law.convexity * theta)
    return theta


def accuracy_at_one_ceiling(games: int) -> list[Row]:
    """Heads on n records, and one of ten candidates for the last of them."""
    digits = lw.records.digits()
    features = digits.x.flatten(1).float()
    features = torch.hstack([features / features.norm(dim=1, keepdim=True) * NORM, torch.ones(len(features), 1)])
    rows, random = [], np.random.default_rng(1)
    for n, decay, steps in ((40, 0.05, 300), (400, 0.02, 400), (1000, 0.01, 400)):
        law = LastWeights(lr=1.0, smoothness=1.0 + decay, convexity=decay)
        sets = np.stack([random.permutation(len(features)) for _ in range(games)])
        # one of ten candidates is in the training set
        train, candidates, test = sets[:, :n], sets[:, n - 1 : n + 9], sets[:, n + 9 : n + 309]
        x, y = features[train], digits.y[train]
        clean = torch.stack(
            [
                heads(torch.cat([x[:, :-1], features[candidates[:, k : k + 1]]], 1),
                      torch.cat([y[:, :-1], digits.y[candidates[:, k : k + 1]]], 1), law, 0.0, steps, 0)
                for k in range(10)
            ]
        )  # fmt: skip
        for ceiling in (0.2, 0.5, 0.8):
            asked = {"max_success": ceiling, "baseline": KAPPA, "steps": steps, "sampling": FullBatch()}
            for seen, released in (("all steps", None), ("last weights", law)):
                noise = calibrate(**asked, released=released).noise_multiplier
                theta = heads(x, y, law, noise, steps, seed=n)
                right = ((features[test] @ theta.mT).argmax(-1) == digits.y[test]).float().mean(1)
                named = (theta - clean).flatten(2).norm(dim=2).argmin(0) == 0
                error = float(right.std()) / math.sqrt(games)
                success = float(named.float().mean())
                spread = math.sqrt(success * (1 - success) / games)
                words = f"digits, n = {n}, {steps} steps, weight decay {decay:g}, ceiling {ceiling:g} by {seen}"
                print(f"{words}: accuracy {float(right.mean()):.3f}, attack {success:.3f}, noise {noise:.3g}")
                key, mean = f"heads-{n}-{ceiling:g}-{seen}", float(right.mean())
                rows += [
                    Row(key, f"accuracy: {words}", mean, low=mean - 2 * error, high=mean + 2 * error, seed=1),
                    Row(f"{key}-attack", f"attack: {words}", success, low=success - 2 * spread,
                        high=success + 2 * spread, seed=1),
                ]  # fmt: skip
    return rows


def matrices(samples: int) -> list[Row]:
    """Correlated noise and a record in one random step: the certified end, and the best test, sampled."""
    rows, random, steps = [], np.random.default_rng(2), 64
    root = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, steps))])
    for name, column, noise in (("three diagonals", [1.0, 0.5, 0.375], 1.0), ("prefix sums", root, 2.0)):
        c = sum(value * np.eye(steps, k=-lag) for lag, value in enumerate(column))
        gram = c.T @ c / noise**2
        factor, half = np.linalg.cholesky(gram + 1e-10 * np.eye(steps)), np.diag(gram) / 2
        null = random.standard_normal((samples, steps)) @ factor.T
        hit = random.standard_normal((samples, steps)) @ factor.T + gram[random.integers(steps, size=samples)]
        ratios = [np.logaddexp.reduce(value - half, axis=1) for value in (null, hit)]
        power = float((ratios[1] > np.quantile(ratios[0], 1 - KAPPA)).mean())
        run = {"noise_multiplier": noise, "steps": steps, "baseline": KAPPA}
        inside = bound(**run, sampling=lw.bounds.Correlated.in_bins(c, steps)).upper
        stepwise = bound(noise_multiplier=noise / np.linalg.norm(c, axis=0).max(), baseline=KAPPA).upper
        words = f"{name}, 64 steps, noise {noise:g}, one random step"
        print(f"{words}: {inside:.4f}, best test {power:.4f}, known step {stepwise:.4f}")
        rows += [
            Row(f"matrix-{name}", f"ceiling: {words}", inside),
            Row(f"matrix-{name}-test", f"best test, {samples:,} samples: {words}", power, seed=2),
            Row(f"matrix-{name}-known", f"ceiling of a known step: {words}", stepwise),
        ]
    run = {"noise_multiplier": 1.0, "steps": 100, "baseline": KAPPA}
    for name, sampling in (("allocation", lw.bounds.Allocation(5)), ("Poisson", lw.bounds.Poisson(0.05))):
        rows.append(
            Row(f"five-{name}", f"ceiling, {name}, 5 of 100 steps, noise 1", bound(**run, sampling=sampling).upper)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="of each world, for the best test")
    parser.add_argument("--games", type=int, default=60, help="heads, and attacks on them, per setting")
    parser.add_argument("--parts", nargs="+", default=["noises", "tests", "heads", "matrices"])
    options = parse(parser)
    rows = noises() if "noises" in options.parts else []
    rows += tests(options.runs) if "tests" in options.parts else []
    rows += accuracy_at_one_ceiling(options.games) if "heads" in options.parts else []
    rows += matrices(200_000) if "matrices" in options.parts else []
    write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
