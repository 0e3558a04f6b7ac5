"""Who was trained on? Calibrated losses beside the LiRA of SACRO-ML and LeakPro, and ten candidates.

    python benchmarks/membership.py [--seed 200] [--repeats 5] [--parts peers candidates noise]

peers: 64 reference models and 16 victims, each trained on a random half of 400 records, for tables (breast cancer, as
an MLP and a forest of scikit-learn) and digits (MLP, CNN); and the game of the informed adversary, 64 reference models
and 60 victims, each trained on 100 known records and one of 60 others; all five times, with other records and models.
Every tool scores the same victims by the same reference models, from their probabilities. SACRO-ML and LeakPro run in
environments of their own, `.venv-sacroml` (pip install sacroml) and `.venv-leakpro` (pip install of its repository);
one that is not there is left out. A peer's number is that of its best setting for that task. Intervals are over
victims.
candidates: an overfitted MLP and CNN on digits, whose starts and batch orders are private; 100 known records, ten
candidates, 60 games. Goal: 60 % and 50 % named with at most 64 reference models. `Refit` trains once with every
candidate of every game.
noise: 100 small audits of training that ignores its records: how many alarm, at a level of 1 %.
Writes `results/membership.json`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from torch import nn

import lostwax as lw
from lostwax.access import answers
from lostwax.adapters.sklearn.refitting import SURE
from lostwax.attacks.calibrated_losses import CalibratedLosses, log_odds, membership_scores
from lostwax.audits.membership import was_in_it
from lostwax.clock import Clock
from lostwax.games import Cohort, Knowledge, Release
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, write_rows

HERE = Path(__file__).resolve().parent
TOOLS = {"SACRO-ML": "sacroml", "LeakPro": "leakpro"}
MODELS, VICTIMS = 64, 16
RECORDS = 400  # of which a model is trained on half
GAMES, CANDIDATES, KNOWN = 60, 10, 100
GOALS = {"MLP": 0.6, "CNN": 0.5}
PRIVATE = {"order_seed": None, "init": lw.inits.TorchDefault(seed=None)}
NETS = {
    "MLP": (
        lambda: lw.nets.mlp(64, 64, 10, activation=nn.ReLU),
        lw.SGD(lr=0.1, momentum=0.9, batch_size=32, epochs=40, **PRIVATE),
    ),
    "CNN": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10)
        ),
        lw.SGD(lr=0.02, momentum=0.9, batch_size=16, epochs=60, **PRIVATE),
    ),
}
ESTIMATORS = {
    "breast cancer, MLP": MLPClassifier((64,), alpha=0, max_iter=300, learning_rate_init=0.01),
    "breast cancer, forest": RandomForestClassifier(100),
}


@dataclass
class Signals:
    """Probabilities of all records in all models: what every tool is given."""

    reference: np.ndarray  # (s, n, c)
    victims: np.ndarray  # (v, n, c)
    member: np.ndarray  # (s, n)
    inside: np.ndarray  # (v, n)
    labels: np.ndarray  # (n,)


def halves(models, records, seed):
    random = np.random.default_rng(seed)
    return np.stack([random.permutation(records)[: records // 2] for _ in range(models)])  # (models, n / 2)


def signals(probabilities, rows, labels):
    member = np.zeros(probabilities.shape[:2], dtype=bool)
    np.put_along_axis(member, rows, True, 1)
    return Signals(probabilities[:MODELS], probabilities[MODELS:], member[:MODELS], member[MODELS:], labels)


def of_estimator(estimator, seed):
    X, y = load_breast_cancer(return_X_y=True)
    X, some = (X - X.mean(0)) / X.std(0), np.random.default_rng(seed).permutation(len(y))[:RECORDS]
    X, y, rows = X[some], y[some], halves(MODELS + VICTIMS, RECORDS, seed + 1)
    fitted = (clone(estimator).set_params(random_state=seed + i).fit(X[r], y[r]) for i, r in enumerate(rows))
    return signals(np.stack([model.predict_proba(X) for model in fitted]), rows, y)


def of_net(kind, seed):
    (records,) = lw.records.digits().split(RECORDS, seed=seed)
    net, trainer = NETS[kind][0](), NETS[kind][1]
    rows = halves(MODELS + VICTIMS, RECORDS, seed + 1)
    own = records[torch.from_numpy(rows)]
    release = trainer(net, Cohort(records[:0], own, torch.arange(len(rows))), seed=seed)
    outputs = answers(net, release, records.inputs).double()
    return signals(outputs.softmax(-1).numpy(), rows, records.y.numpy())


def informed(kind, seed):
    """Victims and reference models that are trained on known records and one other, as the informed adversary's are."""
    known, secrets = lw.records.digits().split(KNOWN, GAMES, seed=seed)
    net, trainer, threat = NETS[kind][0](), NETS[kind][1], lw.Informed(known)
    rows, parts = [], []
    for models, own_seed in ((MODELS, seed + 1), (GAMES, seed + 2)):
        cohort = threat.deal(secrets, models, seed=own_seed)
        parts.append(answers(net, trainer(net, cohort, seed=own_seed), secrets.inputs).double().softmax(-1))
        rows.append(cohort.own[:, 0].matches(secrets))
    return signals(torch.cat(parts).numpy(), torch.cat(rows).unsqueeze(1).numpy(), secrets.y.numpy())


