"""What the S1 scripts on MNIST share: the data, the victim, the attack, a game from start to end, and its rows.

S1 section V-A and Table V: MLP 784-10-10, ELU, a public LeCun-normal initialisation, full-batch gradient descent
(lr 0.2, momentum 0.9, 100 epochs), 10,000 known records, 59,000 of the prior, 1,000 targets, all disjoint. Whatever a
row changes, the targets and the prior are the same.

Two attacks learn from the same shadow models: S1's reconstructor network, and with `--attack kernel` the regression in
closed form that we put in its place (`lw.KernelRidge`: one shadow model a record, nothing chosen by hand).
`--attack printed --width 1000 --epochs 100` is S1's own recipe (`s1_printed.py`), to tell method and recipe apart.

The reconstructor is wider than S1's and fed with noise; it learns from the mean squared error alone, and where a row
says "twice" or "4 times" from as many shadow models per record, all but the first on copies turned, scaled and moved a
little. This recipe was chosen by the error on held-out prior records of the split of seed 0; results are of others.

With `--judges` the rows of Tables II to IV also give LPIPS and the KL divergence under a LeNet trained on the prior
(S1 section V-B), and every game is run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lib.judge import KL, Classifier
from numpy.typing import ArrayLike, NDArray
from s1_printed import prepare_as_printed
from scipy.stats import quantile_test
from torch import Tensor, nn

import lostwax as lw
from lostwax.attacks.kernel_ridge import Regressed
from lostwax.attacks.reconn import Trained
from lostwax.games import Access, Cohort, Knowledge, Metric, Records
from lostwax.metrics import LPIPS, correlation, nearest_neighbour
from lostwax.metrics.estimate import clopper_pearson
from lostwax.records.datasets import find_directory
from lostwax_dev.results import Row, add_options, read_rows, write_rows

START = lw.inits.LeCunNormal()  # S1 Table V
VICTIM = lw.GD(lr=0.2, momentum=0.9, steps=100, init=START, tf32=True)
PRIVATE_START = lw.inits.LeCunNormal(seed=None)
VALIDATION = 1 / 30  # of the prior's records
TIMES = {1: "", 2: " twice"}
ATTACKS = {"reconn": None, "kernel": "kernel ridge", "printed": "decoder as printed"}  # who learns, in words
PARTS = ("median", "beats", "labels")  # what a row tells beside the mean error
LPIPS_WEIGHTS = "lpips_alex.safetensors"
SIZES = {  # the options of every script that are numbers: the default, and what it is
    "known": (10_000, "records that the adversary knows"),
    "shadows": (59_000, "records of the prior, each with a shadow model"),
    "targets": (1_000, "victims, each with a secret record"),
    "width": (2_048, "of the decoder's two hidden layers"),
    "epochs": (50, "of the decoder's training"),
    "members": (1, "decoders whose answers are averaged"),
    "seed": (0, "of everything drawn"),
}


def all_weights(prior: Records) -> Access:
    return lw.access.Weights()


def second_layer(prior: Records) -> Access:
    return lw.access.Layers("3")


def logits(prior: Records) -> Access:
    return lw.access.Logits(prior.x[:200])  # S1 section VI-C


@dataclass(frozen=True, kw_only=True)
class Game:
    """One row: S1's defaults, except the fields that are set."""

    paper: float | None = None  # S1's mean squared error
    paper_lpips: float | None = None
    paper_kl: float | None = None
    hidden: int = 10
    activation: Callable[[], nn.Module] = nn.ELU
    trainer: lw.GD | lw.SGD | lw.DPSGD = VICTIM
    known: int | None = None  # number of known records, None for all
    prior: int | None = None  # number of prior records
    access: Callable[[Records], Access] = all_weights
    noise: float = 0.1  # on what the decoder sees; less where less is seen
    copies: int = 2  # RecoNN's shadow models for each record of the prior, all but the first on changed copies


