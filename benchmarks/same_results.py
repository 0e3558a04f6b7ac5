"""Are the results the same to the last digit before and after a change of the code?

    python benchmarks/same_results.py write BEFORE              # with the version before
    python benchmarks/same_results.py write AFTER               # with the version after, on the same machine
    python benchmarks/same_results.py compare BEFORE AFTER
    python benchmarks/same_results.py load BEFORE               # with the version after

`write` runs small seeded audits of every kind, the demo and the examples, and writes the `audit.json` of each, a store
of shadow models and saved reconstructors. `compare` prints one line per audit: same, or where the first values differ.
Text, provenance and times may differ. `load` reads what another version wrote. Attacks with a time limit
(`max_minutes`) are not covered: their results depend on how fast the machine is.
"""

import argparse
import contextlib
import io
import json
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sklearn import datasets, linear_model, naive_bayes, svm
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import Tensor, nn

import lostwax as lw

RENAMED_KEYS: dict[str, str] = {}  # in audit.json: name before -> name after
RENAMED_VALUES: dict[str, str] = {}  # of verdicts and grades
NEW_KEYS = {
    "records_sha256",
    "privacy",
    "membership",
    "target",
    "cells",
    "split_spread",
    "adversary",
    "rungs",
    "knowledge_margin",
}  # that audits of 0.2.0 may lack
IGNORED = {"provenance", "seconds", "milliseconds_per_record", "notes", "neurons"}  # text, and what is gone
TEXT_COMPARED = {"verdicts", "grade"}  # results, although they are text
COUNTED = {"left_out", "unanswered"}  # lists of sentences: only their length is compared
NUMBERS_AS_TEXT = {"nan", "inf", "-inf"}
ROOMS = (
    "",
    ".attacks",
    ".games",
    ".types",
    ".threats",
    ".access",
    ".trainers",
    ".learning",
    ".decoders",
    ".learning.decoders",
    ".attacks.weak",
    ".attacks.dp_steps",
    ".attacks.mnemonist",
    ".adapters",
    ".metrics",
)
EXAMPLES = Path(__file__).parent.parent / "examples"
OF_THREAT = ("label_known", "parts", "candidates", "secrets")  # settings of lw.Informed
SHADOWS = 48  # in the store


def part(name: str) -> Any:
    """The public object of this name, whichever module of lostwax exports it."""
    for room in ROOMS:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(import_module(f"lostwax{room}"), name)
    sys.path.insert(0, str(Path(__file__).parent.parent / "papers"))
    with contextlib.suppress(ImportError, AttributeError):
        return getattr(import_module("lib.scores"), name)
    raise AttributeError(f"No module of lostwax in {ROOMS} exports {name}. Add the one that does to ROOMS.")


# ---------------------------------------------------------------------------- this model


def iris() -> tuple[Any, Any]:
    return datasets.load_iris(return_X_y=True)


def diabetes() -> tuple[Any, Any]:
    X, y = datasets.load_diabetes(return_X_y=True)
    return X[:120], y[:120]


def fitted(estimator: Any, data: Callable[[], tuple[Any, Any]], **settings: Any) -> Any:
    """The audit of a scikit-learn estimator, fitted here."""
    X, y = data()
    return lw.audit(estimator.fit(X, y), (X, y), games=30, **settings)


def with_sample_weight(zeros: bool) -> Any:
    X, y = iris()
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(X))
    weight[::3] *= not zeros
    model = linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=5_000).fit(X, y, weight)
    return lw.audit(model, (X, y), games=30, sample_weight=weight)


def torch_linear() -> Any:
    """A layer at the optimum of its objective, by scikit-learn's solver."""
    X, y = iris()
    model = linear_model.LogisticRegression(tol=1e-12, max_iter=10_000, solver="newton-cg").fit(X, y)
    layer = nn.Linear(4, 3).double()
    layer.load_state_dict({"weight": torch.from_numpy(model.coef_), "bias": torch.from_numpy(model.intercept_)})
    return lw.audit(layer, (X, y), trainer=lw.Optimum(ridge=1.0), games=30)


