"""Activations and their derivatives (Triton)."""

# Triton's language looks like Python but is its own, and untyped.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from lostwax.trainers.fused import layers

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
