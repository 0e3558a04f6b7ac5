"""The derivative of one training step of a small net along many directions, in one pass over its hidden layer (Triton).

The directions stand where `mlp_kernel.py` has models. They share one model, so that what it answers to a record is
computed once, outside; each program reads it beside its own (H, n) tangents of pre-activations, which it replaces by
the tangents of d loss / d pre-activations.
"""

# Triton's language looks like Python but is its own: untyped, and with fewer forms (no (*tuple, one more)).
# mypy: ignore-errors
# ruff: noqa: RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lostwax.trainers.fused.activation_kernel import curvature, slope


@triton.jit
def middle_tangent(
    moved,  # (r, H, n) tangents of pre-activations without bias, overwritten
    active,  # (H, n) of the model
    softmax,  # (C, n)
    labels,  # (n,)
    n,
    share,  # records of a program
    out_weight,  # (C, H)
    moved_bias,  # (r, H) tangents of the parameters
    moved_weight,  # (r, C, H)
    moved_out_bias,  # (r, C)
    to_bias,  # (r, shares, H) tangents of their gradients, a sum over each share of the records
    to_weight,  # (r, shares, C, H)
    to_out_bias,  # (r, shares, C)
    scale,  # 1 / batch size
    ACTIVATION: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program a direction and a share of the records."""
    along, part, shares = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    moved += along * H * n
    d_weight = moved_weight + along * C * H
    d_bias, bias_sums = (), ()
    for unit in tl.static_range(H):
        d_bias = d_bias + (tl.load(moved_bias + along * H + unit),)
        bias_sums = bias_sums + (tl.zeros((BLOCK,), tl.float32),)
    d_out, out_sums, weight_sums = (), (), ()
    for row in tl.static_range(C):
        d_out = d_out + (tl.load(moved_out_bias + along * C + row),)
        out_sums = out_sums + (tl.zeros((BLOCK,), tl.float32),)
        for _ in tl.static_range(H):
            weight_sums = weight_sums + (tl.zeros((BLOCK,), tl.float32),)
    end = tl.minimum(n, (part + 1) * share)
    for start in range(part * share, end, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < end
        one = tl.where(inside, scale, 0.0)
        label = tl.load(labels + column, inside, 0)
        a, d_pre, d_a = (), (), ()
        for unit in tl.static_range(H):
            on = tl.load(active + unit * n + column, inside, 0.0)
            pre = tl.load(moved + unit * n + column, inside, 0.0) + d_bias[unit]
            a, d_pre, d_a = a + (on,), d_pre + (pre,), d_a + (slope(on, ACTIVATION) * pre,)
        p, residual, d_logit, mean = (), (), (), tl.zeros((BLOCK,), tl.float32)
        for row in tl.static_range(C):
            share_of = tl.load(softmax + row * n + column, inside, 0.0)
            step = tl.zeros((BLOCK,), tl.float32) + d_out[row]  # d logit = W da + dW a + db
            for unit in tl.static_range(H):
                step += tl.load(out_weight + row * H + unit) * d_a[unit]
                step += tl.load(d_weight + row * H + unit) * a[unit]
            p, d_logit, mean = p + (share_of,), d_logit + (step,), mean + share_of * step
            residual = residual + (share_of * one - tl.where(label == row, one, 0.0),)  # (softmax - onehot) / n
        d_residual, new_out = (), ()
        for row in tl.static_range(C):
            turn = p[row] * (d_logit[row] - mean) * one  # d softmax = p (d logit - <p, d logit>)
            d_residual, new_out = d_residual + (turn,), new_out + (out_sums[row] + turn,)
        new_weight = ()
        for row in tl.static_range(C):
            for unit in tl.static_range(H):
                both = d_residual[row] * a[unit] + residual[row] * d_a[unit]
                new_weight = new_weight + (weight_sums[row * H + unit] + both,)
        new_bias = ()
        for unit in tl.static_range(H):
            back, d_back = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            for row in tl.static_range(C):
                weight = tl.load(out_weight + row * H + unit)
                back += weight * residual[row]
                d_back += weight * d_residual[row] + tl.load(d_weight + row * H + unit) * residual[row]
            delta = d_back * slope(a[unit], ACTIVATION) + back * curvature(a[unit], ACTIVATION) * d_pre[unit]
            tl.store(moved + unit * n + column, delta, inside)
            new_bias = new_bias + (bias_sums[unit] + delta,)
        bias_sums, weight_sums, out_sums = new_bias, new_weight, new_out
    place = along * shares + part
    for row in tl.static_range(C):
        tl.store(to_out_bias + place * C + row, tl.sum(out_sums[row], 0))
        for unit in tl.static_range(H):
            tl.store(to_weight + (place * C + row) * H + unit, tl.sum(weight_sums[row * H + unit], 0))
    for unit in tl.static_range(H):
        tl.store(to_bias + place * H + unit, tl.sum(bias_sums[unit], 0))