def released_net(trainer: Any, **settings: Any) -> Any:
    """A net that torch.optim trained, as GD and SGD would."""
    data, _ = few_digits().split(20, 40, seed=0)
    net = small_net()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    optimiser = torch.optim.SGD(net.parameters(), lr=0.3)
    for _ in range(15):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(data.x), data.y).backward()
        optimiser.step()
    return lw.audit(net, data, trainer=trainer(init=lw.inits.Given(start)), games=2, **settings)


FITTED = {
    "logistic_regression": partial(fitted, linear_model.LogisticRegression(), iris),
    "logistic_converged": partial(fitted, linear_model.LogisticRegression(tol=1e-12, max_iter=9_999), iris, seed=3),
    "logistic_no_intercept": partial(fitted, linear_model.LogisticRegression(fit_intercept=False, tol=1e-10), iris),
    "linear_regression": partial(fitted, linear_model.LinearRegression(), diabetes),
    "ridge": partial(fitted, linear_model.Ridge(alpha=0.3), diabetes),
    "ridge_no_intercept": partial(fitted, linear_model.Ridge(fit_intercept=False), diabetes, threshold=0.5),
    "ridge_cv": partial(fitted, linear_model.RidgeCV(), diabetes),
    "poisson": partial(fitted, linear_model.PoissonRegressor(tol=1e-10, max_iter=5_000), diabetes),
    "linear_svc": partial(fitted, svm.LinearSVC(tol=1e-10, max_iter=20_000, random_state=0), iris),
    "one_vs_rest": partial(fitted, OneVsRestClassifier(linear_model.LogisticRegression(tol=1e-10)), iris),
    "naive_bayes": partial(fitted, naive_bayes.GaussianNB(), iris),
    "pipeline": partial(fitted, make_pipeline(StandardScaler(), linear_model.LogisticRegression()), iris),
    "pipeline_min_max": partial(fitted, make_pipeline(MinMaxScaler(), linear_model.Ridge()), diabetes),
    "sample_weight": partial(with_sample_weight, zeros=False),
    "sample_weight_zeros": partial(with_sample_weight, zeros=True),
    "torch_linear": torch_linear,
    "released_net": partial(released_net, partial(lw.GD, lr=0.3, steps=15)),
    "released_net_newton": partial(released_net, partial(lw.GD, lr=0.3, steps=15), attack=lw.Newton(bank=20)),
}


# ---------------------------------------------------------------------------- this way of training


def few_digits() -> Any:
    digits = lw.records.digits()
    return digits[digits.y < 3]


def small_net(activation: Any = nn.ELU, outputs: int = 3) -> nn.Module:
    return lw.nets.mlp(64, 6, outputs, activation=activation)


def gd(**settings: Any) -> Any:
    return lw.GD(**{"lr": 0.2, "momentum": 0.9, "steps": 15, "init": lw.inits.LeCunNormal(), **settings})


def reconn(**settings: Any) -> Any:
    return lw.RecoNN(decoder=part("MLPDecoder")(width=32), epochs=5, **settings)


def informed(attack: Any = None, *, net: Any = None, trainer: Any = None, games: int = 12, **settings: Any) -> Any:
    """An audit on digits 0 to 2; further settings are those of the threat, or else of the audit."""
    known, prior, secrets = few_digits().split(30, 150, 60, seed=0)
    of_threat = {name: settings.pop(name) for name in OF_THREAT if name in settings}
    return lw.audit(
        net or small_net(),
        trainer=trainer or gd(),
        threat=lw.Informed(known, **of_threat),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=games,
        **settings,
    )


def iris_records() -> Any:
    X, y = iris()
    return lw.Records(torch.from_numpy(StandardScaler().fit_transform(X)).float(), torch.from_numpy(y))