def ours(given):
    """(v, n) as the attack scores them, from the probability of the label."""
    parts = [
        torch.from_numpy(part[:, np.arange(len(given.labels)), given.labels])
        for part in (given.reference, given.victims)
    ]
    votes = bool((100 * parts[0]).frac().sub(0.5).abs().min() > 0.49)  # of 100 trees: clipped as for refitted models
    least = SURE if votes else 1e-12
    odds = [log_odds(-part.clamp(least, 1 - least).log()) for part in parts]
    return membership_scores(odds[0], torch.from_numpy(given.member), odds[1]).numpy()


def measured(scores, inside):
    """(v, 2) AUC and true positives at 1 %, of each victim; with one member each, at one threshold for all."""
    found, every = [], np.quantile(scores[~inside], 0.99, method="higher")
    for score, member in zip(scores, inside, strict=True):
        own, others = score[member], score[~member]
        auc = ((own[:, None] > others) + 0.5 * (own[:, None] == others)).mean()
        limit = every if len(own) == 1 else np.quantile(others, 0.99, method="higher")
        found.append((auc, (own > limit).mean()))
    return np.array(found)


def rows_of(task, tool, values, seed):
    mean, wide = values.mean(0), student.ppf(0.975, len(values) - 1) * values.std(0, ddof=1) / np.sqrt(len(values))
    return [
        Row(f"{task}.{tool}.{name}", f"{task}: {words}, {tool}", float(m), float(m - w), float(m + w), seed=seed)
        for name, words, m, w in zip(("auc", "tpr"), ("AUC", "true positives at 1 %"), mean, wide, strict=True)
    ]


