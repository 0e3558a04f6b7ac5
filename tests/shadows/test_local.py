"""Shadows in chunks."""

from dataclasses import dataclass, replace

import pytest
import torch

from instances import instances
from lostwax.games import Informed, Records, TrainerFacts
from lostwax.inits import LeCunNormal
from lostwax.nets import mlp
from lostwax.shadows import Local
from lostwax.trainers import GD

THREAT, *_ = instances(Informed)
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


@dataclass(frozen=True)
class Cramped:
    """That trainer on a GPU which holds no more than `room` models (a real one is not at hand)."""

    room: int
    tile: int = 4

    def __call__(self, net, cohort, *, seed):
        if len(cohort) > self.room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return replace(TRAINER, tile=self.tile)(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.tile

    def facts(self, net, n):
        return TrainerFacts(with_tile=lambda tile: replace(self, tile=tile))


def cramped(trainer, chunk=None):
    return list(Local(chunk)(trainer, mlp(4, 5, 3), THREAT, POOL, models=18, seed=0))


def flat(chunks):
    return torch.cat([release.flat() for _, release in chunks])


def test_out_of_memory_halves_the_chunk_and_changes_no_byte():
    with pytest.warns(RuntimeWarning, match="out of GPU memory with 18 models at a time; continuing with 8"):
        chunks = cramped(Cramped(room=9))
    assert [len(cohort) for cohort, _ in chunks] == [8, 8, 2]
    assert torch.cat([cohort.index for cohort, _ in chunks]).tolist() == list(range(18))
    assert torch.equal(flat(chunks), flat(shadows(None)))


@pytest.mark.filterwarnings("ignore:Local. out of GPU memory")
def test_out_of_memory_with_one_tile_halves_the_tile():
    with pytest.warns(RuntimeWarning, match=r"4 models in one tile; continuing with tiles of 2.*Use Cramped\(tile=2\)"):
        chunks = cramped(Cramped(room=3))
    assert {len(cohort) for cohort, _ in chunks} == {2}
    assert torch.equal(flat(chunks), flat(cramped(Cramped(room=3, tile=2), chunk=2)))
    torch.testing.assert_close(flat(chunks), flat(shadows(None)))


def test_a_tile_that_was_never_full_shrinks_at_once_below_what_did_not_fit():
    with pytest.warns(RuntimeWarning, match="18 models in one tile; continuing with tiles of 16") as told:
        chunks = cramped(Cramped(room=17, tile=1024))
    assert [len(cohort) for cohort, _ in chunks] == [16, 2]
    assert len(told) == 1


@pytest.mark.filterwarnings("ignore:Local. out of GPU memory")
def test_memory_for_not_even_one_model():
    with pytest.raises(
        torch.cuda.OutOfMemoryError, match=r"with 1 models, and Cramped cannot.*Free GPU memory, use fewer known"
    ):
        cramped(Cramped(room=0))


def test_a_trainer_without_tiles_cannot_shrink():
    class Rigid:
        tile_size = Cramped.tile_size
        tile = property(lambda self: 4)

        def __call__(self, net, cohort, *, seed):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.cuda.OutOfMemoryError, match="with 4 models, and Rigid cannot train fewer"):
        cramped(Rigid(), chunk=4)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Local: expected chunk >= 1, or None, got 0"):
        Local(0)
    with pytest.raises(ValueError, match="Local: expected models >= 1, got 0"):
        shadows(None, models=0)
    assert Local() in instances(Local)