def on_iris(attack: Any = None, *, trainer: Any = None, real: bool = False, games: int = 3, **threat: Any) -> Any:
    """An audit on four features; `real` predicts the last of them from the others."""
    records = iris_records()
    if real:
        records = lw.Records(records.x[:, :3], records.x[:, 3])
    known, prior, secrets = records.split(20, 90, 40, seed=0)
    trainer = trainer or gd(**{"loss": lw.losses.SquaredError(), "lr": 0.05} if real else {})
    return lw.audit(
        lw.nets.mlp(3 if real else 4, 4, 1 if real else 3),
        trainer=trainer,
        threat=lw.Informed(known, **threat),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=games,
    )


def half_known() -> Tensor:
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask[:, :4] = True
    return mask


def dpsgd(**settings: Any) -> Any:
    start = lw.inits.LeCunNormal()
    return lw.DPSGD(**{"lr": 0.5, "clip": 0.5, "noise_multiplier": 0.5, "steps": 8, "init": start, **settings})


def own_training(net: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.3)
    for _ in range(10):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


def heads() -> tuple[Any, Any]:
    """Digits behind a frozen backbone with weights of its own seed: a prior, and secrets."""
    torch.manual_seed(1)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU())
    prior, secrets = few_digits().through(backbone).split(300, 200, seed=0)
    return prior, secrets


def weak_reconn(**settings: Any) -> Any:
    reader = part("SetReader")(width=16, layers=1, heads=2)
    decoder = part("MLPDecoder")(width=32)
    small = {"reader": reader, "decoder": decoder, "steps": 12, "minutes": None, "batch_size": 16}
    return lw.WeakRecoNN(**{**small, **settings})


def head_trainer(**settings: Any) -> Any:
    return lw.GD(lr=0.1, steps=10, init=lw.inits.Normal(0.002, seed=None), **settings)


def weak(attack: Any, *, net: Any = None, trainer: Any = None, size: int = 6, per_class: Any = None) -> Any:
    prior, secrets = heads()
    return lw.audit(
        net or nn.Linear(24, 3),
        trainer=trainer or head_trainer(),
        threat=lw.Weak(size=size, per_class=per_class),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=12,
    )


def linear_head() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def relu_net() -> nn.Module:
    return small_net(nn.ReLU)


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), nn.Flatten(), nn.Linear(108, 3))


def mnemonist() -> Any:
    return part("MnemonistRecoNN")(attack=reconn(), mnemonist=part("Mnemonist")(masks=40), models=4)


def defended(by: Any) -> Any:
    return lw.defences.Defended(gd(), by=by)


