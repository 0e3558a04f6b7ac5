"""All steps of linear heads in Gram space, from the first to the last without leaving the registers (Triton)."""

# Triton's language looks like Python but is its own, and untyped.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

_MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def descend(
    rows,  # (m, c, n) the result: A after the last step
    outputs,  # (m, c, n) of the heads before training
    gram,  # (m, n, n)
    labels,  # (m, n)
    rates,  # (t,) learning rates
    scales,  # (t,) s before each step
    n,
    c,
    steps,
    momentum,
    decay,
    N: tl.constexpr,  # n and c rounded up to what a product of tiles takes
    C: tl.constexpr,
):
    """One program a head; `GD.update` on A for cross-entropy."""
    head = tl.program_id(0).to(tl.int64)
    record, unit = tl.arange(0, N), tl.arange(0, C)
    exists = (unit < c)[:, None] & (record < n)[None, :]
    cell = head * c * n + unit[:, None] * n + record[None, :]
    start = tl.load(outputs + cell, exists, 0.0)  # (C, N)
    pair = head * n * n + record[:, None] * n + record[None, :]
    products = tl.load(gram + pair, (record < n)[:, None] & (record < n)[None, :], 0.0) / n  # (N, N)
    label = tl.load(labels + head * n + record, record < n, 0)
    right = (unit[:, None] == label[None, :]).to(tl.float32)
    a = tl.zeros((C, N), tl.float32)
    v = tl.zeros((C, N), tl.float32)
    for step in range(steps):
        out = tl.load(scales + step) * start + tl.dot(a, products, input_precision="ieee")  # s W_0 X^T + A X X^T / n
        out = tl.where((unit < c)[:, None], out, _MINUS_INFINITY)
        raised = tl.exp(out - tl.max(out, 0)[None, :])
        residual = raised / tl.sum(raised, 0)[None, :] - right  # softmax - onehot
        v = momentum * v + tl.where(exists, residual, 0.0) + decay * a
        a -= tl.load(rates + step) * v
    tl.store(rows + cell, a, exists)
