"""S3 Figure 8, MNIST: the gradient-based attack against the prior-aware one, with priors of 2, 8 and 128.

    python papers/s3_figure8.py --device cuda [--rows epsilon_10 ...] [--data FOLDER]

S3 appendix D: a record is rebuilt without a prior (Eq. 1), as in papers/s3_gradient.py and from the same victims, and
only then compared with a prior of the secret and n - 1 other digits: a success where the secret is nearest, as
`lw.attacks.NearestCandidate(lw.GradientInversion())` answers. S3 draws 1,000 priors for each of 1,000 targets; here the
mean over all priors of digits that are nobody's secret is computed, from how many of them are nearer than the secret.
The prior-aware attack (`lw.PriorAware`) sees the same steps, and one prior per target. S3 in words: "an order of
magnitude difference" in all three panels; its numbers are only drawn. The gradient-based attack is by Adam where S3 has
a million plain steps. It knows the label, as S3's, but does not limit the candidates to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from s1_mnist import mean_row, parser, squared_errors, write
from s3_attacks import Bench, by_size, published, victim
from s3_gradient import GAMES
from scipy.stats import hypergeom

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Knowledge
from lostwax_dev.results import Row

PRIORS = (2, 8, 128)


def nearest_success(nearer: ArrayLike, others: int, size: int) -> NDArray[np.float64]:
    """(targets,) how often the secret is nearest of a prior, over all draws of its `size` - 1 others.

    None of the `nearer` of the others is drawn: C(others - nearer, size - 1) / C(others, size - 1).
    """
    shares: NDArray[np.float64] = hypergeom.pmf(0, others, np.asarray(nearer), size - 1)
    return shares


def play(name: str, bench: Bench) -> Iterator[Row]:
    """Both attacks on the same steps."""
    options = bench.options
    secrets, others = bench.pool[: options.targets], bench.pool[options.targets :]
    sizes = [size for size in PRIORS if size <= len(others)]
    threat = lw.Informed(bench.known, label_known=True)
    cohort = threat.deal(secrets, options.targets, seed=options.seed)
    (trainer, accuracy), net, truth = victim(GAMES[name], bench), lw.nets.mlp(784, 10, 10), cohort.own.x[:, 0]
    release = published(trainer, net, cohort, options.seed)
    yield Row(f"{name}.accuracy", f"{name}: test accuracy at lr {trainer.lr:g}", accuracy)

    inversion = lw.GradientInversion(iterations=options.iterations, prior=False)
    rebuild = inversion.prepare(Knowledge(net, trainer, threat, Weights(), others), seed=options.seed)
    found = rebuild(release, threat.hints(cohort, others, seed=options.seed)).records.x[:, 0]
    guess, known = found.flatten(1).double(), others.x.flatten(1).double()
    own = (guess - truth.flatten(1).double()).norm(dim=1, keepdim=True)
    nearer = (torch.cdist(guess, known) <= own).sum(1).cpu().numpy()  # (targets,) a tie is no success
    what = f"{name}: mean MSE of the gradient-based attack ({options.targets} targets, {options.iterations} iterations)"
    yield mean_row(f"{name}.error", what, squared_errors(found, truth))
    for size in sizes:
        what = f"{name}, {size} candidates: success of the gradient-based attack ({options.targets} targets)"
        yield mean_row(f"{name}.gradient.{size}", what, nearest_success(nearer, len(others), size))

    among = lw.Informed(bench.known, candidates=sizes[-1])
    hints = among.hints(cohort, others, seed=options.seed)
    assert hints is not None
    assert hints.candidates is not None
    chooser = lw.PriorAware().prepare(Knowledge(net, trainer, among, Weights(), others[:2]), seed=options.seed)
    scores = chooser.scores(release, hints.candidates)
    secret = (hints.candidates.x == cohort.own.x).flatten(2).all(2).int().argmax(1).to(scores.device)
    yield from by_size(f"{name}.prior_aware", scores, secret, sizes, trainer, options.seed)


def main() -> None:
    sizes = {
        "targets": (1_000, "games, each with its own model"),
        "pool": (10_000, "records that secrets, and other candidates, are drawn from"),
        "test": (2_000, "records to measure accuracy by"),
        "iterations": (2_000, "of descent"),
        "seed": (0, "of everything drawn"),
    }
    options = parser(__doc__ or "", GAMES, sizes).parse_args()
    bench = Bench(options)
    for name in options.rows:
        write(__file__, list(play(name, bench)), options)


if __name__ == "__main__":
    main()
