"""Rows that a release stores as they are: the one that no known row explains is the missing one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Fitted, Guess, Records, Stored

# The mixing function of SplitMix64 (Steele, Lea and Flood 2014): every bit of a cell changes half the bits of its hash.
GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
ROWS_AT_A_TIME = 65_536


def row_keys(rows: Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A 64-bit hash of each row (n, d): equal rows have equal keys, a NaN equals a NaN, and 0 equals -0."""
    keys = np.zeros(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        block = rows[start : start + ROWS_AT_A_TIME].detach().cpu().double()
        block = torch.where(block.isnan(), torch.nan, block + 0.0)
        for column, cells in enumerate(block.mT.contiguous().numpy().view(np.uint64)):
            cells = cells + np.uint64(GOLDEN * (column + 1) % 2**64)
            for shift, factor in MIX:
                cells = (cells ^ (cells >> np.uint64(shift))) * np.uint64(factor)
            keys[start : start + ROWS_AT_A_TIME] += cells ^ (cells >> np.uint64(31))
    return keys


def held(stored: Stored, table: Records, games: Tensor) -> tuple[Tensor, Tensor | None]:
    """For each game the one stored row that is left when the known rows are taken away, (games, d), and its label.

    Rows count as often as they occur. Where nothing or more than one row is left, the row is NaN and its label means
    nothing. Rows are compared in the dtype in which they are stored, and with their labels where those are stored.
    """
    rows, known = stored.x, table.x.to(stored.x.dtype)
    if stored.y is not None:  # labels as further columns
        pairs = ((rows, stored.y), (known, table.y.to(stored.y.dtype)))
        rows, known = (torch.cat([x.double(), y.reshape(len(y), -1).double()], 1) for x, y in pairs)
    keys, number = np.unique(np.concatenate([row_keys(rows), row_keys(known)]), return_inverse=True)
    of_stored, of_table = number[: len(rows)], number[len(rows) :]
    surplus = np.bincount(of_stored, minlength=len(keys)) - np.bincount(of_table, minlength=len(keys))
    first = np.full(len(keys), -1)  # where each row is stored
    first[of_stored[::-1]] = np.arange(len(rows))[::-1]

    extra = np.flatnonzero(surplus > 0)  # left whichever row is missing
    secret = of_table[games.numpy()]  # in its game one row fewer of this value is known
    left = (surplus[secret] == 0) & (first[secret] >= 0)
    place = np.where(left, first[secret], first[extra[0]] if len(extra) else -1)
    place = np.where(left.astype(int) + len(extra) == 1, place, -1)
    at, is_left = torch.from_numpy(place.clip(0)), torch.from_numpy(place >= 0)
    x = torch.where(is_left[:, None], stored.x[at].to(table.x.dtype), torch.nan)
    return x, None if stored.y is None else stored.y[at]


def with_stored(guess: Guess, fitted: Fitted, games: Tensor) -> Guess:
    """The guess with the rows that the release stores, and their labels, in place of what was solved for."""
    for stored in fitted.stored:
        x, y = held(stored, fitted.table, games)
        is_known, rows = ~x.isnan().all(1), guess.records
        for_labels = is_known.reshape(-1, *[1] * (rows.y.ndim - 1))
        labels = rows.y if y is None else torch.where(for_labels, y[:, None].to(rows.y.dtype), rows.y)
        records = Records(torch.where(is_known[:, None, None], x[:, None], rows.x), labels)
        guess = replace(guess, records=records, confidence=torch.where(is_known[:, None], torch.inf, guess.confidence))
    return guess
