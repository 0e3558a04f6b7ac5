"""S3 Figures 3, 4, 7, 9, 10, 13 and 14, MNIST: attacks on DP-SGD, the best that is possible, and the ceiling.

    python papers/s3_attacks.py --device cuda [--rows clip_0.1 ...] [--repetitions 10000] [--data FOLDER]

S3 appendix A: MLP 784-10-10, ELU, 999 known records and one secret, T = 100 full-batch steps, delta = 1e-5, C = 0.1, no
momentum, the learning rate swept for each epsilon, 10 candidates, 10,000 repetitions (models). Here D- is one and the
same in all repetitions, and the candidates of each game are drawn afresh from 10,000 other records.
To reach: with C = 0.1 within 0.03 of the best possible success for the candidates' own Gram matrix; never above the
ceiling beyond chance, which would stop the run; a gap below it with C = 1. S3 finds all gradients clipped at C = 0.1.
Here the best learning rate fits many records so well that they are not: "all_clipped" is the same at a small one.
"best" is by Monte Carlo on the Gram matrices of some games, "attack" by the log-likelihood of S3 appendix G, and where
they differ, "sum" is Algorithm 2 and "top" Algorithm 3.

Figure 14 (row "panels") takes long on a CPU: `--parts 10 --part 0 1 2` plays the first three tenths of the games, and
`--sum` adds up the parts that the results file has.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lib.other_bounds import best_success
from lib.scores import InnerProducts, LargestProducts
from numpy.typing import NDArray
from s1_mnist import mean_row, parser, write
from s3_pictures import draw_curves
from torch import Tensor

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks.dp_steps.prior_aware import Score
from lostwax.games import Cohort, Hints, Knowledge, Records, Release
from lostwax.metrics.estimate import clopper_pearson
from lostwax.trainers.stacked import Architecture, record_gradients
from lostwax_dev.results import Row, read_rows

DELTA = 1e-5
EPSILONS = (1, 2, 4, 8, 16, 32, 64, 100)
FEW = (4, 16, 64)
RATES = (0.01, 0.1, 0.3, 0.6, 0.9, 0.99)
SPEEDS = (0.03, 0.1, 0.3, 1.0, 3.0)  # learning rate times C: the most that a step moves, in noiseless training
PRIORS = tuple(2**power for power in range(1, 12))
PANEL_PRIORS, PANEL_STEPS = (2, 10, 100), 100
# The least noise multiplier for each epsilon and sampling rate of Fig. 14, as `lw.DPSGD.for_epsilon` finds it: written
# down so that machines without dp-accounting can train
PANEL_NOISE = {
    **{(1, 0.01): 0.90207442, (4, 0.01): 0.59054230, (8, 0.01): 0.46455487, (16, 0.01): 0.36310336},
    **{(1, 0.99): 36.9410591, (4, 0.99): 10.7055580, (8, 0.99): 5.94440827, (16, 0.99): 3.40943162},
}
SCORES: Mapping[str, Score] = {
    "attack": lw.attacks.dp_steps.LogLikelihood(),
    "sum": InnerProducts(),
    "top": LargestProducts(),
}
GRAM_BYTES = 1 << 30
PART = ".part_"  # in ids of rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    """S3's defaults, except the fields that are set."""

    epsilon: float
    clip: float = 0.1
    rate: float = 1.0
    steps: int = 100
    known: int = 999
    width: int = 10
    noise_images: bool = False  # the candidates, secret and all, are noise
    subtract_known: bool = True
    speeds: tuple[float, ...] = SPEEDS
    share: float = 1.0  # of the repetitions asked for
    scores: tuple[str, ...] = ("attack", "sum")


def each(epsilons: Sequence[float], **fields: Any) -> dict[str, Setting]:
    """One setting for each epsilon."""
    return {f"epsilon_{epsilon}": Setting(epsilon=epsilon, **fields) for epsilon in epsilons}


