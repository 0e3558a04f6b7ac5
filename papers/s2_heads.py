"""What the S2 scripts share: the data, the heads, a game from start to end, and its rows.

S2 sections 2 and 3, Table 3: pictures in [-1, 1], MNIST at 32 x 32; a frozen base model; on its features a linear head
with a private start N(0, 0.002^2), trained by full-batch gradient descent. The adversary has the training part of the
data set, secrets are of the test part. A guess is as wrong as it is far from the nearest record of its class in the
set. False positives are counted under two nulls: guesses from Gaussian weights, by which S2 has its numbers
(Algorithms 2 and 3), and the guesses themselves against another game's records, as S2 defines them (Definition 1).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lib.gaussian_roc import gaussian_roc
from numpy.typing import NDArray
from s1_mnist import parser, squared_errors, write
from s2_data import Data
from s2_marks import Contrasted, Marked, on_one_scale
from s2_pictures import draw_pairs, draw_roc
from torch import Tensor, nn

import lostwax as lw
from lostwax.attacks.weak import TrainedOnHeads
from lostwax.attacks.weak.readers import Reader
from lostwax.games import Knowledge, Records, Release, Threat, Trainer
from lostwax.games.judges import NearestOfClass, other_games
from lostwax.learning.decoders import Decoder
from lostwax.metrics import Null, success_rate, true_positives, true_positives_by_class
from lostwax.shadows import Game as Shadows
from lostwax.shadows import gaussian_weights
from lostwax_dev.results import Row

LARGEST = 4.0  # mean squared error of pixels in [-1, 1]
START = lw.inits.Normal(0.002, seed=None)
SHORT = {Null.GAUSSIAN_WEIGHTS: "Gaussian weights", Null.OTHER_SECRETS: "other secrets"}
HEADS, JUDGED = 5_000, 2_000  # for accuracies: heads, as in S2's Table 4, and records that they are asked about
HEAD_WORDS = {"accuracy": "accuracy", "head_tpr": "true positive rate", "head_tnr": "true negative rate"}
FEWEST = 99  # guesses of a class, to tell its false positive rate of 1 %


def mnist_trainer(size: int) -> lw.GD:
    """S2, Table 3."""
    return lw.GD(lr=0.01, weight_decay=1e-5, steps=26 + 3 * size // 5, init=START)


def linear_head(features: int) -> nn.Module:
    return nn.Linear(features, 10)


class Paper(NamedTuple):
    """S2's numbers: at its nearest-neighbour threshold, at a false positive rate of 1 %, and of the head."""

    tpr: float | None = None
    fpr: float | None = None
    tpr_at_1_percent: float | None = None
    accuracy: float | None = None
    head_tpr: float | None = None
    head_tnr: float | None = None


NO_NUMBERS = Paper()


@dataclass(frozen=True, kw_only=True)
class Game:
    """One row: S2's head on ten digits, except the fields that are set."""

    data: Callable[[argparse.Namespace], Data]
    size: int = 10
    trainer: Trainer = field(default_factory=lambda: mnist_trainer(10))
    head: Callable[[int], nn.Module] = linear_head
    reader: Reader = field(default_factory=lw.attacks.weak.SetReader)
    fitted: Callable[..., Reader] | None = None  # the reader, from the adversary's knowledge, a seed, width and layers
    shadows: int | None = None  # a fixed number of them; None for fresh ones at every step
    threat: Callable[[int], Threat] = lw.Weak  # of the training set's size
    classes: tuple[int, ...] | None = None  # that are rebuilt, None for all
    judged: Callable[[Game, Records, int], Mapping[str, NDArray[np.float64]]] | None = None  # None: by `accuracies`
    further: Callable[[str, Played], list[Row]] | None = None  # rows of the game's own
    paper: Paper = NO_NUMBERS


@dataclass(frozen=True, eq=False)
class Pairs:
    """Guesses, each beside the record that it is nearest to."""

    guesses: Tensor  # (pairs, ...)
    truth: Tensor  # (pairs, ...)

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """(pairs,) mean squared."""
        return squared_errors(self.guesses, self.truth)


@dataclass(frozen=True, eq=False, repr=False)
class CopiesOnce(lw.attacks.weak.Augmented):
    """Augmented, for several trainings: copies of the same records with the same seed are made once."""

    made: dict[int, Records] = field(default_factory=dict)  # by seed, those of one seed at a time

    def __call__(self, records: Records, *, seed: int) -> Records:
        """The given records, then changed copies."""
        kept = self.made.get(seed)
        if kept is None or not same_records(kept[: len(records)], records):
            self.made.clear()
            self.made[seed] = super().__call__(records, seed=seed)
        return self.made[seed]


