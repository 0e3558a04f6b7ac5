"""Triton kernels for nets with one hidden layer, and for linear heads in dual coordinates."""

# Triton code looks like Python but is untyped, and has no (*tuple, element).
# mypy: ignore-errors
# ruff: noqa: RUF005

from __future__ import annotations

import triton
import triton.language as tl

from lostwax.trainers import stacked as layers

IDENTITY, ELU, RELU, TANH, SIGMOID = (tl.constexpr(layers.ACTIVATIONS[kind]) for kind in layers.ACTIVATIONS)


@triton.jit
def activate(pre, ACTIVATION: tl.constexpr):
    """f(pre)."""
    if ACTIVATION == IDENTITY:
        return pre
    if ACTIVATION == ELU:
        return tl.where(pre > 0, pre, tl.exp(tl.minimum(pre, 0.0)) - 1)
    if ACTIVATION == RELU:
        return tl.maximum(pre, 0.0)
    if ACTIVATION == TANH:
        return 2 * tl.sigmoid(2 * pre) - 1
    return tl.sigmoid(pre)


@triton.jit
def slope(active, ACTIVATION: tl.constexpr):
    """f'(pre), from active = f(pre)."""
    if ACTIVATION == IDENTITY:
        return tl.full(active.shape, 1.0, tl.float32)
    if ACTIVATION == ELU:
        return tl.where(active < 0, active + 1, 1.0)
    if ACTIVATION == RELU:
        return tl.where(active > 0, 1.0, 0.0)
    if ACTIVATION == TANH:
        return 1 - active * active
    return active * (1 - active)


@triton.jit
def curvature(active, ACTIVATION: tl.constexpr):
    """f''(pre), from active = f(pre)."""
    if ACTIVATION == ELU:
        return tl.where(active < 0, active + 1, 0.0)
    if ACTIVATION == TANH:
        return -2 * active * (1 - active * active)
    if ACTIVATION == SIGMOID:
        return active * (1 - active) * (1 - 2 * active)
    return tl.zeros(active.shape, tl.float32)


# One pass over the hidden layer of m stacked models, from pre-activation to both gradients.
#
# In a net of one hidden layer, everything between the two large products of a step is local to a record: activation,
# logits, softmax, residual, and back. Operation by operation, each reads and writes an array (m, h, n); here that array
# is read and written once, in place, and the small gradients are summed in the same pass.
#
# There are two versions: `middle_unrolled` keeps all numbers of a record in registers of one thread, in float32, for
# small nets (as in Balle et al. 2022); `middle` multiplies tiles, for larger ones.


_MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def _records(
    hidden,  # (h, count) of one model: pre-activations without bias; d loss / d pre-activations is written over them
    labels,  # (count,)
    count,
    out_weight,  # (C, H) registers, zero beyond c and h
    hidden_bias,  # (H,)
    out_bias,  # (C,)
    h,
    c,
    scale,  # 1 / n
    to_weight,  # (C, H) sums so far
    to_hidden_bias,  # (H,)
    to_out_bias,  # (C,)
    ACTIVATION: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """All `count` records of one model, BLOCK at a time; returns the three sums."""
    units, classes = tl.arange(0, H), tl.arange(0, C)
    for start in range(0, count, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < count
        place = hidden + units[:, None] * count + column[None, :]
        there = (units < h)[:, None] & inside[None, :]
        active = activate(tl.load(place, there, 0.0) + hidden_bias[:, None], ACTIVATION)  # (H, BLOCK)
        active = tl.where(there, active, 0.0)
        logits = tl.dot(out_weight, active, input_precision=PRECISION) + out_bias[:, None]  # (C, BLOCK)
        logits = tl.where((classes < c)[:, None], logits, _MINUS_INFINITY)
        raised = tl.exp(logits - tl.max(logits, 0)[None, :])
        label = tl.load(labels + column, inside, 0)
        right = classes[:, None] == label[None, :]
        residual = (raised / tl.sum(raised, 0)[None, :] - right.to(tl.float32)) * scale  # (softmax - onehot) / n
        residual = tl.where(inside[None, :], residual, 0.0)
        to_weight += tl.dot(residual, tl.trans(active), input_precision=PRECISION)
        to_out_bias += tl.sum(residual, 1)
        delta = tl.dot(tl.trans(out_weight), residual, input_precision=PRECISION)  # (H, BLOCK)
        delta *= slope(active, ACTIVATION)
        to_hidden_bias += tl.sum(tl.where(there, delta, 0.0), 1)
        tl.store(place, delta, there)
    return to_weight, to_hidden_bias, to_out_bias


@triton.jit
def middle(
    shared,  # (m, h, n) of the records that all models share, overwritten
    shared_labels,  # (n,)
    n,
    own,  # (m, h, k) of each model's own records, overwritten
    own_labels,  # (m, k)
    k,
    out_weight,  # (m, c, h)
    hidden_bias,  # (m, h)
    out_bias,  # (m, c)
    weight_gradient,  # (m, c, h) the three results
    hidden_bias_gradient,  # (m, h)
    out_bias_gradient,  # (m, c)
    h,
    c,
    scale,
    ACTIVATION: tl.constexpr,
    H: tl.constexpr,  # h and c rounded up to what a product of tiles takes
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program per model: the order of summation is fixed, so that the same models give the same bytes."""
    model = tl.program_id(0).to(tl.int64)
    units, classes = tl.arange(0, H), tl.arange(0, C)
    cell = model * c * h + classes[:, None] * h + units[None, :]
    exists = (classes < c)[:, None] & (units < h)[None, :]
    weight = tl.load(out_weight + cell, exists, 0.0)
    bias_in = tl.load(hidden_bias + model * h + units, units < h, 0.0)
    bias_out = tl.load(out_bias + model * c + classes, classes < c, 0.0)
    to_weight = tl.zeros((C, H), tl.float32)
    to_in = tl.zeros((H,), tl.float32)
    to_out = tl.zeros((C,), tl.float32)
    to_weight, to_in, to_out = _records(
        shared + model * h * n, shared_labels, n, weight, bias_in, bias_out, h, c, scale,
        to_weight, to_in, to_out, ACTIVATION, H, C, BLOCK, PRECISION,
    )  # fmt: skip
    to_weight, to_in, to_out = _records(
        own + model * h * k, own_labels + model * k, k, weight, bias_in, bias_out, h, c, scale,
        to_weight, to_in, to_out, ACTIVATION, H, C, BLOCK, PRECISION,
    )  # fmt: skip
    tl.store(weight_gradient + cell, to_weight, exists)
    tl.store(hidden_bias_gradient + model * h + units, to_in, units < h)
    tl.store(out_bias_gradient + model * c + classes, to_out, classes < c)


@triton.jit
def _records_unrolled(
    hidden,  # (H, count) of one model, overwritten
    labels,  # (count,)
    count,
    out_weight,  # (C, H) in memory
    hidden_bias,  # H numbers
    out_bias,  # C numbers
    scale,
    to_weight,  # C H vectors of BLOCK: the sums so far, per thread
    to_hidden_bias,  # H vectors
    to_out_bias,  # C vectors
    ACTIVATION: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `_records`; a tuple holds what is a row of a tile there."""
    for start in range(0, count, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < count
        label = tl.load(labels + column, inside, 0)
        active = ()
        for unit in tl.static_range(H):
            pre = tl.load(hidden + unit * count + column, inside, 0.0) + hidden_bias[unit]
            active = active + (activate(pre, ACTIVATION),)
        logits, top = (), tl.full((BLOCK,), _MINUS_INFINITY, tl.float32)
        for row in tl.static_range(C):
            logit = tl.zeros((BLOCK,), tl.float32) + out_bias[row]
            for unit in tl.static_range(H):
                logit += tl.load(out_weight + row * H + unit) * active[unit]
            logits, top = logits + (logit,), tl.maximum(top, logit)
        raised, total = (), tl.zeros((BLOCK,), tl.float32)
        for row in tl.static_range(C):
            power = tl.exp(logits[row] - top)
            raised, total = raised + (power,), total + power
        mass = tl.where(inside, scale, 0.0)
        residual, out_sums = (), ()
        for row in tl.static_range(C):
            slack = raised[row] / total * mass - tl.where(label == row, mass, 0.0)  # (softmax - onehot) / n
            residual, out_sums = residual + (slack,), out_sums + (to_out_bias[row] + slack,)
        weight_sums = ()
        for row in tl.static_range(C):
            for unit in tl.static_range(H):
                weight_sums = weight_sums + (to_weight[row * H + unit] + residual[row] * active[unit],)
        hidden_sums = ()
        for unit in tl.static_range(H):
            delta = tl.zeros((BLOCK,), tl.float32)
            for row in tl.static_range(C):
                delta += tl.load(out_weight + row * H + unit) * residual[row]
            delta *= slope(active[unit], ACTIVATION)
            tl.store(hidden + unit * count + column, delta, inside)
            hidden_sums = hidden_sums + (to_hidden_bias[unit] + delta,)
        to_weight, to_hidden_bias, to_out_bias = weight_sums, hidden_sums, out_sums
    return to_weight, to_hidden_bias, to_out_bias


@triton.jit
def middle_unrolled(
    shared,
    shared_labels,
    n,
    own,
    own_labels,
    k,
    out_weight,
    hidden_bias,
    out_bias,
    weight_gradient,
    hidden_bias_gradient,
    out_bias_gradient,
    scale,
    ACTIVATION: tl.constexpr,
    H: tl.constexpr,  # here exactly h and c
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As `middle`."""
    model = tl.program_id(0).to(tl.int64)
    weight, bias_in, bias_out = out_weight + model * C * H, (), ()
    to_weight, to_in, to_out = (), (), ()
    for unit in tl.static_range(H):
        bias_in = bias_in + (tl.load(hidden_bias + model * H + unit),)
        to_in = to_in + (tl.zeros((BLOCK,), tl.float32),)
    for row in tl.static_range(C):
        bias_out = bias_out + (tl.load(out_bias + model * C + row),)
        to_out = to_out + (tl.zeros((BLOCK,), tl.float32),)
        for _ in tl.static_range(H):
            to_weight = to_weight + (tl.zeros((BLOCK,), tl.float32),)
    to_weight, to_in, to_out = _records_unrolled(
        shared + model * H * n, shared_labels, n, weight, bias_in, bias_out, scale, to_weight, to_in, to_out,
        ACTIVATION, H, C, BLOCK,
    )  # fmt: skip
    to_weight, to_in, to_out = _records_unrolled(
        own + model * H * k, own_labels + model * k, k, weight, bias_in, bias_out, scale, to_weight, to_in, to_out,
        ACTIVATION, H, C, BLOCK,
    )  # fmt: skip
    for row in tl.static_range(C):
        tl.store(out_bias_gradient + model * C + row, tl.sum(to_out[row], 0))
        for unit in tl.static_range(H):
            tl.store(weight_gradient + (model * C + row) * H + unit, tl.sum(to_weight[row * H + unit], 0))
    for unit in tl.static_range(H):
        tl.store(hidden_bias_gradient + model * H + unit, tl.sum(to_in[unit], 0))


# The derivative of one training step of a small net along many directions, in one pass over its hidden layer.
#
# Directions take the place of models in `middle`. They share one model, whose activations and softmax are computed once
# outside; each program replaces its (H, n) tangents of pre-activations by the tangents of d loss / d pre-activations.


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
    """One program per direction and share of the records."""
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
        mass = tl.where(inside, scale, 0.0)
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
            residual = residual + (share_of * mass - tl.where(label == row, mass, 0.0),)  # (softmax - onehot) / n
        d_residual, new_out = (), ()
        for row in tl.static_range(C):
            turn = p[row] * (d_logit[row] - mean) * mass  # d softmax = p (d logit - <p, d logit>)
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
    """All steps of linear heads in registers, one program per head: `GD.update` on A for cross-entropy."""
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