THREE = ("attack", "sum", "top")
GAMES: dict[str, dict[str, Setting]] = {
    "clip_0.1": each(EPSILONS),  # Figs 7a and 13
    "all_clipped": each(EPSILONS, speeds=(0.03,)),  # the same, trained so little that no record is fitted
    "clip_1": each(EPSILONS, clip=1.0),  # Fig. 13
    "batches": each(FEW, rate=0.02, steps=1_000, known=499, share=0.2, scores=THREE),  # Fig. 4
    "rates": {  # Fig. 14, at epsilon 4
        f"rate_{rate}": Setting(epsilon=4, clip=1.0, rate=rate, scores=THREE) for rate in RATES
    },
    "noise_images": each(FEW, noise_images=True),  # Fig. 9
    "known": {  # Fig. 10, at epsilon 32
        f"known_{known}_{'less' if less else 'with'}_known": Setting(epsilon=32, known=known, subtract_known=less)
        for known in (4, 128, 999)
        for less in (True, False)
    },
    "width_100": each(FEW, width=100, share=0.1),  # Fig. 7
    "width_1000": each(FEW, width=1_000, share=0.02),
    "priors": each(FEW, share=0.2),  # Fig. 3
    "panels": {  # Fig. 14, the ends of every curve
        f"epsilon_{epsilon}_rate_{rate}": Setting(epsilon=epsilon, clip=1.0, rate=rate) for epsilon, rate in PANEL_NOISE
    },
    "norms": {  # Fig. 13 a
        f"clip_{clip}_epsilon_{epsilon}": Setting(epsilon=epsilon, clip=clip, share=0.001)
        for clip in (0.1, 1.0)
        for epsilon in (1, 40)
    },
}


class Bench:
    """The data on the device, and what is dealt from them, once for all settings that share it."""

    def __init__(self, options: argparse.Namespace) -> None:
        parts = lw.records.mnist("all", root=options.data).split(999, options.pool, options.test, seed=options.seed)
        self.known, self.pool, self.test = (part.to(options.device) for part in parts)
        self.options = options
        self.dealt: dict[tuple[int, bool, int, int], tuple[lw.Informed, Cohort, Hints]] = {}

    def game(self, setting: Setting, candidates: int = 10) -> tuple[lw.Informed, Cohort, Hints]:
        """One game a repetition: the threat, the training sets, the candidates."""
        repetitions = max(4, round(setting.share * self.options.repetitions))
        key = setting.known, setting.noise_images, repetitions, candidates
        if key not in self.dealt:
            pool = noise_like(self.pool) if setting.noise_images else self.pool
            threat = lw.Informed(self.known[: setting.known], candidates=candidates)
            cohort = threat.deal(pool, repetitions, seed=self.options.seed)
            hints = threat.hints(cohort, pool, seed=self.options.seed) or Hints()
            self.dealt[key] = threat, cohort, hints
        return self.dealt[key]


def noise_like(pool: Records) -> Records:
    """Images of uniform noise, as far from each other as those of the pool are on average."""
    some = pool.x[:500].flatten(1)
    distance = float(torch.pdist(some).square().mean())  # of two images, sum over pixels
    spread = (6 * distance / some.shape[1]) ** 0.5  # of U(0, s) two draws are s^2 / 6 apart
    noise = torch.rand(pool.x.shape, generator=torch.Generator().manual_seed(0)).to(pool.x)
    return Records(spread * noise, pool.y)


def private(setting: Setting, speed: float) -> lw.DPSGD:
    """The trainer at this learning rate times C."""
    fields = {"clip": setting.clip, "init": lw.inits.LeCunNormal(), "tf32": True, "lr": speed / setting.clip}
    noise = PANEL_NOISE.get((setting.epsilon, setting.rate)) if setting.steps == PANEL_STEPS else None
    if noise is None:
        return lw.DPSGD.for_epsilon(setting.epsilon, DELTA, steps=setting.steps, sample_rate=setting.rate, **fields)
    return lw.DPSGD(noise_multiplier=noise, steps=setting.steps, sample_rate=setting.rate, **fields)