class Split(NamedTuple):
    known: Records
    prior: Records
    secrets: Records
    pool: int  # how many prior and known records there are in all
    nearest: NDArray[np.float64]  # (targets,) error of the nearest of them, S1's oracle (section V-B)
    blind: NDArray[np.float64]  # (targets,) error of the prior's mean

    def of(self, game: Game) -> Split:
        """As far as the game's adversary has it; it is judged by what all of it would give."""
        return self._replace(known=self.known[: game.known], prior=self.prior[: game.prior])


class Played(NamedTuple):
    guesses: Tensor  # (targets, 1, 28, 28)
    errors: NDArray[np.float64]  # (targets,) mean squared
    labels_right: NDArray[np.bool_]  # (targets,)
    sizes: str  # in words


class Judges(NamedTuple):
    """S1's other metrics (section V-B)."""

    lpips: LPIPS
    kl: KL
    accuracy: float  # of the classifier behind KL, on held-out records of the prior

    @classmethod
    def of(cls, data: Split, options: argparse.Namespace) -> Judges:
        """With a LeNet trained on the prior, and LPIPS's weights from the data folder."""
        judge = Classifier.trained(data.prior, seed=options.seed)
        weights = find_directory("s1_mnist", [LPIPS_WEIGHTS], options.data) / LPIPS_WEIGHTS
        return cls(LPIPS(weights), KL(judge), judge.accuracy or 0.0)

    def rows(self, name: str, game: Game, played: Played, data: Split) -> list[Row]:
        """The means over the targets."""
        return [
            mean_row(f"{name}.lpips", f"{name}: mean LPIPS", scores(self.lpips, played, data), game.paper_lpips),
            mean_row(f"{name}.kl", f"{name}: mean KL in nats", scores(self.kl, played, data), game.paper_kl),
        ]


@torch.no_grad()
def scores(metric: Metric, played: Played, data: Split) -> NDArray[np.float64]:
    """(targets,)."""
    numbers: NDArray[np.float64] = metric(played.guesses, data.secrets.x).double().cpu().numpy()
    return numbers


def arguments(doc: str, rows: Iterable[str], **defaults: int) -> argparse.Namespace:
    """The options of every script; `defaults` are sizes of the script's own."""
    chosen = {name: (defaults.get(name, size), what) for name, (size, what) in SIZES.items()}
    made = parser(doc, rows, chosen)
    made.add_argument("--attack", choices=ATTACKS, default="reconn", help="who learns from the shadows")
    made.add_argument("--judges", action="store_true", help="Tables II to IV: also LPIPS and KL")
    return made.parse_args()


