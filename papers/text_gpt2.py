"""The missing sentence of a language model of GPT-2's size: its tokens and their order, read off the weights.

    python papers/text_gpt2.py --device cuda [--rows gd sgd] [--games 20] [--keep FOLDER]
    python papers/text_gpt2.py --rows gd --device cuda --played 0:5 --keep FOLDER    # a part of the games
    python papers/text_gpt2.py --keep FOLDER --merge                                 # the rows of the games kept

GPT-2 small: 12 causal blocks of width 768, vocabulary 50,257, the head tied to the table of embeddings, 124 million
numbers. It starts from a public draw and is trained to predict the next token of 500 known sentences of 12 tokens and a
secret one, from the bigram grammar of `papers/text.py`. "gd": 5 steps of full batches; "sgd": 3 epochs of batches of
167 in a known order. No dropout, float32.

The adversary trains on the known sentences alone. What the secret adds to the weights is their difference to the
release. The head's gradient moves the row of every next token v against the last hidden state h of what precedes it:

    change of row v  =  rate * sum over steps and places i of  (1[x_(i+1) = v] - p_v(i)) h_i  +  (as an input),

so the rows that moved most are the sentence's tokens. The net is causal, so h_i follows from the first i tokens: from
each of the 64 tokens that moved most as the first, the sentence is read from left to right. The next token is the one
whose row h_i explains best, over the steps of the known training, and what it explains is taken away. Models are
trained on the best twelve readings. A sentence is certified if the released weights come out, up to a thousandth of
what the secret adds; then the others are not tried.
No number was asked for but the size, one sentence missing among 500. All settings were chosen on a toy
(`--vocabulary 1000 --width 64 --layers 3 --heads 4 --context 32 --known 50 --games 6`), none at this size.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from text import FAILED, blind, mean, sentences, share
from torch import Tensor, nn

from lostwax.metrics import BagRight, EditDistance, TokensWrong
from lostwax.seeds import generator
from lostwax_dev.freshness import as_code
from lostwax_dev.results import Row, add_options, measured_now, write_rows

RATE = 0.05
STEPS, EPOCHS, BATCH = 5, 3, 167
FIRST, TRAINED = 64, 12  # first tokens that are tried; readings that are trained on
CERTAIN = 1e-3  # of what the secret adds to the weights
SIZES = {
    "vocabulary": 50_257, "length": 12, "known": 500, "width": 768, "layers": 12, "heads": 12, "context": 1_024,
    "games": 20, "seed": 0,
}  # fmt: skip


class Block(nn.Module):
    """GPT-2's: attention and a layer of four times the width, each after a norm, added to what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        """(n, length, width), the same."""
        n, length, width = h.shape
        q, k, v = self.attention(self.first(h)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT) / (width / self.heads) ** 0.5  # (n, heads, length, length)
        later = torch.ones(length, length, dtype=torch.bool, device=h.device).triu(1)
        mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
        h = h + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return h + self.hidden(self.second(h))


class GPT2(nn.Module):
    """GPT-2's shape and its public draw of initial weights: normal, deviation 0.02."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Embedding(options.context, options.width)
        self.blocks = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        draw = torch.Generator().manual_seed(options.seed)
        with torch.no_grad():
            for name, value in self.named_parameters():
                if value.ndim > 1:
                    value.copy_(0.02 * torch.randn(value.shape, generator=draw))
                elif name.endswith("bias"):
                    value.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(n, length) -> the last hidden states (n, length, width), which the table of embeddings turns into logits."""
        places = torch.arange(x.shape[1], device=x.device)
        return self.norm(self.blocks(self.tokens(x) + self.positions(places)))


def loss(net: GPT2, x: Tensor) -> Tensor:
    """The sum over sentences of the mean loss of their next tokens."""
    logits = net(x[:, :-1]) @ net.tokens.weight.mT  # (n, length - 1, vocabulary)
    return nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="sum") / (x.shape[1] - 1)


def batches(name: str, n: int, seed: int) -> list[Tensor]:
    """The rows of each step; the secret is row n - 1."""
    if name == "gd":
        return [torch.arange(n)] * STEPS
    orders = [torch.from_numpy(generator(seed, "text", "order", epoch).permutation(n)) for epoch in range(EPOCHS)]
    return [batch for order in orders for batch in order.split(BATCH)]