def by_peer(python, script, given):
    """Setting -> scores (v, n)."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "signals.npz", Path(folder) / "scores.npz"
        np.savez(source, **{name: getattr(given, name) for name in ("reference", "victims", "member", "labels")})
        subprocess.run(
            [python, HERE / "peers" / script, source, target],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with np.load(target) as found:
            return {name: found[name] for name in found.files}


def peers(args):
    pythons = {tool: HERE.parent / f".venv-{name}" / "bin" / "python" for tool, name in TOOLS.items()}
    print("left out:", [tool for tool, python in pythons.items() if not python.exists()], file=sys.stderr)
    seeds = range(args.seed, args.seed + args.repeats)
    tasks = {name: partial(of_estimator, estimator) for name, estimator in ESTIMATORS.items()}
    tasks |= {f"digits, {kind}": partial(of_net, kind) for kind in NETS}
    tasks |= {f"digits, {kind}, informed": partial(informed, kind) for kind in NETS}
    for task, trained in tasks.items():
        repeats = [trained(seed) for seed in seeds]
        mine = np.concatenate([measured(ours(given), given.inside) for given in repeats])
        print(task, "lostwax", mine.mean(0).round(3), file=sys.stderr)
        yield from rows_of(task, "lostwax", mine, args.seed)
        for tool in (tool for tool, python in pythons.items() if python.exists()):
            python, script = pythons[tool], f"{TOOLS[tool]}_lira.py"
            scored = [by_peer(python, script, given) for given in repeats]
            found = {
                name: np.concatenate(
                    [measured(scores[name], given.inside) for scores, given in zip(scored, repeats, strict=True)]
                )
                for name in scored[0]
            }
            for name, values in found.items():
                print(task, tool, name, values.mean(0).round(3), file=sys.stderr)
            for column, words in ((0, "auc"), (1, "tpr")):
                best = max(found, key=lambda name: found[name][:, column].mean())
                (row,) = (one for one in rows_of(task, tool, found[best], args.seed) if one.id.endswith(words))
                gain = mine[:, column] - found[best][:, column]
                wide = student.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / np.sqrt(len(gain))
                yield Row(row.id, f"{row.quantity} ({best})", row.value, row.low, row.high, seed=args.seed)
                more = f"{task}: {'AUC' if column == 0 else 'true positives at 1 %'}, lostwax less {tool}"
                low, high = float(gain.mean() - wide), float(gain.mean() + wide)
                yield Row(f"{row.id}.gain", more, float(gain.mean()), low, high, paper="> 0", seed=args.seed)


def candidates(args):
    for kind, (net, trainer) in NETS.items():
        known, prior, secrets = lw.records.digits().split(KNOWN, 200, GAMES, seed=args.seed)
        game = {"trainer": trainer, "threat": lw.Informed(known, candidates=CANDIDATES), "prior": prior}
        for attack, goal in ((CalibratedLosses(MODELS), f">= {GOALS[kind]}"), (lw.attacks.Refit(), None)):
            start, cpu = time.perf_counter(), time.process_time()
            audit = lw.audit(net(), attack=attack, secrets=secrets, seed=args.seed, **game)
            seconds = time.perf_counter() - start, time.process_time() - cpu
            won, name = int(audit.findings[0].rebuilt.sum()), type(attack).__name__
            key, words = f"{kind}.{name}", f"{kind}, ten candidates: share named by {name}"
            yield Row(key, words, won / GAMES, *audit.interval(won), paper=goal, seed=args.seed)
            yield Row(f"{key}.seconds", f"{kind}, {name}: seconds, victims included", seconds[0], seed=args.seed)
            yield Row(f"{key}.cpu", f"{kind}, {name}: seconds of processor time", seconds[1], seed=args.seed)


@dataclass(frozen=True)
class Ignoring:
    """Random weights, whatever the records are."""

    def __call__(self, net, cohort, *, seed):
        random = torch.Generator().manual_seed(seed % 2**62)
        drawn = {name: torch.randn(1000, *value.shape, generator=random) for name, value in net.named_parameters()}
        return Release({name: value[cohort.index] for name, value in drawn.items()})

    def tile_size(self, net, cohort):
        return 64


def noise(args):
    alarms, audits = 0, 100
    for number in range(audits):
        known, prior, secrets = lw.records.digits().split(20, 20, 40, seed=args.seed + number)
        net, threat = lw.nets.mlp(64, 8, 10), lw.Informed(known)
        cohort = threat.deal(secrets, 40, seed=number)
        knowledge = Knowledge(net, Ignoring(), threat, lw.access.Weights(), prior)
        release = Ignoring()(net, cohort, seed=10**6 + number)
        asked = was_in_it(knowledge, cohort, release, seed=number, clock=Clock(), rate=None)
        alarms += asked.membership.chance <= 0.01
    low, high = clopper_pearson(alarms, audits)
    words = "training that ignores its records: share of 100 audits with an alarm, at a level of 0.01"
    yield Row("noise", words, alarms / audits, low, high, paper="<= 0.01", seed=args.seed)


PARTS = {"peers": peers, "candidates": candidates, "noise": noise}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    args = parse(parser)
    found = [row for part in args.parts for row in PARTS[part](args)]
    for row in found:
        print(row)
    write_rows(__file__, found, keep_others=True)
