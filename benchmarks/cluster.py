"""Audits on a cluster: what more workers gain, what the driver takes, and what is lost when machines are.

    python benchmarks/cluster.py --scaling
    python benchmarks/cluster.py --kills [--rounds 6]
    python benchmarks/cluster.py --often

All on this machine. `--scaling`: models that are trained for about 0.1 s each (a training function, an MLP on 200
digits) by 1, 2 and 4 workers; processor time of workers per model, which should stay the same, and of this process,
which deals, receives and hands on all models. What the driver can feed at most follows from it, on paper: workers that
train without pause = (time of a task) / (driver's time per task).
`--kills`: an audit of each kind (a net by gradient descent, a training function, a classifier that is refitted) on a
cluster of three nodes, in a process of its own with checkpoints; while it runs, a worker, a node and the driver itself
are killed in turn, and the driver is started again until it is done. Its guesses must be those without a cluster.
`--often`: eight chunks of 1 s on two workers, one of which is killed every 2 to 4 s.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import ray
import torch
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier

import lostwax as lw
from lostwax.games import Trainer
from lostwax.provenance import fingerprint
from lostwax.shadows import Checkpoints, Game, Ray
from lostwax_dev.results import Row, write_rows

WORKERS, MODELS, STEPS = (1, 2, 4), 32, 110
HEAD = "a linear head of 650 parameters"


def own(net, x, y, seed):
    """About 0.1 s of one core."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    order = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        optimiser.zero_grad()
        rows = torch.randint(len(x), (64,), generator=order)
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    return net


def workers():
    """The processes of the cluster that have trained."""
    every = psutil.Process().children(recursive=True)
    return [process for process in every if any("ray::" in part for part in process.cmdline()[:1])]


def processor_time():
    return sum(sum(process.cpu_times()[:2]) for process in workers())


def measured(game, models, count):
    """Wall seconds, processor seconds of all workers, and of this process, for one game on warm workers."""
    engine = Ray(workers=count)
    warm = game._replace(seed=1)
    list(engine(warm.trainer, warm.net, warm.threat, warm.pool, models=4 * count, seed=1))
    before, driver, start = processor_time(), time.process_time(), time.perf_counter()
    chunks = list(engine(game.trainer, game.net, game.threat, game.pool, models=models, seed=game.seed))
    wall, driver = time.perf_counter() - start, time.process_time() - driver
    assert sum(len(cohort) for cohort, _ in chunks) == models
    return wall, processor_time() - before, driver, len(chunks)


def scaling():
    known, prior = lw.records.digits().split(200, 500, seed=0)
    net = lw.nets.mlp(64, 128, 10)
    game = Game(net, lw.OwnTraining(own), lw.Informed(known), prior, 0)
    load = os.getloadavg()[0]
    rows, alone = [Row("load", "processes that want a core when the run begins", load, seed=0)], None
    for count in WORKERS:
        wall, theirs, driver, _ = measured(game, MODELS, count)
        ray.shutdown()
        alone = alone or wall
        for name, quantity, value, goal in (
            ("wall", "s for 32 models", wall, None),
            ("ratio", "time over that of one worker", wall / alone, "goal <= 0.6" if count == 2 else None),
            ("cpu", "processor s of the workers per model", theirs / MODELS, None),
            ("driver", "share of all processor time that is the driver's", driver / (driver + theirs), None),
            ("feeds", "workers that the driver can feed, on paper", theirs / driver, None),
        ):
            print(f"{count} workers: {quantity}: {value:.3g}", flush=True)
            rows.append(Row(f"own.{count}.{name}", f"{count} workers: {quantity}", value, paper=goal, seed=0))
    heads = Game(torch.nn.Linear(64, 10), lw.GD(lr=0.1, steps=20, tile=2_048, init=lw.inits.LeCunNormal()), *game[2:])
    flat = heads._replace(
        threat=lw.Informed(lw.Records(known.x.flatten(1), known.y)), pool=lw.Records(prior.x.flatten(1), prior.y)
    )
    models = 20 * 2_048
    _, theirs, driver, _ = measured(flat, models, 2)
    ray.shutdown()
    for name, quantity, value in (
        ("cpu", f"us of processor time of the workers per model, {HEAD}", 1e6 * theirs / models),
        ("driver", f"us of processor time of the driver per model, {HEAD}", 1e6 * driver / models),
        ("feeds", f"workers that the driver can feed, on paper, {HEAD}", theirs / driver),
        ("billion", f"h of the driver for a billion models, on paper, {HEAD}", 1e9 * driver / models / 3_600),
    ):
        print(f"{quantity}: {value:.3g}", flush=True)
        rows.append(Row(f"heads.{name}", quantity, value, seed=0))
    return rows


