"""Values and classes of the secrets that nothing in the prior shows: the adversary is allowed to try them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Records
from lostwax.seeds import generator

ROWS = 10  # of the prior, copied and changed, for each kind of change
NAMED = 5  # columns or classes that a note names


class Support(NamedTuple):
    """What the adversary prepares with, and what was added to it."""

    prior: Records
    notes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def widened(prior: Records, secrets: Records) -> Support:
    """The prior, with a few synthetic records where secrets lie outside what it shows.

    Attacks take a number that never varies in the prior for known, pixels for bounded by the range of the prior, and
    classes for those that it holds. The owner who audits has the secrets and knows better: an adversary who thought of
    such values would find them, so that an attack which cannot would prove nothing.
    """
    if prior.features is not None:
        return Support(prior, unanswered=_cannot(prior, secrets))
    x, theirs = prior.x.flatten(1), secrets.x.flatten(1).to(prior.x)
    low, high = x.amin(0), x.amax(0)  # (d,)
    lowest, highest = theirs.amin(0), theirs.amax(0)
    still = (low == high) & ((lowest < low) | (highest > high))
    outside = still | _out_of_range(x, lowest, highest)
    classes = _missing(prior, secrets)
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
    return Support(
        Records(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])), (" ".join(notes),)
    )


def _out_of_range(x: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    """(d,) where the prior lies in [0, 1] or [-1, 1], and so bounds an attack, and secrets do not."""
    for floor in (0.0, -1.0):
        if float(x.min()) >= floor and float(x.max()) <= 1:
            return (lowest < floor) | (highest > 1)
    return torch.zeros_like(lowest, dtype=torch.bool)


def _missing(prior: Records, secrets: Records) -> list[int]:
    if secrets.y.is_floating_point():
        return []
    return sorted(set(torch.unique(secrets.y).tolist()) - set(torch.unique(prior.y).tolist()))


def _cannot(prior: Records, secrets: Records) -> tuple[str, ...]:
    """Records that go through a backbone cannot be made up."""
    if not (classes := _missing(prior, secrets)):
        return ()
    return (f"Secrets of class {_listed(torch.tensor(classes))} have no like in the prior, and cannot be guessed.",)


def _some(prior: Records) -> Records:
    rows = generator(0, "support").permutation(len(prior))[:ROWS]
    return prior[torch.from_numpy(rows).to(prior.x.device)]


def _listed(numbers: Tensor) -> str:
    shown = ", ".join(str(number) for number in numbers[:NAMED].tolist())
    return shown if len(numbers) <= NAMED else f"{shown} and {len(numbers) - NAMED} more"
