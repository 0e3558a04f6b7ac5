"""Two releases of a net, trained with and without one record: how near does an attacker come who knows no record?

    python benchmarks/two_nets.py [--data digits] [--activations elu tanh relu]
    python benchmarks/two_nets.py --data mnist --root FOLDER --device cuda --out FOLDER
    python benchmarks/two_nets.py --data mnist --root FOLDER --directions 96 --shadows 12000 --targets 200

S1's training (Balle et al. 2022, Table V: full-batch gradient descent, lr 0.2, momentum 0.9, 100 steps, a public
LeCun-normal start), on records of which none is known. Each game is a record more or less: the weights with it minus
those without. `lw.KernelRidge` learns from such differences on public base sets (`lw.trainers.Paired`): 10,000 public
records each, drawn from 59,000 of the prior, on which the shadow models' records are drawn too. The informed attacker
knows all other records, and reads the same victims from the later weights alone, by as many shadow models; the nearest
public record needs no model at all. The rows of unlearning have the earlier weights fine-tuned on the other records, or
moved up the record's loss, instead of being trained again. With `--directions`, the models that both attacks learn
from are not trained but computed by linear response, the differences on three public base sets: what a CPU can do.
Goals on MNIST: within twice the informed attacker's error, and nearer than the nearest public record in 90 % of games.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks import KernelRidge
from lostwax.games import Cohort, Informed, Knowledge, Records, Release
from lostwax.learning import augment
from lostwax.metrics.estimate import clopper_pearson
from lostwax.shadows import LinearResponse
from lostwax.trainers import Paired, Unlearned
from lostwax_dev.results import Row, parse, write_rows

ACTIVATIONS = {"elu": nn.ELU, "tanh": nn.Tanh, "relu": nn.ReLU}
SIZES = {  # of the training set, a base set, the prior; victims; base sets; hidden units
    "digits": (400, 400, 1_300, 90, 20, 20),
    "mnist": (10_000, 10_000, 59_000, 1_000, 6, 10),
}
STEPS, RATE = 10, 0.02  # of unlearning


def split(options):
    """The unknown training set, the victims' records, and the prior: disjoint."""
    train, prior, targets = options.train, options.prior, options.targets
    if options.data == "mnist":
        archive = np.load(Path(options.root) / "mnist.npz")
        x = torch.from_numpy(archive["images"].reshape(-1, 784).astype(np.float32) / 255)
        records = Records(x, torch.from_numpy(archive["labels"].astype(np.int64)))
    else:
        digits = lw.records.digits()
        records = Records(digits.x.flatten(1).float(), digits.y)
    order = torch.from_numpy(np.random.default_rng(options.seed).permutation(len(records)))
    parts = order[:train], order[train : train + targets], order[train + targets : train + targets + prior]
    return [records[part].to(options.device) for part in parts]


def differences(net, trainer, train, victims):
    """The weights with each victim's record minus those without it; and the former alone."""
    numbers = torch.arange(len(victims), device=victims.y.device)
    cohort = Cohort(train, victims[numbers[:, None]], numbers)
    if isinstance(trainer, Unlearned):
        before = trainer.trainer(net, cohort, seed=0)
        after = trainer.after(net, cohort, before, seed=0)
    else:
        before = trainer(net, cohort, seed=0)
        alone = Cohort(train[:-1], train[torch.tensor([[len(train) - 1]], device=train.y.device)], numbers[:1])
        after = trainer(net, alone, seed=0)
    return Release({name: value - after.params[name] for name, value in before.params.items()}), before


def errors_of(attack, knowledge, release, victims):
    """Squared errors, and how often the label is right."""
    start = time.perf_counter()
    reconstruct = attack.prepare(knowledge, seed=1)
    guess = reconstruct(release)
    errors = (guess.records.x[:, 0].to(victims.x) - victims.x).flatten(1).square().mean(1).double().cpu().numpy()
    right = float((guess.records.y[:, 0].to(victims.y) == victims.y).double().mean())
    print(*reconstruct.notes, sep="\n", flush=True)
    return errors, right, time.perf_counter() - start


