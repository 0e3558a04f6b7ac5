"""The missing sentence of a text classifier: tokens and their order, from weights trained on all other sentences.

    python papers/text.py [--rows gd sgd lora lora_sgd frozen tied adam order dropout] [--games 50]
    python papers/text.py --merge OTHER/text.json

A transformer of two layers, vocabulary 2,000, 200 known sentences of 12 tokens from a bigram grammar, the label not
given. "gd": full batches; "sgd": batches in a known order; "lora": only adapters of rank 8 are trained and released,
by full batches, "lora_sgd": by batches in a known order; "frozen": the embedding table is not trained; "tied": the
head is made of the table's rows; "adam": full batches with Adam. To reach: 90 % of tokens right in 50 games.
"order" and "dropout": a private order of batches and private dropout (p = 0.1) leave no function to invert. What is
left are the moved rows of the table, compared with retrained models, and which of ten sentences it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import lostwax as lw
from lostwax.attacks.likeliest_refit import LikeliestRefit
from lostwax.attacks.text.search import Sentence
from lostwax.games import Cohort, Knowledge, Release
from lostwax.metrics import BagRight, EditDistance, TokensRight
from lostwax.metrics.estimate import clopper_pearson
from lostwax.reports.results import Row, read_rows, write_rows
from lostwax.seeds import generator


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
TOGETHER = 5  # games between two results


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


def play(name: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """The games of one row: results so far, after every few of them."""
    sizes = {"vocabulary": options.vocabulary, "length": options.length, "seed": options.seed}
    known, prior, secrets = (
        sentences(n, **sizes, purpose=purpose)
        for n, purpose in ((options.known, "known"), (options.prior, "prior"), (options.games, "secrets"))
    )
    torch.manual_seed(options.seed)
    net = lw.nets.TextClassifier(options.vocabulary, options.length, width=options.width, tied=name == "tied")
    net.tokens.weight.requires_grad_(name != "frozen")
    net = lw.nets.lora(net, RANK) if name.startswith("lora") else net
    numbers = torch.arange(options.games)
    cohort = Cohort(known, secrets[numbers.unsqueeze(1)], numbers)
    release = TRAINERS[name](net, cohort, seed=options.seed)
    threat = lw.Informed(known, candidates=min(CANDIDATES, options.games) if name in PRIVATE else None)
    knowledge = Knowledge(net, TRAINERS[name], threat, lw.access.Weights(), prior)
    played = f"vocabulary {options.vocabulary}, {len(known)} known sentences of {options.length}"
    if name in PRIVATE:
        yield privately(name, f"{played}, {len(secrets)} games", knowledge, release, cohort, secrets, options.seed)
    else:
        yield from searched(name, played, knowledge, release, secrets, options)


def searched(
    name: str, played: str, knowledge: Knowledge, release: Release, secrets: lw.Records, options: argparse.Namespace
) -> Iterator[list[Row]]:
    """The sentences that Tokens finds."""
    start = time.perf_counter()
    attack = lw.attacks.Tokens(directions=options.directions or None, starts=options.starts)
    search = attack.prepare(knowledge, seed=options.seed)
    prepared = time.perf_counter() - start
    bag, found = search.bag(release), []
    for first in range(0, len(secrets), TOGETHER):
        part = {weights: value[first : first + TOGETHER] for weights, value in release.params.items()}
        found += search.search(Release(part))
        seconds = (time.perf_counter() - start - prepared) / len(found)
        told = [] if bag is None else [moved(name, bag[: len(found)], secrets.x[: len(found)])]
        times = [
            Row(f"{name}.prepared", f"{name}: seconds to prepare, for all games", prepared),
            Row(f"{name}.seconds", f"{name}: seconds per game", seconds),
        ]
        yield told + judged(name, f"{played}, {len(found)} games", knowledge, found, secrets.x, options) + times


def judged(
    name: str, played: str, knowledge: Knowledge, found: list[Sentence], secrets: Tensor, options: argparse.Namespace
) -> list[Row]:
    """The sentences of the games so far beside the true ones."""
    guess, truth = torch.stack([one.tokens for one in found]), secrets[: len(found)]
    right = TokensRight()(guess, truth)
    unigram = blind(knowledge.facts.known, knowledge.prior, len(truth), options.seed)
    exact = (right == 1).double()
    certified = torch.tensor([float(one.certified) for one in found])
    print(
        f"{name}: {len(found)} games, {right.mean():.3f} of tokens, {int(exact.sum())} exact, "
        f"{int(certified.sum())} certified, {int((certified * (1 - exact)).sum())} of them wrong",
        flush=True,
    )
    return [
        share(name, f"{name}: share of tokens right ({played})", right, 0.9 if options.vocabulary >= 2_000 else None),
        share(f"{name}.bag", f"{name}: share of tokens right in any order", BagRight()(guess, truth)),
        share(f"{name}.exact", f"{name}: exact sentences", exact),
        share(f"{name}.certified", f"{name}: certified", certified),
        Row(f"{name}.wrong", f"{name}: certified sentences that are wrong", float((certified * (1 - exact)).sum())),
        mean(f"{name}.edits", f"{name}: edit distance", EditDistance()(guess, truth)),
        share(
            f"{name}.blind",
            f"{name}: share of tokens right, blind guess of a unigram model",
            TokensRight()(unigram, truth),
        ),
        share(f"{name}.blind_bag", f"{name}: the same in any order", BagRight()(unigram, truth)),
    ]


def privately(
    name: str, played: str, knowledge: Knowledge, release: Release, cohort: Cohort, secrets: lw.Records, seed: int
) -> list[Row]:
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
    named = (guess.records.x[:, 0] == secrets.x).all(1).double()
    count = knowledge.facts.given.candidates
    print(f"{name}: {named.mean():.2f} of sentences named among {count}")
    text = f"{name}: share of sentences named among {count} candidates, by chance {1 / count:g} ({played})"
    return [moved(name, bag, secrets.x), share(f"{name}.candidates", text, named)]


def moved(name: str, bag: Tensor, truth: Tensor) -> Row:
    """The bag of tokens that the table gives away."""
    shares = [float(torch.isin(one.unique(), rows).double().mean()) for one, rows in zip(truth, bag, strict=True)]
    text = f"{name}: share of distinct tokens among the {truth.shape[1]} rows of the table that moved most"
    return share(f"{name}.moved", text, torch.tensor(shares))


def share(row: str, quantity: str, values: Tensor, goal: float | None = None) -> Row:
    """A mean over games of shares: Clopper-Pearson where each is 0 or 1, else normal, within 0 and 1."""
    numbers = values.double().numpy()
    if np.isin(numbers, (0, 1)).all():
        return Row(row, quantity, float(numbers.mean()), *clopper_pearson(int(numbers.sum()), len(numbers)), goal)
    found = mean(row, quantity, values, goal)
    return replace(found, low=max(found.low or 0, 0), high=min(found.high or 1, 1))


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
        "directions": 0, "starts": 24, "seed": 0,
    }.items():  # fmt: skip
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="only add results of other runs to ours")
    options = parser.parse_args()
    if options.merge:
        write_rows(__file__, [row for path in options.merge for row in read_rows(path)], keep_others=True)
        return
    for name in options.rows:
        for rows in play(name, options):
            write_rows(__file__, [replace(row, seed=options.seed) for row in rows], keep_others=True)


if __name__ == "__main__":
    main()
