"""Whole training sets of which no record is known, rebuilt from the weights: share of records, certificates, time.

    python papers/whole_sets.py --data FOLDER [--rows mnist_10 ...] [--sets 0:100] [--processes 8] [--keep FOLDER]

MLPs with one hidden layer, trained by 30 steps of full-batch gradient descent (lr 0.5) in float64 from a public
LeCun-normal start. Each set is n records of a pool, drawn regardless of their classes; neither labels nor class counts
are given, except in rows that say so. The adversary has other records of the same kind. A set counts if `Newton`
certifies it; a record counts if a guess is within a mean squared error of 1e-4. To reach: 95 of 100 sets of ten MNIST
digits. Rows of `DEFENCES` change what the owner does, and the adversary knows it unless the row says otherwise.

CIFAR-10 has a learning rate of 0.02, chosen on a set of seed 0: run it with another seed. `cifar_10_rate_0.5` has 0.5.

Sets are independent: with `--keep`, each is written to a file of its own when it is done, and sets that are there are
not played again. So parts of a row (`--sets 0:10`, `--sets 10:20`) can run at the same time or on several machines.
`--merge` writes the rows of the sets that are there, with the machine and the code that played them: sets of these rows
that are not there count as failures, and the rows say how many. A part of a row alone writes no row.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from s1_mnist import parser, rate_row, write
from scipy.optimize import linear_sum_assignment
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Hints, Knowledge, Records, Trainer
from lostwax.provenance import machine
from lostwax.seeds import generator
from lostwax_dev.freshness import Code, as_code, changed, code_of, commit_of
from lostwax_dev.results import Row, read_rows

CLOSE = 1e-4
VICTIM = lw.GD(lr=0.5, steps=30, dtype=torch.float64, init=lw.inits.LeCunNormal())
SIZES = {
    "prior": (1_500, "records that the adversary has"),
    "pool": (1_000, "records that the sets are drawn from"),
    "processes": (1, "sets played at the same time"),
    "seed": (0, "of everything drawn"),
}


@dataclass(frozen=True, kw_only=True)
class Game:
    """One row."""

    size: int = 10  # n
    width: int = 64
    sets: int = 10
    data: str = "mnist"
    given: bool = False  # the labels
    activation: Callable[[], nn.Module] = nn.Tanh
    trainer: Trainer = VICTIM
    assumed: lw.GD | lw.SGD | None = None  # how the adversary believes that it was trained; None: as it was
    jacobians: int = 12
    goal: float | None = None  # share of sets

    @property
    def words(self) -> str:
        """What is played."""
        labels = "labels given" if self.given else "labels unknown"
        return f"{self.size} records, width {self.width}, {labels}"


SLOWER = replace(VICTIM, lr=0.02)  # the squares of a picture's numbers sum to ten times those of a digit
ORDERED = lw.SGD(lr=0.5, epochs=15, batch_size=5, dtype=torch.float64, init=lw.inits.LeCunNormal())
PRIVATE = replace(VICTIM, init=lw.inits.LeCunNormal(seed=None))
DP = lw.DPSGD(lr=0.5, steps=30, clip=1.0, noise_multiplier=1.0, init=lw.inits.LeCunNormal())
DEFENCES = {
    "none": Game(),
    "epoch": Game(trainer=replace(VICTIM, steps=31), assumed=VICTIM),
    "decay": Game(trainer=replace(VICTIM, weight_decay=0.01)),
    "order": Game(trainer=replace(ORDERED, order_seed=None), assumed=ORDERED, given=True),
    "float32": Game(trainer=replace(VICTIM, dtype=torch.float32)),
    "float16": Game(trainer=lw.defences.Defended(VICTIM, by=lw.defences.Rounded(torch.float16)), given=True),
    "noise": Game(trainer=lw.defences.Defended(VICTIM, by=lw.defences.WeightNoise(1e-3)), given=True),
    "start": Game(trainer=PRIVATE),
    "dp": Game(trainer=DP),
}
WORDS = {
    "none": "none",
    "epoch": "one more step, unknown",
    "decay": "weight decay",
    "order": "private order of batches",
    "float32": "float32",
    "float16": "float16",
    "noise": "weight noise, 0.1 %",
    "start": "private start (refused)",
    "dp": "DP-SGD, noise 1 (refused)",
}
GAMES = {
    "mnist_10": Game(sets=100, goal=0.95),
    "mnist_10_relu": Game(sets=25, activation=nn.ReLU, jacobians=3),
    "mnist_10_elu": Game(sets=25, activation=nn.ELU),
    **{f"mnist_10_width_{width}": Game(width=width, sets=10) for width in (8, 10, 20)},
    "mnist_20": Game(size=20, width=80, sets=20),
    "mnist_20_given": Game(size=20, width=80, sets=10, given=True),
    "mnist_20_width_20": Game(size=20, width=20, sets=5),
    "mnist_50": Game(size=50, width=200, sets=10),
    **{f"mnist_50_width_{width}": Game(size=50, width=width, sets=5) for width in (40, 50, 100)},
    "mnist_100": Game(size=100, width=400, sets=3, jacobians=6),
    **{f"mnist_100_width_{width}": Game(size=100, width=width, sets=3, jacobians=6) for width in (80, 100, 200)},
    **{
        f"cifar_{size}": Game(size=size, width=width, sets=sets, data="cifar10", given=True, trainer=SLOWER)
        for size, width, sets in ((10, 128, 5), (20, 128, 3), (50, 200, 2), (100, 400, 1))
    },
    "cifar_10_rate_0.5": Game(width=40, sets=5, data="cifar10", given=True),
    **{f"defence_{name}": game for name, game in DEFENCES.items()},
}


@dataclass(frozen=True)
class Outcome:
    """One set."""

    row: str
    number: int
    errors: list[float]  # of each record, mean squared
    blind: list[float]  # of the prior's mean
    certified: bool
    labels: bool  # all right
    seconds: float
    refused: str | None = None  # why the attack does not apply
    unfinished: bool = False  # the run was stopped before it was done
    matched: float | None = None  # the largest error, guesses matched one to one; None: kept before that was recorded
    seed: int = 0
    machine: str = field(default_factory=machine)
    commit: str | None = field(default_factory=lambda: commit_of(Path(__file__)))
    code: Code = field(default_factory=lambda: code_of(Path(__file__)))

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """From the file of a set that was kept."""
        kept = json.loads(path.read_text())
        return cls(**{**kept, "code": as_code(kept["code"])})

    @property
    def close(self) -> float:
        """Share of records."""
        return float(np.mean(np.array(self.errors) < CLOSE))


def play(row: str, number: int, options: argparse.Namespace) -> Outcome:
    """Train on one set and rebuild it."""
    game = GAMES[row]
    records = {"mnist": lw.records.mnist, "cifar10": lw.records.cifar10}[game.data]("all", root=options.data)
    prior, pool = (part.to(torch.float64) for part in records.split(options.prior, options.pool, seed=options.seed))
    prior, pool = prior.to(options.device), pool.to(options.device)
    drawn = generator(options.seed, "deal", number).choice(len(pool), game.size, replace=False)
    own = pool[torch.from_numpy(np.sort(drawn)).to(options.device)]
    own = own[own.y.argsort(stable=True)]
    index = torch.tensor([number], device=options.device)
    cohort = Cohort(pool[:0], own[torch.arange(game.size, device=options.device)[None]], index)
    net = lw.nets.mlp(prior.x.shape[1:].numel(), game.width, 10, activation=game.activation)
    release = game.trainer(net, cohort, seed=options.seed)
    blind = errors_of(prior.x.double().mean(0, keepdim=True), own)
    facts = Knowledge(net, game.assumed or game.trainer, lw.Weak(game.size), lw.access.Weights(), prior)
    not_applicable = partial(Outcome, row, number, blind, blind, certified=False, labels=False, seconds=0.0)
    start = time.perf_counter()
    if (refused := lw.Newton().objection(facts)) is not None:
        return not_applicable(refused=refused, seed=options.seed)
    try:
        hints = Hints(labels=cohort.own.y) if game.given else None
        (found,) = lw.Newton(jacobians=game.jacobians).prepare(facts, seed=options.seed + 1).invert(release, hints)
    except ValueError as error:
        if "too many for its tables" not in str(error):
            raise
        return not_applicable(refused=str(error), seed=options.seed)
    seconds = time.perf_counter() - start
    guesses = found.record.view(game.size, -1)
    right, matched = sorted(found.label.tolist()) == own.y.tolist(), largest_matched(guesses, own)
    errors = errors_of(guesses, own)
    return Outcome(row, number, errors, blind, found.certified, right, seconds, matched=matched, seed=options.seed)


def errors_of(guesses: torch.Tensor, own: Records) -> list[float]:
    """Mean squared error of the guess nearest to each record."""
    nearest: list[float] = _far(guesses, own).amin(0).tolist()
    return nearest


def largest_matched(guesses: torch.Tensor, own: Records) -> float:
    """Largest mean squared error where each guess is matched to one record; the sum is smallest."""
    far = _far(guesses, own).cpu().numpy()
    return float(far[linear_sum_assignment(far)].max())


def _far(guesses: torch.Tensor, own: Records) -> torch.Tensor:
    """(g, n) mean squared differences."""
    return (guesses.double().flatten(1)[:, None] - own.x.double().flatten(1)).square().mean(2)


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Of all sets asked for, as they are done."""
    first, last = (int(part) if part else None for part in options.sets.split(":"))
    asked = [(row, number) for row in options.rows for number in range(GAMES[row].sets)[first:last]]
    folder = None if options.keep is None else Path(options.keep)
    done = {} if folder is None else {one: folder / f"{one[0]}.{one[1]}.json" for one in asked}
    for path in done.values():
        if path.exists():
            yield Outcome.read(path)
    left = [one for one in asked if one not in done or not done[one].exists()]
    if options.merge:
        begun = {row for row, number in asked if (row, number) not in left}
        yield from (unfinished(row, number) for row, number in left if row in begun)
        return
    for one in played(left, options):
        print(
            f"{one.row} {one.number}: certified {one.certified}, {one.close:.0%} within {CLOSE:g}, "
            f"median {np.median(one.errors):.1e}, labels {one.labels}, {one.seconds:.1f} s {one.refused or ''}",
            flush=True,
        )
        yield one


