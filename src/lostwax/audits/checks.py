"""What is looked at before an audit of a way of training does any work: do net, trainer and records fit together?"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.attacks.closed_form.stored import row_keys
from lostwax.audits.luck import FEWEST
from lostwax.audits.scoring import pixel_range
from lostwax.fields import LARGEST_INT64, shown
from lostwax.games import Attacker, Cohort, Facts, Hints, Metric, Records, Threat, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.nets import check_values
from lostwax.seeds import generator


class ArgumentKind(NamedTuple):
    """What an argument must be able to do, and what such a thing is called."""

    methods: tuple[str, ...]
    example: str
    arguments: int | None = None  # that it is called with, where nothing but a call is asked of it


KINDS = {
    "trainer": ArgumentKind(("__call__", "tile_size"), "a trainer, such as lw.GD(lr=0.2, steps=100)"),
    "threat": ArgumentKind(("deal", "hints"), "a threat, such as lw.Informed(known)"),
    "attack": ArgumentKind(("objection", "prepare"), "an attack, such as lw.RecoNN()"),
    "access": ArgumentKind(("__call__",), "an access, such as lw.access.Weights()", 2),
    "engine": ArgumentKind(("__call__", "parts"), "an engine, such as lw.shadows.Local()"),
}
OPTIONAL = ("attack", "access", "engine")


def check_arguments(verb: str, net: Any, records: Mapping[str, Any], metrics: Any = (), **others: Any) -> None:
    """Refuse what would fail later with an error that does not help the user."""
    if not isinstance(net, nn.Module):
        cure = " For a fitted scikit-learn model pass data=(X, y), the table it was fitted on."
        raise TypeError(
            f"{verb}: expected the net to be a torch nn.Module, got {_named(net)}.{cure if verb == 'audit' else ''}"
        )
    check_values(verb, net)
    for name, each in records.items():
        if not isinstance(each, Records):
            raise TypeError(f"{verb}: expected {name} to be lw.Records(x, y), got {_named(each)}.")
    for name, value in others.items():
        if not (value is None and name in OPTIONAL):
            check_kind(verb, name, value)
    if not isinstance(metrics, Sequence) or not all(isinstance(one, Metric) for one in metrics):
        raise TypeError("audit: expected metrics to be a list of metrics, such as [lw.metrics.SSIM()].")


def check_unused(subject: str, options: Mapping[str, Any], allowed: Collection[str] = ()) -> None:
    """Refuse arguments that are given and do not apply."""
    if unused := [name for name, value in options.items() if value is not None and name not in allowed]:
        raise TypeError(f"audit: {', '.join(unused)} does not apply to {subject}. Leave it out.")


def check_attacks(several: Sequence[Any]) -> None:
    """Attacks that are compared: each of them one, and no two the same."""
    for attack in several:
        check_kind("audit", "attack", attack)
    if any(one == other for place, one in enumerate(several) for other in several[:place]):
        raise ValueError("audit: the same attack is listed twice in attack=[...]. Give them different settings.")


def check_kind(verb: str, name: str, value: Any) -> None:
    """Raise if the argument of this name cannot do what is asked of it."""
    cure, kind = "", value if inspect.isclass(value) else type(value)
    lacking = [each for each in KINDS[name].methods if not callable(getattr(value, each, None))]
    if not lacking and not isinstance(value, type | nn.Module) and _can_be_called(value, KINDS[name].arguments):
        return
    if 0 < len(lacking) < len(KINDS[name].methods) and not inspect.isclass(value):
        cure = f" It has no {' and no '.join(lacking)}: see docs/extending.md."
    if name == "trainer" and inspect.isfunction(value):
        cure = f" Wrap a training function of your own: lw.OwnTraining({value.__name__})."
    if name == "trainer" and issubclass(kind, torch.optim.Optimizer):
        ours = kind.__name__ if kind.__name__ in ("SGD", "Adam", "AdamW") else "GD"
        rate = value.defaults.get("lr") if isinstance(value, torch.optim.Optimizer) else None
        lr = f"lr={rate:g}" if isinstance(rate, float) else "lr=..."
        cure = (
            " An optimiser of torch holds the weights of one net, and many nets are trained. Pass the same settings as "
            f"a trainer, such as lw.{ours}({lr}, ...), or your training loop: lw.OwnTraining(train)."
        )
    raise TypeError(f"{verb}: expected {name} to be {KINDS[name].example}, got {_named(value)}.{cure}")


def _can_be_called(value: Any, arguments: int | None) -> bool:
    """With this many arguments, if any are asked for."""
    try:
        if arguments is not None:
            inspect.signature(value).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:  # written in C: its arguments are not known
        return True
    return True


def _named(value: Any) -> str:
    return f"the class {value.__name__}" if inspect.isclass(value) else type(value).__name__


ROWS_AT_A_TIME = 8_192
FEW = 30  # different records: a prior that is mostly copies of fewer teaches an attack little
SAME = 1e-3  # of the deviation of the other records: what varies less does not vary
RARE = 0.05  # of the numbers: those that hardly vary elsewhere do not count


def check_alike(secrets: Records, prior: Records) -> None:
    """Secrets that do not fit would be noticed only after the attack has been prepared."""
    if len(secrets) == 0:
        raise ValueError("audit: expected at least one record in secrets, got none. They are what is to be rebuilt.")
    if len(prior) == 0:
        raise ValueError(
            "audit: expected at least one record in prior, got none. Where the adversary has no side data, give it the "
            "records that it knows: prior=known."
        )
    for part in ("x", "y"):
        ours, theirs = getattr(secrets, part), getattr(prior, part)
        for what, got, wanted in (
            ("shape", tuple(ours.shape[1:]), tuple(theirs.shape[1:])),
            ("dtype", ours.dtype, theirs.dtype),
            ("device", ours.device, theirs.device),
        ):
            if got != wanted:
                raise ValueError(
                    f"audit: secrets.{part} and prior.{part} differ in {what}: {got} and {wanted}. "
                    "Convert one of them (Records.to)."
                )


_TOKENS = (
    "Sentences of token numbers are rebuilt if lw.GD, SGD, Adam or AdamW trained on them. Else ask which of some "
    "candidates it was trained on: lw.audit(net, trainer=..., threat=lw.Informed(known, candidates=10), prior=prior, "
    "secrets=secrets) (docs/text.md)."
)


def check_numbers(records: Records, facts: Facts) -> bool:
    """Are records to be rebuilt sentences of token numbers? Refuse whole numbers that may be quantities."""
    integers = not records.inputs.is_floating_point() and facts.given.candidates is None
    if integers and facts.trainer.one_by_one:
        raise TypeError(
            f"audit: expected floating-point inputs, got {records.inputs.dtype}. Scale pixels to [0, 1] first, or use "
            f"records.to(torch.float32). {_TOKENS}"
        )
    return integers and facts.trainer.takes_tokens


def check_tokens(net: nn.Module, data: Any, *, by_function: bool) -> bool:
    """Is this a training set of whole numbers that the net looks up in an embedding table? Refuse a function's."""
    x = data.x if isinstance(data, Records) else data[0] if isinstance(data, tuple | list) and data else None
    whole = str(getattr(x, "dtype", "")).removeprefix("torch.") in ("int64", "int32", "int16")
    looked_up = whole and any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in net.modules())
    if looked_up and by_function:
        raise TypeError(f"audit: expected floating-point inputs, got token numbers. {_TOKENS}")
    return looked_up