def same_records(one: Records, other: Records) -> bool:
    """Whether two lists of records are the same, number by number."""
    parts = zip((one.x, one.y, one.inputs), (other.x, other.y, other.inputs), strict=True)
    return all(torch.equal(here, there) for here, there in parts)


copies_of = lru_cache(maxsize=1)(CopiesOnce)  # of one backbone, by one change


class Played(NamedTuple):
    """A game's guesses, and what chance gives."""

    rebuilt: Pairs
    classes: NDArray[np.int64]  # (pairs,) that guesses are of
    chance: Mapping[Null, Pairs]
    heads: Mapping[str, NDArray[np.float64]]  # (heads,) their accuracy on new records, by kind


def game_parser(doc: str, rows: Iterable[str]) -> argparse.ArgumentParser:
    """The options of the scripts that run games."""
    sizes = {
        "games": (1_000, "victims, each with its own training set"),
        "steps": (1_000_000, "of the reconstructor's training at most"),
        "batch": (128, "heads a step"),
        "width": (256, "of the generator, S in S2's Table 2; an mlp has four times as many neurons a layer"),
        "reader": (512, "width of the reader"),
        "layers": (3, "of the reader"),
        "copies": (8, "of every record of the prior, all but one of them changed a little; 1 for none"),
        "bar": (0.75, "where BeatChance sets its threshold, relative to tau"),
        "price": (4.0, "of a guess that is as near to another set, for BeatChance"),
        "seed": (0, "of everything drawn"),
    }
    made = parser(doc, rows, sizes)
    made.add_argument(
        "--minutes", type=float, default=10.0, help="of the reconstructor's training at most, for each row"
    )
    made.add_argument("--checkpoint", type=Path, help="folder: a run that was cut goes on from there")
    made.add_argument(
        "--trained", type=Path, help="folder: reconstructors that are there are not trained again, others are put there"
    )
    made.add_argument(
        "--generator",
        choices=("residual", "mlp"),
        default="residual",
        help="S2's, or linear layers: far cheaper",
    )
    made.add_argument("--dropout", type=float, default=0.0, help="of an mlp, for pictures that few records are like")
    made.add_argument("--marked", action="store_true", help="with --tuning, also guesses on one scale: s2_marks.py")
    made.add_argument("--models", type=Path, help="MNIST: folder of what s2_pretrain.py wrote; else that of the data")
    made.add_argument(
        "--imagenet", type=Path, help="CIFAR-10 and CelebA: torchvision's weights; else searched for in --data"
    )
    return made


def knowledge(game: Game, data: Data) -> Knowledge:
    """What the adversary has before a victim is trained."""
    head = game.head(data.prior.inputs.shape[1])
    return Knowledge(head, game.trainer, game.threat(game.size), lw.access.Weights(), data.prior)


def attack(game: Game, data: Data, options: argparse.Namespace, name: str) -> lw.WeakRecoNN:
    """The reconstructor."""
    reader: Reader = game.reader
    if isinstance(reader, lw.attacks.weak.SetReader):
        reader = replace(reader, width=options.reader, layers=options.layers)
    if game.fitted is not None:
        reader = game.fitted(knowledge(game, data), options.seed, width=options.reader, layers=options.layers)
    decoder: Decoder = lw.decoders.ResidualDecoder(width=options.width)
    if options.generator == "mlp":
        decoder = lw.decoders.MLPDecoder(width=4 * options.width, input_noise=0.0, dropout=options.dropout)
    return lw.WeakRecoNN(
        reader=reader,
        decoder=decoder,
        classes=game.classes,
        steps=options.steps,
        minutes=options.minutes,
        batch_size=options.batch,
        augment=copies_of(data.backbone, data.changes, options.copies) if options.copies > 1 else None,
        shadows=game.shadows,
        checkpoint=None if options.checkpoint is None else options.checkpoint / name,
    )


def prepared(name: str, game: Game, data: Data, options: argparse.Namespace) -> TrainedOnHeads:
    """The trained reconstructor, or the one that an earlier run left."""
    torch.set_float32_matmul_precision("high")  # for the reconstructor; the trainer says what it uses
    ours, facts = attack(game, data, options, name), knowledge(game, data)
    folder = None if options.trained is None else options.trained / name
    if folder is not None and folder.exists():
        return ours.load(folder, facts)
    trained = ours.prepare(facts, seed=options.seed)
    if folder is not None:
        trained.save(folder, half=True)
    return trained