def victim(setting: Setting, bench: Bench) -> tuple[lw.DPSGD, float]:
    """The trainer, at the learning rate with the best mean accuracy of a few models, and that accuracy."""
    net, known = lw.nets.mlp(784, setting.width, 10), bench.known[: setting.known]
    cohort = lw.Informed(known).deal(bench.pool, 4, seed=0)
    first, found = private(setting, setting.speeds[0]), []
    for speed in setting.speeds:
        trainer = replace(first, lr=speed / setting.clip)  # the noise is the same
        logits = lw.access.Logits(bench.test.x)(net, trainer(net, cohort, seed=bench.options.seed))
        answers = logits.view(len(cohort), len(bench.test), -1).argmax(2)
        found.append((float((answers == bench.test.y).double().mean()), trainer))
    accuracy, trainer = max(found, key=lambda pair: pair[0])
    return trainer, accuracy


def published(trainer: lw.DPSGD, net: torch.nn.Module, cohort: Cohort, seed: int) -> Release:
    """The steps alone: the attacks here make no use of the last weights, which would take another training."""
    start = next(trainer.transcript(net, cohort, seed=seed)).params
    return Release(start, partial(trainer.transcript, net, cohort, seed=seed))


def play(name: str, setting: Setting, bench: Bench) -> Iterator[Row]:
    """Every score of a setting, the best possible success, and the ceiling."""
    threat, cohort, hints = bench.game(setting)
    trainer, accuracy = victim(setting, bench)
    net, seed = lw.nets.mlp(784, setting.width, 10), bench.options.seed
    attack = lw.PriorAware(subtract_known=setting.subtract_known)
    chooser = attack.prepare(Knowledge(net, trainer, threat, Weights(), bench.pool[:2]), seed=seed)
    assert hints.candidates is not None
    steps = list(chooser.observed(published(trainer, net, cohort, seed), hints.candidates))
    right = (hints.candidates.x == cohort.own.x).flatten(2).all(2)  # (m, c)
    clipped = float(torch.stack([step.squares.ge(0.999).double().mean() for step in steps]).mean())
    games, ceiling = len(cohort), lw.bound(**trainer.mechanism(), baseline=0.1)
    what = f"{name} ({games:,} games, {100 * clipped:.0f} % of candidates' gradients clipped)"
    for score in setting.scores:
        chosen = SCORES[score](iter(steps), trainer).argmax(1, keepdim=True)
        won = int(right.gather(1, chosen).sum())
        if ceiling.broken_by(won, games):
            raise RuntimeError(f"{name}, {score}: {won} of {games} games won, above the ceiling: {ceiling.sentence}.")
        yield Row(f"{name}.{score}", f"{what}: success, {score}", won / games, *clopper_pearson(won, games))
    if setting.rate == 1 and setting.subtract_known:
        some = max(10, min(games, GRAM_BYTES // (4 * 10 * sum(value.numel() for value in net.parameters()))))
        best = best_success(gram(trainer, net, cohort[:some], hints.candidates[:some], seed))
        yield Row(f"{name}.best", f"{name}: best possible success (Gram matrices of {some} games)", best)
    yield Row(f"{name}.ceiling", f"{name}: ceiling", ceiling.upper, ceiling.lower, ceiling.upper)
    yield Row(f"{name}.accuracy", f"{name}: test accuracy at lr {trainer.lr:g}", accuracy)


def gram(
    trainer: lw.DPSGD, net: torch.nn.Module, cohort: Cohort, candidates: Records, seed: int
) -> NDArray[np.float64]:
    """(m, c, c) sum_t <g_i, g_j> / (C sigma)^2 of the candidates' clipped gradients."""
    ours = Architecture.of(net, candidates.x.device, trainer.computes_in(net))
    total: Tensor = torch.zeros(1, device=candidates.x.device)
    for step in trainer.transcript(net, cohort, seed=seed):
        gradients = record_gradients(ours, trainer.loss, dict(step.params), (candidates.x, candidates.y))
        flat = torch.cat([value.flatten(2) for value in gradients.values()], 2)  # (m, c, p)
        flat = flat * (trainer.clip / flat.norm(dim=2, keepdim=True)).clamp_max(1)
        total = total + (flat @ flat.mT).double() / (trainer.clip * trainer.noise_multiplier) ** 2
    kernel: NDArray[np.float64] = total.cpu().numpy()
    return kernel


def play_priors(name: str, setting: Setting, bench: Bench) -> Iterator[Row]:
    """Fig. 3: priors of every size out of one pool of 2,048, all scored in one run."""
    pool, options = bench.pool[: PRIORS[-1]], bench.options
    threat = lw.Informed(bench.known, candidates=2)
    cohort = threat.deal(pool, max(4, round(setting.share * options.repetitions)), seed=options.seed)
    trainer, _ = victim(setting, bench)
    net = lw.nets.mlp(784, setting.width, 10)
    chooser = lw.PriorAware().prepare(Knowledge(net, trainer, threat, Weights(), pool[:2]), seed=options.seed)
    everyone = Records(*(part.expand(len(cohort), *part.shape) for part in (pool.x, pool.y)))  # (m, 2048, ...)
    scores = chooser.scores(published(trainer, net, cohort, options.seed), everyone)
    secret = Records(cohort.own.x[:, 0], cohort.own.y[:, 0]).matches(pool).to(scores.device)  # (m,)
    yield from by_size(name, scores, secret, [size for size in PRIORS if size <= len(pool)], trainer, options.seed)


def by_size(
    name: str, scores: Tensor, secret: Tensor, sizes: Sequence[int], trainer: lw.DPSGD, seed: int, part: str = ""
) -> Iterator[Row]:
    """Success, and the ceiling, for the secret among the first few others in random order. Scores are (m, c)."""
    order = torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed)).to(scores.device)
    order[torch.arange(len(scores)), secret] = -1.0  # the secret is in every prior
    deal = order.argsort(1)  # (m, c) the secret first, the others in random order
    for size in sizes:
        among = scores.gather(1, deal[:, :size])
        won, games = int((among[:, 0] > among[:, 1:].amax(1)).sum()), len(scores)  # a tie is no success
        ceiling = lw.bound(**trainer.mechanism(), baseline=1 / size)
        if ceiling.broken_by(won, games):
            raise RuntimeError(
                f"{name}, prior {size}: {won} of {games} games won, above the ceiling: {ceiling.sentence}."
            )
        what, ends = f"{name}, {size} candidates", clopper_pearson(won, games)
        yield Row(f"{name}.{size}{part}", f"{what}: success ({games:,} games)", won / games, *ends)
        yield Row(f"{name}.{size}.ceiling", f"{what}: ceiling", ceiling.upper, ceiling.lower, ceiling.upper)