PROCEDURES: dict[str, Callable[[], Any]] = {
    "no_attack_named": lambda: on_iris(games=2),
    "no_attack_named_candidates": lambda: on_iris(candidates=4, games=2),
    "no_attack_named_dpsgd": lambda: on_iris(trainer=dpsgd(steps=4), candidates=3, games=2),
    "closed_form": lambda: informed(lw.ClosedForm(), net=linear_head(), trainer=lw.Optimum(ridge=1e-3, mean=True)),
    "closed_form_label_known": lambda: informed(
        lw.ClosedForm(), net=linear_head(), trainer=lw.Optimum(ridge=0.1), label_known=True
    ),
    "reconn": lambda: informed(reconn(), games=30),
    "reconn_members": lambda: informed(reconn(members=2, patience=None, mae=0.5)),
    "reconn_augmented": lambda: informed(reconn(shadows=200, augment=part("Shifts")())),
    "reconn_layers": lambda: informed(reconn(), access=part("Layers")("1")),
    "reconn_metrics": lambda: informed(reconn(), metrics=[lw.metrics.NearPixels()]),
    "reconn_parts": lambda: informed(reconn(), parts=half_known()),
    "reconn_label_known": lambda: informed(reconn(), label_known=True),
    "kernel_ridge": lambda: informed(lw.KernelRidge(), games=30),
    "kernel_ridge_logits": lambda: informed(lw.KernelRidge(), access=part("Logits")(few_digits()[:20].x)),
    "kernel_ridge_cnn": lambda: informed(lw.KernelRidge(), net=cnn()),
    "kernel_ridge_parts": lambda: informed(lw.KernelRidge(), parts=half_known(), label_known=True),
    "kernel_ridge_private_start": lambda: informed(lw.KernelRidge(), trainer=gd(init=lw.inits.LeCunNormal(seed=None))),
    "sgd": lambda: informed(lw.KernelRidge(), trainer=lw.SGD(lr=0.1, momentum=0.5, batch_size=8, epochs=3)),
    "sgd_private_order": lambda: informed(
        lw.KernelRidge(), trainer=lw.SGD(lr=0.1, batch_size=8, epochs=3, order_seed=None)
    ),
    "adam": lambda: informed(
        lw.KernelRidge(), trainer=lw.Adam(lr=0.01, batch_size=16, epochs=4, init=lw.inits.Glorot())
    ),
    "adamw": lambda: informed(lw.KernelRidge(), trainer=part("AdamW")(lr=0.01, batch_size=16, epochs=4)),
    "own_training": lambda: informed(lw.KernelRidge(shadows=40), trainer=part("OwnTraining")(own_training)),
    "from_the_net": lambda: informed(lw.KernelRidge(), trainer=lw.GD(lr=0.3, steps=10)),
    "ensemble": lambda: informed(lw.Ensemble(members=100, rounds=3), net=relu_net(), games=2),
    "newton": lambda: informed(lw.Newton(bank=40), games=3),
    "newton_label_known": lambda: informed(lw.Newton(bank=40), games=2, label_known=True),
    "newton_two_secrets": lambda: on_iris(lw.Newton(bank=40), secrets=2),
    "newton_products": lambda: informed(lw.Newton(bank=40, products=20), games=2),
    "newton_coordinates": lambda: informed(lw.Newton(bank=40, coordinates=8), games=2),
    "newton_from_ensemble": lambda: informed(
        lw.Newton(bank=20, start=lw.Ensemble(members=80, rounds=2)), net=relu_net(), games=2
    ),
    "newton_real_labels": lambda: on_iris(lw.Newton(bank=40), real=True),
    "reconn_real_labels": lambda: on_iris(reconn(), real=True, games=20),
    "kernel_ridge_real_labels": lambda: on_iris(lw.KernelRidge(), real=True, games=20),
    "refit": lambda: informed(part("Refit")(), candidates=4),
    "refit_private_start": lambda: informed(
        part("Refit")(repeats=4), candidates=3, trainer=gd(init=lw.inits.LeCunNormal(seed=None))
    ),
    "nearest_candidate": lambda: informed(part("NearestCandidate")(reconn()), candidates=4),
    "prior_aware": lambda: informed(part("PriorAware")(), trainer=dpsgd(), candidates=4, games=20),
    "prior_aware_batches": lambda: informed(
        part("PriorAware")(), trainer=dpsgd(sample_rate=0.5), candidates=4, games=20
    ),
    "prior_aware_under_proof": lambda: informed(
        part("PriorAware")(), trainer=dpsgd(noise_multiplier=20.0), candidates=4, games=60
    ),
    "prior_aware_products": lambda: informed(
        part("PriorAware")(part("InnerProducts")()), trainer=dpsgd(), candidates=4, games=20
    ),
    "gradient_inversion": lambda: informed(
        part("GradientInversion")(iterations=60, restarts=1), trainer=dpsgd(noise_multiplier=0.05), games=3
    ),
    "gradient_inversion_no_prior": lambda: informed(
        part("GradientInversion")(iterations=60, restarts=1, prior=False),
        trainer=dpsgd(noise_multiplier=0.05),
        games=3,
        label_known=True,
    ),
    "gradient_inversion_candidates": lambda: informed(
        part("NearestCandidate")(part("GradientInversion")(iterations=60, restarts=1)),
        trainer=dpsgd(),
        games=3,
        candidates=4,
    ),
    "dpsgd_reconn": lambda: informed(reconn(), trainer=dpsgd(publish_steps=False)),
    "mnemonist": lambda: informed(mnemonist()),
    "defended_rounded": lambda: informed(
        lw.KernelRidge(), trainer=defended(lw.defences.Rounded(torch.bfloat16)), games=20
    ),
    "defended_rounded_newton": lambda: informed(
        lw.Newton(bank=30), trainer=defended(lw.defences.Rounded(torch.float16)), games=2
    ),
    "defended_noise": lambda: informed(lw.KernelRidge(), trainer=defended(lw.defences.WeightNoise(0.01)), games=20),
    "defended_quantised": lambda: informed(reconn(), trainer=defended(lw.defences.Quantised())),
    "weak": lambda: weak(weak_reconn()),
    "weak_unbalanced": lambda: weak(weak_reconn(classes=(1,)), size=5, per_class=(4, 1)),
    "weak_flat": lambda: weak(weak_reconn(reader=part("FlatReader")(), shadows=64)),
    "weak_conditional": lambda: weak(weak_reconn(reader=part("ConditionalReader")(), aim=part("MeanError")())),
    "weak_beat_chance": lambda: weak(weak_reconn(aim=part("BeatChance")(within=0.1))),
    "weak_hidden": lambda: weak(weak_reconn(), net=lw.nets.mlp(24, 4, 3, activation=nn.ReLU), size=3),
    "weak_dpsgd": lambda: weak(weak_reconn(), trainer=dpsgd(publish_steps=False, clip=1.0)),
}