class Victims(NamedTuple):
    """The releases of a game, those that were never trained, and whose records tell chance: for all reconstructors."""

    own: Records  # (games, N, ...)
    release: Release
    untrained: Release
    others: Tensor  # (games,) the game whose records another's guesses are held against; -1: none
    heads: Mapping[str, NDArray[np.float64]]

    @classmethod
    def of(cls, game: Game, data: Data, options: argparse.Namespace) -> Victims:
        """Trained on the secrets."""
        facts, seed = knowledge(game, data), options.seed
        cohort = facts.threat.deal(data.secrets, options.games, seed=seed)
        shadows = Shadows(facts.net, game.trainer, facts.threat, data.prior, seed + 1)  # no draw is the victims'
        return cls(
            cohort.own,
            game.trainer(facts.net, cohort, seed=seed),
            gaussian_weights(shadows, options.games),
            other_games(cohort.own, None).to(cohort.own.x.device),
            {"accuracy": accuracies(game, data.secrets, seed=seed)}
            if game.judged is None
            else game.judged(game, data.secrets, seed),
        )


def score(reconstruct: TrainedOnHeads | Marked | Contrasted, victims: Victims) -> Played:
    """The prepared attack against the victims, and against heads that were never trained."""
    guess, untrained = reconstruct(victims.release), reconstruct(victims.untrained)
    chance = {Null.GAUSSIAN_WEIGHTS: beside(untrained.records, victims.own)}
    if bool((victims.others >= 0).all()):
        chance[Null.OTHER_SECRETS] = beside(guess.records, victims.own[victims.others])
    print(f"  held-out prior records: {reconstruct.validation_error:.4f}", flush=True)
    classes = guess.records.y.flatten().cpu().numpy()
    return Played(beside(guess.records, victims.own), classes, chance, victims.heads)


def beside(guesses: Records, secrets: Records) -> Pairs:
    """Each guess beside the nearest secret of its class."""
    found = NearestOfClass().pairs(guesses, secrets)
    home = guesses.x.device
    games = torch.arange(len(found.guess), device=home).unsqueeze(1)  # (m, 1)
    both = guesses.x[games, found.guess.to(home)], secrets.x.to(home)[games, found.secret.to(home)]  # (m, g, ...)
    return Pairs(*(part.flatten(0, 1).double() for part in both))


def accuracies(game: Game, records: Records, *, seed: int) -> NDArray[np.float64]:
    """(heads,) how often heads trained on some of the records are right about others."""
    new, old = records.split(JUDGED, len(records) - JUDGED, seed=seed)
    head, cohort = game.head(records.inputs.shape[1]), lw.Weak(game.size).deal(old, HEADS, seed=seed)
    release = game.trainer(head, cohort, seed=seed)
    outputs = lw.access.Logits(new.inputs)(head, release).view(HEADS, len(new), -1)  # (heads, records, c)
    right = outputs.argmax(2) == new.y if outputs.shape[2] > 1 else (outputs[..., 0] > 0) == new.y % 2
    return right.double().mean(1).cpu().numpy()


def head_row(name: str, kind: str, right: NDArray[np.float64], paper: float | None) -> Row:
    """The mean over heads, with its 95 % interval."""
    mean, half = float(right.mean()), 1.96 * float(right.std()) / len(right) ** 0.5
    what = f"{name}: {HEAD_WORDS[kind]} of the head ({len(right):,} heads, deviation {right.std():.3f})"
    return Row(f"{name}.{kind}", what, mean, mean - half, mean + half, paper)


