"""The slow plain definition: take row i out, look only at the model and the other rows, solve. A loop, in float64."""

import numpy as np


def softmax(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def multinomial(W, b, ridge, X, y, i):
    """SCIENCE: r = -sum R_i, G = -(sum R_i x_i^T + ridge W), x = r^T G / |r|^2, label = argmin r."""
    known, labels = np.delete(X, i, 0), np.delete(y, i)
    R = softmax(known @ W.T + b) - np.eye(len(W))[labels]
    r = -R.sum(0)
    G = -(R.T @ known + ridge * W)
    return r @ G / (r @ r), int(r.argmin())


def canonical(theta, intercept, mean, ridge, X, y, i):
    """S1 Theorem 1, corrected: s = -sum B, x = (Xbar^T B + ridge theta) / sum B, y = mean(<x, theta>) - s."""
    known, targets = np.delete(X, i, 0), np.delete(y, i)
    B = mean(known @ theta + intercept) - targets
    s = -B.sum()
    x = -(known.T @ B + ridge * theta) / s
    return x, mean(x @ theta + intercept) - s


def theorem_8(theta, X, y, i):
    """S1 Theorem 8: both candidates for least squares without an intercept, the label known."""
    known, targets = np.delete(X, i, 0), np.delete(y, i)
    g = known.T @ (known @ theta - targets)
    t = g @ theta
    root = np.sqrt(max(0.0, y[i] ** 2 - 4 * t))
    return [g * (y[i] + sign * root) / (2 * t) for sign in (1, -1)]
