"""Audit of this very model: read where it can be read, refitted where it cannot."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.adapters import fitted_objects, r_models, sklearn, statsmodels
from lostwax.adapters import torch as torch_linear
from lostwax.adapters.model_files import is_computation, load_model, released_computation
from lostwax.adapters.net_state import released_state, unwrapped
from lostwax.adapters.r_files import is_from_r
from lostwax.adapters.sklearn.boosting import is_booster, released_booster
from lostwax.adapters.sklearn.inputs import check_data
from lostwax.adapters.sklearn.queried import queried
from lostwax.adapters.sklearn.refitting import Estimator
from lostwax.attacks.closed_form import revealed
from lostwax.attacks.whole_table import WholeTable
from lostwax.audits.audit import Audit
from lostwax.audits.checks import as_targets, check_games, check_kind, check_minutes, check_tokens, check_unused
from lostwax.audits.climb import rung_of_anyone
from lostwax.audits.conclusion import Rung
from lostwax.audits.play import Settings
from lostwax.audits.refitted import audit_refitted
from lostwax.audits.released import audit_released
from lostwax.audits.tables import audit_table
from lostwax.audits.whole_tables import audit_whole_table, objection_without_rows
from lostwax.clock import Clock
from lostwax.games import Access, Adversary, Attacker, Fitted, Kept, Note, Part, Records, ReleasedTable, Sees, Weak
from lostwax.games.facts import trainer_facts
from lostwax.games.notes import as_notes
from lostwax.grades import Grade
from lostwax.progress import progress
from lostwax.trainers.descent import as_descent

SOME_ROWS = 1_000  # attacked first, where time is limited
CALLER_GAMES, QUERIES = 20, "ClosedForm, weights from predictions"

MAX_LOOKED_AT, MAX_REPLACED = 100, 10  # rows of a transformer; of those that nothing was read of
MAX_NAMED = 3  # attributes


def audit_model(
    model: Any,
    data: Any,
    settings: Settings,
    *,
    trainer: Any,
    sample_weight: Any,
    options: Mapping[str, Any],
) -> Audit:
    """Audit a model and the data it was trained on; `options` are the further arguments of `lw.audit` by name."""
    if isinstance(model, str | PathLike) and not is_computation(model):
        model = load_model(model)
    data = check_data(model, data)
    if not isinstance(model, nn.Module):
        threat = options["threat"]
        allowed = ("access", "max_minutes") if threat is None else ("threat", "max_minutes")
        check_unused("a scikit-learn model with data=(X, y)", {**options, "trainer": trainer}, allowed)
        if threat is not None:
            return audit_whole_table(model, data, threat, settings, sample_weight=sample_weight)
        return _audit_estimator(model, data, settings, sample_weight, options["access"])
    model = unwrapped(model)
    torch_linear.check_finite_net(model)
    if trainer is not None:
        check_kind("audit", "trainer", trainer)
    facts = trainer_facts(None if isinstance(trainer, type) else trainer, model, 1)
    in_steps = facts.differentiable and facts.steps is not None  # steps that an attack can invert
    own = facts.one_by_one  # a training function, which can be run again
    applies: tuple[str, ...] = ("attack", "max_minutes") if in_steps or own else ()
    check_unused("a torch net with data=(X, y)", {**options, "sample_weight": sample_weight}, applies)
    if not in_steps and not own:
        release = ReleasedTable.of(torch_linear.read(model, data, trainer))
        check_games(settings.games, len(release.table), "the rows of the table")
        beside, audit = _beside_weights(model, release.table, settings), audit_table(release, settings, _shape(data))
        return audit if beside is None else worse_of(beside, audit, ())
    trainer = trainer if own else as_descent(trainer)
    tokens = check_tokens(model, data, by_function=own)
    dtype = torch_linear.taken_by(model) if own else trainer.computes_in(model)
    table = torch_linear.read_table(data, dtype, tokens=tokens)
    trainer, (table,) = as_targets(trainer, model, table)
    check_games(settings.games, len(table), "the records of the training set")
    attack = options["attack"]
    if isinstance(attack, list | tuple) and not hasattr(attack, "prepare"):
        raise TypeError("audit: expected one attack with data: several are compared on a way of training. Name one.")
    check_minutes(settings.max_minutes)
    beside = None if tokens else _beside_weights(model, table, settings)
    if beside is not None and beside.grade.severe:
        return beside
    audit = audit_released(model, table, settings, trainer=trainer, attack=attack)
    audit = replace(audit, unanswered=(*torch_linear.labels_in_net(released_state(model), table.y), *audit.unanswered))
    return audit if beside is None else worse_of(beside, audit, ())


def _beside_weights(net: nn.Module, table: Records, settings: Settings) -> Audit | None:
    """The audit of records, sums and extremes that a net holds as such, in buffers or attributes; None without any."""
    found = torch_linear.scan_net(released_state(net), table.inputs)
    if not (found.sums or found.extremes or found.stored) or table.inputs is not table.x:
        return None
    if not found.complete:
        raise ValueError(
            f"audit: the net holds records or their sums beside its weights: {' '.join(map(str, found.notes))} Leave "
            "it out of the release, or pass fewer records."
        )
    rows = Records(table.x.flatten(1).double().cpu(), table.y.cpu())
    fitted = Fitted(
        f"{type(net).__name__} with these weights",
        rows,
        torch.ones(len(rows), dtype=torch.float64),
        None,
        found.sums,
        found.extremes,
        found.stored,
        notes=found.notes,
    )
    shape = tuple(table.x.shape[1:]) if table.x.dim() > 2 else None
    return audit_table(ReleasedTable.of(fitted), settings, shape)


def _audit_estimator(model: Any, data: Any, settings: Settings, sample_weight: Any, access: Access | None) -> Audit:
    """By what can be read of it; and by refitting it, where that is not all and shows no serious leak."""
    check_minutes(settings.max_minutes)
    clock = None if settings.max_minutes is None else Clock.started(settings.max_minutes)
    with progress("reading the model"):
        release = with_untold(read_release(model, data, sample_weight, games=settings.games, seed=settings.seed))
        if release.public and not (release.unread or release.parts):
            name = type(model).__name__
            raise ValueError(
                f"audit: nothing in this {name} was fitted on this table. Pass the rows that it was fitted on."
            )
    searched = _whole_table(model, data, release, settings, clock, sample_weight)
    population = len(release.table) if release.sample is None else release.sample.population
    check_games(settings.games, population, "the rows of the table")
    with_held = partial(_with_held, model=model, release=release, settings=settings, searched=searched)
    read = None
    if (release.parts or release.public) and access is None:
        read = _audit_rows(release, settings, _shape(data), clock)
        # parts that were fitted on other rows would be fitted on these; targets that are read say nothing of the rows
        serious = read.grade.severe and not read.conclusion.line.by_target
        if serious or not release.unread or release.public or not hasattr(model, "fit"):
            return with_held(read)
    if not hasattr(model, "fit"):
        raise TypeError(
            f"audit: {release.name} cannot be fitted again, and nothing in its numbers was recognised as rows of the "
            f"table or their sums: {' '.join(release.unread)} Pass the estimator that it was made of."
        )
    X, y = sklearn.unpack(data)
    reasons = release.unread
    if release.sample is not None:
        X, y, sample_weight = (sklearn.some_rows(part, release.sample.rows) for part in (X, y, sample_weight))
        reasons = (*reasons, f"The table is large: the model was refitted on {len(release.table):,} of its rows.")
    try:
        refitted = audit_refitted(
            model,
            X,
            y,
            settings if clock is None else settings._replace(max_minutes=max(clock.left, 1e-3) / 60),
            table=release.table,
            columns=release.columns,
            sample_weight=sample_weight,
            access=access,
            reasons=reasons,
            sampled=release.sample is not None,
        )
    except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:  # of a user's class too
        if read is None:
            raise
        ours, why = str(error).startswith("audit: "), str(error).removeprefix("audit: ")  # others may quote cells
        reason = why if ours else f"{type(error).__name__} on a part of the rows."
        return with_held(replace(read, unanswered=(*read.unanswered, f"The model was not refitted: {reason}")))
    if read is not None:
        refitted = worse_of(read, refitted, release.unread)
    return refitted if access is not None else with_held(refitted)


def read_release(model: Any, data: Any, sample_weight: Any, *, games: int | None, seed: int) -> ReleasedTable:
    """What a model publishes about its table, by the reader of its library."""
    if isinstance(model, str | PathLike):
        return released_computation(model, data, sample_weight)
    if not hasattr(model, "get_params"):
        if is_from_r(model):
            return r_models.released(model, data, sample_weight)
        if is_booster(model):
            return released_booster(model, data, sample_weight)
        if statsmodels.is_statsmodels(model):
            return statsmodels.released(model, data, sample_weight)
        if fitted_objects.is_fitted_object(model):
            return fitted_objects.released(model, data, sample_weight)
    return sklearn.released(model, data, sample_weight, games=games, seed=seed)


def with_untold(release: ReleasedTable) -> ReleasedTable:
    """The release with what its transformers keep of rows that nothing was read of among the `unread`."""
    sentences = (_untold(*step) for step in release.transformers)
    unread = [*release.unread, *filter(None, sentences)]
    if unread and release.public:
        unread.append(
            f"The model was not refitted either: {release.public[0]} was fitted on other rows, and would be fitted on "
            "these. Pass the model after it, with X as it sees it."
        )
    return replace(release, unread=tuple(dict.fromkeys(unread)))


def _untold(transformer: Any, rows: Any, y: Tensor, weight: Tensor, parts: Sequence[Part]) -> str | None:
    """A sentence on what a transformer holds of its rows that was not read: quantiles, variances, selected columns.

    It is fitted again with one row replaced by another, of rows (n, D) of which `parts`, what was read, tell nothing.
    Where that changes what it holds, it depends on the row. No list of classes is needed.
    """
    used = weight.nonzero().flatten()
    sampled = used[torch.linspace(0, len(used) - 1, min(MAX_LOOKED_AT, len(used))).long()]
    if any(part.fitted.forest is not None for part in parts):  # it tells of rows in all leaves
        return None
    is_read = torch.zeros(len(sampled), dtype=torch.bool)
    for part in parts:
        for fact in revealed(part, sampled, label_given=False):
            is_read |= torch.from_numpy((fact.candidates[0].kept > Kept.LOST).any(1))
    unread_rows, name = sampled[~is_read][: MAX_REPLACED + 1].numpy(), type(transformer).__name__
    if len(unread_rows) < 2:
        return None
    try:
        try:
            signature(transformer.fit).bind(None, None)
            labels = y.numpy()
        except TypeError:  # it is fitted by fit(X) alone, outside of a pipeline
            labels = None
        estimator = Estimator(transformer, rows, labels, None, {}, {})
        first = estimator.look(used.numpy(), 0).contents
        for row, other in pairwise(unread_rows):
            again = estimator.look(np.where(used.numpy() == row, other, used.numpy()), 0).contents
            paths = {**first.numbers, **first.others, **again.numbers, **again.others}
            differ = (path.partition(".")[0] for path in paths if not np.array_equal(first.of(path), again.of(path)))
            if changed := list(dict.fromkeys(differ)):
                which = f"{', '.join(changed[:MAX_NAMED])}{', ...' if len(changed) > MAX_NAMED else ''}"
                return f"{name} was not read completely: what it keeps of the rows in {which} was not attacked."
    except ValueError:
        return f"{name} was not read completely: it cannot be fitted again on its rows."
    return None


def worse_of(read: Audit, refitted: Audit, unread: tuple[str, ...]) -> Audit:
    """The audit of what was read of a model, or of its refits, which are about what was not, `unread`."""
    worse = refitted.grade.severity - read.grade.severity  # of two serious ones, what is read of this very model
    if not read.grade.leaks or worse > 0 or (worse == 0 and not read.grade.severe):
        notes = (Note(f"What was read: {read.conclusion}"), *refitted.notes)
        return replace(refitted, notes=notes, rungs=read.rungs)
    answered = () if refitted.grade is Grade.UNDECIDED else unread  # refits that decide nothing answer nothing
    unanswered = [sentence for sentence in read.unanswered if sentence not in answered]
    notes = (*read.notes, *as_notes((*answered, f"Refitted: {refitted.conclusion}")))
    return replace(read, notes=notes, unanswered=(*unanswered, *refitted.unanswered))


def _audit_rows(
    release: ReleasedTable, settings: Settings, shape: tuple[int, ...] | None, clock: Clock | None
) -> Audit:
    """All rows; or some, where these predict that there is no time for all."""
    rows = len(release.table)
    if clock is not None and settings.games is None and release.sample is None and rows > SOME_ROWS:
        start = time.perf_counter()
        audit = audit_table(release, settings._replace(games=SOME_ROWS), shape)
        if (time.perf_counter() - start) * rows / SOME_ROWS > clock.left:
            note = (
                f"max_minutes is time for {SOME_ROWS:,} of {rows:,} rows, drawn by the seed. games={rows} attacks all."
            )
            return replace(audit, notes=(*audit.notes, Note(note)))
    return audit_table(release, settings, shape)


def _whole_table(
    model: Any, data: Any, release: ReleasedTable, settings: Settings, clock: Clock | None, sample_weight: Any
) -> Rung | None:
    """What anyone reads of a forest who solves the counts of its trees; None where there are no trees.

    It takes a search, for half of the time that is allowed; without a limit it is made only if attackers are named.
    """
    if not settings.tries(Attacker.ANYONE) or not any(part.fitted.forest is not None for part in release.parts):
        return None
    n = len(release.table)
    not_tried = Rung(Adversary(0, n, "row"), None, WholeTable.__name__)
    if (objection := objection_without_rows(model)) is not None:
        return replace(not_tried, reason=objection.removeprefix("audit: "))
    if clock is None and settings.attackers is None:
        text = 'The search for the whole table takes up to 40 seconds: allow max_minutes, or name attackers=["anyone"].'
        return replace(not_tried, reason=text)
    limited = settings._replace(games=None, max_minutes=None if clock is None else clock.left / 120)
    try:
        audit = audit_whole_table(model, data, Weak(n), limited, sample_weight=sample_weight)
    except (TypeError, ValueError) as error:
        return replace(not_tried, reason=str(error).removeprefix("audit: "))
    rung = next(rung for rung in audit.attackers.rungs if rung.attacker == audit.adversary)
    return rung if rung.leaks else replace(rung, reason=" ".join(audit.unanswered))


def _caller(model: Any, release: ReleasedTable, audit: Audit, settings: Settings) -> Rung | None:
    """What an insider reads who asks the model for predictions instead: those of a linear model give its weights."""
    equation = release.equation
    if equation is None or equation.model is None or not hasattr(model, "predict") or not audit.grade.leaks:
        return None
    try:
        weights = queried(equation.model, model, equation.table.x)
    except (ValueError, TypeError, StopIteration):  # of a user's class too
        return None
    read = ReleasedTable.of(replace(equation, model=weights, sums=(), extremes=()))
    played = audit_table(read, settings._replace(games=min(CALLER_GAMES, len(audit.games)), attackers=()))
    line = played.conclusion.line
    attacker = replace(audit.adversary, sees=Sees.PREDICTIONS, access="queries")
    return Rung(attacker, line.grade, QUERIES, line.rebuilt, len(played.games), games=len(played.games))


def _with_held(audit: Audit, model: Any, release: ReleasedTable, settings: Settings, searched: Rung | None) -> Audit:
    """The same, with what anyone reads in the file; no all-clear if it holds more than a fit puts there."""
    audit = replace(audit, unanswered=(*audit.unanswered, *release.attached))
    if not audit.rungs and settings.tries(Attacker.ANYONE):
        audit = replace(audit, rungs=(rung_of_anyone(release, settings.threshold),))
    if searched is not None:  # in place of what the file holds as such, unless that is worse
        others = [rung for rung in audit.rungs if rung.attacker != searched.attacker or rung.leaks]
        audit = replace(audit, rungs=(*others, searched))
    if (caller := _caller(model, release, audit, settings)) is not None:
        audit = replace(audit, rungs=(*audit.rungs, caller))
    everything = any(
        stored.y is not None and len(stored.x) == len(release.table)
        for part in release.parts
        for stored in part.fitted.stored
    )
    if release.held_labels is None or everything:  # rows that are held with their labels were attacked with them
        return audit
    return replace(audit, unanswered=(*audit.unanswered, f"{release.held_labels} The grade does not count this."))


def _shape(data: Any) -> tuple[int, ...] | None:
    """The shape of a record where it is more than a row of features: an image."""
    X, _ = sklearn.unpack(data)
    return tuple(X.shape[1:]) if getattr(X, "ndim", 2) > 2 else None