def rows_of(name: str, game: Game, played: Played, data: Data, options: argparse.Namespace) -> list[Row]:
    """Both rates at the nearest-neighbour threshold, true positives at 1 % false ones, and the head's accuracy.

    Beside S2's number, which has one threshold for all: that with one for each class, where it has guesses enough.
    """
    errors, paper = played.rebuilt.errors, game.paper
    enough = np.unique(played.classes, return_counts=True)[1].min() >= FEWEST
    rows = [
        Row(f"{name}.tau", f"{name}: tau, the error of a secret's nearest prior record", data.tau, paper=data.paper_tau)
    ]
    for kind, pairs in played.chance.items():
        null = pairs.errors
        short, own = SHORT[kind], kind is Null.GAUSSIAN_WEIGHTS
        suffix = "" if own else ".other_secrets"
        at = true_positives(errors, null, null=kind)
        what = f"{name}: TPR at FPR 1 % (null: {short}; {options.games:,} games)"
        rows.append(Row(f"{name}{suffix}", what, at.rate, at.low, at.high, paper.tpr_at_1_percent if own else None))
        if enough:
            each = true_positives_by_class(errors, null, played.classes, null=kind)
            what = f"{name}: TPR at FPR 1 % in each of {len(each.classes)} classes (null: {short})"
            rows.append(Row(f"{name}{suffix}.by_class", what, each.rate, each.low, each.high))
        fitted = gaussian_roc(errors, null, null=kind, largest=LARGEST).tpr(0.01)
        rows.append(
            Row(f"{name}{suffix}.gaussian", f"{name}: the same by S2 Eq. 6, normal laws (null: {short})", fitted)
        )
        rate = success_rate(null, data.tau, victims=options.games)
        what = f"{name}: FPR at tau (null: {short})"
        rows.append(Row(f"{name}{suffix}.fpr", what, *rate[:3], paper.fpr if own else None))
    hits = success_rate(errors, data.tau, victims=options.games)
    rows.append(Row(f"{name}.tpr", f"{name}: TPR at tau", *hits[:3], paper.tpr))
    rows += [head_row(name, kind, right, getattr(paper, kind)) for kind, right in played.heads.items()]
    return rows if game.further is None else rows + game.further(name, played)


def beating_chance(
    trained: TrainedOnHeads, name: str, game: Game, data: Data, options: argparse.Namespace
) -> TrainedOnHeads:
    """The same reconstructor, taught for some minutes more to be near its own set and not near any other."""
    aim = lw.attacks.weak.BeatChance(within=options.bar * data.tau, price=options.price)
    tuning = replace(attack(game, data, options, name), aim=aim, minutes=options.tuning)
    return tuning.tune(trained, knowledge(game, data), seed=options.seed)  # by the seed the same records are held out


def tell(
    script: str,
    name: str,
    trained: TrainedOnHeads | Marked | Contrasted,
    victims: Victims,
    game: Game,
    data: Data,
    options: argparse.Namespace,
) -> None:
    """Play the game, write its rows and draw its pictures."""
    played = score(trained, victims)
    write(script, rows_of(name, game, played, data, options), options)
    figures = Path(script).resolve().parent.parent / "docs" / "figures"
    chance = played.chance
    for kind, pairs in (("true", played.rebuilt), ("false", chance[Null.GAUSSIAN_WEIGHTS])):
        draw_pairs(figures / f"s2_{name}_{kind}.png", pairs.guesses, pairs.truth, pairs.errors, data.tau)
    nulls = {null: pairs.errors for null, pairs in chance.items()}
    draw_roc(figures / f"s2_{name}_roc.png", played.rebuilt.errors, nulls, LARGEST)


def table(script: str, games: Mapping[str, Game], options: argparse.Namespace) -> None:
    """The requested games, printed as they run; with --tuning, again with the tuned reconstructor, and marked."""
    loaded: dict[Callable[[argparse.Namespace], Data], Data] = {}  # one at a time
    if options.conditional:
        reader = lw.attacks.weak.ConditionalReader()
        games = {f"{name}_conditional": replace(game, reader=reader) for name, game in games.items()}
        options.rows = [f"{name}_conditional" for name in options.rows]
    for name in options.rows:
        start, game = time.perf_counter(), games[name]
        if game.data not in loaded:
            try:
                loaded = {game.data: game.data(options)}
            except FileNotFoundError as error:
                print(f"{name} left out: {error}", flush=True)
                continue
        data = loaded[game.data]
        trained, victims = prepared(name, game, data, options), Victims.of(game, data, options)
        tell(script, name, trained, victims, game, data, options)
        if options.tuning:
            further = f"{name}_chance"
            trained = beating_chance(trained, further, game, data, options)
            tell(script, further, trained, victims, game, data, options)
            if options.marked:
                counts = game.threat(game.size).deal(data.prior, 1, seed=0).own.y[0].bincount()
                marked = on_one_scale(trained, data.prior, counts, 2 * data.tau)
                tell(script, f"{further}_marked", marked, victims, game, data, options)
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)
