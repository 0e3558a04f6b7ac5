"""Rows that stand out, among more missing rows than there are equations for."""

import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from equations import read
from lostwax.attacks.closed_form.missing_rows import _Game
from lostwax.attacks.closed_form.sections import Kinds
from lostwax.attacks.closed_form.undetermined import Crowd, _stands_out
from lostwax.seeds import generator


def test_the_row_that_stands_out_is_the_minimum_that_autograd_sees():
    """The normal equations are made without slopes of terms; here the same sum of squares is differentiated."""
    x, y = load_wine(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    fitted = read(LogisticRegression(C=10, tol=1e-10, max_iter=10_000).fit(x, y), (x, y))
    game = _Game.of(fitted, torch.tensor([3, 80, 120, 150]), generator(0))
    crowd = Crowd.of(game.terms, game.known, game.kinds, game.prior)
    mean, precision = crowd._moments
    seen, precision = game.gap.flatten() - 3 * mean, precision / 3
    u, label, error = _stands_out(game.terms, seen, precision, game.prior, crowd.weight)

    def value(u):
        kinds = Kinds(game.prior.labels[label][None], crowd.weight[label][None])
        r = game.terms.residuals(game.terms.outputs(u[None]), kinds)
        misfit = (r[:, :, None] * game.terms.with_ones(u[None])[:, None]).flatten() - seen
        from_mean = u - game.prior.means[label]
        return misfit @ precision @ misfit + from_mean @ game.prior.precision @ from_mean

    slope, curve = torch.func.grad(value)(u), torch.func.hessian(value)(u)
    assert 0 < error < 1
    assert torch.linalg.solve(curve, slope).abs().max() < 1e-3  # the step that is left, in standard deviations