def play_panels(name: str, setting: Setting, bench: Bench) -> Iterator[Row]:
    """Fig. 14: priors of 2, 10 and 100 out of the same 100 candidates, in parts of the games."""
    threat, cohort, hints = bench.game(setting, min(PANEL_PRIORS[-1], len(bench.pool)))
    (trainer, _), net = victim(setting, bench), lw.nets.mlp(784, setting.width, 10)
    options = bench.options
    chooser = lw.PriorAware().prepare(Knowledge(net, trainer, threat, Weights(), bench.pool[:2]), seed=options.seed)
    assert hints.candidates is not None
    for part in options.part:
        mine = slice(part * len(cohort) // options.parts, (part + 1) * len(cohort) // options.parts)
        some, candidates = cohort[mine], hints.candidates[mine]
        scores = chooser.scores(published(trainer, net, some, options.seed), candidates)
        secret = (candidates.x == some.own.x).flatten(2).all(2).int().argmax(1).to(scores.device)
        sizes = [size for size in PANEL_PRIORS if size <= scores.shape[1]]
        word = "" if options.parts == 1 else f"{PART}{part}_of_{options.parts}"
        yield from by_size(name, scores, secret, sizes, trainer, options.seed + part, word)


def pooled(rows: Sequence[Row]) -> list[Row]:
    """The parts of each success as one row."""

    def whole(row: Row) -> str:
        return row.id.partition(PART)[0]

    found = []
    for name, some in groupby(sorted((row for row in rows if PART in row.id), key=whole), key=whole):
        parts = list(some)
        games = [int(row.quantity.rpartition("(")[2].split()[0].replace(",", "")) for row in parts]
        won = sum(round(float(row.value) * count) for row, count in zip(parts, games, strict=True))
        what = f"{parts[0].quantity.rpartition('(')[0]}({sum(games):,} games)"
        ends = clopper_pearson(won, sum(games))
        found.append(replace(parts[0], id=name, quantity=what, value=won / sum(games), low=ends[0], high=ends[1]))
    return found


def play_norms(name: str, setting: Setting, bench: Bench) -> Iterator[Row]:
    """Fig. 13 a: the mean norm of the known records' gradients as they are summed, over all records and steps."""
    threat, cohort, _ = bench.game(setting)
    (trainer, _), net = victim(setting, bench), lw.nets.mlp(784, setting.width, 10)
    seed = bench.options.seed
    chooser = lw.PriorAware().prepare(Knowledge(net, trainer, threat, Weights(), bench.pool[:2]), seed=seed)
    known = Records(*(part.expand(len(cohort), *part.shape) for part in (bench.known.x, bench.known.y)))  # (m, n, ...)
    steps = chooser.observed(published(trainer, net, cohort, seed), known)
    norms = setting.clip * torch.stack([step.squares.clamp_min(0).sqrt().double().mean(1) for step in steps]).mean(0)
    what = (
        f"{name}: mean norm of clipped gradients ({len(cohort)} models, {len(bench.known)} records, lr {trainer.lr:g})"
    )
    yield mean_row(name, what, norms.cpu().numpy())


def main() -> None:
    sizes = {
        "repetitions": (10_000, "games of each setting, each with its own model"),
        "pool": (10_000, "records that secrets and other candidates are drawn from"),
        "test": (2_000, "records to choose the learning rate by"),
        "seed": (0, "of everything drawn"),
    }
    made = parser(__doc__, GAMES, sizes)
    made.add_argument("--epsilons", nargs="+", type=int, help="only these, where a row has one setting for each")
    made.add_argument("--settings", nargs="+", help="only these settings of the rows, such as epsilon_4_rate_0.99")
    made.add_argument("--parts", type=int, default=1, help="panels: into how many parts the games are divided")
    made.add_argument("--part", nargs="+", type=int, default=[0], help="panels: the parts to run, from 0")
    made.add_argument("--sum", action="store_true", help="run nothing: add up the parts in the results file")
    options = made.parse_args()
    if options.sum:
        results = options.out or Path(__file__).parent / "results"
        write(__file__, pooled(read_rows(results / "s3_attacks.json")), options)
        return
    bench, by_row = Bench(options), {"priors": play_priors, "panels": play_panels, "norms": play_norms}
    for row in options.rows:
        wanted = {f"epsilon_{epsilon}" for epsilon in options.epsilons or ()}
        settings = {key: one for key, one in GAMES[row].items() if not wanted or key in wanted or "epsilon" not in key}
        settings = {key: one for key, one in settings.items() if key in (options.settings or settings)}
        done: list[Row] = []
        for key, setting in settings.items():
            start = time.perf_counter()
            rows = []
            for one in by_row.get(row, play)(f"{row}.{key}", setting, bench):
                write(__file__, [one], options)
                rows.append(one)
            print(f"  {time.perf_counter() - start:.1f} s", flush=True)
            done += rows
        if all("epsilon" in key for key in settings) and row not in by_row:
            draw_curves(row, done)


if __name__ == "__main__":
    main()
