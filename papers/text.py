"""The missing sentence of a text classifier: tokens and their order, from weights trained on all other sentences.

    python papers/text.py [--rows gd sgd lora lora_sgd frozen tied adam order dropout] [--games 50]
    python papers/text.py --rows sgd --played 0:5 --keep FOLDER    # a part of the games, each into a separate file
    python papers/text.py --rows sgd --keep FOLDER --merge         # one row of all games that are kept

A transformer of two layers, vocabulary 2,000, 200 known sentences of 12 tokens from a bigram grammar, the label not
given. "gd": full batches; "sgd": batches in a known order; "lora": only adapters of rank 8 are trained and released,
by full batches, "lora_sgd": by batches in a known order; "frozen": the embedding table is not trained; "tied": the
head is made of the table's rows; "adam": full batches with Adam. To reach: 90 % of tokens right in 50 games.
"order" and "dropout": a private order of batches and private dropout (p = 0.1) leave no function to invert. What is
left are the moved rows of the table, compared with retrained models, and which of ten sentences it was.

Game i has the same sentence whichever part plays it. With `--keep`, every game is written to a file when it is done,
and is not played again; parts may run side by side. `--merge` plays nothing and writes the rows of the games that are
kept: those asked for that are not there count as failures, and the row says how many.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lib.sentences import TextClassifier
from torch import Tensor, nn

import lostwax as lw
from lostwax.attacks.membership import LikeliestRefit
from lostwax.games import Cohort, Knowledge, Release
from lostwax.metrics import BagRight, EditDistance, TokensWrong
from lostwax.metrics.estimate import clopper_pearson
from lostwax.seeds import generator
from lostwax_dev.freshness import as_code
from lostwax_dev.results import Row, add_options, measured_now, write_rows


def with_dropout(net: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Full batches, a tenth of the embeddings' numbers dropped at every step, by private draws."""
    hook = net.tokens.register_forward_hook(lambda _, inputs, out: nn.functional.dropout(out, 0.1))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.3)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    hook.remove()
    return net


SUCCESSORS, FREE = 20, 0.2  # of each token; how often any token may follow
RANK = 8
BATCHES = lw.SGD(lr=0.3, batch_size=67, epochs=8)
TRAINERS = {
    "gd": lw.GD(lr=0.3, steps=20),
    "sgd": BATCHES,
    "lora": lw.GD(lr=0.3, steps=20),
    "lora_sgd": BATCHES,
    "frozen": lw.GD(lr=0.3, steps=20),
    "tied": lw.GD(lr=0.1, steps=20),
    "adam": lw.Adam(lr=1e-3, epochs=20),
    "order": replace(BATCHES, order_seed=None),
    "dropout": lw.OwnTraining(with_dropout),
}
PRIVATE = ("order", "dropout")
CANDIDATES, REPEATS, RETRAINED = 10, 16, 24  # sentences; models of each; models of the known sentences alone
SIZES = {
    "vocabulary": 2_000, "length": 12, "known": 200, "prior": 300, "width": 16, "games": 50,
    "directions": 0, "starts": 24, "seed": 0,
}  # fmt: skip
FAILED = ("right", "bag", "exact", "certified")  # quantities in which a game that was not finished counts as 0


def sentences(n: int, vocabulary: int, length: int, *, seed: int, purpose: str) -> lw.Records:
    """Sentences of a bigram grammar with Zipf frequencies; the label is a parity of their tokens."""
    frequency = 1 / np.arange(1, vocabulary + 1) ** 0.8
    frequency /= frequency.sum()
    grammar = generator(seed, "text", "grammar").choice(vocabulary, size=(vocabulary, SUCCESSORS), p=frequency)
    draw = generator(seed, "text", purpose)
    x = draw.choice(vocabulary, size=(n, length), p=frequency)
    for place in range(1, length):
        follows = grammar[x[:, place - 1], draw.integers(SUCCESSORS, size=n)]
        x[:, place] = np.where(draw.random(n) < FREE, x[:, place], follows)
    return lw.Records(torch.from_numpy(x), torch.from_numpy((x % 7).sum(1) % 2))


def blind(known: lw.Records, prior: lw.Records, games: int, seed: int) -> Tensor:
    """(games, length) sentences from the unigram model of all known and prior sentences."""
    words = torch.cat([known.x, prior.x]).flatten()
    draw = generator(seed, "text", "blind").integers(len(words), size=(games, known.x.shape[1]))
    return words[torch.from_numpy(draw)]


class Game(NamedTuple):
    """What came of one game: numbers by quantity, and how they were measured."""

    row: str
    number: int
    settings: dict[str, int]
    found: dict[str, float]
    measured: dict[str, Any]  # machine, version, commit and code