def rows_of(name, errors, right, seconds, nearest, against=None):
    median = np.median(errors)
    spread = np.sort(np.median(np.random.default_rng(0).choice(errors, (2_000, len(errors))), 1))
    won = int((errors < nearest).sum())
    yield Row(f"{name}.median", f"{name}: median squared error", float(median), float(spread[50]), float(spread[-51]))
    yield Row(f"{name}.mean", f"{name}: mean squared error", float(errors.mean()))
    low, high = clopper_pearson(won, len(errors))
    yield Row(f"{name}.nearer", f"{name}: nearer than the nearest public record", won / len(errors), low, high)
    yield Row(f"{name}.labels", f"{name}: label right", right)
    yield Row(f"{name}.seconds", f"{name}: seconds to prepare and read all", seconds)
    if against is not None:
        ratio = float(median / np.median(against))
        yield Row(f"{name}.ratio", f"{name}: median error over the informed attacker's", ratio, paper="<= 2")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits", choices=list(SIZES))
    parser.add_argument("--root", default=".", help="the folder of mnist.npz")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--activations", nargs="+", default=["elu", "tanh", "relu"], choices=list(ACTIVATIONS))
    parser.add_argument(
        "--unlearning", action="store_true", help="approximate unlearning too, with the first activation"
    )
    parser.add_argument("--repeats", type=int, default=1, help="base sets that each public record is added to")
    parser.add_argument("--directions", type=int, default=0, help="of linear response; 0: train all shadow models")
    parser.add_argument("--shadows", type=int, help="records to learn from; all of the prior by default")
    parser.add_argument("--seed", type=int, default=0)
    for place, name in enumerate(("train", "base", "prior", "targets", "bases", "hidden")):
        parser.add_argument(f"--{name}", type=int, help=f"{[sizes[place] for sizes in SIZES.values()]}")
    options = parse(parser)
    for place, name in enumerate(("train", "base", "prior", "targets", "bases", "hidden")):
        if getattr(options, name) is None:
            setattr(options, name, SIZES[options.data][place])
    train, victims, prior = split(options)
    nearest = torch.cat([torch.cdist(some, prior.x).amin(1) for some in victims.x.split(256)])
    nearest = (nearest.square() / victims.x.shape[1]).double().cpu().numpy()
    rows = [Row(f"{options.data}.nearest", f"{options.data}: nearest public record", float(np.median(nearest)))]
    plain = lw.GD(lr=0.2, momentum=0.9, steps=100, init=lw.inits.LeCunNormal(), tf32=options.device == "cuda")
    engine = LinearResponse(directions=options.directions, checked=24) if options.directions else None
    informed_attack = attack = KernelRidge(engine=engine, shadows=options.shadows)
    if options.repeats > 1:
        attack = KernelRidge(shadows=options.repeats * options.prior, augment=augment.Repeats())
    trainers = dict.fromkeys(options.activations, plain)
    if options.unlearning:
        by = lw.GD(lr=RATE, steps=STEPS, init=lw.inits.LeCunNormal(), tf32=plain.tf32)
        trainers[f"{options.activations[0]}, fine-tuned on the rest"] = Unlearned(plain, by)
        up = lw.GD(lr=RATE, steps=STEPS, init=lw.inits.LeCunNormal(), loss=lw.trainers.Negated(plain.loss))
        trainers[f"{options.activations[0]}, gradient ascent"] = Unlearned(plain, up, on="erased")
    for name, trainer in trainers.items():
        activation = name.partition(",")[0]
        net = lw.nets.mlp(train.x.shape[1], options.hidden, 10, activation=ACTIVATIONS[activation]).to(options.device)
        difference, before = differences(net, trainer, train, victims)
        paired = Paired(trainer, options.base, bases=options.bases, scale=(options.base + 1) / (options.train + 1))
        ours = errors_of(
            attack, Knowledge(net, paired, Informed(prior), lw.access.Weights(), prior), difference, victims
        )
        informed = None
        if trainer is plain:
            knowledge = Knowledge(net, plain, Informed(train), lw.access.Weights(), prior)
            informed = errors_of(informed_attack, knowledge, before, victims)
            rows += rows_of(f"{options.data}.{name}.informed", *informed, nearest)
        against = None if informed is None else informed[0]
        rows += rows_of(f"{options.data}.{name}.pairs", *ours, nearest, against)
        print(*(f"{row.quantity}: {row.value:.4g}" for row in rows[-11:] if name in row.quantity), sep="\n", flush=True)
        write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
