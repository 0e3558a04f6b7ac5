"""Fine-tuned, not from scratch: what comes back when only some numbers of a net are trained and released?

    python benchmarks/fine_tuned.py [--games 60]

A public net, 64-24-24-10 with tanh, trained on other digits, is fine-tuned on 50 digits by full batches, 30 steps. The
attack, KernelRidge with 600 shadow models, knows all of them but one. Trained and released are: adapters of LoRA of
rank r on the first two layers (B starts at zero, A at a public draw), the last k layers, or the biases alone.
"""

import argparse

import torch
from torch import nn

import lostwax as lw
from lostwax.reports.results import Row, write_rows

RANKS = (1, 2, 4, 8)


class LoRA(nn.Module):
    """A frozen layer and an adapter:  W x + b + B A x."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + x @ self.a.mT @ self.b.mT


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


def adapted(rank):
    net = public().requires_grad_(False)
    net[1], net[3] = LoRA(net[1], rank).double(), LoRA(net[3], rank).double()
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


def main():
    """Print and store a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=60)
    options = parser.parse_args()
    digits = lw.records.digits().to(torch.float64)[:1_000]
    known, prior, secrets = digits.split(49, 600, options.games, seed=0)
    ways = {f"LoRA r={rank}": lambda rank=rank: adapted(rank) for rank in RANKS}
    ways |= {f"last {k} layers": lambda k=k: last(k) for k in (1, 2, 3)} | {"biases": biases}
    rows = []
    for name, made in ways.items():
        net = made()
        numbers = sum(value.numel() for value in net.parameters() if value.requires_grad)
        audit = lw.audit(
            net,
            trainer=lw.GD(lr=0.5, steps=30),
            threat=lw.Informed(known),
            attack=lw.KernelRidge(),
            prior=prior,
            secrets=secrets,
        )
        nearer = float(audit.beats_baselines(audit.findings[0]).mean())
        error, share = float(audit.errors.mean()), float(audit.findings[0].rebuilt.mean())
        blind = float(audit.baselines["blind guess (mean of the prior)"][audit.metric].mean())
        print(
            f"{name:<16}{numbers:6} numbers, rebuilt {share:.0%}, nearer {nearer:.0%}, error {error:.2g} ({blind:.2g})"
        )
        rows.append(
            Row(f"{name} rebuilt", f"share of records rebuilt, {name}, {numbers} numbers released", share, seed=0)
        )
        what = f"share of guesses nearer than every baseline, {name}"
        rows.append(Row(f"{name} nearer", what, nearer, seed=0))
        rows.append(Row(f"{name} error", f"mean squared error, {name} (blind {blind:.2g})", error, seed=0))
    print(f"written to benchmarks/results/{write_rows(__file__, rows).name}")


if __name__ == "__main__":
    main()
