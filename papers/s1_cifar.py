"""What the S1 scripts on CIFAR-10 share: the data, the victim, shadow models kept on disk, the attack, its rows.

S1 section V-A, Tables V to VIII: a CNN of 55,208 parameters, ELU, a public LeCun-normal initialisation, full-batch
gradient descent with momentum 0.9, 100 epochs, 5,000 known records. S1 has 54,000 shadow models and reaches 0.0049;
with 5,000 it is below 0.05, with 10,000 below 0.03 (section VI-B a). The defaults here are 5,000.

S1 does not name the learning rate. Of six between 0.003 and 0.1 we took the one that comes nearest to its accuracies
with 1K known records (Table IX); training set / new records, one model each, on the split of seed 0:

    learning rate             0.005        0.007        0.01         S1
    1K known, 100 epochs   .418 / .309  .461 / .321  .529 / .317  .451 / .327
    1K known, 250 epochs   .639 / .320  .749 / .318  .907 / .323  .759 / .324
    1K known, 500 epochs   .953 / .320  .999 / .317  1.00 / .321  .998 / .328
    5K known, 100 epochs   .357 / .325  .382 / .343  .407 / .355  .392 / .388

With 5K known, 0.01 fits as well, and no rate tried there reaches S1's accuracy on new records. Adam, whose rate S1 does
name, gives .872 / .301 for .952 / .299 (1K known, 100 epochs): our victim differs from S1's in more than this rate.

Shadow models are slow here, so they are kept in `--store`, in parts, and those found there are not trained again: a run
that was cut goes on where it was when the same command is given again, and more `--shadows` add to those there are.

With `--engine linear` they are not trained: `lw.shadows.LinearResponse` computes them in the principal `--directions`
of as many trained models, and `--checked` more trained ones say how well (R²). So S1's full scale is within reach:

    --engine linear --directions 512 --shadows 54000 --targets 1000

Victims and the models of the check are trained in float32, for rounding in TF32 moves weights as far as a record does;
the directions come from models trained in TF32, and rows with the same victims share everything up to the attack. Rows
that end in "newton" invert the linear response in `--coordinates` principal components of the pictures, and train no
model on a guess (`newton_cifar.py` does).
A row whose response does not hold is named and left out. Rows by linear response have names that end in "linear", or
"semilinear" with `--rank`; `--mirror` adds the mirror image of every picture to learn from. `--judges` adds LPIPS, and
KL under a LeNet trained on the prior (S1's is another net, which it does not name).
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from s1_mnist import Judges, Played, Split, all_weights, cohort, mean_row, parser, rows_of, squared_errors, write
from torch import Tensor, nn
from torch.func import functional_call

import lostwax as lw
from lostwax.files import read_tensors, write_tensors
from lostwax.games import Access, Cohort, Knowledge, Records, Release
from lostwax.learning.shadow_tables import RESPONSES, ShadowTable
from lostwax.metrics import LPIPS, nearest_neighbour
from lostwax.provenance import fingerprint
from lostwax.shadows.linear_response import Responses, few_known
from lostwax_dev.results import Row

NET = lw.nets.cnn()
START = lw.inits.LeCunNormal()  # S1 Table V
GD = lw.GD(lr=0.007, momentum=0.9, steps=100, init=START, tf32=True)
ADAM = lw.Adam(lr=0.002, epochs=100, init=START, tf32=True)
PART = 256  # shadow models in a file
VALIDATION = 0.05  # of the shadow models
SHADOW_SEED = 1 << 32  # of what shadow models draw, where training draws anything; victims draw from --seed
JUDGED = 10  # victims whose accuracy is taken, on as many new records as there are known ones


def convolutions(prior: Records) -> Access:
    """S1 section VI-B: 16 % of the parameters."""
    return lw.access.Layers("0", "2")


def logits(prior: Records) -> Access:
    """S1 section VI-C."""
    return lw.access.Logits(prior.x[:500])


@dataclass(frozen=True, kw_only=True)
class Game:
    """One row: S1's defaults, except the fields that are set."""

    paper: float | None = None  # S1's mean squared error
    paper_lpips: float | None = None
    paper_kl: float | None = None
    accuracies: tuple[float | None, float | None] = (None, None)  # S1's, on the training set and on new records
    net: nn.Module = NET
    access: Callable[[Records], Access] = all_weights
    trainer: lw.GD | lw.Adam | lw.DPSGD = GD
    known: int | None = None  # number of known records, None for all
    own_split: int | None = None  # number of known records, more than the other rows have: on a split of its own
    shadows: int | None = None  # maximum number of shadow models that are trained, for slow victims
    smooth: bool = True  # training has a linear response; else shadow models are always trained
    mirror: bool = False  # learn from mirror images too, where few pictures are left
    looks: bool = True  # S1's loss, which is after images that look right; else the squared error alone
    kernel: bool = False  # no decoder, but a regression in closed form
    newton: bool = False  # no decoder, but Newton by linear response