def as_targets(trainer: Trainer, net: nn.Module, *several: Records) -> tuple[Trainer, tuple[Records, ...]]:
    """Labels that are several whole numbers per record (multi-label, segmentation) become numbers for attacks.

    A training function still gets them as whole numbers.
    """
    with_labels, ys = trainer_facts(trainer, net, 1).with_labels, [records.y for records in several if len(records)]
    if with_labels is None or not ys or any(y.is_floating_point() or y.ndim == 1 for y in ys):
        return trainer, several
    low, high = min(int(y.min()) for y in ys), max(int(y.max()) for y in ys)
    as_numbers = tuple(replace(records, y=records.y.to(torch.get_default_dtype())) for records in several)
    return with_labels(low, high), as_numbers


def check_varied(known: Records, prior: Records, secrets: Records) -> tuple[str, ...]:
    """Refuse a prior whose records are all the same; a sentence where they are copies of a few."""
    cure = "Give the adversary records like the secrets: known, prior, secrets = records.split(..., seed=0)."
    rows = prior.matches(prior)  # (n,) the first of each record's copies
    different = int((rows == torch.arange(len(rows))).sum())
    if different < 2:
        raise ValueError(f"audit: the prior is one record, {len(prior):,} times: nothing can be learnt from it. {cure}")
    varied = (part.x.flatten(1).double().cpu() for part in (prior, known, secrets) if len(part) > 1)
    own, *more = (x.std(0, correction=0) for x in varied)  # (d,) each
    others = torch.stack(more).amin(0) if more else torch.zeros_like(own)
    varies = (own > SAME * others)[others > 0].double()
    if len(varies) and float(varies.mean()) < RARE and float(own.norm()) < SAME * float(others.norm()):
        raise ValueError(
            f"audit: the records of the prior hardly differ: their numbers have less than {SAME:g} of the deviation "
            f"that those of threat.known and secrets have. {cure}"
        )
    if different < min(FEW, len(prior) / 2):
        return (f"The prior's {len(prior):,} records are copies of {different}: too few to learn from.",)
    return ()


