"""Audits on a cluster of three nodes that loses a worker, a node and the driver: are the bytes the same?

    python benchmarks/cluster_kills.py [KIND ...]

The cluster is real: Ray's processes of three nodes with one core each, on this machine. Every audit runs in a process
of its own, without a cluster and on it, with `Checkpoints` on `Ray`. There it loses, each once a part of its work is on
disk:

- a worker that trains: SIGKILL;
- a node with a worker that trains: SIGKILL to all of its processes. Another node joins afterwards;
- the driver, which is the process that runs the audit: SIGKILL. It is run again, and loses what it has not lost yet.

Compared are the bytes of `records.safetensors`, and every number and verdict of `audit.json`; times and sentences are
not. Where an attack computes without training models (Newton's steps, decoders, closed forms), only the driver has it.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then listens on 127.0.0.1, where clusters are told to
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import psutil
import torch
from same_results import differences, few_digits, gd, own_training, small_net
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Perceptron, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import lostwax as lw
from lostwax.attacks import CalibratedLosses
from lostwax.attacks.weak import SetReader, training
from lostwax.learning.decoders import MLPDecoder
from lostwax.shadows import Checkpoints, Ray
from lostwax_dev.results import Row, parse, write_rows

LOOPBACK = "127.0.0.1"
LOSSES = ("worker", "node", "driver")
SPARED = 15.0  # seconds: who trains is killed once another model is kept, or after these
PATIENCE = 300  # seconds for one audit
Audit = Callable[[Any, Path], Any]


def informed(attack: Any, engine: Any, *, trainer: Any = None, games: int = 24, **threat: Any) -> Any:
    """An audit of nets on digits 0 to 2, trained two at a time."""
    known, prior, secrets = few_digits().split(30, 150, 60, seed=0)
    return lw.audit(
        small_net(),
        trainer=trainer or gd(tile=2, steps=60),
        threat=lw.Informed(known, **threat),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=games,
        engine=engine,
    )


def table() -> tuple[Any, Any]:
    """Numbers and a column of categories."""
    import pandas as pd

    draws = np.random.default_rng(0)
    X = pd.DataFrame(draws.normal(size=(90, 3)).round(2), columns=["a", "b", "c"])
    X["d"] = draws.integers(0, 3, 90).astype(float)
    return X, ((X["a"] + X["d"]) > 1).astype(int).to_numpy()


def refitted(model: Any, engine: Any, _: Path) -> Any:
    X, y = table()
    return lw.audit(model.fit(X.to_numpy(), y), (X.to_numpy(), y), games=8, engine=engine)


def columns(engine: Any, _: Path) -> Any:
    X, y = table()
    X["d"] = X["d"].map({0.0: "no", 1.0: "yes", 2.0: "maybe"})
    encoded = make_column_transformer((OneHotEncoder(), ["d"]), remainder="passthrough")
    return lw.audit(make_pipeline(encoded, Perceptron(random_state=0)).fit(X, y), (X, y), games=8, engine=engine)


def closed(engine: Any, _: Path) -> Any:
    X, y = table()
    return lw.audit(Ridge().fit(X, y), (X, y), engine=engine)


def reconn(engine: Any, folder: Path) -> Any:
    return informed(lw.RecoNN(decoder=MLPDecoder(width=32), epochs=20, store=folder / "shadows"), engine)


def weak(engine: Any, folder: Path) -> Any:
    """Sets of six digits behind a random layer; the decoder's state is written at every validation."""
    training.SECONDS = 0
    torch.manual_seed(1)
    behind = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU())
    prior, secrets = few_digits().through(behind).split(300, 200, seed=0)
    attack = lw.WeakRecoNN(
        reader=SetReader(width=16, layers=1, heads=2),
        decoder=MLPDecoder(width=32),
        steps=400,
        minutes=None,
        batch_size=16,
        checkpoint=folder / "decoder",
    )
    return lw.audit(
        nn.Linear(24, 3),
        trainer=lw.GD(lr=0.1, steps=10, tile=2, init=lw.inits.Normal(0.002, seed=None)),
        threat=lw.Weak(size=6),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=24,
        engine=engine,
    )


def released(engine: Any, _: Path) -> Any:
    """These weights: each game is kept when it was played, here."""
    data, _ = few_digits().split(20, 40, seed=0)
    net = small_net()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    trained = own_training(net, data.x, data.y, 0)
    return lw.audit(trained, data, trainer=lw.GD(lr=0.3, steps=10, init=lw.inits.Given(start)), games=3, engine=engine)


class Kind(NamedTuple):
    """An audit, and what the driver has on disk when it is killed."""

    title: str
    audit: Audit
    waits_for: str = "kept/*.safetensors"
    number: int = 2


KINDS = {
    "linear": Kind("linear model that is refitted (Perceptron)", partial(refitted, Perceptron(random_state=0))),
    "network": Kind(
        "scikit-learn's net, refitted", partial(refitted, MLPClassifier((4,), max_iter=20, random_state=0))
    ),
    "columns": Kind("table with a column of categories, refitted column by column", columns),
    "table": Kind("linear model and its table (closed form)", closed, "started", 1),
    "shadows": Kind("net, KernelRidge", lambda engine, _: informed(lw.KernelRidge(), engine)),
    "reconn": Kind("net, RecoNN with a store", reconn, "shadows/*/weights/*.0", 1),
    "candidates": Kind(
        "net, which candidate (reference models)",
        lambda engine, _: informed(CalibratedLosses(models=32), engine, candidates=4),
    ),
    "own": Kind(
        "net, a training function, KernelRidge",
        lambda engine, _: informed(lw.KernelRidge(shadows=40), engine, trainer=lw.OwnTraining(own_training), games=12),
    ),
    "newton": Kind(
        "net, Newton", lambda engine, _: informed(lw.Newton(bank=40), engine, trainer=gd(tile=2), games=6), number=3
    ),
    "ensemble": Kind("net, Ensemble", lambda engine, _: informed(lw.Ensemble(members=40, rounds=2), engine, games=2)),
    "released": Kind("released net and its data, Newton's games", released, number=1),
    "weak": Kind("whole sets, a decoder with its checkpoint", weak, "decoder/*.safetensors", 1),
}


