"""Shadows in chunks."""

from dataclasses import dataclass, replace

import pytest
import torch

import lostwax as lw
from instances import instances
from lostwax.games import Informed, Records
from lostwax.inits import LeCunNormal
from lostwax.nets import mlp
from lostwax.shadows import Game, Local
from lostwax.trainers import GD

THREAT, *_ = instances(Informed)
POOL = Records(torch.rand(9, 4, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3)
TRAINER = GD(lr=0.1, steps=2, init=LeCunNormal(seed=None), tile=4)


def shadows(chunk, models=18):
    return list(Local(chunk)(Game(mlp(4, 5, 3), TRAINER, THREAT, POOL, 0), models))


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


def on_threads(count, call):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return call()
    finally:
        torch.set_num_threads(before)


def test_a_cut_tile_and_other_threads_agree_to_rounding_and_all_else_bit_for_bit():
    """As docs/sharp_edges.md says."""
    known, prior = lw.records.digits().split(60, 40, seed=0)
    net, trainer = mlp(64, 16, 10), GD(lr=0.1, steps=10, init=LeCunNormal(), tile=8)

    def trained(models, chunk=None):
        chunks = Local(chunk)(Game(net, trainer, Informed(known), prior, 0), models)
        return torch.cat([release.flat() for _, release in chunks])

    whole, cut = trained(16), trained(9)
    assert torch.equal(cut[:8], whole[:8])
    torch.testing.assert_close(cut[8], whole[8], rtol=1e-5, atol=2e-6)
    one, two = (on_threads(count, lambda: trained(16)) for count in (1, 2))
    assert torch.equal(on_threads(2, lambda: trained(16, 8)), two)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=2e-6)


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


def cramped(trainer, chunk=None):
    return list(Local(chunk)(Game(mlp(4, 5, 3), trainer, THREAT, POOL, 0), 18))


def flat(chunks):
    return torch.cat([release.flat() for _, release in chunks])


def test_out_of_memory_halves_the_chunk_and_changes_no_byte():
    with pytest.warns(RuntimeWarning, match="out of GPU memory with 18 models at a time; continuing with 8"):
        chunks = cramped(Cramped(room=9))
    assert [len(cohort) for cohort, _ in chunks] == [8, 8, 2]
    assert torch.cat([cohort.index for cohort, _ in chunks]).tolist() == list(range(18))
    assert torch.equal(flat(chunks), flat(shadows(None)))


def test_a_tile_that_does_not_fit_is_an_error_with_cures():
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"with 4 models in one tile.*like GD\(tile=2\).*fewer known"):
        cramped(Cramped(room=3), chunk=4)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Local: expected chunk >= 1, or None, got 0"):
        Local(0)
    with pytest.raises(ValueError, match="Local: expected models >= 1, got 0"):
        shadows(None, models=0)
    assert Local() in instances(Local)
