"""Random numbers by counter: those of numpy, on every device, and of the law they should have."""

import os

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from lostwax.philox import bits, by_numpy, by_triton, happens, normal, orders, uniform
from lostwax.seeds import key

KEYS = [0, 1, 2**64 - 1, 2**127, 2**128 - 1, key(0, "noise")]
NUMBERS = torch.tensor([0, 1, 7, 300, 2**40, 2**62])


@pytest.mark.parametrize("one", KEYS)
def test_a_row_is_what_numpys_generator_draws(one):
    for before in (0, 5, 2**40):
        for number, row in zip(NUMBERS.tolist(), by_numpy(one, NUMBERS, 3, before), strict=True):
            generator = np.random.Philox(key=one, counter=(number << 128) + before)
            assert (row.numpy().view(np.uint64) == generator.random_raw(12)).all()


@pytest.mark.parametrize("one", KEYS)
def test_a_gpu_makes_the_same_bits(one):
    """By Triton's interpreter (see conftest.py)."""
    pytest.importorskip("triton", reason="Triton comes with torch on Linux")
    for before in (0, 1, 16, 2**40):
        assert torch.equal(by_triton(one, NUMBERS, 3, before), by_numpy(one, NUMBERS, 3, before))


def test_numbers_of_any_kind_and_place_in_memory():
    pytest.importorskip("triton", reason="Triton comes with torch on Linux")
    some = torch.tensor([[1, 2], [7, 8], [300, 9]], dtype=torch.int32)[:, 0]
    for ours in (by_triton, by_numpy):
        assert torch.equal(ours(5, some, 2, 0), by_numpy(5, some.long().contiguous(), 2, 0))


def test_more_blocks_than_a_program_goes_through():
    pytest.importorskip("triton", reason="Triton comes with torch on Linux")
    assert torch.equal(by_triton(3, NUMBERS[:2], 300, 2), by_numpy(3, NUMBERS[:2], 300, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("one", KEYS)
def test_it_does_so_where_there_is_one(one):
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    numbers = torch.cat([NUMBERS, torch.arange(300)])
    for before in (0, 1, 16, 2**40):
        assert torch.equal(bits(one, numbers.cuda(), 995, before=before).cpu(), bits(one, numbers, 995, before=before))
    assert torch.equal(orders(one, numbers.cuda(), 1_000).cpu(), orders(one, numbers, 1_000))
    assert torch.equal(uniform(one, numbers.cuda(), 77).cpu(), uniform(one, numbers, 77))
    assert torch.equal(happens(one, numbers.cuda(), 99, 0.3, turn=3).cpu(), happens(one, numbers, 99, 0.3, turn=3))
    torch.testing.assert_close(normal(one, numbers.cuda(), 77).cpu(), normal(one, numbers, 77), rtol=1e-4, atol=1e-5)


def test_threads_share_the_rows(monkeypatch):
    alone = by_numpy(5, torch.arange(7), 4, 0)
    monkeypatch.setattr("lostwax.philox.MIN_THREAD_WORDS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(by_numpy(5, torch.arange(7), 4, 0), alone)
    finally:
        torch.set_num_threads(before)


def test_a_row_belongs_to_key_and_number():
    whole = bits(5, torch.arange(20), 4)
    assert torch.equal(bits(5, torch.tensor([17, 3]), 4), whole[[17, 3]])
    assert torch.equal(bits(5, torch.arange(20), 2, before=2), whole[:, 16:])
    assert len(whole.unique(dim=0)) == 20
    assert not torch.equal(bits(6, torch.arange(20), 4), whole)


@pytest.mark.parametrize(
    ("draw", "law", "deviation"), [(normal, "norm", 1.0), (lambda *draw: (1 + uniform(*draw)) / 2, "uniform", 12**-0.5)]
)
def test_the_law_and_independence_of_what_is_drawn(draw, law, deviation):
    rows = draw(key(0, "law"), torch.arange(120), 201)
    assert rows.shape == (120, 201)
    assert kstest(rows.flatten().numpy(), law).pvalue > 1e-3
    standard = (rows - rows.mean()) / deviation
    others = (standard @ standard.mT / 201)[~torch.eye(120, dtype=torch.bool)]
    assert others.abs().max() < 6 / 201**0.5


def test_turns_are_apart():
    first, second = (normal(0, torch.arange(3), 50, turn=turn) for turn in (0, 1))
    assert not torch.isin(first, second).any()


def test_normals_have_their_tails():
    """Of 4 million numbers, as many beyond three, four and five deviations as there should be."""
    drawn = normal(1, torch.arange(8), 500_000)
    for far in (3, 4, 5):
        for beyond in (drawn > far, drawn < -far):
            expected = 4e6 * norm.sf(far)
            assert abs(int(beyond.sum()) - expected) < 5 * expected**0.5 + 3


def test_every_order_is_as_likely():
    found, counts = orders(2, torch.arange(24_000), 4).unique(dim=0, return_counts=True)
    assert len(found) == 24
    assert ((counts - 1_000).abs() < 4.5 * (24_000 / 24 * 23 / 24) ** 0.5).all()


def test_what_happens_by_chance_happens_so_often():
    drawn = torch.stack([happens(key(0, "sample"), torch.arange(50), 1_001, 0.02, turn=turn) for turn in range(20)])
    assert drawn.shape == (20, 50, 1_001)
    assert drawn.double().mean() == pytest.approx(0.02, abs=5 * (0.02 * 0.98 / drawn.numel()) ** 0.5)
    assert not happens(1, torch.arange(9), 500, 0.0).any()
    assert happens(1, torch.arange(9), 500, 1 - 2**-53).all()
    assert not torch.equal(*(happens(3, NUMBERS, 10, 0.5, turn=turn) for turn in (0, 1)))
