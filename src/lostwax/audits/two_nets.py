"""Audit of two releases of one net: fine-tuned further on new records, or trained again without (or with) a record.

The adversary has both files, knows how the net is trained, and no training record. Fine-tuned further, the earlier
weights are a public start, and the new records are a whole secret training set. Trained again, the difference of the
weights is what the record did, which an attack learns on public base sets (`trainers.Paired`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.adapters import torch as torch_nets
from lostwax.adapters.net_state import released_state, unwrapped
from lostwax.attacks import KernelRidge, Newton
from lostwax.attacks.closed_form import row_keys
from lostwax.attacks.two_releases import Changes
from lostwax.audits.audit import Audit
from lostwax.audits.changed_rows import ChangedRows
from lostwax.audits.checks import check_kind, check_unused
from lostwax.audits.play import Answer, Settings, filled, of_table, one_by_one
from lostwax.audits.retrained import MISS, retrained
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Attack, Cohort, Guess, Informed, Knowledge, Note, Records, Release, Weak
from lostwax.games.facts import attack_name, trainer_facts
from lostwax.games.nouns import Hints
from lostwax.games.protocols import prepared
from lostwax.inits import Given, trainable
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.trainers.pairs import Paired

BASES = 20  # public base sets
BASE_SHARE = 0.9  # of the public records that one may take
CHECK_SECONDS = 20.0  # for retraining, to check that the trainer made the weights


def audit_two_nets(net: nn.Module, data: Any, before: Any, settings: Settings, options: Mapping[str, Any]) -> Audit:
    """Compare the weights with the earlier ones, `before=(net, data)`; data None: `net` was trained on from there."""
    earlier, earlier_data = before
    trainer, prior, attack = options["trainer"], options["prior"], options["attack"]
    if not isinstance(earlier, nn.Module):
        raise TypeError(f"audit: expected before=(net, data) with a torch module, got {type(earlier).__name__}.")
    if trainer is None or not isinstance(prior, Records):
        raise TypeError(
            "audit: with before=, a torch net needs trainer=..., how both releases were trained, and prior=..., public "
            "records that are in neither training set."
        )
    check_kind("audit", "trainer", trainer)
    check_unused("a net with before=", options, ("trainer", "prior", "attack"))
    net, earlier = unwrapped(net), unwrapped(earlier)
    table = torch_nets.read_table(data, torch_nets.taken_by(net))
    if earlier_data is None:
        return _fine_tuned(net, earlier, table, prior, trainer, attack or Newton(), settings)
    return _trained_again(
        (net, earlier), (table, torch_nets.read_table(earlier_data, torch_nets.taken_by(net))), prior, trainer,
        attack or KernelRidge(), settings,
    )  # fmt: skip


def _fine_tuned(
    net: nn.Module, start: nn.Module, table: Records, prior: Records, trainer: Any, attack: Attack, settings: Settings
) -> Audit:
    """All new records are secret, and the earlier weights are known."""
    trainer = replace(trainer, init=Given({name: value.clone() for name, value in start.state_dict().items()}))
    released, miss = _ends_there(net, start, table, trainer)
    order = table.y.argsort(stable=True) if not table.y.is_floating_point() else torch.arange(len(table))
    secrets = table[order]
    counts = None if table.y.is_floating_point() else tuple(torch.bincount(secrets.y).tolist())
    knowledge = Knowledge(start, trainer, Weak(len(table), per_class=counts), Weights(), prior, settings.engine)
    hints = None if counts is None else Hints(labels=secrets.y[None])
    guess, seconds = _guessed(attack, knowledge, released, hints, settings.seed)
    guess = _matched(guess, secrets)
    kind = f"{type(net).__name__}, trained further by {type(trainer).__name__}"
    note = Note(
        f"{len(table)} new records; training on them from the earlier weights reproduces the released ones to a "
        f"relative error of {miss:.1g}."
    )
    return _judged(
        kind, guess, seconds, attack, secrets, prior, order, settings, (note,), labels_given=hints is not None
    )


def _ends_there(net: nn.Module, start: nn.Module, table: Records, trainer: Any) -> tuple[Release, float]:
    """The weights of the net, and how far training on these records from the start misses them, over the way."""
    everything = torch.arange(len(table), device=table.y.device)[None]
    with progress("training again"):
        ends = trainer(net, Cohort(table[:0], table[everything], torch.zeros(1, dtype=torch.long)), seed=0)
    state, before = released_state(net), start.state_dict()
    released = Release({name: state[name].detach().to(value)[None] for name, value in ends[0].items()})
    way = torch.cat([(released.params[name][0] - before[name]).flatten().double().cpu() for name in ends[0]]).norm()
    miss = float((ends.flat() - released.flat()).double().cpu().norm() / way.clamp_min(1e-300))
    if not miss <= MISS:
        raise ValueError(
            f"audit: {type(trainer).__name__} on these records does not lead from the earlier weights to the later: "
            f"it misses them by {miss:.2g} of the way, and {MISS:g} is allowed. Pass the very trainer (lr, steps, "
            "...) and records, in their order, that made them."
        )
    return released, miss


def _matched(guess: Guess, secrets: Records) -> Guess:
    """The guesses (1, k, ...) in the order of the secrets of their class that they are nearest to: a set has none."""
    x, truth = guess.records.x[0].flatten(1).double().cpu(), secrets.x.flatten(1).double().cpu()
    costs = torch.cdist(truth, x).square()
    costs = costs + 1e12 * (secrets.y[:, None] != guess.records.y[0].cpu()[None]).reshape(costs.shape)
    order = torch.from_numpy(np.asarray(linear_sum_assignment(costs.numpy())[1]))
    return replace(one_by_one(guess, order[None]), undetermined=None)


def _trained_again(
    nets: tuple[nn.Module, nn.Module],
    tables: tuple[Records, Records],
    prior: Records,
    trainer: Any,
    attack: Attack,
    settings: Settings,
) -> Audit:
    """One record was removed or added; the difference of the weights is read by what public records do to others."""
    keys = [
        row_keys(torch.cat([table.x.flatten(1).double(), table.y.double().reshape(len(table), -1)], 1)).tolist()
        for table in tables
    ]
    changes = Changes.of(keys[1], keys[0])
    removed = len(changes.removed) > 0
    if len(changes.removed) + len(changes.added) != 1:
        raise ValueError(
            f"audit: {len(changes.removed)} records were removed and {len(changes.added)} added. A net that was "
            "trained again is audited for a single record: pass releases that differ in one."
        )
    (net, earlier), (later_table, earlier_table) = nets, tables
    unlearns = trainer_facts(trainer, net, len(later_table)).unlearns is not None
    first = trainer.trainer if unlearns else trainer
    again = retrained(earlier, earlier_table, first, torch.arange(min(3, len(earlier_table))), CHECK_SECONDS)
    at_start = deepcopy(earlier)
    at_start.load_state_dict(again.start)  # what an attack prepares with holds no release
    table, row = (earlier_table, changes.removed) if removed else (later_table, changes.added)
    weights = [{name: released_state(each)[name].detach() for name in trainable(each)} for each in (earlier, net)]
    sign = 1.0 if removed else -1.0
    difference = Release({name: sign * (weights[0][name] - weights[1][name])[None] for name in weights[0]})
    size = min(len(table) - 1, max(1, int(BASE_SHARE * len(prior))))
    paired = Paired(trainer, size, bases=min(BASES, len(prior)), scale=(size + 1) / len(table))
    knowledge = Knowledge(at_start, paired, Informed(prior), Weights(), prior, settings.engine)
    guess, seconds = _guessed(attack, knowledge, difference, None, settings.seed)
    how = "unlearned" if unlearns else "trained again"
    kind = f"{type(net).__name__}, {how} by {type(trainer).__name__}"
    verb, which = ("removed", "earlier") if removed else ("added", "later")
    notes = (
        Note(f"{verb}: record {int(row[0])} of the {which} data."),
        Note(f"the earlier release: {again.note}"),
        Note(f"learned from differences of models on up to {paired.bases} public base sets of {size:,} records."),
    )
    others = table[(torch.arange(len(table)) != row).nonzero().flatten()]
    return _judged(kind, guess, seconds, attack, table[row], prior, row, settings, notes, others=others)


def _guessed(
    attack: Attack, knowledge: Knowledge, release: Release, hints: Hints | None, seed: int
) -> tuple[Guess, float]:
    """The attack, prepared without the release, and its answer."""
    with progress(attack_name(attack)):
        reconstruct = prepared(attack, knowledge, seed=int(generator(seed, "adversary").integers(2**62)))
        start = time.perf_counter()
        return reconstruct(release, hints), time.perf_counter() - start


def _judged(
    subject: str,
    guess: Guess,
    seconds: float,
    attack: Attack,
    secrets: Records,
    prior: Records,
    rows: Tensor,
    settings: Settings,
    notes: tuple[Note, ...],
    *,
    others: Records | None = None,
    labels_given: bool = False,
) -> Audit:
    """The guesses beside the nearest public record, and what chance gives with other records."""
    public = Records(prior.x.double().cpu(), prior.y.cpu())
    pool = public if others is None else Records(others.x.double().cpu(), others.y.cpu())
    truth = Records(secrets.x.double().cpu(), secrets.y.cpu())
    scoring = Scoring.of(public.x, settings.threshold, with_secrets=False, secrets=truth.x)
    judging = ChangedRows(truth, pool, public.x.mean(0, keepdim=True), public, scoring, public, "record")
    guess = replace(guess, records=guess.records.to("cpu"), confidence=guess.confidence.cpu())
    known = None if labels_given else torch.ones(truth.y.shape, dtype=torch.bool)
    line = judging.line("as released", Answer(attack, guess, seconds), known)
    return filled(
        judging,
        [line],
        subject=f"{subject}, two releases",
        kind="this model",
        adversary=Adversary(0, len(pool) + len(truth), files=2),
        threat="the adversary has both releases and knows no record",
        attack=attack_name(attack),
        numbers=rows,
        population=len(rows),
        labels_given=labels_given,
        seed=settings.seed,
        provenance={"attack": repr(attack), **of_table(Records(public.x.flatten(1), public.y))},
        notes=notes,
        unanswered=judging.too_few([line]),
    )
