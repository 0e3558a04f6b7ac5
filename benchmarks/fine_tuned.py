"""Fine-tuned, not from scratch: what comes back when only some numbers of a net are trained and released?

    python benchmarks/fine_tuned.py [--ways "LoRA r=8" ...] [--games 60] [--inverted 20] [--out FOLDER]
    python benchmarks/fine_tuned.py --merge FOLDER/*/fine_tuned.json    # parts that were run side by side

A public net, 64-24-24-10 with tanh, trained on other digits, is fine-tuned on 50 digits by full batches, 30 steps. Two
attacks know all of them but one: KernelRidge with 600 shadow models, and Newton, which inverts training, in fewer
games. Trained and released are: adapters of LoRA of rank r on the first two layers (B starts at zero, A at a public
draw), the last k layers, or the biases alone. Writes `results/fine_tuned.json` and, by rank, `.png`; with `--out`,
the rows alone, into that folder. Intervals are of 95 %.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

import lostwax as lw
from lostwax.metrics.estimate import clopper_pearson, median_interval
from lostwax_dev.results import Row, parse, read_rows, write_rows

RANKS = (1, 2, 4, 8)


def public():
    """The net that everybody has."""
    torch.manual_seed(0)
    net = lw.nets.mlp(64, 24, 24, 10, activation=nn.Tanh).double()
    others = lw.records.digits().to(torch.float64)[1_000:]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(others.x), others.y).backward()
        optimiser.step()
    return net


def last(layers):
    net = public().requires_grad_(False)
    for layer in list(net)[::-2][:layers]:
        layer.requires_grad_(True)
    return net


def biases():
    net = public()
    for name, value in net.named_parameters():
        value.requires_grad_(name.endswith("bias"))
    return net


WAYS = {f"LoRA r={rank}": lambda rank=rank: lw.nets.lora(public(), rank) for rank in RANKS}
WAYS |= {f"last {k} layers": lambda k=k: last(k) for k in (1, 2, 3)} | {"biases": biases}


def measured(name, options):
    """The rows of one way, for both attacks."""
    digits = lw.records.digits().to(torch.float64)[:1_000]
    known, prior, secrets = digits.split(49, 600, options.games, seed=0)
    net, rows = WAYS[name](), []
    numbers = sum(value.numel() for value in net.parameters() if value.requires_grad)
    for attack, games in ((lw.KernelRidge(), options.games), (lw.Newton(), min(options.inverted, options.games))):
        kind = type(attack).__name__
        what = f"{name}, {numbers} numbers released, {kind}, {games} games"
        try:
            audit = lw.audit(
                net,
                trainer=lw.GD(lr=0.5, steps=30),
                threat=lw.Informed(known),
                attack=attack,
                prior=prior,
                secrets=secrets,
                games=games,
            )
        except ValueError as error:  # fewer numbers than a record has
            if "not applicable" not in str(error):
                raise
            rows.append(Row(f"{name} {kind} rebuilt", f"share of records rebuilt, {what}", str(error), seed=0))
            continue
        finding = audit.findings[0]
        shares = {"rebuilt": finding.rebuilt, "nearer": audit.beats_baselines(finding)}
        if finding.guess.certified is not None:
            shares["certified"] = finding.guess.certified
        words = {"rebuilt": "rebuilt", "nearer": "nearer than every baseline", "certified": "certified"}
        for part, won in shares.items():
            count = int(torch.as_tensor(won).sum())
            low, high = clopper_pearson(count, games)
            rows.append(
                Row(
                    f"{name} {kind} {part}", f"share of records {words[part]}, {what}", count / games, low, high, seed=0
                )
            )
        errors = np.asarray(audit.errors, dtype=np.float64).ravel()
        blind = float(audit.baselines["blind guess (mean of the prior)"][audit.metric].mean())
        middle, ends = float(np.median(errors)), median_interval(errors) or (None, None)
        rows.append(
            Row(f"{name} {kind} error", f"median squared error, {what} (blind {blind:.2g})", middle, *ends, seed=0)
        )
        print(
            f"{name:<16}{numbers:6} numbers, {kind:<12}rebuilt {finding.rebuilt.mean():.0%}, {middle:.2g}", flush=True
        )
        if kind == "KernelRidge":
            rows.append(Row("blind", f"mean squared error of the mean of the prior, {games} games", blind, seed=0))
    return rows


def draw(rows, path):
    """The error by rank, beside that of all layers."""
    value = {row.id: row.value for row in rows}
    figure = Figure(figsize=(5.6, 3.8), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for attack, color in (("KernelRidge", "#0072b2"), ("Newton", "#d55e00")):
        errors = [value[f"LoRA r={rank} {attack} error"] for rank in RANKS]
        axes.plot(RANKS, errors, marker="o", color=color, linewidth=1, label=f"{attack}, LoRA")
        whole = value[f"last 3 layers {attack} error"]
        axes.axhline(whole, color=color, linewidth=0.9, linestyle=":", label=f"{attack}, all layers")
    axes.axhline(value["blind"], color="#666666", linewidth=0.9, linestyle="--", label="blind guess")
    axes.set(xscale="log", yscale="log", xlabel="rank of the adapters", ylabel="median squared error of the record")
    axes.set_xticks(RANKS, [str(rank) for rank in RANKS])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0.1 * min(value[name] for name in value if name.endswith("error")), 1)
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main():
    """Print and store a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--inverted", type=int, default=20, help="games of Newton")
    parser.add_argument(
        "--merge", nargs="+", type=Path, help="play nothing: write the rows of these files and the plot"
    )
    options = parse(parser)
    if options.merge:
        rows = [row for path in options.merge for row in read_rows(path)]
        rows = [replace(row, command=row.command.split(" --into")[0]) for row in rows]
    else:
        rows = [row for name in options.ways for row in measured(name, options)]
    rows = list({row.id: row for row in rows}.values())  # all ways have the same blind guess
    written = write_rows(__file__, rows)
    if options.out is None and {f"LoRA r={rank} Newton error" for rank in RANKS} <= {row.id for row in rows}:
        draw(rows, written.with_suffix(".png"))
    print(f"written to {written.name}")


if __name__ == "__main__":
    main()
