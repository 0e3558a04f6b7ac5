"""The secret among decoys: never told by its place, its company or its number."""

from collections import Counter
from itertools import combinations

import pytest
import torch

import lostwax as lw
from lostwax.audits.given import chance
from lostwax.games import Records
from lostwax.learning.candidates import side_by_side

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
    with pytest.raises(ValueError, match="expected candidates >= 2, or None, got 1"):
        lw.Informed(KNOWN, candidates=1)


# Records that occur 12, 4, 2 and 1 times (the last eight times over); some copies have another label.
COPIES = [12, 4, 2, *[1] * 8]
ROWS = [value for value, copies in enumerate(COPIES) for _ in range(copies)]
COPIED = Records(POOL.x[ROWS], torch.tensor([value % 2 if row % 3 else 2 for row, value in enumerate(ROWS)]))


def most_frequent(pool, hints):
    """(m,) name the candidate whose x occurs most often in the pool."""
    m, c = hints.candidates.x.shape[:2]
    times = (hints.candidates.x.flatten(0, 1).unsqueeze(1) == pool.x).flatten(2).all(2).sum(1)
    return times.view(m, c).argmax(1)


def odd_label(pool, hints):
    """(m,) name the candidate whose label is not that of the first row of the pool with its x; else the first."""
    m, c = hints.candidates.x.shape[:2]
    flat = Records(hints.candidates.x.flatten(0, 1), hints.candidates.y.flatten())
    return (flat.y != pool.y[flat.matches(pool)]).view(m, c).int().argmax(1)


def likeliest(pool, hints):
    """(m,) by the chances that the game states, of the known label where it is known."""
    allowed = 1 if hints.labels is None else hints.candidates.y == hints.labels
    return (hints.chances * allowed).argmax(1)


@pytest.mark.parametrize("label_known", [False, True])
def test_no_blind_rule_wins_more_often_than_the_stated_chance(label_known):
    """Copies in the pool make some candidates likelier; one game a seed, so that games are independent."""
    threat = lw.Informed(KNOWN, candidates=4, label_known=label_known)
    won, stated = {rule: [] for rule in (most_frequent, odd_label, likeliest)}, []
    for seed in range(600):
        cohort = threat.deal(COPIED, 1, seed=seed)
        hints = threat.hints(cohort, COPIED, seed=seed)
        right = places(cohort, hints)[0]
        for rule, wins in won.items():
            wins.append(bool(right[rule(COPIED, hints)[0]]))
        stated.append(chance(hints))
    for rule, wins in won.items():
        gain = torch.tensor(wins).double() - torch.tensor(stated)
        error = float(gain.std()) / len(gain) ** 0.5
        assert float(gain.mean()) < 3 * error, rule
        if rule is likeliest:  # and the stated chance is what the best of them reaches
            assert float(gain.mean()) > -3 * error
            assert sum(wins) > 0.35 * len(wins)


def test_a_candidate_is_as_likely_as_it_is_frequent():
    """In line-ups of the values 0 and 1, with 12 and 4 copies, the secret is value 0 in 12 of 16."""
    won = []
    for seed in range(40):
        cohort, hints = dealt(len(COPIED), candidates=2, seed=seed, pool=COPIED)
        value = torch.tensor(ROWS)[side_by_side(hints.candidates).matches(COPIED)].view(-1, 2)
        game = (value < 2).all(1)
        first = value[game] == 0  # (games, 2)
        assert torch.allclose(hints.chances[game][first], torch.tensor(12 / 16).double())
        won.append(places(cohort, hints)[game][first])
    share = torch.cat(won).double()
    assert len(share) > 60
    assert abs(float(share.mean()) - 12 / 16) < 3 * (3 / 16 / len(share)) ** 0.5


@pytest.mark.parametrize("copies", [1, 3])
def test_equal_frequencies_need_no_chances(copies):
    pool = Records(POOL.x[:8].repeat(copies, 1, 1, 1), torch.arange(8 * copies))
    assert dealt(10, pool=pool)[1].chances is None


def test_chances_belong_to_the_model_and_not_to_the_chunk():
    _, whole = dealt(20, pool=COPIED)
    _, part = dealt(5, start=9, pool=COPIED)
    assert torch.equal(whole.chances[9:14], part.chances)
    assert torch.equal(whole.candidates.y[9:14], part.candidates.y)
    torch.testing.assert_close(whole.chances.sum(1), torch.ones(20, dtype=torch.float64))