def play(name: str, numbers: Sequence[int], options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """The games of these numbers, one after the other."""
    sizes = {"vocabulary": options.vocabulary, "length": options.length, "seed": options.seed}
    known, prior, secrets = (
        sentences(n, **sizes, purpose=purpose)
        for n, purpose in ((options.known, "known"), (options.prior, "prior"), (options.games, "secrets"))
    )
    torch.manual_seed(options.seed)
    net = TextClassifier(options.vocabulary, options.length, width=options.width, tied=name == "tied")
    net.tokens.weight.requires_grad_(name != "frozen")
    net = lw.nets.lora(net, RANK) if name.startswith("lora") else net
    asked = torch.tensor(numbers)
    cohort = Cohort(known, secrets[asked.unsqueeze(1)], asked)
    release = TRAINERS[name](net, cohort, seed=options.seed)
    threat = lw.Informed(known, candidates=min(CANDIDATES, options.games) if name in PRIVATE else None)
    knowledge = Knowledge(net, TRAINERS[name], threat, lw.access.Weights(), prior)
    if name in PRIVATE:
        yield from privately(knowledge, release, cohort, secrets, options.seed)
    else:
        unigram = blind(known, prior, options.games, options.seed)[asked]
        yield from searched(knowledge, release, secrets[asked], unigram, options)


def searched(
    knowledge: Knowledge, release: Release, secrets: lw.Records, unigram: Tensor, options: argparse.Namespace
) -> Iterator[dict[str, float]]:
    """The sentences that Tokens finds."""
    start = time.perf_counter()
    attack = lw.attacks.Tokens(directions=options.directions or None, starts=options.starts)
    search = attack.prepare(knowledge, seed=options.seed)
    prepared, bag = time.perf_counter() - start, search.bag(release)
    for one in range(len(secrets)):
        start = time.perf_counter()
        [found] = search.search(Release({name: value[one : one + 1] for name, value in release.params.items()}))
        seconds = time.perf_counter() - start
        guess, truth, by_chance = found.tokens[None], secrets.x[one : one + 1], unigram[one : one + 1]
        exact = float(torch.equal(guess, truth))
        from_bag = {} if bag is None else {"moved": moved(bag[one], truth[0])}
        yield from_bag | {
            "right": 1 - float(TokensWrong()(guess, truth)),
            "bag": float(BagRight()(guess, truth)),
            "exact": exact,
            "certified": float(found.certified),
            "wrong": float(found.certified) * (1 - exact),
            "edits": float(EditDistance()(guess, truth)),
            "blind": 1 - float(TokensWrong()(by_chance, truth)),
            "blind_bag": float(BagRight()(by_chance, truth)),
            "prepared": prepared,
            "seconds": seconds,
        }


def privately(
    knowledge: Knowledge, release: Release, cohort: Cohort, secrets: lw.Records, seed: int
) -> Iterator[dict[str, float]]:
    """What moved more than between models of the known sentences alone, and which of ten sentences it was."""
    known, numbers = cohort.shared, torch.arange(RETRAINED)
    last = known[-1:][torch.zeros(RETRAINED, 1, dtype=torch.long)]
    without = knowledge.trainer(knowledge.net, Cohort(known[:-1], last, numbers), seed=seed + 1)
    rows, base = release.params["tokens.weight"], without.params["tokens.weight"]  # (m, v, d)
    spread = base.var(0).mean(1).sqrt()  # (v,) 0 for tokens that no known sentence has
    far = (rows - base.mean(0)).norm(dim=2) / spread.clamp_min(1e-6)
    bag = far.topk(known.x.shape[1]).indices
    attack = LikeliestRefit(REPEATS)
    hints = knowledge.threat.hints(cohort, secrets, seed=seed)
    guess = attack.prepare(knowledge, seed=seed)(release, hints)
    for one, truth in enumerate(secrets.x[cohort.index]):
        named = float(torch.equal(guess.records.x[one, 0], truth))
        yield {"moved": moved(bag[one], truth), "candidates": named}


def moved(bag: Tensor, truth: Tensor) -> float:
    """The share of a sentence's distinct tokens among the rows of the table that moved most."""
    return float(torch.isin(truth.unique(), bag).double().mean())


def rows_of(name: str, games: Sequence[Game], left: int, options: argparse.Namespace) -> list[Row]:
    """One row for each quantity, over the games that were played and `left` others that failed."""
    total = len(games) + left
    played = f"vocabulary {options.vocabulary}, {options.known} known sentences of {options.length}, {total} games"
    count = min(CANDIDATES, options.games)
    texts = {
        "moved": f"share of distinct tokens among the {options.length} rows of the table that moved most",
        "right": f"share of tokens right ({played})",
        "bag": "share of tokens right in any order",
        "exact": "exact sentences",
        "certified": "certified",
        "wrong": "certified sentences that are wrong",
        "edits": "edit distance",
        "blind": "share of tokens right, blind guess of a unigram model",
        "blind_bag": "the same in any order",
        "candidates": f"share of sentences named among {count} candidates, by chance {1 / count:g} ({played})",
        "prepared": "seconds to prepare, per process, for all of its games",
        "seconds": "seconds per game",
    }
    rows = []
    for quantity, text in texts.items():
        values = [game.found[quantity] for game in games if quantity in game.found]
        if not values:
            continue
        lost = left if quantity in FAILED else 0
        notes = f" ({left} games not finished, {'counted as failures' if lost else 'left out'})" if left else ""
        row, words = name if quantity == "right" else f"{name}.{quantity}", f"{name}: {text}{notes}"
        goal = 0.9 if quantity == "right" and options.vocabulary >= 2_000 else None
        numbers = torch.tensor(values + [0.0] * lost, dtype=torch.float64)
        if quantity in ("prepared", "seconds", "wrong"):
            rows.append(Row(row, words, float(numbers.sum() if quantity == "wrong" else numbers.mean())))
        else:
            rows.append((mean if quantity == "edits" else share)(row, words, numbers, goal))
    return rows


def share(row: str, quantity: str, values: Tensor, goal: float | None = None) -> Row:
    """A mean over games of shares: Clopper-Pearson where each is 0 or 1, else normal, within 0 and 1."""
    numbers = values.double().numpy()
    if np.isin(numbers, (0, 1)).all():
        return Row(row, quantity, float(numbers.mean()), *clopper_pearson(int(numbers.sum()), len(numbers)), goal)
    found = mean(row, quantity, values, goal)
    return replace(found, high=min(found.high or 1, 1))


def mean(row: str, quantity: str, values: Tensor, goal: float | None = None) -> Row:
    """A mean over games of numbers from 0 up, with its 95 % interval (normal)."""
    numbers = values.double().numpy()
    half = 1.96 * numbers.std(ddof=1) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0
    return Row(row, quantity, float(numbers.mean()), max(numbers.mean() - half, 0), numbers.mean() + half, goal)


def command_of(name: str, options: argparse.Namespace) -> str:
    """The command that plays all games of a row in one process."""
    changed = [f"--{size} {getattr(options, size)}" for size, usual in SIZES.items() if getattr(options, size) != usual]
    part = [] if options.played == ":" else [f"--played {options.played}"]
    return " ".join([f"python papers/text.py --rows {name}", *changed, *part])


def kept(name: str, options: argparse.Namespace) -> dict[int, Game]:
    """The games that are there already."""
    if options.keep is None:
        return {}
    found = [Game(**json.loads(path.read_text())) for path in sorted(options.keep.glob(f"{name}.*.json"))]
    for game in found:
        if game.settings != settings_of(options):
            raise SystemExit(f"{name}.{game.number}: played with {game.settings}, asked for {settings_of(options)}.")
    return {game.number: game for game in found}


def settings_of(options: argparse.Namespace) -> dict[str, int]:
    """The sizes."""
    return {size: getattr(options, size) for size in SIZES}


def asked_for(options: argparse.Namespace) -> range:
    """The numbers of the games."""
    first, last = (int(part) if part else None for part in options.played.split(":"))
    return range(options.games)[first:last]


def measured_by(games: Sequence[Game]) -> dict[str, Any]:
    """Machine, version, commit and code of all games: they must be of the same code."""
    code, *others = {as_code(game.measured["code"]) for game in games}
    if others:
        raise SystemExit("These games were played by different code: play them again.")
    machines = "; ".join(sorted({game.measured["machine"] for game in games}))
    return games[0].measured | {"machine": machines, "code": code}


def played(name: str, options: argparse.Namespace) -> dict[int, Game]:
    """All games asked for, with those that are kept."""
    numbers, games = asked_for(options), kept(name, options)
    left = [number for number in numbers if number not in games]
    if not options.merge and left:
        for number, found in zip(left, play(name, left, options), strict=True):
            print(f"{name}.{number}: {', '.join(f'{key} {value:.3g}' for key, value in found.items())}", flush=True)
            games[number] = Game(name, number, settings_of(options), found, measured_now(__file__))
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}.{number}.json").write_text(json.dumps(games[number]._asdict()))
    return {number: games[number] for number in numbers if number in games}


def main() -> None:
    """Play the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    for option, default in SIZES.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--played", default=":", help="numbers of the games, first:last")
    parser.add_argument("--keep", type=Path, help="folder with a file for each game that is done")
    parser.add_argument("--merge", action="store_true", help="play nothing: rows of the games that are kept")
    add_options(parser, SIZES)
    options = parser.parse_args()
    for name in options.rows:
        games = played(name, options)
        if games and (options.merge or options.keep is None):
            asked = len(asked_for(options))
            rows = rows_of(name, list(games.values()), asked - len(games), options)
            measured = measured_by(list(games.values())) | {"command": command_of(name, options)}
            write_rows(
                __file__,
                [replace(row, seed=options.seed, **measured) for row in rows],
                keep_others=True,
                options=options,
            )


if __name__ == "__main__":
    main()