DEFAULT = Game(paper=0.0049, paper_lpips=0.2070, accuracies=(0.392, 0.388))
ENGINES = ("trained", "linear")
ENGINE = lw.shadows.LinearResponse()  # of Newton, which gets the response that was prepared for all rows


def arguments(doc: str, rows: Iterable[str], words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, from these words; None for the command line."""
    options = parser(
        doc,
        rows,
        {
            "known": (5_000, "records that the adversary knows"),
            "shadows": (5_000, "shadow models, where a row does not have fewer"),
            "targets": (300, "victims, each with a secret record"),
            "epochs": (60, "of the decoder's training"),
            "members": (1, "decoders whose answers are averaged"),
            "seed": (0, "of everything drawn"),
            "directions": (512, "in which linear responses are computed"),
            "checked": (64, "trained models that check them"),
            "rank": (0, "of the known records' Hessians, for semi-linear responses; 0 for linear ones"),
            "coordinates": (700, "principal components that Newton solves for, fewer than the directions"),
            "bank": (10_000, "linear shadow models from which Newton starts"),
        },
    )
    options.add_argument("--store", help="folder for trained shadow models; 5,000 take 1.1 GB. Linear ones need none")
    options.add_argument("--engine", choices=ENGINES, default="trained", help="how shadow models are made")
    options.add_argument("--mirror", action="store_true", help="linear: learn from mirror images too")
    options.add_argument("--judges", action="store_true", help="also LPIPS and KL")
    chosen = options.parse_args(words)
    if chosen.engine == "trained" and chosen.store is None:
        options.error("--store is required, except with --engine linear")
    return chosen


def split(options: argparse.Namespace) -> Split:
    """All records on the device. The secrets do not depend on how many of the prior's records get a shadow model."""
    records = lw.records.cifar10("all", root=options.data)
    rest = len(records) - options.known - options.targets
    parts = records.split(options.known, options.targets, rest, seed=options.seed)
    known, secrets, prior = (part.to(options.device) for part in parts)
    pool = torch.cat([prior.x, known.x]).double()  # float32 products may be TF32, and pick another neighbour
    nearest = nearest_neighbour(secrets.x.double(), pool, percentiles=()).errors
    return Split(known, prior, secrets, len(pool), nearest, squared_errors(prior.x.mean(0), secrets.x))


def shadow_models(game: Game, data: Split, count: int, store: str | None) -> Tensor:
    """(count, features) what is seen of model i, trained on record i of the prior, for the first `count` records."""
    settings = f"{game.trainer} {fingerprint(data.known.x, data.known.y, data.prior.x, data.prior.y)}"
    if game.net is not NET:
        settings += f" {game.net}"
    folder = hashlib.sha256(settings.encode()).hexdigest()[:16]  # another game, another folder
    access, parts = game.access(data.prior), []
    for start in range(0, count, PART):
        end = min(start + PART, count)
        path = None if store is None else Path(store) / folder / f"{start:06d}_{end:06d}.safetensors"
        parts.append(access(game.net, kept_models(path, game, data, range(start, end))))
        print(f"  {end:,} of {count:,} shadow models", end="\r", flush=True)
    print()
    return torch.cat(parts)


def kept_models(path: Path | None, game: Game, data: Split, rows: range) -> Release:
    """A model for each of these records of the prior, read from the file if there is one."""
    if path is not None and path.exists():
        kept = read_tensors("s1_cifar", path, str(data.known.x.device))
        return Release(
            {name: kept[name] for name, _ in game.net.named_parameters()}
        )  # files have an order of their own
    index = torch.arange(rows.start, rows.stop, device=data.known.x.device)
    release = game.trainer(game.net, Cohort(data.known, data.prior[index.unsqueeze(1)], index), seed=SHADOW_SEED)
    if path is not None:
        write_tensors(path, release.params)
    return release


class Tables(NamedTuple):
    """Shadow models to learn from and held-out ones, as the adversary of `knowledge` sees them."""

    knowledge: Knowledge
    shadows: ShadowTable
    unseen: ShadowTable


def trained_tables(game: Game, data: Split, options: argparse.Namespace) -> Tables:
    """By training on the first records of the prior."""
    count = min(options.shadows, game.shadows or options.shadows, len(data.prior))
    held_out = max(2, round(VALIDATION * count))
    seen, records = shadow_models(game, data, count, options.store), data.prior[:count]
    tables = ShadowTable(seen[held_out:], records[held_out:]), ShadowTable(seen[:held_out], records[:held_out])
    return Tables(knowledge_of(game, data), *tables)


class Response(NamedTuple):
    """The linear response of a game's training, and what it was checked on."""

    responses: Responses
    checked: Records
    seen: Tensor  # (c, features) of models trained on them
    seconds: float  # that it took

    @classmethod
    def of(cls, game: Game, data: Split, options: argparse.Namespace) -> Response:
        """From models that are trained on the first records of the prior."""
        engine = lw.shadows.LinearResponse(directions=options.directions, checked=options.checked, rank=options.rank)
        knowledge, checked, start = knowledge_of(game, data), data.prior[: options.checked], time.perf_counter()
        seen = shadow_models(game, data, options.checked, options.store)
        principal = None  # every feature
        if seen.shape[1] > options.directions:
            quick = replace(game, trainer=replace(game.trainer, tf32=True))
            other = data._replace(known=few_known(game.trainer, data.known), prior=data.prior[options.checked :])
            principal = shadow_models(quick, other, options.directions + 1, options.store)
        print(f"  {time.perf_counter() - start:.0f} s to train models", flush=True)
        responses = engine.prepare(knowledge, principal, seen, checked, tolerance=1e-3)
        seconds = time.perf_counter() - start
        print(f"  {seconds:.0f} s with the sweep. {responses.check}", flush=True)
        return cls(responses, checked, seen, seconds)


def linear_tables(game: Game, data: Split, options: argparse.Namespace, response: Response) -> Tables:
    """By linear response."""
    (responses, checked, seen, _), start = response, time.perf_counter()
    records = data.prior[options.checked : max(options.shadows, options.checked + 2)]
    if game.mirror or options.mirror:
        records = Records(torch.cat([records.x, records.x.flip(-1)]), torch.cat([records.y, records.y]))
    parts = torch.split(torch.arange(len(records), device=records.y.device), RESPONSES)
    shadows = ShadowTable(torch.cat([responses(records[part]) for part in parts]), records)
    print(f"  {time.perf_counter() - start:.1f} s for {len(records):,} linear shadow models", flush=True)
    unseen = ShadowTable(responses.access.reduced(seen), checked, responses=responses(checked))
    return Tables(replace(knowledge_of(game, data), access=responses.access), shadows, unseen)


def knowledge_of(game: Game, data: Split) -> Knowledge:
    """What the adversary has before a victim is trained."""
    return Knowledge(game.net, game.trainer, lw.Informed(data.known), game.access(data.prior), data.prior)


def recipe(game: Game, options: argparse.Namespace) -> lw.RecoNN:
    """S1's decoder (Table VII) with S1's loss (section V-A c), or with the squared error alone."""
    weights = None if options.data is None else Path(options.data) / "lpips_alex.safetensors"
    return lw.RecoNN(
        decoder=lw.decoders.ConvDecoder(),
        mae=1.0 if game.looks else 0.0,
        terms=(lw.learning.Perceptual(metric=LPIPS(weights)), lw.learning.Adversarial()) if game.looks else (),
        members=options.members,
        epochs=options.epochs,
        lr=1e-3,
        patience=None,
    )


class Stage(NamedTuple):
    """What rows with the same training share, computed once."""

    options: argparse.Namespace
    responses: dict[tuple[object, ...], Response]
    trained: dict[tuple[object, ...], tuple[Release, float]]  # victims, and the seconds that they took

    def response(self, game: Game, data: Split) -> Response:
        """The linear response of the game's training."""
        key = game.net, game.trainer, game.access, len(data.known)
        if key not in self.responses:
            self.responses[key] = Response.of(game, data, self.options)
        return self.responses[key]

    def victims(self, game: Game, data: Split) -> tuple[Release, float]:
        """One for each secret."""
        key, start = (game.net, game.trainer, len(data.known)), time.perf_counter()
        if key not in self.trained:
            release = game.trainer(game.net, cohort(data), seed=self.options.seed)
            self.trained[key] = release, time.perf_counter() - start
        return self.trained[key]


def play(game: Game, data: Split, stage: Stage) -> tuple[Played, Release, float] | None:
    """Make the shadow models or find them, teach the attack, train the victims and rebuild their secrets.

    Seconds are those of all parts, also of parts that another row computed before.
    """
    options, linear, before = stage.options, by_response(game, stage.options), 0.0
    torch.set_float32_matmul_precision("high")  # for the decoder; the trainer says what it uses
    if linear:
        response = stage.response(game, data)
        if not response.responses.check.holds:
            return None
        before = response.seconds
    victims, seconds = stage.victims(game, data)
    start = time.perf_counter()
    if game.newton:
        made = f"{options.bank:,} shadow models in {options.directions:,} directions by response"
        attack = lw.Newton(bank=options.bank, coordinates=options.coordinates, response=ENGINE, polish=False)
        inverter = attack.inverter(knowledge_of(game, data), seed=options.seed, responses=response.responses)
        guess, method = inverter(victims).records, f"Newton in {options.coordinates:,} coordinates"
    else:
        tables = linear_tables(game, data, options, response) if linear else trained_tables(game, data, options)
        models = len(tables.shadows.seen) + len(tables.unseen.seen)
        by = f"in {tables.shadows.seen.shape[1]:,} directions by response" if linear else "trained"
        made, method = f"{models:,} shadow models {by}", "kernel ridge"
        if game.kernel:
            kernel = lw.KernelRidge().learn(*tables)
            print("".join(f"  {note}\n" for note in kernel.notes), end="", flush=True)
            guess = kernel(victims).records
        else:
            guess = recipe(game, options).learn(*tables, seed=options.seed)(victims).records
            method = f"{options.members} decoder{'s' if options.members > 1 else ''}"
    sizes = f"{len(data.known):,} known, {made}, {len(data.secrets):,} targets, {method}"
    right = (guess.y[:, 0] == data.secrets.y).cpu().numpy()
    played = Played(guess.x[:, 0], squared_errors(guess.x[:, 0], data.secrets.x), right, sizes)
    return played, victims, before + seconds + time.perf_counter() - start


def by_response(game: Game, options: argparse.Namespace) -> bool:
    """Whether shadow models are computed instead of trained."""
    return (options.engine == "linear" or game.newton) and game.smooth


def as_run(game: Game, options: argparse.Namespace) -> Game:
    """In float32 where a linear response is compared with it."""
    return replace(game, trainer=replace(game.trainer, tf32=False)) if by_response(game, options) else game


def data_of(game: Game, everything: Split, options: argparse.Namespace) -> Split:
    """As far as the game's adversary has it, or a split of the game's own."""
    if game.own_split is not None:
        return split(argparse.Namespace(**{**vars(options), "known": game.own_split}))
    return everything._replace(known=everything.known[: game.known])


@torch.no_grad()
def accuracies(net: nn.Module, victims: Release, records: Records) -> NDArray[np.float64]:
    """(JUDGED,) share of the records that a victim labels right."""
    answers = [functional_call(net, victims[i], (records.x,)).argmax(1) for i in range(min(JUDGED, len(victims)))]
    right: NDArray[np.float64] = (torch.stack(answers) == records.y).double().mean(1).cpu().numpy()
    return right


def accuracy_rows(name: str, game: Game, victims: Release, data: Split) -> list[Row]:
    """Is it S1's victim? Its accuracy beside theirs."""
    sets = zip(("train", "test"), (data.known, data.prior[-len(data.known) :]), game.accuracies, strict=True)
    return [
        mean_row(
            f"{name}.{kind}_accuracy",
            f"{name}: released model's {kind} accuracy",
            accuracies(game.net, victims, records),
            paper,
        )
        for kind, records, paper in sets
    ]


def table(script: str, games: Mapping[str, Game], options: argparse.Namespace) -> None:
    """The oracle, and then the games that are asked for, each written when it is done."""
    everything = split(options)
    oracle = f"CIFAR-10: mean MSE of the nearest of {everything.pool:,} prior and known records"
    write(script, [mean_row("cifar_oracle", oracle, everything.nearest, 0.0291)], options)
    judges = Judges.of(everything, options) if options.judges else None
    stage = Stage(options, {}, {})
    for row in options.rows:
        game = as_run(games[row], options)
        data, name = data_of(game, everything, options), row
        if by_response(game, options):
            name += ".semilinear" if options.rank else ".linear"
        elif options.store is None:
            print(f"{row}: training has no linear response. Name a --store for trained shadow models.", flush=True)
            continue
        found = play(game, data, stage)
        if found is None:
            print(f"{row}: linear response does not hold. Use --rank, or --engine trained.", flush=True)
            continue
        played, victims, seconds = found
        rows = rows_of(name, game, played, data) + accuracy_rows(name, game, victims, data)
        if judges is not None:
            rows += judges.rows(name, game, played, data)
        if options.engine == "linear":
            rows.append(Row(f"{name}.seconds", f"{name}: seconds, shadow models and victims included", seconds))
        write(script, rows, options)
        print(f"  {seconds:.0f} s", flush=True)
