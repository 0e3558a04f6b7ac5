"""The secret among decoys: never told by its place, its company or its number."""

from collections import Counter
from itertools import combinations

import pytest
import torch

import lostwax as lw
from lostwax.types import Records

DIGITS = lw.records.digits()
KNOWN, POOL = DIGITS.split(10, 40, seed=0)


def dealt(m, *, candidates=3, seed=1, start=0, pool=POOL):
    threat = lw.Informed(KNOWN, candidates=candidates)
    cohort = threat.deal(pool, m, seed=seed, start=start)
    return cohort, threat.hints(cohort, pool, seed=seed)


def places(cohort, hints):
    """(m, c) where the truth is."""
    return (hints.candidates.x == cohort.own.x).flatten(2).all(2)


def test_the_secret_is_there_once_with_its_label_and_all_candidates_differ():
    cohort, hints = dealt(80)
    assert hints.labels is None
    assert hints.candidates.x.shape == (80, 3, 1, 8, 8)
    right = places(cohort, hints)
    assert (right.sum(1) == 1).all()
    assert torch.equal(hints.candidates.y[right], cohort.own.y[:, 0])
    for one, other in combinations(hints.candidates.x.unbind(1), 2):
        assert (one != other).flatten(1).any(1).all()


def test_every_place_and_every_decoy_is_as_likely_as_any_other():
    games, pool = 1200, POOL[:5]
    cohort, hints = dealt(games, pool=pool)
    right = places(cohort, hints)
    assert (right.float().mean(0) - 1 / 3).abs().max() < 3 * (2 / 9 / games) ** 0.5 + 1e-3
    kinds = {row.numpy().tobytes(): number for number, row in enumerate(pool.x)}
    pairs = Counter(
        tuple(sorted(kinds[row.numpy().tobytes()] for row in game[~mask]))
        for game, mask in zip(hints.candidates.x, right, strict=True)
    )
    assert len(pairs) == 10
    assert max(pairs.values()) < 1.5 * games / 10


def test_a_models_candidates_depend_on_seed_and_number_only():
    _, whole = dealt(30)
    _, part = dealt(7, start=9)
    assert torch.equal(whole.candidates.x[9:16], part.candidates.x)
    cohort = lw.Informed(KNOWN).deal(POOL, 30, seed=1)
    elsewhere = lw.Informed(KNOWN, candidates=3).hints(cohort, POOL, seed=2)
    assert (places(cohort, whole) != places(cohort, elsewhere)).any()


def test_copies_of_the_secret_are_no_decoys():
    twins = Records(POOL.x[[0, 0, 0, 1, 1, 2]], torch.tensor([0, 1, 2, 3, 4, 5]))
    cohort, hints = dealt(60, pool=twins)
    assert (places(cohort, hints).sum(1) == 1).all()
    with pytest.raises(ValueError, match=r"4 candidates need 3 records .* pool of 6 holds 2 that differ"):
        dealt(1, candidates=4, pool=twins)


def test_what_the_net_trains_on_comes_along():
    pool = Records(POOL.x, POOL.y, POOL.x.flatten(1)[:, :5] * 2)
    known = Records(KNOWN.x, KNOWN.y, KNOWN.x.flatten(1)[:, :5] * 2)
    threat = lw.Informed(known, candidates=2)
    cohort = threat.deal(pool, 9, seed=0)
    candidates = threat.hints(cohort, pool, seed=0).candidates
    assert torch.equal(candidates.inputs, candidates.x.flatten(2)[..., :5] * 2)


def test_one_candidate_is_no_choice():
    with pytest.raises(ValueError, match="expected candidates >= 2, or None for none, got 1"):
        lw.Informed(KNOWN, candidates=1)
