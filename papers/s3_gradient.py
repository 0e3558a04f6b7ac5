"""S3 Figures 1a, 6a and 12a, MNIST: a record rebuilt from the steps of DP-SGD, without a prior and with one.

    python papers/s3_gradient.py --device cuda [--rows epsilon_100 ...] [--data FOLDER]

The victims of papers/s3_attacks.py, C = 0.1, at a small learning rate, where all gradients are clipped; the label is
known. "none" is S3's attack (Eq. 1): no prior, by Adam where S3 has a million plain steps. "normal" is ours: the
likeliest record under the noise and a normal distribution fitted to the prior. Images and curve go to docs/figures.

S3's criterion of appendix I, a share rho of pixels within 32/255, has a ceiling for pixels of which nothing is known, a
blind success of 1e-94 at rho = 0.6 (S3: 1e-283). Digits are no such pixels: most of theirs are black. So beside the
successes stands what the best of some blind guesses does for digits of the same label, and the ceiling for that.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from s1_mnist import mean_row, parser, squared_errors, write
from s3_attacks import DELTA, Bench, Setting, published, victim
from s3_pictures import draw_errors, draw_pictures
from torch import Tensor

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Cohort, Knowledge, Records
from lostwax.metrics.estimate import clopper_pearson
from lostwax.trainers.stacked import Architecture, record_gradients
from lostwax_dev.results import Row

EPSILONS = (1, 10, 100, 1_000, 10_000)
GAMES = {f"epsilon_{epsilon}": Setting(epsilon=epsilon, speeds=(0.1,)) for epsilon in EPSILONS}
PRIORS = {"none": False, "normal": True}
NEAR = lw.metrics.NearPixels()
RHOS = (0.6, 0.9)
BLIND = 300  # records of each label that are tried as blind guesses


def blind_success(records: Records, labels: Tensor, rho: float) -> float:
    """Of the best blind guess for each label among its mean, its median, nothing, and some records: on the others."""
    best = {}
    for label in labels.unique().tolist():
        x = records.x[records.y == label]
        some, rest = x.tensor_split([min(BLIND, len(x) // 2)])
        guesses = torch.cat([x.mean(0, keepdim=True), x.median(0, keepdim=True).values, x[:1] * 0, some])
        best[label] = max(float((NEAR(guess.expand_as(rest), rest) >= rho).double().mean()) for guess in guesses)
    return sum(best[label] for label in labels.tolist()) / len(labels)


def clipped_share(trainer: lw.DPSGD, net: torch.nn.Module, cohort: Cohort, seed: int) -> float:
    """Of the secrets' gradients, over all games and steps: those at least as long as the clipping norm."""
    ours, shares = Architecture.of(net, cohort.own.x.device, trainer.computes_in(net)), []
    for step in trainer.transcript(net, cohort, seed=seed):
        gradients = record_gradients(ours, trainer.loss, dict(step.params), (cohort.own.x, cohort.own.y))
        squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)  # (m, 1)
        shares.append(squares.ge(trainer.clip**2).double().mean())
    return float(torch.stack(shares).mean())


def play(name: str, bench: Bench) -> Iterator[Row]:
    """Both attacks on the same victims."""
    options = bench.options
    secrets, prior = bench.pool[: options.targets], bench.pool[options.targets :]
    threat = lw.Informed(bench.known, label_known=True)
    cohort = threat.deal(secrets, options.targets, seed=options.seed)
    (trainer, accuracy), net = victim(GAMES[name], bench), lw.nets.mlp(784, 10, 10)
    truth, labels = cohort.own.x[:, 0], cohort.own.y[:, 0]
    blind = squared_errors(prior.x.mean(0), truth)
    yield mean_row(f"{name}.blind", f"{name}: mean MSE of the mean image ({options.targets} targets)", blind)
    yield Row(f"{name}.accuracy", f"{name}: test accuracy at lr {trainer.lr:g}, delta {DELTA:g}", accuracy)
    clipped = clipped_share(trainer, net, cohort, options.seed)
    yield Row(f"{name}.clipped", f"{name}: share of the secrets' gradients that are clipped, over all steps", clipped)
    kappas = {rho: blind_success(prior, labels, rho) for rho in RHOS}
    for rho, kappa in kappas.items():
        what = f"{name}: a share of {rho:g} of pixels within 32/255"
        ceiling = lw.bound(**trainer.mechanism(), baseline=min(max(kappa, 1e-6), 1 - 1e-6))
        yield Row(f"{name}.pixels_{rho}.blind", f"{what}: the best blind guess that was tried", kappa)
        yield Row(f"{name}.pixels_{rho}.ceiling", f"{what}: the ceiling if no blind guess is better", ceiling.upper)
    for attack, leans in PRIORS.items():
        inversion = lw.GradientInversion(iterations=options.iterations, prior=leans)
        rebuild = inversion.prepare(Knowledge(net, trainer, threat, Weights(), prior), seed=options.seed)
        guess = rebuild(published(trainer, net, cohort, options.seed), threat.hints(cohort, prior, seed=options.seed))
        found = guess.records.x[:, 0]
        errors = squared_errors(found, truth)
        what = f"{name}: mean MSE, prior: {attack} ({options.iterations:,} iterations)"
        yield mean_row(f"{name}.{attack}", what, errors)
        for rho in RHOS:
            won = int((NEAR(found, truth) >= rho).sum())
            what = f"{name}: a share of {rho:g} of pixels within 32/255, prior: {attack}"
            yield Row(f"{name}.pixels_{rho}.{attack}", what, won / len(truth), *clopper_pearson(won, len(truth)))
        draw_pictures(f"gradient_{attack}.{name}", truth[:10], found[:10], errors)


def main() -> None:
    sizes = {
        "targets": (100, "games, each with its own model"),
        "pool": (10_000, "records that secrets, and the adversary's prior, are drawn from"),
        "test": (2_000, "records to measure accuracy by"),
        "iterations": (2_000, "of descent"),
        "seed": (0, "of everything drawn"),
    }
    options = parser(__doc__ or "", GAMES, sizes).parse_args()
    bench, done = Bench(options), []
    for name in options.rows:
        rows = list(play(name, bench))
        write(__file__, rows, options)
        done += rows
    draw_errors("gradient", done)


if __name__ == "__main__":
    main()