def check_ranges(known: Records, prior: Records, secrets: Records) -> None:
    """The prior states the range of a pixel: other images outside it, or in a much narrower one, are scaled wrong."""
    stated = pixel_range(prior.x)
    if stated is None:
        return
    for name, x in (("threat.known", known.x), ("secrets", secrets.x)):
        if len(x) and (not stated.holds(x) or (stated.high > 1 and 0 < float(x.max()) <= 1)):
            raise ValueError(
                f"audit: the images of {name} and of prior have different scales: those of {name} have pixels "
                f"{_span(x)}, those of prior {_span(prior.x)}. Scale all to one range, best [0, 1]."
            )


def check_stated(facts: Facts, cohort: Cohort, hints: Hints | None, threat: str) -> None:
    """Refuse a threat that deals other games than its facts say: attacks are chosen by those."""
    given = None if hints is None or hints.candidates is None else hints.candidates.x.shape[1]
    for what, dealt, stated in (
        ("secret records per training set", cohort.secrets, facts.secrets),
        ("known records", len(cohort.shared), 0 if facts.known is None else len(facts.known)),
        ("candidates per secret", given, facts.given.candidates),
    ):
        if dealt != stated:
            raise ValueError(
                f"audit: {threat} deals {dealt or 'no'} {what}, and its facts state {stated or 'no'}. Let its facts() "
                "return what it deals: lw.games.ThreatFacts(known, secrets, lw.games.HintFacts(...))."
            )


def check_trainable(
    net: nn.Module, trainer: Trainer, threat: Threat, prior: Records, secrets: Records, *, seed: int
) -> None:
    """The trainer's own refusals, for every record that a model will ever be trained on."""
    for name, pool in (("secrets", secrets), ("prior", prior)):
        games = max(1, ROWS_AT_A_TIME // threat.deal(pool, 1, seed=seed).secrets)  # at a time
        for start in range(0, len(pool), games):
            cohort = threat.deal(pool, min(games, len(pool) - start), seed=seed, start=start)
            try:
                trainer.tile_size(net, cohort)
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"audit: the net cannot be trained on threat.known and {name} (shared and own records of a "
                    f"cohort): {error}"
                ) from error


def overlap_notes(known: Records, prior: Records, secrets: Records) -> tuple[str, ...]:
    """Records that stand in two places, as notes (tables have equal rows); an error where no secret is a secret."""
    doubled, in_known, in_prior = prior.matches(known), secrets.matches(known), secrets.matches(prior)
    if bool(((in_known >= 0) | (in_prior >= 0)).all()):
        places = [*_overlap("secrets", in_known, "threat.known"), *_overlap("secrets", in_prior, "prior")]
        raise ValueError(
            f"audit: the adversary has all {len(secrets)} secrets already, and nothing is left to rebuild: "
            f"{'; '.join(places)}. Deal disjoint parts: known, prior, secrets = records.split(..., seed=0)."
        )
    pairs = (
        (_overlap("prior", doubled, "threat.known"), "A shadow model then holds one twice. prior.without(known)"),
        (_overlap("secrets", in_known, "threat.known"), "The adversary has them anyway. secrets.without(known)"),
        (_overlap("secrets", in_prior, "prior"), "The attack learns from these very records. secrets.without(prior)"),
    )
    return tuple(f"{found}. {why_and_cure} leaves them out." for overlap, why_and_cure in pairs for found in overlap)


def _overlap(name: str, rows: Tensor, place: str) -> list[str]:
    """How many records called `name` match `rows` (n,) of the place, -1 for no match; nothing where none does."""
    found = (rows >= 0).nonzero().flatten().tolist()
    if not found:
        return []
    first = f"{name} row {found[0]} = {place} row {int(rows[found[0]])}"
    return [f"{name}: {len(found)} of {len(rows)} records are also in {place} (first: {first})"]


def _span(x: Tensor) -> str:
    """The customary range of the pixels: no pixel is quoted."""
    limits = pixel_range(x)
    return "outside of [-1, 1] and [0, 255]" if limits is None else f"in {limits}"


ROWS = 10  # of the prior, copied and changed, for each kind of change
NAMED = 5  # columns or classes that a note names


