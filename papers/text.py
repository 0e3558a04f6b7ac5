"""The missing sentence of a text classifier: tokens and their order, from weights trained on all other sentences.

    python papers/text.py [--rows gd sgd frozen tied adam] [--games 50]

A transformer of two layers, vocabulary 2,000, 200 known sentences of 12 tokens from a bigram grammar, the label not
given. "gd": full batches; "sgd": batches in a known order; "frozen": the embedding table is not trained; "tied": the
head is made of the table's rows; "adam": full batches with Adam. To reach: 90 % of tokens right in 50 games.
The private order of batches and dropout leave the attack without a function to invert: it says so.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

import lostwax as lw
from lostwax.games import Cohort, Knowledge
from lostwax.metrics import BagRight, EditDistance, TokensRight
from lostwax.reports.results import Row, write_rows
from lostwax.seeds import generator

SUCCESSORS, FREE = 20, 0.2  # of each token; how often any token may follow
TRAINERS = {
    "gd": lw.GD(lr=0.3, steps=20),
    "sgd": lw.SGD(lr=0.3, batch_size=67, epochs=8),
    "frozen": lw.GD(lr=0.3, steps=20),
    "tied": lw.GD(lr=0.1, steps=20),
    "adam": lw.Adam(lr=1e-3, epochs=20),
}


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


def play(name: str, options: argparse.Namespace) -> list[Row]:
    """All games of one row."""
    sizes = {"vocabulary": options.vocabulary, "length": options.length, "seed": options.seed}
    known, prior, secrets = (
        sentences(n, **sizes, purpose=purpose)
        for n, purpose in ((options.known, "known"), (options.prior, "prior"), (options.games, "secrets"))
    )
    torch.manual_seed(options.seed)
    net = lw.nets.TextClassifier(options.vocabulary, options.length, width=options.width, tied=name == "tied")
    net.tokens.weight.requires_grad_(name != "frozen")
    trainer, numbers = TRAINERS[name], torch.arange(options.games)
    release = trainer(net, Cohort(known, secrets[numbers.unsqueeze(1)], numbers), seed=options.seed)
    start = time.perf_counter()
    attack = lw.attacks.Tokens(directions=options.directions, starts=options.starts)
    knowledge = Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    search = attack.prepare(knowledge, seed=options.seed)
    prepared = time.perf_counter() - start
    found = search.search(release)
    seconds = (time.perf_counter() - start - prepared) / len(found)
    guess, truth = torch.stack([one.tokens for one in found]), secrets.x
    right, unigram = TokensRight()(guess, truth), blind(known, prior, len(truth), options.seed)
    exact = (right == 1).double()
    certified = torch.tensor([float(one.certified) for one in found])
    print(name, f"{right.mean():.3f} of tokens,", f"{int(exact.sum())} exact,", f"{int(certified.sum())} certified")
    if (wrong := int(((certified == 1) & (exact == 0)).sum())) > 0:
        print(f"  {wrong} certified sentences are wrong")
    played = f"vocabulary {options.vocabulary}, {len(known)} known sentences of {options.length}, {len(truth)} games"
    rows = [
        mean(name, f"{name}: share of tokens right ({played})", right, 0.9 if options.vocabulary >= 2_000 else None),
        mean(f"{name}.bag", f"{name}: share of tokens right in any order", BagRight()(guess, truth)),
        mean(f"{name}.exact", f"{name}: exact sentences", exact),
        mean(f"{name}.certified", f"{name}: certified", certified),
        Row(f"{name}.wrong", f"{name}: certified sentences that are wrong", float((certified * (1 - exact)).sum())),
        mean(f"{name}.edits", f"{name}: edit distance", EditDistance()(guess, truth)),
        mean(
            f"{name}.blind",
            f"{name}: share of tokens right, blind guess of a unigram model",
            TokensRight()(unigram, truth),
        ),
        mean(f"{name}.blind_bag", f"{name}: the same in any order", BagRight()(unigram, truth)),
        Row(f"{name}.prepared", f"{name}: seconds to prepare, for all games", prepared),
        Row(f"{name}.seconds", f"{name}: seconds per game", seconds),
    ]
    if (bag := search.bag(release)) is not None:
        shares = [float(torch.isin(one.unique(), rows).double().mean()) for one, rows in zip(truth, bag, strict=True)]
        text = f"{name}: share of distinct tokens among the {options.length} rows of the table that moved most"
        rows.append(mean(f"{name}.moved", text, torch.tensor(shares)))
    return rows


def mean(row: str, quantity: str, values: Tensor, goal: float | None = None) -> Row:
    """A mean over games with its 95 % interval (normal)."""
    numbers = values.double().numpy()
    half = 1.96 * numbers.std(ddof=1) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0
    return Row(row, quantity, float(numbers.mean()), numbers.mean() - half, numbers.mean() + half, goal)


def main() -> None:
    """Play the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    for option, default in {
        "vocabulary": 2_000, "length": 12, "known": 200, "prior": 300, "width": 16, "games": 50,
        "directions": 64, "starts": 24, "seed": 0,
    }.items():  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    for name in options.rows:
        rows = [replace(row, seed=options.seed) for row in play(name, options)]
        write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