def unfinished(row: str, number: int) -> Outcome:
    """A failure."""
    return Outcome(row, number, [], [], certified=False, labels=False, seconds=0.0, unfinished=True)


def played(asked: Sequence[tuple[str, int]], options: argparse.Namespace) -> Iterator[Outcome]:
    """As they are done, in any order."""
    if options.processes == 1:
        for row, number in asked:
            yield kept(row, number, options)
        return
    with ProcessPoolExecutor(options.processes, get_context("spawn"), _alone) as workers:
        waiting = [workers.submit(kept, row, number, options) for row, number in asked]
        for one in as_completed(waiting):
            yield one.result()


def kept(row: str, number: int, options: argparse.Namespace) -> Outcome:
    """Play one set and write it."""
    one = play(row, number, options)
    if options.keep is not None:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        (Path(options.keep) / f"{row}.{number}.json").write_text(json.dumps(vars(one)))
    return one


def _alone() -> None:
    torch.set_num_threads(1)


def rows_of(name: str, played: Sequence[Outcome]) -> list[Row]:
    """The shares over sets and records, and the time."""
    game, refused = GAMES[name], [one.refused for one in played if one.refused is not None]
    done = [one for one in played if not one.unfinished]
    left = len(played) - len(done)
    failed = f" ({left} sets not finished, counted as failures)" if left else ""
    of_done = f" ({len(done)} finished sets)" if left else ""
    errors = np.concatenate([[np.inf] * game.size if one.unfinished else one.errors for one in played])
    certified = [one for one in done if one.certified]
    words = f"{name}: sets with all records certified ({len(played)} sets; {game.words}){failed}"
    blind, seconds = (float(np.median(each)) for each in ([one.blind for one in done], [one.seconds for one in done]))
    rows = [
        replace(rate_row(f"{name}.sets", words, np.array([one.certified for one in played])), paper=game.goal),
        Row(name, f"{name}: share of records within MSE {CLOSE:g}{failed}", float(np.mean(errors < CLOSE))),
        Row(f"{name}.blind", f"{name}: median MSE of the mean record{of_done}", blind),
        rate_row(
            f"{name}.labels", f"{name}: sets with all labels right{failed}", np.array([one.labels for one in played])
        ),
        Row(f"{name}.seconds", f"{name}: median seconds per set{of_done}", seconds),
    ]
    if np.isfinite(median := float(np.median(errors))):
        rows.insert(2, Row(f"{name}.median", f"{name}: median MSE{failed}", median))
    if certified:
        nearest = any(one.matched is None for one in certified)
        worst = max(max(one.errors) if one.matched is None else one.matched for one in certified)
        how = "from its nearest guess" if nearest else "guesses matched one to one"
        rows.append(Row(f"{name}.worst", f"{name}: largest MSE of a certified record, {how}", worst))
    if refused:
        rows.append(Row(f"{name}.refused", f"{name}: share of sets refused. {refused[0]}", len(refused) / len(played)))
    return [replace(row, machine=done[0].machine) for row in rows]