class Support(NamedTuple):
    """What the adversary prepares with, and what was added to it."""

    prior: Records
    notes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def widened(prior: Records, secrets: Records) -> Support:
    """The prior, with a few synthetic records where secrets lie outside what it shows.

    Attacks take a number that never varies in the prior for known, pixels for bounded by its range, and classes for
    those that it holds. An adversary that tried other values would find them, so such an attack proves nothing.
    """
    classes: list[int] = []
    if not secrets.y.is_floating_point():
        classes = sorted(set(torch.unique(secrets.y).tolist()) - set(torch.unique(prior.y).tolist()))
    if prior.features is not None:  # records that go through a backbone cannot be made up
        named = _listed(torch.tensor(classes))
        cannot = f"The prior has no record of class {named}: such secrets cannot be guessed."
        return Support(prior, unanswered=(cannot,) if classes else ())
    x, theirs = prior.x.flatten(1), secrets.x.flatten(1).to(prior.x)
    low, high = x.amin(0), x.amax(0)  # (d,)
    lowest, highest = theirs.amin(0), theirs.amax(0)
    outside = (low == high) & ((lowest < low) | (highest > high))
    for floor in (0.0, -1.0):  # where the prior lies in [0, 1] or [-1, 1], and so bounds an attack
        if float(x.min()) >= floor and float(x.max()) <= 1:
            outside |= (lowest < floor) | (highest > 1)
            break
    parts, notes = [prior], []
    if outside.any():
        affected = int(((theirs < low) | (theirs > high))[:, outside].any(1).sum())
        for reached, edge in ((lowest < low, lowest), (highest > high, highest)):
            if (changed := outside & reached).any():
                rows = _some(prior)
                moved = torch.where(changed, edge, rows.x.flatten(1))
                parts.append(Records(moved.reshape(rows.x.shape), rows.y))
        notes.append(
            f"{affected} of {len(secrets)} secrets have values that the prior never shows (feature "
            f"{_listed(outside.nonzero().flatten())})."
        )
    for label in classes:
        rows = _some(prior)
        parts.append(Records(rows.x, torch.full_like(rows.y, label)))
    if classes:
        affected = int(torch.isin(secrets.y.cpu(), torch.tensor(classes)).sum())
        notes.append(f"{affected} of {len(secrets)} secrets have a class of which the prior has no record: {classes}.")
    if not notes:
        return Support(prior)
    added = sum(map(len, parts)) - len(prior)
    notes.append(f"The adversary may try them: {added} synthetic records that show them were added to its prior.")
    return Support(Records.together(parts), (" ".join(notes),))


def _some(prior: Records) -> Records:
    rows = generator(0, "support").permutation(len(prior))[:ROWS]
    return prior[torch.from_numpy(rows).to(prior.x.device)]


def _listed(numbers: Tensor) -> str:
    shown = ", ".join(str(number) for number in numbers[:NAMED].tolist())
    return shown if len(numbers) <= NAMED else f"{shown} and {len(numbers) - NAMED} more"


def few_rows(x: Tensor) -> tuple[str, ...]:
    """Why a table of copies of very few rows leaves the question open, as a sentence; nothing for others."""
    different = len(np.unique(row_keys(x)))
    if different >= min(FEWEST, len(x)):
        return ()
    return (f"All rows are copies of {different}: too few different ones to tell rows that are rebuilt from guesses.",)


def check_rows_differ(x: Tensor) -> None:
    """Refuse a table (n, d) in which there is nothing to rebuild."""
    if bool(((x == x[0]) | (x.isnan() & x[0].isnan())).all()):
        raise ValueError(
            f"audit: all {len(x):,} rows of X are the same, so there is nothing to rebuild. Pass the data the model "
            "was fitted on."
        )


def check_games(games: int | None, most: int, why: str) -> None:
    """A number of games that can be played, or None for all."""
    if games is None:
        return
    if isinstance(games, bool) or not isinstance(games, int):
        raise TypeError(f"audit: expected games to be a whole number, or None for all, got {shown(games)}.")
    if not 1 <= games <= most:
        raise ValueError(f"audit: expected 1 <= games <= {most} ({why}), got {shown(games)}.")


def check_minutes(minutes: float | None) -> None:
    """A time limit, or None for none."""
    if minutes is None:
        return
    if isinstance(minutes, bool) or not isinstance(minutes, int | float):
        raise TypeError(f"audit: expected max_minutes to be a number, or None for no limit, got {shown(minutes)}.")
    if not 0 < minutes <= LARGEST_INT64:
        raise ValueError(f"audit: expected max_minutes > 0, or None for no limit, got {shown(minutes)}.")


def as_attackers(names: Any) -> tuple[Attacker, ...] | None:
    """The kinds of attackers by name; None stays None."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, list | tuple | set | frozenset):
        raise TypeError(f'audit: expected attackers to be a list such as ["anyone"], got {shown(names)}.')
    for name in names:
        if name not in list(Attacker):
            kinds = ", ".join(f'"{kind}"' for kind in Attacker)
            raise ValueError(f"audit: expected attackers to be among {kinds}, got {shown(name)}.")
    return tuple(map(Attacker, names))