# ---------------------------------------------------------------------------- write


def write(folder: Path, only: list[str]) -> None:
    """Run everything, or only what is named, and print how long each takes."""
    steps: dict[str, Callable[[Path], None]] = {}
    for name, audited in {**FITTED, **PROCEDURES}.items():
        steps[name] = partial(write_audit, audited)
    steps |= {"store": write_store, "reconstructors": write_reconstructors, "demo": write_demo}
    steps |= {path.stem: partial(write_example, path) for path in sorted(EXAMPLES.glob("[0-9]*.py"))}
    if unknown := set(only) - set(steps):
        raise SystemExit(f"same_results: unknown {sorted(unknown)}. Known: {', '.join(steps)}.")
    if there := [name for name in only or steps if (folder / name).exists()]:
        raise SystemExit(f"same_results: {folder} holds {', '.join(there)} already. Name another folder.")
    for name in only or steps:
        start = time.perf_counter()
        torch.manual_seed(0)
        steps[name](folder / name)
        print(f"{name:<32} {time.perf_counter() - start:6.1f} s", flush=True)


def write_audit(audited: Callable[[], Any], folder: Path) -> None:
    lw.report(audited(), folder)


def write_demo(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        if import_module("lostwax.cli").main(["demo", "--out", str(folder)]):
            raise SystemExit("same_results: the demo failed.")


def write_example(script: Path, folder: Path) -> None:
    """Report every audit that the script makes."""
    audit, found = lw.audit, []

    def remembered(*arguments: Any, **settings: Any) -> Any:
        found.append(audit(*arguments, **settings))
        return found[-1]

    with patch.object(lw, "audit", remembered), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script))
    for number, each in enumerate(found):
        lw.report(each, folder / str(number))


def stored_game() -> dict[str, Any]:
    """What `simulate` trains into the store."""
    known, prior, _ = few_digits().split(30, 150, 60, seed=0)
    torch.manual_seed(0)
    return {"net": small_net(), "trainer": gd(), "threat": lw.Informed(known), "prior": prior, "models": SHADOWS}


def weights_of(chunks: Iterator[tuple[Any, Any]]) -> dict[str, Tensor]:
    """The secrets and the released weights of all models."""
    pairs = list(chunks)
    x = torch.cat([cohort.own.x for cohort, _ in pairs])
    return {"secrets": x, "weights": torch.cat([release.flat() for _, release in pairs])}