def parser(doc: str, rows: Iterable[str], sizes: Mapping[str, tuple[float, str]]) -> argparse.ArgumentParser:
    """Options for the rows, the data and the device, and for each size: its default (whole or not), and what it is."""
    made = argparse.ArgumentParser(
        description=doc.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    names = list(rows)
    made.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    made.add_argument("--data", help="folder of the data sets; else LOSTWAX_DATA")
    made.add_argument("--device", default="cpu", help="where all is computed")
    for name, (size, what) in sizes.items():
        made.add_argument(f"--{name}", type=type(size), default=size, help=what)
    add_options(made, {name: size for name, (size, _) in sizes.items()})
    return made


def split(options: argparse.Namespace) -> Split:
    """Known records, prior and secrets on the device, and how near the adversary comes without a model."""
    sizes = options.known, options.shadows, options.targets
    parts = lw.records.mnist("all", root=options.data).split(*sizes, seed=options.seed)
    known, prior, secrets = (part.to(options.device) for part in parts)
    pool = torch.cat([prior.x, known.x]).double()  # float32 products may be TF32, and pick another neighbour
    nearest = nearest_neighbour(secrets.x.double(), pool, percentiles=()).errors
    return Split(known, prior, secrets, len(pool), nearest, squared_errors(prior.x.mean(0), secrets.x))


def squared_errors(guess: Tensor, truth: Tensor) -> NDArray[np.float64]:
    """(targets,) mean over pixels."""
    errors: NDArray[np.float64] = (guess - truth).double().square().flatten(1).mean(1).cpu().numpy()
    return errors


def knowledge(game: Game, data: Split) -> Knowledge:
    """What the adversary has before a victim is trained."""
    net = lw.nets.mlp(784, game.hidden, 10, activation=game.activation)
    return Knowledge(net, game.trainer, lw.Informed(data.known), game.access(data.prior), data.prior)


def cohort(data: Split) -> Cohort:
    """One victim a secret, in their order."""
    index = torch.arange(len(data.secrets), device=data.secrets.x.device)
    return Cohort(data.known, data.secrets[index.unsqueeze(1)], index)  # own (targets, 1, ...)


def recipe(game: Game, records: int, options: argparse.Namespace) -> lw.RecoNN:
    """The attack, for a prior of this size."""
    attack = lw.RecoNN(
        decoder=lw.decoders.MLPDecoder(width=options.width, input_noise=game.noise),
        mae=0.0,
        epochs=options.epochs,
        batch_size=min(256, max(8, records // 40)),  # a small prior still gives some 40 steps per epoch
        lr=1e-3,
        patience=None,
        validation=VALIDATION,
        members=options.members,
    )
    if game.copies == 1:
        return attack
    more = (game.copies - 1) * (records - round(VALIDATION * records))  # the records to be tested on are not copied
    epochs = max(1, round(options.epochs * game.copies**-0.6))  # of more models each
    return replace(
        attack, shadows=records + more, augment=lw.learning.Affine(degrees=5, scale=0.05, pixels=1), epochs=epochs
    )


def play(game: Game, everything: Split, options: argparse.Namespace) -> Played:
    """Prepare the attack, train the victims, rebuild their secrets."""
    torch.set_float32_matmul_precision("high")  # for the decoder; the trainer says what it uses
    data = everything.of(game)
    attack, seed = attack_of(options), options.seed
    if attack != "reconn":
        game = replace(game, copies=1)
    facts = knowledge(game, data)
    reconstruct: Trained | Regressed
    if attack == "kernel":
        reconstruct = lw.KernelRidge(validation=VALIDATION).prepare(facts, seed=seed)
    elif attack == "printed":
        reconstruct = prepare_as_printed(
            facts, width=options.width, epochs=options.epochs, validation=VALIDATION, seed=seed
        )
    else:
        reconstruct = recipe(game, len(data.prior), options).prepare(facts, seed=seed)
    return score(reconstruct, game, data, options, ATTACKS[attack])


def attack_of(options: argparse.Namespace) -> str:
    """The attack's name; scripts without the option use the reconstructor network."""
    return options.attack if "attack" in options else "reconn"


def score(
    reconstruct: Trained | Regressed, game: Game, data: Split, options: argparse.Namespace, learner: str | None = None
) -> Played:
    """The prepared attack against the victims; `learner` names it where it is not our recipe's."""
    guess = reconstruct(game.trainer(reconstruct.net, cohort(data), seed=options.seed)).records
    ours = f"{options.members} decoder{'s' if options.members > 1 else ''}"
    sizes = (
        f"{len(data.known):,} known, {len(data.prior):,} prior{TIMES.get(game.copies, f' {game.copies} times')}, "
        f"{len(data.secrets):,} targets, {learner or ours}"
    )
    right = (guess.y[:, 0] == data.secrets.y).cpu().numpy()
    print(f"  held-out prior records: {reconstruct.validation_error:.4f}", flush=True)
    return Played(guess.x[:, 0], squared_errors(guess.x[:, 0], data.secrets.x), right, sizes)


def mean_row(name: str, quantity: str, numbers: NDArray[np.float64], paper: float | None = None) -> Row:
    """The mean over targets, with its 95 % interval."""
    mean, half = numbers.mean(), 1.96 * numbers.std(ddof=1) / np.sqrt(len(numbers))
    return Row(name, quantity, float(mean), float(mean - half), float(mean + half), paper)


def median_row(name: str, quantity: str, numbers: NDArray[np.float64]) -> Row:
    """The median over targets, with its 95 % interval by order statistics, which fewer than six targets have not."""
    low, high = quantile_test(numbers, p=0.5).confidence_interval(0.95)
    ends = (None, None) if np.isnan([low, high]).any() else (float(low), float(high))
    return Row(name, quantity, float(np.median(numbers)), *ends)


def rate_row(name: str, quantity: str, right: NDArray[np.bool_]) -> Row:
    """A share of targets, with its 95 % interval (Clopper-Pearson)."""
    return Row(name, quantity, float(right.mean()), *clopper_pearson(int(right.sum()), len(right)))


def oracle_row(data: Split) -> Row:
    """The oracle: the error of the nearest available record."""
    return mean_row("oracle", f"mean MSE of the nearest of {data.pool:,} prior and known records", data.nearest, 0.0232)


def correlation_rows(name: str, errors: ArrayLike, others: ArrayLike, sizes: str, *, seed: int) -> list[Row]:
    """How the errors of the targets go with something else about them, with bootstrap intervals."""
    found = correlation(errors, others, seed=seed)
    return [
        Row(f"{name}.{kind}", f"{kind}'s correlation of MSE and {name} ({sizes})", *estimate[:3])
        for kind, estimate in (("Pearson", found.pearson), ("Spearman", found.spearman))
    ]


def rows_of(name: str, game: Game, played: Played, data: Split) -> list[Row]:
    """The mean error, and the success rate: closer than the prior's mean and the nearest available record."""
    success = f"{name}: share of guesses nearer than the mean and the nearest of all prior and known records"
    return [
        mean_row(name, f"{name}: mean MSE ({played.sizes})", played.errors, game.paper),
        Row(f"{name}.median", f"{name}: median MSE", float(np.median(played.errors))),
        rate_row(f"{name}.beats", success, played.errors < np.minimum(data.nearest, data.blind)),
        rate_row(f"{name}.labels", f"{name}: labels right", played.labels_right),
    ]


def write(script: str, rows: Sequence[Row], options: argparse.Namespace) -> Path:
    """Print the rows and add them to the results: after every row of a table, for a long run may be cut. The file."""
    for row in rows:
        interval = "" if row.low is None or row.high is None else f" ({row.low:.3g} to {row.high:.3g})"
        paper = "" if row.paper is None else f"; paper: {row.paper}"
        print(f"{row.value:10.4g}{interval:24s} {row.quantity}{paper}", flush=True)
    return write_rows(script, [replace(row, seed=options.seed) for row in rows], keep_others=True, options=options)


def table(
    script: str,
    games: Mapping[str, Game],
    data: Split,
    options: argparse.Namespace,
    twins: Mapping[str, str] | None = None,
) -> dict[str, Played]:
    """The oracle, and then the games that are asked for, each written when it is done.

    `twins` are games that Table II has under another name: where they were measured, they are not run again.
    """
    write(script, [oracle_row(data)], options)
    judges = Judges.of(data, options) if options.judges else None
    played = {}
    kind = "" if attack_of(options) == "reconn" else f".{attack_of(options)}"
    for name in options.rows:
        start = time.perf_counter()
        rows = rows_of_twin(name + kind, (twins or {}).get(name, "") + kind, options) if judges is None else []
        if not rows:
            played[name] = play(games[name], data, options)
            rows = rows_of(name + kind, games[name], played[name], data)
        if judges is not None:
            rows += judges.rows(name + kind, games[name], played[name], data)
        write(script, rows, options)
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return played


def rows_of_twin(name: str, twin: str, options: argparse.Namespace) -> list[Row]:
    """What Table II has of the same game, command and machine included; nothing if it was not run."""
    results = Path(__file__).parent / "results" / "s1_table2.json"
    measured = read_rows(results) if results.exists() else []
    wanted = (twin, *(f"{twin}.{part}" for part in PARTS))
    return [
        replace(row, id=name + row.id[len(twin) :], quantity=name + row.quantity[len(twin) :])
        for row in measured
        if row.id in wanted and all(asked_for(size, row.command) == getattr(options, size) for size in SIZES)
    ]


def asked_for(size: str, command: str) -> int:
    """What the command of a row says, or the default."""
    said = [word for option, word in pairwise(command.split()) if option == f"--{size}"]
    return int(said[-1]) if said else SIZES[size][0]
