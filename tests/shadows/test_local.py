"""Shadows in chunks."""

import pytest
import torch

from lostwax.inits import LeCunNormal
from lostwax.nets import mlp
from lostwax.shadows import Local
from lostwax.threats import Informed
from lostwax.trainers import GD
from lostwax.types import Records

THREAT, _ = Informed.examples()
POOL = Records(torch.rand(9, 4, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3)
TRAINER = GD(lr=0.1, steps=2, init=LeCunNormal(seed=None), tile=4)


def shadows(chunk, models=18):
    return list(Local(chunk)(TRAINER, mlp(4, 5, 3), THREAT, POOL, models=models, seed=0))


@pytest.mark.parametrize(("chunk", "sizes"), [(None, [18]), (1, [4, 4, 4, 4, 2]), (11, [8, 8, 2]), (100, [18])])
def test_chunks_are_whole_tiles_in_order_and_change_no_byte(chunk, sizes):
    chunks = shadows(chunk)
    assert [len(cohort) for cohort, _ in chunks] == [len(release) for _, release in chunks] == sizes
    assert torch.cat([cohort.index for cohort, _ in chunks]).tolist() == list(range(18))
    ((_, whole),) = shadows(100)
    assert torch.equal(torch.cat([release.flat() for _, release in chunks]), whole.flat())


def test_a_longer_run_begins_with_the_shorter_one():
    ((_, few),), ((_, many),) = shadows(None, models=8), shadows(None, models=16)
    assert torch.equal(few.flat(), many.flat()[:8])


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Local: expected chunk >= 1, or None, got 0"):
        Local(0)
    with pytest.raises(ValueError, match="Local: expected models >= 1, got 0"):
        shadows(None, models=0)
    assert Local() in Local.examples()