def audits():
    """By name, one audit of each kind that trains models."""
    known, prior, secrets = lw.records.digits().split(50, 150, 10, seed=0)
    torch.manual_seed(0)
    net = lw.nets.mlp(64, 8, 10)
    game = {"threat": lw.Informed(known), "prior": prior, "secrets": secrets}
    X, y = load_wine(return_X_y=True)
    model = MLPClassifier((4,), max_iter=30, random_state=0).fit(X, y)
    steps = lw.GD(lr=0.2, steps=30, tile=8)
    return {
        "descent": lambda engine: lw.audit(net, trainer=steps, attack=lw.KernelRidge(), engine=engine, **game),
        "function": lambda engine: lw.audit(
            net, trainer=lw.OwnTraining(own), attack=lw.KernelRidge(shadows=30), engine=engine, **game
        ),
        "refitted": lambda engine: lw.audit(model, (X, y), games=8, engine=engine),
    }


def outcome(audit):
    parts = [part for finding in audit.findings for part in (finding.guess.records.x, finding.guess.confidence)]
    return f"{fingerprint(*parts)} {audit.grade}"


def drive(kind, folder, address):
    """The driver: one audit on the cluster; its outcome is written when it is done."""
    engine = Checkpoints(f"{folder}/kept", Ray(address))
    Path(folder, "outcome").write_text(outcome(audits()[kind](engine)))
    os._exit(0)  # Ray takes seconds to say goodbye


def kills(rounds):
    from ray.cluster_utils import Cluster

    draws = random.Random(0)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    tally, rows = {"worker": 0, "node": 0, "driver": 0}, []
    for kind, audit in audits().items():
        here, same = outcome(audit(None)), 0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                turns = list(tally)
                while not (done := Path(folder, "outcome")).exists():
                    command = [sys.executable, __file__, "--drive", kind, folder, cluster.address]
                    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
                    while driver.poll() is None and turns:
                        kept = len(list(Path(folder, "kept").glob("*"))) if Path(folder, "kept").exists() else 0
                        time.sleep(draws.uniform(0.2, 2.0))
                        busy = [each for each in workers() if each.name().startswith("ray::_train")]
                        if not busy or kept == 0:  # it has not begun
                            continue
                        victim = turns.pop(draws.randrange(len(turns)))
                        tally[victim] += 1
                        if victim == "worker":
                            draws.choice(busy).kill()
                        elif victim == "node":
                            cluster.remove_node(nodes.pop(0), allow_graceful=False)
                            nodes.append(cluster.add_node(num_cpus=1))
                        else:
                            driver.kill()
                    driver.wait()
                same += done.read_text() == here
            print(f"{kind}: {same} the same; killed so far: {tally}", flush=True)
        rows.append(Row(f"kills.{kind}", f"audits ({kind}) of {rounds} with the same guesses", same, seed=0))
    rows += [Row(f"kills.of.{name}", f"times a {name} was killed", count, seed=0) for name, count in tally.items()]
    return rows


@dataclass(frozen=True)
class Slow:
    """A trainer that takes a second more."""

    trainer: Trainer

    def __call__(self, net, cohort, *, seed):
        time.sleep(1)
        return self.trainer(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.trainer.tile_size(net, cohort)


def often(seeds):
    known, prior = lw.records.digits().split(20, 150, seed=0)
    net, trainer = lw.nets.mlp(64, 4, 10), Slow(lw.GD(lr=0.1, steps=3, tile=16))
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    chunks, finished, killed = [range(start, start + 16) for start in range(0, 128, 16)], 0, 0
    for seed in seeds:
        draws, stop = random.Random(seed), threading.Event()

        def kill(draws=draws, stop=stop):
            nonlocal killed
            while not stop.wait(draws.uniform(2, 4)):
                if busy := [each for each in workers() if each.name().startswith("ray::_train")]:
                    draws.choice(busy).kill()
                    killed += 1

        threading.Thread(target=kill, daemon=True).start()
        try:
            parts = Ray(workers=2).parts(Game(net, trainer, lw.Informed(known), prior, 0), chunks)
            finished += len({int(cohort.index[0]) for cohort, _ in parts}) == len(chunks)
        except RuntimeError as error:
            print(f"seed {seed}: {error}"[:200])
        stop.set()
        print(f"seed {seed}: {finished} finished so far, {killed} workers killed", flush=True)
        ray.shutdown()
    return [
        Row("often", f"of {len(seeds)} runs finished, a worker killed every 2 to 4 s", finished, seed=0),
        Row("often.killed", "workers killed in them", killed, seed=0),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--often", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--drive", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.drive:
        drive(*options.drive)
    rows = scaling() if options.scaling else []
    rows += kills(options.rounds) if options.kills else []
    rows += often(range(options.rounds)) if options.often else []
    print(f"written to benchmarks/results/{write_rows(__file__, rows, keep_others=True).name}")


if __name__ == "__main__":
    main()
