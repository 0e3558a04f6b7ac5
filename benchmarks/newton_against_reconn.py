"""What does a rebuilt record cost: trainings run by exact inversion and by shadow models, and the error they reach?

    python benchmarks/newton_against_reconn.py [--targets 10] [--repetitions 2] [--threads 2]

Digits, 500 known, 64-10-10, ELU, full-batch gradient descent, lr 0.2, momentum 0.9, 100 epochs, in float32. RecoNN
and KernelRidge train shadow models once for all games (more than 1,000 on records turned and moved a little). Newton
trains a bank and linearises training at the mean of every class, once for all games, and then trains for each; a
tangent, which costs about as much as a training, is counted as one. Repetitions are of other splits of the digits.
"""

import argparse
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import lostwax as lw
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Knowledge
from lostwax.metrics import nearest_neighbour
from lostwax_dev.results import Row, parse, write_rows

KNOWN, PRIOR, GAMES = 500, 1_000, 1_000
VICTIM = lw.GD(lr=0.2, momentum=0.9, steps=100, init=lw.inits.LeCunNormal())
NEWTONS = {  # number of Jacobians per game, from each start
    "Newton, no Jacobian": lw.Newton(bank=100, jacobians=0),
    "Newton, 1 Jacobian": lw.Newton(bank=100, jacobians=1),
    "Newton, 3 Jacobians": lw.Newton(bank=100, jacobians=3),
}
COLORS = {
    "RecoNN": ("s", "#D55E00"),
    "KernelRidge": ("^", "#009E73"),
    "Newton": ("o", "#0072B2"),
}  # of Okabe and Ito: the colour-blind can tell them apart


def augment(shadows):
    """Where more records come from than the prior has."""
    return lw.learning.Affine(degrees=5, scale=0.05, pixels=1) if shadows > PRIOR else None


def reconn(shadows):
    """S1's attack, with a decoder and batches for so few models."""
    return lw.RecoNN(
        shadows=shadows,
        decoder=lw.decoders.MLPDecoder(width=512, input_noise=0.1),
        augment=augment(shadows),
        batch_size=min(128, shadows // 10),
        mae=0.0,
    )


SHADOWS = (100, 300, 1_000, 3_000)
RECONNS = {f"RecoNN, {shadows:,} shadows": reconn(shadows) for shadows in SHADOWS}
KERNELS = {
    f"KernelRidge, {shadows:,} shadows": lw.KernelRidge(shadows=shadows, augment=augment(shadows))
    for shadows in SHADOWS
}


@contextmanager
def counted():
    """Counts what Newton trains, a tangent being one."""
    count, train, tangents = Counter(), TrainingMap.__call__, TrainingMap.tangents

    def counting_trainings(self, z, label):
        count["trainings"] += len(z)
        return train(self, z, label)

    def counting_tangents(self, z, label, directions):
        count["trainings"] += len(directions)
        return tangents(self, z, label, directions)

    with (
        patch.object(TrainingMap, "__call__", counting_trainings),
        patch.object(TrainingMap, "tangents", counting_tangents),
    ):
        yield count


def play(attack, knowledge, cohort, release, seed):
    """The errors (targets,), trainings run for all games and for each, and seconds likewise."""
    begin, targets = time.perf_counter(), len(release)
    with counted() as shared:
        reconstruct = attack.prepare(knowledge, seed=seed)
    prepared = time.perf_counter()
    with counted() as own:
        guess = reconstruct(release).records.x[:, 0]
    errors = (guess - cohort.own.x[:, 0]).double().square().flatten(1).mean(1).numpy()
    trained = attack.shadows if isinstance(attack, lw.RecoNN | lw.KernelRidge) else shared["trainings"]
    seconds = prepared - begin, (time.perf_counter() - prepared) / targets
    return errors, np.array([trained, own["trainings"] / targets, *seconds])


def repetition(targets, seed):
    """All attacks against the same victims, and what the adversary could do without."""
    known, prior, secrets = lw.records.digits().split(KNOWN, PRIOR, targets, seed=seed)
    net, threat = lw.nets.mlp(64, 10, 10), lw.Informed(known)
    cohort = threat.deal(secrets, targets, seed=seed)
    release = VICTIM(net, cohort, seed=seed)
    knowledge = Knowledge(net, VICTIM, threat, lw.access.Weights(), prior)
    truth, pool = cohort.own.x[:, 0].double(), torch.cat([prior.x, known.x]).double()
    without = {
        "blind guess": (truth - pool.mean(0)).square().flatten(1).mean(1).numpy(),
        "nearest available record": nearest_neighbour(truth, pool, percentiles=()).errors,
    }
    attacks = {**RECONNS, **KERNELS, **NEWTONS}
    played = {name: play(attack, knowledge, cohort, release, seed) for name, attack in attacks.items()}
    return without, played


def draw(errors, costs, path):
    """Error against trainings: of a first game, and a game's share where there are many."""
    figure = Figure(figsize=(6.4, 4.4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for attack, (marker, color) in COLORS.items():
        names = [name for name in costs if name.startswith(attack)]
        middle = [np.median(errors[name]) for name in names]
        for games, fill, style in ((1, color, "-"), (GAMES, "white", "--")):
            across = [costs[name][0] / games + costs[name][1] for name in names]
            words = f"{attack}, {'one game' if games == 1 else f'each of {games:,} games'}"
            axes.plot(across, middle, style, marker=marker, color=color, markerfacecolor=fill, linewidth=1, label=words)
    for name, style in (("blind guess", "--"), ("nearest available record", ":")):
        axes.axhline(np.median(errors[name]), color="#666666", linewidth=0.9, linestyle=style, label=name)
    axes.set(xscale="log", yscale="log", xlabel="trainings run", ylabel="median squared error of the record")
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=10, help="victims of each repetition")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    runs = [repetition(options.targets, seed) for seed in range(options.repetitions)]
    errors = {name: np.concatenate([without[name] for without, _ in runs]) for name in runs[0][0]}
    errors |= {name: np.concatenate([played[name][0] for _, played in runs]) for name in runs[0][1]}
    costs = {name: np.mean([played[name][1] for _, played in runs], 0) for name in runs[0][1]}

    setting = f"{KNOWN} known digits, {len(errors['blind guess'])} targets, {options.threads} threads"
    rows = []
    print(f"{setting}; trainings and seconds: for all games, and for each")
    for name, values in errors.items():
        low, middle, high = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
        rows.append(Row(name, f"{name}: median MSE, and quartiles ({setting})", middle, low, high, seed=0))
        line = f"  {name:24s}{middle:9.1e} ({low:.1e} to {high:.1e})"
        if name in costs:
            shared, own, prepared, attacked = (float(cost) for cost in costs[name])
            rows.append(Row(f"{name}, shared", f"{name}: trainings for all games", shared, seed=0))
            rows.append(Row(f"{name}, own", f"{name}: trainings for each game", own, seed=0))
            rows.append(Row(f"{name}, seconds", f"{name}: seconds for a first game", prepared + attacked, seed=0))
            line += f"{shared:9,.0f} {own:9,.0f} {prepared:9.2f} {attacked:9.2f}"
        print(line)
    written = write_rows(__file__, rows)
    draw(errors, costs, Path(written).with_suffix(".png"))
    print(f"written to {written}")


if __name__ == "__main__":
    main()