def as_measured(rows: Sequence[Row], played: Sequence[Outcome]) -> list[Row]:
    """With the machine and code of the sets: merging measures nothing. Code that has changed since comes first."""
    done = [one for one in played if not one.unfinished]
    root = Path(__file__).resolve().parents[1]
    first = next((one for one in done if changed(one.code, root)), done[0])
    command = f"python papers/whole_sets.py --data DATA --seed {first.seed} --rows {first.row}"
    machines = "; ".join(sorted({one.machine for one in done}))
    return [
        replace(row, command=command, machine=machines, version=lw.__version__, commit=first.commit, code=first.code)
        for row in rows
    ]


def draw_sizes(rows: Iterable[Row], path: Path) -> None:
    """Share of records against n and width, MNIST."""
    row = {one.id: one for one in rows}
    names = [name for name, game in GAMES.items() if game.data == "mnist" and name in row and game.trainer is VICTIM]
    names = [name for name in names if not GAMES[name].given and GAMES[name].activation is nn.Tanh]
    names = [name for name in names if not name.startswith("defence")]
    figure = Figure(figsize=(6.4, 4.4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    n = np.array([8.0, 130.0])
    axes.plot(
        n, n, color="#666666", linewidth=0.9, linestyle="--", label="as many neurons as records: the space is seen"
    )
    equal = (n * 784 - 10) / (785 + 10)  # width w has 785 w + 10 w + 10 weights
    axes.plot(n, equal, color="#D55E00", linewidth=0.9, linestyle=":", label="as many weights as unknown pixels")
    for name in names:
        game, share = GAMES[name], float(row[name].value)
        axes.scatter(game.size, game.width, 90, [share], cmap="viridis", vmin=0, vmax=1, edgecolors="#000000")
        axes.annotate(f"{share:.2f}", (game.size, game.width), (7, 4), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="records n", ylabel="width")
    axes.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
    axes.set_title("share of MNIST records within MSE 1e-4, labels unknown", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def draw_defences(rows: Iterable[Row], path: Path) -> None:
    """Median error under each defence."""
    row = {one.id: one for one in rows}
    names = [name for name in DEFENCES if f"defence_{name}.median" in row]
    if not names:
        return
    figure = Figure(figsize=(6.4, 3.6), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    medians = [max(float(row[f"defence_{name}.median"].value), 1e-33) for name in names]
    axes.barh(range(len(names)), np.log10(medians) + 33, left=-33, color="#0072B2", height=0.6)
    blind = float(row[f"defence_{names[0]}.blind"].value)
    axes.axvline(np.log10(blind), color="#666666", linewidth=0.9, linestyle="--", label="mean record")
    axes.set_yticks(range(len(names)), [WORDS[name] for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("median squared error of a record, log10 (ten MNIST digits, width 64)")
    axes.legend(frameon=False, fontsize=7, loc="upper center")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    made = parser(__doc__ or "", GAMES, SIZES)
    made.add_argument("--sets", default=":", help="numbers of the sets of each row, first:last")
    made.add_argument("--keep", help="folder with a file for each set that is done")
    made.add_argument(
        "--merge", action="store_true", help="play nothing: rows of the sets that are kept, of which others failed"
    )
    options = made.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    done: dict[str, list[Outcome]] = {}
    for one in outcomes(options):
        done.setdefault(one.row, []).append(one)
    for name, each in done.items():
        if len(each) < GAMES[name].sets and options.keep is not None and not options.merge:
            continue  # a part: merge it with the others
        each.sort(key=lambda one: one.number)
        rows = as_measured(rows_of(name, each), each) if options.merge else rows_of(name, each)
        written = write(__file__, rows, options)
        every = read_rows(written)
        draw_sizes(every, written.with_suffix(".png"))
        draw_defences(every, written.with_name("whole_sets_defences.png"))


if __name__ == "__main__":
    main()