def write_store(folder: Path) -> None:
    """A store of shadow models; next to it, what was read from it."""
    folder.mkdir(parents=True)
    with contextlib.redirect_stderr(io.StringIO()):
        save_file(weights_of(lw.simulate(**stored_game(), store=folder / "shadows")), folder / "models.safetensors")


def saved_games() -> dict[str, tuple[Any, Any, Any]]:
    """Attacks whose reconstructors can be saved: the attack, what the adversary knows, and secrets of victims."""
    known, prior, secrets = few_digits().split(30, 150, 60, seed=0)
    behind, other = heads()
    torch.manual_seed(0)
    knowledge, weights = part("Knowledge"), part("Weights")()
    first = knowledge(small_net(), gd(), lw.Informed(known), weights, prior)
    second = knowledge(nn.Linear(24, 3), head_trainer(), lw.Weak(size=6), weights, behind)
    return {"reconn": (reconn(), first, secrets), "weak_reconn": (weak_reconn(), second, other)}


def guesses(reconstruct: Any, release: Any) -> dict[str, Tensor]:
    guess = reconstruct(release)
    held = {"x": guess.records.x, "y": guess.records.y, "confidence": guess.confidence}
    return {f"guess.{name}": value.contiguous() for name, value in held.items()}


def write_reconstructors(folder: Path) -> None:
    """Each reconstructor; next to it, weights of victims and what it makes of them."""
    for name, (attack, knowledge, secrets) in saved_games().items():
        reconstruct = attack.prepare(knowledge, seed=0)
        (folder / name).mkdir(parents=True)
        reconstruct.save(folder / name / "saved")
        release = knowledge.trainer(knowledge.net, knowledge.threat.deal(secrets, 8, seed=1), seed=1)
        weights = {f"weights.{key}": value.contiguous() for key, value in release.params.items()}
        save_file(weights | guesses(reconstruct, release), folder / name / "guesses.safetensors")


# ---------------------------------------------------------------------------- compare


def compare(before: Path, after: Path) -> bool:
    """Print a line per audit and per file of tensors; True where all are the same."""
    pairs: list[tuple[str, Callable[[Path, Path], Iterator[str]]]] = [
        ("audit.json", other_json),
        ("models.safetensors", other_tensors),
        ("guesses.safetensors", other_tensors),
    ]
    same, lines = 0, []
    for file, other in pairs:
        names = {path.parent.relative_to(root) for root in (before, after) for path in root.rglob(file)}
        for name in sorted(names):
            paths = before / name / file, after / name / file
            missing = next((path for path in paths if not path.exists()), None)
            differences = [f"there is no {missing}"] if missing else list(other(*paths))
            same += not differences
            more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
            lines.append(f"{name!s:<32} " + (f"differs: {differences[0]}{more}" if differences else "same"))
    print(*lines, f"{same} of {len(lines)} are the same.", sep="\n")
    return bool(lines) and same == len(lines)


def other_json(before: Path, after: Path) -> Iterator[str]:
    return differences(json.loads(before.read_text()), json.loads(after.read_text()))


def other_tensors(before: Path, after: Path) -> Iterator[str]:
    ours, theirs = load_file(before), load_file(after)
    for name in ours.keys() | theirs.keys():
        if name not in ours or name not in theirs or not same_tensor(ours[name], theirs[name]):
            yield name