class Step(NamedTuple):
    """A step that the secret's row takes part in."""

    before: dict[str, Tensor]  # the weights
    rate: float  # of the loss of one token


class Trained(NamedTuple):
    """A net at the end of training, and what is kept of its steps."""

    net: GPT2
    steps: list[Step]


def train(start: GPT2, known: Tensor, secret: Tensor | None, steps: list[Tensor], *, keep: bool = False) -> Trained:
    """On the known sentences and the secret; without one the rates of all others stay as they are."""
    net, n, before = deepcopy(start).requires_grad_(True), len(known) + 1, []
    for batch in steps:
        if keep and (batch == n - 1).any():
            state = {name: value.detach().clone() for name, value in net.named_parameters()}
            before.append(Step(state, RATE / len(batch) / (known.shape[1] - 1)))
        rows = known[batch[batch < n - 1].to(known.device)]
        if secret is not None and (batch == n - 1).any():
            rows = torch.cat([rows, secret[None]])
        net.zero_grad(set_to_none=True)
        (loss(net, rows) / len(batch)).backward()
        with torch.no_grad():
            for value in net.parameters():
                value -= RATE * value.grad
    return Trained(net.requires_grad_(False), before)


def distance(one: nn.Module, other: nn.Module) -> float:
    """Between all weights."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return float(sum((a.double() - b.double()).square().sum() for a, b in pairs) ** 0.5)


@torch.no_grad()
def readings(net: GPT2, base: Trained, change: Tensor, length: int) -> list[Tensor]:
    """Sentences read from left to right, one for each first token, the best explained first.

    `change` (v, width) is what the secret adds to the rows of the table. Each next token explains a part of it, which
    is taken away: a token may come again.
    """
    bag = change.norm(dim=1).topk(min(FIRST, len(change))).indices
    x, left = bag[:, None], change[bag].repeat(len(bag), 1, 1)  # (k, 1), (k, k, width)
    steps = [(net_at(net, step.before), step.rate) for step in base.steps]
    reading = torch.arange(len(bag), device=x.device)
    for _ in range(length - 1):
        push = sum(rate * at(x)[:, -1] for at, rate in steps)  # (k, width) rate * h_i, summed over steps
        best = (left @ push.unsqueeze(2)).squeeze(2).argmax(1)  # (k,) least |left_v - push|^2 + sum of the others
        left[reading, best] -= push
        x = torch.cat([x, bag[best, None]], 1)
    return list(x[left.flatten(1).norm(dim=1).argsort()])


def net_at(net: GPT2, state: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """The net with the weights of a step, as a function."""
    return lambda x: torch.func.functional_call(net, state, (x,))


def play(name: str, numbers: list[int], options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """The games of these numbers, one after the other."""
    device = torch.device(options.device)
    sizes = {"vocabulary": options.vocabulary, "length": options.length, "seed": options.seed}
    known, secrets = (
        sentences(n, **sizes, purpose=purpose) for n, purpose in ((options.known, "known"), (options.games, "secrets"))
    )
    unigram = blind(known, known, options.games, options.seed)
    x, start = known.x.to(device), GPT2(options).to(device)
    steps = batches(name, len(x) + 1, options.seed)
    base = train(start, x, None, steps, keep=True)
    for number in numbers:
        secret = secrets.x[number].to(device)
        release = train(start, x, secret, steps).net
        begun = time.perf_counter()
        change = release.tokens.weight - base.net.tokens.weight  # (v, width)
        added, best = distance(release, base.net), (torch.inf, secret[:0])
        for guess in readings(start, base, change, len(secret))[:TRAINED]:
            miss = distance(train(start, x, guess, steps).net, release) / added
            best = min(best, (miss, guess), key=lambda one: one[0])
            if miss <= CERTAIN:
                break
        guess, truth = best[1][None].cpu(), secret[None].cpu()
        moved = change.norm(dim=1).topk(len(secret)).indices.cpu()
        exact, certified = float(torch.equal(guess, truth)), float(best[0] <= CERTAIN)
        yield {
            "moved": float(torch.isin(truth.unique(), moved).double().mean()),
            "right": 1 - float(TokensWrong()(guess, truth)),
            "bag": float(BagRight()(guess, truth)),
            "exact": exact,
            "certified": certified,
            "wrong": certified * (1 - exact),
            "edits": float(EditDistance()(guess, truth)),
            "blind": 1 - float(TokensWrong()(unigram[number : number + 1], truth)),
            "miss": best[0],
            "seconds": time.perf_counter() - begun,
        }


def rows_of(name: str, found: list[dict[str, float]], left: int, options: argparse.Namespace) -> list[Row]:
    """One row for each quantity, over the games that were played and `left` others that failed."""
    numbers = sum(value.numel() for value in GPT2(options).parameters())
    texts = {
        "moved": f"share of distinct tokens among the {options.length} rows of the table that moved most",
        "right": f"share of tokens right ({numbers:,} numbers released, {options.known} known sentences of "
        f"{options.length} tokens, {len(found) + left} games)",
        "bag": "share of tokens right in any order",
        "exact": "exact sentences",
        "certified": "certified",
        "wrong": "certified sentences that are wrong",
        "edits": "edit distance",
        "blind": "share of tokens right, blind guess of a unigram model",
        "miss": "distance of the best reading's model from the release, over what the secret adds",
        "seconds": "seconds per game",
    }
    rows = []
    for quantity, text in texts.items():
        lost = left if quantity in FAILED else 0
        values = torch.tensor([game[quantity] for game in found] + [0.0] * lost, dtype=torch.float64)
        notes = f" ({left} games not finished, {'counted as failures' if lost else 'left out'})" if left else ""
        row, words = name if quantity == "right" else f"{name}.{quantity}", f"{name}: {text}{notes}"
        if quantity in ("wrong", "seconds", "miss"):
            rows.append(Row(row, words, float(values.sum() if quantity == "wrong" else values.mean())))
        else:
            rows.append((mean if quantity == "edits" else share)(row, words, values))
    return rows


def main() -> None:
    """Play the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=("gd", "sgd"), default=["gd", "sgd"])
    for option, default in SIZES.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--played", default=":", help="numbers of the games, first:last")
    parser.add_argument("--keep", type=Path, help="folder with a file for each game that is done")
    parser.add_argument("--merge", action="store_true", help="play nothing: rows of the games that are kept")
    add_options(parser, SIZES)
    options = parser.parse_args()
    torch.use_deterministic_algorithms(options.device != "cpu")
    sizes = {size: getattr(options, size) for size in SIZES}
    for name in options.rows:
        first, last = (int(part) if part else None for part in options.played.split(":"))
        asked = list(range(options.games)[first:last])
        files = (
            {} if options.keep is None else {int(one.stem.split(".")[1]): one for one in options.keep.glob(f"{name}.*")}
        )
        games = {number: json.loads(one.read_text()) for number, one in sorted(files.items())}
        if any(game["settings"] != sizes for game in games.values()):
            raise SystemExit(f"{options.keep}: games of {name} were played with other sizes.")
        left = [] if options.merge else [number for number in asked if number not in games]
        for number, found in zip(left, play(name, left, options) if left else (), strict=True):
            print(f"{name}.{number}: {', '.join(f'{key} {value:.3g}' for key, value in found.items())}", flush=True)
            games[number] = {"settings": sizes, "found": found, "measured": measured_now(__file__)}
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}.{number}.json").write_text(json.dumps(games[number]))
        if games and (options.merge or options.keep is None):
            code, *others = {as_code(game["measured"]["code"]) for game in games.values()}
            if others:
                raise SystemExit("These games were played by different code: play them again.")
            measured = next(iter(games.values()))["measured"] | {"code": code}
            changed = "".join(f" --{size} {value}" for size, value in sizes.items() if value != SIZES[size])
            command = f"python papers/text_gpt2.py --rows {name} --device {options.device}{changed}"
            rows = rows_of(name, [game["found"] for game in games.values()], len(set(asked) - set(games)), options)
            measured |= {"command": command, "seed": options.seed}
            write_rows(__file__, [replace(row, **measured) for row in rows], keep_others=True, options=options)


if __name__ == "__main__":
    main()
