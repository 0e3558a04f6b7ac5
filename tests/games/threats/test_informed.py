"""Dealing to the informed adversary."""

import pytest
import torch

from instances import instances
from lostwax.games import Cohort, Informed, Records

THREAT, TOLD, *_ = instances(Informed)
POOL = Records(torch.arange(20.0).reshape(5, 4), torch.arange(5) % 3)


def test_each_model_has_one_secret_and_everybody_the_same_core():
    cohort = THREAT.deal(POOL, 7, seed=0)
    assert cohort.shared is THREAT.known
    assert cohort.own.x.shape == (7, 1, 4)
    assert cohort.own.y.shape == (7, 1)
    assert cohort.index.tolist() == list(range(7))


def test_a_pass_over_the_pool_takes_every_record_once_in_an_order_of_its_own():
    labels = THREAT.deal(POOL, 40, seed=0).own.x[:, 0, 0].reshape(8, 5)
    assert all(sorted(turn.tolist()) == POOL.x[:, 0].tolist() for turn in labels)
    assert len({tuple(turn.tolist()) for turn in labels}) > 1


@pytest.mark.parametrize("start", [0, 1, 5, 13])
def test_a_models_secret_depends_on_seed_and_number_only(start):
    whole, part = THREAT.deal(POOL, 30, seed=3), THREAT.deal(POOL, 9, seed=3, start=start)
    assert torch.equal(part.own.x, whole.own.x[start : start + 9])
    assert torch.equal(part.own.y, whole.own.y[start : start + 9])
    assert torch.equal(part.index, whole.index[start : start + 9])
    assert not torch.equal(THREAT.deal(POOL, 30, seed=4).own.x, whole.own.x)


def test_features_go_with_their_record():
    pool = Records(POOL.x, POOL.y, POOL.x[:, :2] * 10)
    own = THREAT.deal(pool, 6, seed=0).own
    assert torch.equal(own.inputs, own.x[..., :2] * 10)


@pytest.mark.parametrize(
    ("pool", "m", "start", "message"),
    [(POOL[:0], 1, 0, "pool of at least 1 records"), (POOL, 0, 0, "got m=0"), (POOL, 1, -1, "start=-1")],
)
def test_bad_deals_are_refused(pool, m, start, message):
    with pytest.raises(ValueError, match=message):
        THREAT.deal(pool, m, seed=0, start=start)


def test_known_is_a_set_of_records():
    with pytest.raises(TypeError, match=r"Informed: expected known to be lw.Records\(x, y\), got a tuple"):
        Informed((POOL.x, POOL.y))


def test_labels_are_told_only_where_they_are_known():
    cohort = THREAT.deal(POOL, 3, seed=0)
    assert THREAT.hints(cohort, POOL, seed=0) is None
    told = TOLD.hints(cohort, POOL, seed=0)
    assert torch.equal(told.labels, cohort.own.y)
    assert told.candidates is None


LEFT = torch.tensor([True, True, False, False])


def test_of_a_secret_nothing_is_told_but_its_known_parts():
    """The cheat that is tried: secrets that differ in their unknown parts alone must give the same hints."""
    threat = Informed(THREAT.known, parts=LEFT)
    cohort = threat.deal(POOL, 5, seed=0)
    other = Cohort(cohort.shared, Records(torch.where(LEFT, cohort.own.x, -7.0), cohort.own.y + 1), cohort.index)
    one, two = (threat.hints(each, POOL, seed=0) for each in (cohort, other))
    assert one.parts.shape == (5, 1, 4)
    assert torch.equal(one.parts[..., LEFT], cohort.own.x[..., LEFT])
    assert one.parts[..., ~LEFT].isnan().all()
    assert one.labels is None
    assert one.candidates is None
    assert one.parts.numpy().tobytes() == two.parts.numpy().tobytes()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (torch.ones(4), r"a mask \(torch.bool\) of a record's shape \(4,\), got torch.float32"),
        (torch.tensor([True, False]), r"got torch.bool of shape \(2,\)"),
        (torch.ones(4, dtype=torch.bool), "some features of a record but not all, got 4 of 4"),
        (torch.zeros(4, dtype=torch.bool), "got 0 of 4. If none are known, leave parts out"),
    ],
    ids=["dtype", "shape", "all", "none"],
)
def test_parts_are_a_mask_of_some(parts, words):
    with pytest.raises(ValueError, match=words):
        Informed(THREAT.known, parts=parts)


def test_several_secrets_of_a_model_are_records_of_one_pass():
    threat = Informed(THREAT.known, secrets=2)
    cohort = threat.deal(POOL, 6, seed=0)
    assert cohort.own.x.shape == (6, 2, 4)
    assert cohort.own.y.shape == (6, 2)
    passes = cohort.own.x[..., 0].reshape(3, 4)  # five records make two pairs
    assert all(len(set(one.tolist())) == 4 for one in passes)
    assert torch.equal(threat.deal(POOL, 2, seed=0, start=3).own.x, cohort.own.x[3:5])
    with pytest.raises(ValueError, match="at least 2 records, got 1"):
        threat.deal(POOL[:1], 1, seed=0)


@pytest.mark.parametrize("told", [{"parts": LEFT}, {"candidates": 2}])
def test_what_is_told_of_one_secret_is_not_told_of_several(told):
    with pytest.raises(ValueError, match="need a single secret record, got secrets=2"):
        Informed(THREAT.known, secrets=2, **told)


def test_there_is_a_secret():
    with pytest.raises(ValueError, match="expected secrets >= 1, got 0"):
        Informed(THREAT.known, secrets=0)
