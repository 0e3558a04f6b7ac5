"""What the last weights of noisy descent forget, read from the net, the loss and the optimiser's settings."""

from __future__ import annotations

import math

import torch
from torch import nn

from lostwax.games import Loss, LossFacts
from lostwax.games.facts import loss_facts
from lostwax.losses import CrossEntropy
from lostwax.nets import trained_head
from lostwax.released import LastWeights

PROBES = 256


def last_weights(
    net: nn.Module,
    *,
    lr: float,
    clip: float,
    weight_decay: float = 0.0,
    loss: Loss = CrossEntropy(),
    feature_norm: float | None = None,
    largest_batch: float = 1.0,
) -> LastWeights:
    """For `lw.bound(released=...)`, or a ValueError that says why nothing is proved about the last weights alone.

    The net is a linear layer, or one after layers that are not trained; its features have a norm of at most
    `feature_norm`, or that of an `lw.nets.ShortFeatures` before it. No record's gradient may be cut by `clip`, unless a
    cut one still belongs to a convex loss: that of one output, as cutting its slope gives a loss like Huber's, and a
    squared error. `largest_batch` is the size of the largest batch that may be drawn, over the expected size.
    """
    layer, norm = trained_head(net)
    norm = feature_norm if feature_norm is not None else norm
    if norm is None:
        raise ValueError(
            "last_weights: nothing bounds the features. Put lw.nets.ShortFeatures(norm) before the linear layer, or "
            "pass feature_norm if no record can have longer ones."
        )
    if not (norm >= 0 and largest_batch >= 1):
        raise ValueError(
            f"last_weights: expected feature_norm of at least 0 and largest_batch of at least 1, got {norm} and "
            f"{largest_batch}. The largest batch is no smaller than the expected one."
        )
    facts = loss_facts(loss, layer.out_features)
    if facts is None or facts.curvature is None:
        raise ValueError(f"last_weights: {loss} states no largest curvature. Use CrossEntropy, or a squared error.")
    if _exceeds(loss, facts, layer.out_features):
        raise ValueError(
            f"last_weights: {type(loss).__name__} is steeper or sharper than it states. Give it a facts() of its own."
        )
    length = math.hypot(norm, 0.0 if layer.bias is None else 1.0)
    longest = math.inf if facts.slope is None else facts.slope * length
    if not facts.shortened and clip < longest * (1 - 1e-12):
        raise ValueError(
            f"last_weights: clip={clip:g} cuts gradients of {type(loss).__name__}, which are up to {longest:.6g} long, "
            f"and cut ones belong to no convex loss. Use clip={math.ceil(longest * 1e6) / 1e6:g}, or shorter features."
        )
    if math.isinf(longest) and math.isinf(clip):
        raise ValueError(f"last_weights: gradients of {type(loss).__name__} are unbounded. Pass a finite clip.")
    smoothness = facts.curvature * length**2 * largest_batch * (1 + 1e-12) + weight_decay
    return LastWeights(lr=lr, smoothness=smoothness, convexity=weight_decay)


def _exceeds(loss: Loss, facts: LossFacts, outputs: int) -> bool:
    """Whether residuals contradict what is stated: a subclass may weigh classes, and inherit the statement."""
    draws = torch.Generator().manual_seed(0)
    z, step, y = torch.randn(3, PROBES, outputs, generator=draws, dtype=torch.float64)
    z, step = z * torch.logspace(-1, 1.5, PROBES).unsqueeze(1), step / 10
    if facts.classes is not None:
        y = torch.arange(PROBES) % facts.classes
    residual = loss.residual(z, y)
    change = loss.residual(z + step, y) - residual
    steepest, sharpest = residual.norm(dim=1).max(), (change.norm(dim=1) / step.norm(dim=1)).max()
    steep = facts.slope is not None and bool(steepest > facts.slope * (1 + 1e-9))
    bent = facts.curvature is not None and bool(sharpest > facts.curvature * (1 + 1e-9))
    return steep or bent or bool(((change * step).sum(1) < -1e-9).any())