def run(kind: str, folder: Path, address: str | None) -> None:
    """The driver: one audit, and its report."""
    torch.set_num_threads(1)
    torch.manual_seed(0)  # nets start from the same weights in every process
    engine = None if address is None else Checkpoints(folder / "kept", Ray(address))
    (folder / "started").touch()
    lw.report(KINDS[kind].audit(engine, folder), folder / "report")


class Nodes:
    """Three nodes on this machine, with one core each; the first one also keeps the books."""

    def __enter__(self) -> "Nodes":
        from ray.cluster_utils import Cluster

        self.size = {"num_cpus": 1, "object_store_memory": 100 << 20, "node_ip_address": LOOPBACK}
        self.cluster = Cluster(True, head_node_args={**self.size, "include_dashboard": False})
        self.others: list[Any] = []
        self.add()
        self.add()
        return self

    def add(self) -> None:
        self.others.append(self.cluster.add_node(**self.size))

    def __exit__(self, *_: object) -> None:
        self.cluster.shutdown()

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def training(self) -> Iterator[tuple[psutil.Process, int]]:
        """The processes that train now, and the raylet that each belongs to."""
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name().startswith("ray::_train"):
                    yield process, process.ppid()
            except psutil.NoSuchProcess:
                continue

    def lose(self, what: str) -> bool:
        """Kill a worker that trains, or a node with one; whether there was any."""
        for process, raylet in self.training():
            if what == "worker":
                process.kill()
                return True
            for node in self.others:
                if raylet == node.all_processes["raylet"][0].process.pid:
                    for child in psutil.Process(raylet).children(recursive=True):
                        child.kill()
                    self.cluster.remove_node(node, allow_graceful=False)
                    self.others.remove(node)
                    return True
        return False


class Run(NamedTuple):
    """One audit on the cluster."""

    same: bool
    lost: tuple[str, ...]  # in this order
    seconds: float


def started(kind: str, folder: Path, address: str | None = None) -> "subprocess.Popen[bytes]":
    """A driver."""
    command = [sys.executable, "-W", "ignore", __file__, "--run", kind, "--folder", str(folder)]
    command += [] if address is None else ["--address", address]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def ended(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    if process.wait(PATIENCE):
        raise RuntimeError((folder / "said").read_text()[-3_000:])


def on_cluster(nodes: Nodes, kind: str, folder: Path, alone: Path) -> Run:
    """Run an audit, and kill while it runs."""
    folder.mkdir()
    start, lost, kept, due = time.perf_counter(), list[str](), 0, math.inf
    process = started(kind, folder, nodes.address)
    while process.poll() is None and len(lost) < len(LOSSES):
        time.sleep(0.02)
        found = len(list(folder.glob("kept/*.safetensors")))
        if "driver" not in lost and len(list(folder.glob(KINDS[kind].waits_for))) >= KINDS[kind].number:
            process.kill()
            process.wait()
            lost.append("driver")
            process, due = started(kind, folder, nodes.address), math.inf
        elif {"worker", "node"} - {*lost} and any(True for _ in nodes.training()):
            due = min(due, time.perf_counter() + SPARED)
            what = "node" if "worker" in lost else "worker"
            if (found > kept or time.perf_counter() > due) and nodes.lose(what):
                lost.append(what)
                kept, due = found, math.inf
    ended(process, folder)
    if "node" in lost:
        nodes.add()
    return Run(same(alone, folder), tuple(lost), time.perf_counter() - start)


def same(one: Path, other: Path) -> bool:
    """The same records byte by byte, and the same numbers and verdicts."""
    digests = {sha256((each / "report" / "records.safetensors").read_bytes()).digest() for each in (one, other)}
    audits = [json.loads((each / "report" / "audit.json").read_text()) for each in (one, other)]
    return len(digests) == 1 and next(differences(*audits), None) is None


def table_of(kinds: list[str]) -> Iterator[Row]:
    with Nodes() as nodes, tempfile.TemporaryDirectory() as space:
        for kind in kinds:
            folder = Path(space) / kind
            alone = folder / "alone"
            alone.mkdir(parents=True)
            ended(started(kind, alone), alone)
            run = on_cluster(nodes, kind, folder / "lost", alone)
            word = "same bytes" if run.same else "OTHER BYTES"
            words = f"{KINDS[kind].title}: {', '.join(run.lost) or 'nothing'} killed"
            print(f"{words}: {word} ({run.seconds:.0f} s)", flush=True)
            yield Row(kind, words, word, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument(
        "--keep", action="store_true", help="write the rows of these kinds beside those of earlier runs"
    )
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.run:
        run(options.run, options.folder, options.address)
        return
    rows = []
    for row in table_of(options.kinds or list(KINDS)):
        rows.append(row)
        if options.keep or not options.kinds:
            write_rows(__file__, rows, keep_others=True)
    sys.exit(any(row.value == "OTHER BYTES" for row in rows))


if __name__ == "__main__":
    main()
