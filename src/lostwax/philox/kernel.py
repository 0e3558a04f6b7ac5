"""Philox bits on a GPU (Triton)."""

# Triton code looks like Python but is untyped.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.random import philox_impl

CHUNK = 256  # counter values per program


@triton.jit(do_not_specialize=["low", "high", "before"])
def philox(bits, numbers, low, high, before, blocks, CHUNK: tl.constexpr = CHUNK):
    """bits (m, 4 blocks) as int64: row i is what numpy.random.Philox draws from counter (before, 0, number i, 0).

    `low` and `high` are the halves of the key, as signed integers.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    zero = tl.zeros([CHUNK], tl.uint64)
    number = zero + tl.load(numbers + row).to(tl.uint64, bitcast=True)
    counter = block.to(tl.uint64) + before.to(tl.uint64) + 1  # numpy increments before drawing
    key_low = low.to(tl.int64).to(tl.uint64, bitcast=True)
    key_high = high.to(tl.int64).to(tl.uint64, bitcast=True)
    a, b, c, d = philox_impl(counter, zero, number, zero, key_low, key_high)
    target = bits + (row * blocks + block) * 4
    wanted = block < blocks
    tl.store(target, a.to(tl.int64, bitcast=True), wanted)
    tl.store(target + 1, b.to(tl.int64, bitcast=True), wanted)
    tl.store(target + 2, c.to(tl.int64, bitcast=True), wanted)
    tl.store(target + 3, d.to(tl.int64, bitcast=True), wanted)
