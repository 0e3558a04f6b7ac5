"""The verbs: what a user calls. Light to import; torch and scikit-learn come in only when a verb is used."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lostwax.exits import exits_refused
from lostwax.fields import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import nn

    from lostwax.audits import Audit
    from lostwax.games import Access, Attack, Cohort, Metric, Records, Release, Threat, Trainer
    from lostwax.shadows import Engine


P = ParamSpec("P")
R = TypeVar("R")
SEED_BITS = 128  # of a seed
MOST_DEVIATIONS = 1_000_000  # of a threshold: far beyond it every guess counts as rebuilt, and squares overflow


def _one_argument_of_data(verb: Callable[P, R]) -> Callable[P, R]:
    """Say to who calls it as they would call `fit(X, y)` how it is called."""

    @wraps(verb)
    def called(*positional: P.args, **named: P.kwargs) -> R:
        if len(positional) > 2 or {"X", "y"} & set(named):
            raise TypeError(
                "audit: pass the data as one argument: lw.audit(model, (X, y)). All settings go by name, games=100."
            )
        if "device" in named:
            raise TypeError(
                "audit: device is no argument. All is computed where the records lie: pass known, prior and secrets as "
                "records.to('cuda'); attacks that learn have a device of their own, lw.RecoNN(device='cuda')."
            )
        with exits_refused("audit: the code that was called"):
            return verb(*positional, **named)

    return called


@_one_argument_of_data
def audit(
    model: Any,
    data: Any = None,
    *,
    games: int | None = None,
    seed: int = 0,
    sample_weight: Any = None,
    trainer: Trainer | None = None,
    threat: Threat | None = None,
    attack: Attack | None = None,
    access: Access | None = None,
    prior: Records | None = None,
    secrets: Records | None = None,
    threshold: float = 0.05,
    metrics: Sequence[Metric] = (),
    max_minutes: float | None = None,
) -> Audit:
    """Can training records be rebuilt from this model?

    Two kinds of question, and the answer says which it was:

    - *this very model*: a fitted scikit-learn estimator and `data=(X, y)`, the table it was fitted on. Every row is
      played for; `games` picks some of them by `seed`. Likewise a torch linear layer, with `trainer=Optimum(...)` for
      the objective it minimises, or any net with its released weights and the trainer that made them, `GD(...)`.
    - *this way of training*: a torch module with `trainer`, `threat`, `prior` and `secrets`. Victims are trained on
      secrets that the attack never sees. Without an `attack` every one that can play does, the strongest first; the one
      that rebuilds most leads the table. `max_minutes` limits the whole audit. `metrics` are further metrics to judge
      the guesses by, besides the mean errors, and for images PSNR, SSIM and (where its weights are at hand) LPIPS.

    A record counts as rebuilt when its error is within `threshold` feature standard deviations.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TypeError(f"audit: expected threshold to be an int or a float, got {shown(threshold)}.")
    if not 0 < threshold <= MOST_DEVIATIONS:
        raise ValueError(f"audit: expected threshold > 0, and at most {MOST_DEVIATIONS:,}, got {shown(threshold)}.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"audit: expected seed to be a whole number, got {shown(seed)}.")
    if seed.bit_length() > SEED_BITS:
        raise ValueError(f"audit: expected seed to have at most {SEED_BITS} bits, got {shown(seed)}.")
    game = {"threat": threat, "attack": attack, "access": access, "prior": prior, "secrets": secrets}
    no_metrics = isinstance(metrics, tuple | list) and not metrics
    asked = {**game, "metrics": None if no_metrics else metrics, "max_minutes": max_minutes}
    if data is not None:
        return _audit_model(model, data, sample_weight, trainer, asked, games, seed, threshold)
    if sample_weight is not None:
        raise TypeError("audit: sample_weight has no meaning without data=(X, y). Leave it out.")
    if trainer is None or threat is None or prior is None or secrets is None:
        needed = {"trainer": trainer, "threat": threat, "prior": prior, "secrets": secrets}
        absent = [name for name, value in needed.items() if value is None]
        if absent[-3:] != ["threat", "prior", "secrets"]:  # a trainer alone fits both questions
            raise TypeError(f"audit: to audit this way of training, pass {', '.join(absent)} too.")
        raise TypeError(
            "audit: pass data=(X, y), the table the model was fitted on, to audit this very model; or "
            f"{', '.join(absent)} to audit this way of training."
        )
    from lostwax.audits import audit_procedure, check_arguments

    parts = {"trainer": trainer, "threat": threat, "attack": attack, "access": access}
    check_arguments("audit", model, {"prior": prior, "secrets": secrets}, metrics, **parts)
    prior, secrets = prior.detached(), secrets.detached()
    if len(secrets):  # none at all is refused by itself
        _check_games(games, len(secrets), "one secret a game")
    _check_minutes(max_minutes, attack)
    return audit_procedure(
        model,
        trainer=trainer,
        threat=threat,
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=games,
        seed=seed,
        threshold=threshold,
        access=access,
        metrics=tuple(metrics),
        max_minutes=max_minutes,
    )


def _audit_model(
    model: Any,
    data: Any,
    sample_weight: Any,
    trainer: Trainer | None,
    game: Mapping[str, Any],
    games: int | None,
    seed: int,
    threshold: float,
) -> Audit:
    from lostwax.adapters import sklearn
    from lostwax.adapters import torch as torch_linear
    from lostwax.adapters.torch import check_finite_net, read_table
    from lostwax.audits import audit_fitted, audit_released
    from lostwax.trainers.descent import Descent

    is_torch = isinstance(model, sys.modules["torch"].nn.Module)
    stepwise = is_torch and isinstance(trainer, Descent)
    foreign = {**game, "sample_weight": sample_weight} if is_torch else {**game, "trainer": trainer}
    unused = [name for name, value in foreign.items() if value is not None and not (stepwise and name == "attack")]
    if unused:
        kind = "a torch net" if is_torch else "a scikit-learn model"
        raise TypeError(f"audit: {', '.join(unused)} has no meaning for {kind} with data=(X, y). Leave it out.")
    if isinstance(trainer, Descent):
        check_finite_net(model)
        table, attack = read_table(data, trainer.computes_in(model)), game["attack"]
        _check_games(games, len(table), "the records of the training set")
        return audit_released(model, table, trainer=trainer, attack=attack, games=games, seed=seed, threshold=threshold)
    fitted = torch_linear.read(model, data, trainer) if is_torch else sklearn.read(model, data, sample_weight)
    _check_games(games, len(fitted.table), "the rows of the table")
    X, _ = sklearn.unpack(data)
    shape = tuple(X.shape[1:]) if getattr(X, "ndim", 2) > 2 else None
    return audit_fitted(fitted, games=games, seed=seed, threshold=threshold, shape=shape)


def _check_games(games: int | None, most: int, why: str) -> None:
    if games is None:
        return
    if isinstance(games, bool) or not isinstance(games, int):
        raise TypeError(f"audit: expected games to be a whole number, or None for all, got {shown(games)}.")
    if not 1 <= games <= most:
        raise ValueError(f"audit: expected 1 <= games <= {most} ({why}), got {shown(games)}.")


def _check_minutes(minutes: float | None, attack: Attack | None) -> None:
    if minutes is None:
        return
    if attack is not None:
        raise TypeError(
            f"audit: max_minutes limits the choice among attacks, and attack={type(attack).__name__}(...) leaves none. "
            "Leave one of them out."
        )
    if isinstance(minutes, bool) or not isinstance(minutes, int | float):
        raise TypeError(f"audit: expected max_minutes to be a number, or None for no limit, got {shown(minutes)}.")
    if not 0 < minutes < float("inf"):
        raise ValueError(f"audit: expected max_minutes > 0, or None for no limit, got {shown(minutes)}.")


def simulate(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    prior: Records,
    models: int,
    seed: int = 0,
    store: str | Path | None = None,
    engine: Engine | None = None,
) -> Iterator[tuple[Cohort, Release]]:
    """Shadow models by the victim's own trainer, chunk by chunk: the secrets they were trained on, and their weights.

    Model i is the same model whatever the chunk, and whichever engine trains it: `lw.shadows.Local()`, the default, or
    `lw.shadows.Ray()`. Memory is bounded by the chunk.

    Without a `store` they are trained as they are asked for. With one, a folder or any fsspec URL, what it lacks is
    trained and written before this returns, and all are then read from there: after a crash, call it again.
    """
    from lostwax.audits import check_arguments
    from lostwax.shadows import Game, Local, Store

    check_arguments("simulate", net, {"prior": prior}, trainer=trainer, threat=threat, engine=engine)
    for name, value in (("models", models), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"simulate: expected {name} to be a whole number, got {type(value).__name__}.")
    if seed.bit_length() > SEED_BITS:
        raise ValueError(f"simulate: expected seed to have at most {SEED_BITS} bits, got {shown(seed)}.")
    if not 1 <= models < 2**63:
        raise ValueError(f"simulate: expected models >= 1, and below 2**63, got {shown(models)}.")
    engine, prior = engine or Local(), prior.detached()
    if store is None:
        return engine(trainer, net, threat, prior, models=models, seed=seed)
    return Store(store).simulate(Game(net, trainer, threat, prior, seed), models=models, engine=engine)


def report(audit: Audit, folder: str | Path, *, records: bool = True) -> Path:
    """Write a report that a person can read and pass on, and give the path of its page, `report.html`.

    The page opens offline and needs nothing beside it. Next to it: `audit.json` (every number, for programs),
    `records.csv` (one row a game), `figures/`, and `records.safetensors` (originals and reconstructions).
    With `records=False` nothing of the records, neither the true ones nor the rebuilt, is written anywhere.
    """
    from lostwax.reports import write

    return write(audit, folder, records=records)
