"""All generators, taken in turn, from one seed."""

import sys
import time
import warnings

import numpy as np

from fuzz import arguments, arrays, files, kept, models, settings
from fuzz.outcomes import BUGS, counts, play

SHARES = {settings: 0.25, arguments: 0.15, arrays: 0.15, files: 0.15, models: 0.2, kept: 0.1}


def cases(number, seed):
    """The same cases for the same seed; of more, the first of each kind are those of fewer."""
    for place, (module, share) in enumerate(SHARES.items()):
        made = module.cases(np.random.default_rng([seed, place]))
        yield from (next(made) for _ in range(round(number * share)))


def run(number, seed, progress=False):
    """Play them all."""
    found, started = [], time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(number, seed):
            found.append(play(case))
            if progress and len(found) % 500 == 0:
                print(f"{len(found):,} cases, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def bugs(found):
    return [one for one in found if one.outcome in BUGS]


def describe(found):
    """The counts, and every bug by its first case."""
    text, seen = [counts(found)], set()
    for one in bugs(found):
        if (key := (one.outcome, one.case.name)) not in seen:
            seen.add(key)
            text.append(f"\n{one.outcome}: {one.case.name}\n{one.message}")
    return "\n".join(text)
