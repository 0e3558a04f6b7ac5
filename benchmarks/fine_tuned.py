"""Fine-tuned, not from scratch: what comes back when only some numbers of a net are trained and released?

    python benchmarks/fine_tuned.py [--games 60] [--inverted 10]

A public net, 64-24-24-10 with tanh, trained on other digits, is fine-tuned on 50 digits by full batches, 30 steps. Two
attacks know all of them but one: KernelRidge with 600 shadow models, and Newton, which inverts training, in fewer
games. Trained and released are: adapters of LoRA of rank r on the first two layers (B starts at zero, A at a public
draw), the last k layers, or the biases alone. Writes `results/fine_tuned.json` and, by rank, `.png`.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

import lostwax as lw
from lostwax.reports.results import Row, write_rows

RANKS = (1, 2, 4, 8)
ATTACKS = {"KernelRidge": lw.KernelRidge(), "Newton": lw.Newton()}


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


def draw(found, blind, path):
    """The error by rank, beside that of all layers."""
    figure = Figure(figsize=(5.6, 3.8), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for attack, color in (("KernelRidge", "#0072b2"), ("Newton", "#d55e00")):
        errors = [found[attack, f"LoRA r={rank}"][1] for rank in RANKS]
        axes.plot(RANKS, errors, marker="o", color=color, linewidth=1, label=f"{attack}, LoRA")
        whole = found[attack, "last 3 layers"][1]
        axes.axhline(whole, color=color, linewidth=0.9, linestyle=":", label=f"{attack}, all layers")
    axes.axhline(blind, color="#666666", linewidth=0.9, linestyle="--", label="blind guess")
    axes.set(xscale="log", yscale="log", xlabel="rank of the adapters", ylabel="median squared error of the record")
    axes.set_xticks(RANKS, [str(rank) for rank in RANKS])
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main():
    """Print and store a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--inverted", type=int, default=10, help="games of Newton")
    options = parser.parse_args()
    digits = lw.records.digits().to(torch.float64)[:1_000]
    known, prior, secrets = digits.split(49, 600, options.games, seed=0)
    ways = {f"LoRA r={rank}": lambda rank=rank: lw.nets.lora(public(), rank) for rank in RANKS}
    ways |= {f"last {k} layers": lambda k=k: last(k) for k in (1, 2, 3)} | {"biases": biases}
    rows, found = [], {}
    for name, made in ways.items():
        net = made()
        numbers = sum(value.numel() for value in net.parameters() if value.requires_grad)
        for attack, games in (("KernelRidge", options.games), ("Newton", min(options.inverted, options.games))):
            audit = lw.audit(
                net,
                trainer=lw.GD(lr=0.5, steps=30),
                threat=lw.Informed(known),
                attack=ATTACKS[attack],
                prior=prior,
                secrets=secrets,
                games=games,
            )
            share, nearer = audit.findings[0].rebuilt.mean(), audit.beats_baselines(audit.findings[0]).mean()
            error = float(torch.as_tensor(audit.errors).median())
            blind = float(audit.baselines["blind guess (mean of the prior)"][audit.metric].mean())
            found[attack, name] = float(share), error
            print(f"{name:<16}{numbers:6} numbers, {attack:<12}rebuilt {share:.0%}, nearer {nearer:.0%}, {error:.2g}")
            what = f"{name}, {numbers} numbers released, {attack}, {games} games"
            rows += [
                Row(f"{name} {attack} rebuilt", f"share of records rebuilt, {what}", float(share), seed=0),
                Row(f"{name} {attack} nearer", f"share nearer than every baseline, {what}", float(nearer), seed=0),
                Row(f"{name} {attack} error", f"median squared error, {what} (blind {blind:.2g})", error, seed=0),
            ]
    written = write_rows(__file__, rows)
    draw(found, blind, Path(written).with_suffix(".png"))
    print(f"written to benchmarks/results/{written.name}")


if __name__ == "__main__":
    main()
