"""Forests grown for tests, read in the plainest way."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble._forest import _generate_sample_indices

from lostwax.games.trees import LEAF, Forest, Tree


def random_table(
    n: int, d: int, *, gaps: float = 0.0, seed: int = 0, levels: int = 10**9
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers of a few levels (ties), some missing, and labels 0 and 1 that depend on them."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(n, d)) * levels) / levels
    y = ((x[:, 0] + rng.normal(size=n)) > 0).astype(np.float64)
    y[:2] = 0, 1
    x[rng.random((n, d)) < gaps] = np.nan
    return x, y


def forest_of_sklearn(model: Any, x: NDArray[np.float64]) -> Forest:
    """Trees of a plain scikit-learn model without weights."""
    trees = []
    for one in getattr(model, "estimators_", [model]):
        share = np.ones(len(x))
        if getattr(model, "bootstrap", False):
            given = (one.random_state, len(x), len(x), None)[: len(signature(_generate_sample_indices).parameters)]
            drawn = _generate_sample_indices(*given)  # scikit-learn 1.8 takes no weights
            share = np.isin(np.arange(len(x)), drawn).astype(float)
        tree = one.tree_
        leaf = tree.children_left == LEAF
        trees.append(
            Tree(
                feature=np.where(leaf, LEAF, tree.feature),
                threshold=tree.threshold,
                left=tree.children_left,
                right=tree.children_right,
                missing_left=tree.missing_go_to_left.astype(bool),
                size=tree.n_node_samples.astype(float),
                share=share,
                rounding=np.zeros(tree.node_count),
                between_neighbours=one.splitter == "best",
            )
        )
    return Forest(tuple(trees))
