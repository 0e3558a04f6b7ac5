"""The prior-aware attack beside its ceiling, for each way of drawing batches.

All other records are copies of one, and the secret is one of two records. With `--others digits` they are digits: what
batches of a fixed size hold of them is then unknown to the adversary, and hides the secret.
"""

import argparse

import torch

import lostwax as lw
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, write_rows

PER_EPOCH, EPOCHS, RECORDS = 10, 2, 40
SAMPLINGS = {
    "Poisson": lw.bounds.Poisson(1 / PER_EPOCH),
    "truncated Poisson": lw.bounds.TruncatedPoisson(1 / PER_EPOCH, RECORDS, 12),
    "balls-in-bins": lw.bounds.BallsInBins(EPOCHS),
    "shuffled": lw.bounds.Shuffled(EPOCHS),
    "cyclic": lw.bounds.Cyclic(EPOCHS),
    "fixed size": lw.bounds.FixedSize(RECORDS, RECORDS // PER_EPOCH),
    "full batches": lw.bounds.FullBatch(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--others", choices=("copies", "digits"), default="copies")
    parser.add_argument("--only", choices=SAMPLINGS, nargs="+", default=list(SAMPLINGS), help="these samplings")
    options = parse(parser)
    digits = lw.records.digits()
    known, prior, secrets = digits.split(RECORDS - 1, 100, options.games, seed=0)
    if options.others == "copies":
        known = lw.Records(known.x[:1].expand_as(known.x).clone(), known.y[:1].expand_as(known.y).clone())
    torch.manual_seed(0)
    net, rows = lw.nets.mlp(64, 5, 10), []
    for noise in (0.7, 1.0):
        for name, batches in ((name, SAMPLINGS[name]) for name in options.only):
            trainer = lw.DPSGD(lr=0.1, clip=0.1, noise_multiplier=noise, steps=PER_EPOCH * EPOCHS, batches=batches)
            audit = lw.audit(
                net,
                trainer=trainer,
                threat=lw.Informed(known, candidates=2),
                attack=lw.PriorAware(),
                prior=prior,
                secrets=secrets,
            )
            won = audit.findings[0].rebuilt
            low, high = clopper_pearson(int(won.sum()), len(won))
            ceiling, setting = audit.ceiling, f"{name}, noise {noise:g}, others {options.others}"
            print(f"{setting}: {won.mean():.3f} ({low:.3f} to {high:.3f}), ceiling {ceiling.upper:.3f}", flush=True)
            rows.append(
                Row(f"attack-{setting}", f"success of PriorAware: {setting}", float(won.mean()), low, high, seed=0)
            )
            ends = {"low": ceiling.lower, "high": ceiling.upper}
            rows.append(Row(f"ceiling-{setting}", f"ceiling: {setting}", ceiling.upper, **ends))
    write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