def same_tensor(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def differences(before: Any, after: Any, path: str = "$", key: str = "") -> Iterator[str]:
    """Where two audits differ in a number, a boolean or the length of a list; of text, only grades and verdicts."""
    if isinstance(before, dict) and isinstance(after, dict):
        before = {RENAMED_KEYS.get(name, name): value for name, value in before.items()}
        for name in sorted((before.keys() | after.keys()) - IGNORED):
            if name in before and name in after:
                yield from differences(before[name], after[name], f"{path}.{name}", name)
            elif name in before or name not in NEW_KEYS:
                yield f"{path}.{name} is only in the one {'before' if name in before else 'after'}"
    elif isinstance(before, list) and isinstance(after, list):
        if is_text(before) and is_text(after) and key not in TEXT_COMPARED:
            if key in COUNTED and len(before) != len(after):
                yield f"{path} has {len(before)} and {len(after)} entries"
        elif len(before) != len(after):
            yield f"{path} has {len(before)} and {len(after)} entries"
        else:
            for place, (ours, theirs) in enumerate(zip(before, after, strict=True)):
                yield from differences(ours, theirs, f"{path}[{place}]", key)
    elif not same_value(before, after, key):
        yield f"{path}: {shown(before)} and {shown(after)}"


def is_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) and value not in NUMBERS_AS_TEXT for value in values)


def same_value(before: Any, after: Any, key: str) -> bool:
    if isinstance(before, str) and isinstance(after, str):
        if key in TEXT_COMPARED:
            return RENAMED_VALUES.get(before, before) == after
        return before == after or not {before, after} & NUMBERS_AS_TEXT
    return isinstance(before, bool) == isinstance(after, bool) and before == after


def shown(value: Any) -> str:
    return repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__} of {len(value)}"


# ---------------------------------------------------------------------------- load


def load(folder: Path) -> bool:
    """Print a line for each thing that another version wrote; True where all can be read."""
    steps: dict[str, Callable[[], None]] = {
        str(path.relative_to(folder)): partial(load_audit, path) for path in sorted(folder.rglob("audit.json"))
    }
    steps["store"] = partial(load_store, folder / "store")
    steps |= {
        f"reconstructors/{name}": partial(load_reconstructor, folder / "reconstructors" / name, *game)
        for name, game in saved_games().items()
    }
    failed = 0
    for name, step in steps.items():
        try:
            step()
        except Exception as error:
            failed += 1
            print(f"{name:<48} fails: {type(error).__name__}: {error}")
        else:
            print(f"{name:<48} loads")
    print(f"{len(steps) - failed} of {len(steps)} load.")
    return not failed


def load_audit(path: Path) -> None:
    """Read it, and write it again: the numbers are the same."""
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "audit.json"
        part("Audit").from_json(path).to_json(again)
        if (found := next(other_json(path, again), None)) is not None:
            raise ValueError(f"it was read, but {found}.")


class NoTraining:
    """An engine that refuses to train a shadow model."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        raise RuntimeError("the store does not hold these shadow models: it would train them.")

    def parts(self, game: Any, spans: Iterable[range]) -> Iterator[Any]:
        return iter([self() for _ in spans])


def load_store(folder: Path) -> None:
    """All shadow models are found, and none is trained."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = weights_of(lw.simulate(**stored_game(), store=folder / "shadows", engine=NoTraining()))
    except RuntimeError as error:
        raise RuntimeError(f"{error} {said.getvalue().strip()}") from error
    same_tensors(load_file(folder / "models.safetensors"), found)


def load_reconstructor(folder: Path, attack: Any, knowledge: Any, secrets: Any) -> None:
    """It makes the same guesses as when it was saved."""
    held = load_file(folder / "guesses.safetensors")
    names = [name for name, _ in knowledge.net.named_parameters()]  # in the order of the net
    release = part("Release")({name: held[f"weights.{name}"] for name in names})
    expected = {name: value for name, value in held.items() if name.startswith("guess.")}
    same_tensors(expected, guesses(attack.load(folder / "saved", knowledge), release))


def same_tensors(expected: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        if not same_tensor(value, found[name]):
            raise ValueError(f"{name} is not what was stored.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="run the audits")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--only", nargs="+", default=[], help="names of audits")
    comparing = commands.add_parser("compare", help="compare two folders")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    commands.add_parser("load", help="read what another version wrote").add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        write(options.folder, options.only)
    elif options.command == "compare":
        sys.exit(0 if compare(options.before, options.after) else 1)
    else:
        sys.exit(0 if load(options.folder) else 1)


if __name__ == "__main__":
    main()
