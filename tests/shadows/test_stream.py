"""Fresh models without end."""

from itertools import islice

import pytest
import torch

import lostwax as lw
from lostwax.shadows import stream
from shadows.game import PRIOR, game

NET, TRAINER, THREAT, _, _ = game(tile=8)
GAME = {"trainer": TRAINER, "threat": THREAT, "prior": PRIOR}


def some(tiles, **settings):
    return list(islice(stream(NET, **GAME, **settings), tiles))


def numbers(batches):
    return torch.cat([cohort.index for cohort, _ in batches]).tolist()


def flat(batches):
    return torch.cat([release.flat() for _, release in batches])


def test_no_model_comes_twice_and_all_are_those_of_simulate():
    batches = some(25)  # beyond the prior's 150 records
    assert numbers(batches) == list(range(200))
    plain = lw.simulate(NET, **GAME, models=200)
    assert torch.equal(flat(batches), flat(plain))


@pytest.mark.parametrize("augment", [None, lw.learning.Shifts()])
@pytest.mark.parametrize("start", [8, 13])
def test_goes_on_from_any_number(start, augment):
    whole, rest = some(4, augment=augment), some(2, start=start, augment=augment)
    count = len(numbers(rest))
    assert numbers(rest) == list(range(start, start + count))
    assert torch.equal(flat(rest), flat(whole)[start : start + count])


def test_augmented_records_are_new_ones_of_those_dealt():
    ((plain, _),), batches = some(1), some(20, augment=lw.learning.Shifts(pixels=1))
    cohort, release = batches[0]
    assert torch.equal(cohort.own.y, plain.own.y)
    moved = cohort.own.x[:, 0]
    shifts = [torch.roll(plain.own.x[:, 0], (down, right), (2, 3)) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    inner = (..., slice(1, 7), slice(1, 7))  # edges are drawn out, not rolled
    agrees = torch.stack([(shift[inner] == moved[inner]).flatten(1).all(1) for shift in shifts])  # (9, m)
    assert agrees.any(0).all()
    assert torch.equal(TRAINER(NET, cohort, seed=0).flat(), release.flat())
    first, second = batches[0][0].own.x, batches[19][0].own.x[-2:]  # 150 records on, the same are dealt again
    assert not any(torch.equal(record, other) for record in first for other in second)


def test_seeds_differ():
    assert not torch.equal(some(1, seed=0)[0][0].own.x, some(1, seed=1)[0][0].own.x)


def test_start_is_checked():
    with pytest.raises(ValueError, match="stream: expected start >= 0, got -1"):
        some(1, start=-1)
