"""The verbs: what a user calls. Light to import; torch and scikit-learn come in only when a verb is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

    from lostwax.audits import Audit
    from lostwax.types import Access, Attack, Cohort, Metric, Records, Release, Threat, Trainer


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
) -> Audit:
    """Can training records be rebuilt from this model?

    Two kinds of question, and the answer says which it was:

    - *this very model*: a fitted scikit-learn estimator (or a torch linear layer, with `trainer=Optimum(...)` for the
      objective it minimises) and `data=(X, y)`, the table it was fitted on. Every row is played for; `games` picks
      some of them by `seed`.
    - *this way of training*: a torch module with `trainer`, `threat`, `attack`, `prior` and `secrets`. Victims are
      trained on secrets that the attack never sees. `metrics` are further metrics to judge the guesses by, besides
      the mean errors, and for images PSNR, SSIM and (where its weights are at hand) LPIPS.

    A record counts as rebuilt when its error is within `threshold` feature standard deviations.
    """
    if not threshold > 0:
        raise ValueError(f"audit: expected threshold > 0, got {threshold}.")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"audit: expected seed to be a whole number, got {seed!r}.")
    game = {"threat": threat, "attack": attack, "access": access, "prior": prior, "secrets": secrets}
    asked = {**game, "metrics": tuple(metrics) or None}
    if data is not None:
        return _audit_model(model, data, sample_weight, trainer, asked, games, seed, threshold)
    if trainer is None or threat is None or attack is None or prior is None or secrets is None:
        absent = [name for name, value in {"trainer": trainer, **game}.items() if value is None and name != "access"]
        raise TypeError(
            "audit: pass data=(X, y), the table the model was fitted on, to audit this very model; or "
            f"{', '.join(absent)} to audit this way of training."
        )
    _check_games(games, len(secrets), "one secret a game")
    from lostwax.audits import audit_procedure

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
    from lostwax.adapters import sklearn, torch_linear
    from lostwax.audits import audit_fitted

    is_torch = isinstance(model, sys.modules["torch"].nn.Module)
    foreign = {**game, "sample_weight": sample_weight} if is_torch else {**game, "trainer": trainer}
    unused = [name for name, value in foreign.items() if value is not None]
    if unused:
        kind = "a torch layer" if is_torch else "a scikit-learn model"
        raise TypeError(f"audit: {', '.join(unused)} has no meaning for {kind} with data=(X, y). Leave it out.")
    fitted = torch_linear.read(model, data, trainer) if is_torch else sklearn.read(model, data, sample_weight)
    _check_games(games, len(fitted.table), "the rows of the table")
    X, _ = sklearn.unpack(data)
    shape = tuple(X.shape[1:]) if getattr(X, "ndim", 2) > 2 else None
    return audit_fitted(fitted, games=games, seed=seed, threshold=threshold, shape=shape)


def _check_games(games: int | None, most: int, why: str) -> None:
    if games is None:
        return
    if isinstance(games, bool) or not isinstance(games, int):
        raise TypeError(f"audit: expected games to be a whole number, or None for all, got {games!r}.")
    if not 1 <= games <= most:
        raise ValueError(f"audit: expected 1 <= games <= {most} ({why}), got {games}.")


def simulate(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    prior: Records,
    models: int,
    seed: int = 0,
    chunk: int | None = None,
) -> Iterator[tuple[Cohort, Release]]:
    """Shadow models by the victim's own trainer, chunk by chunk: the secrets they were trained on, and their weights.

    Model i is the same model whatever the chunk. Memory is bounded by the chunk: `chunk` models, or None for what a
    quarter of the free memory holds.
    """
    from lostwax.shadows.local import Local

    return Local(chunk)(trainer, net, threat, prior, models=models, seed=seed)
