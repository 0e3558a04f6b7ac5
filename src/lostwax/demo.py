"""The demo: are a logistic regression and a small net on digits safe to release, and what does an erasure tell?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lostwax.audits import Audit
    from lostwax.games import Attack


def run(out: Path, *, shadows: int = 3_000, victims: int = 400, epochs: int = 20, inverted: int = 5) -> None:
    """Run five audits, print them, and write a report of each to its own folder in `out`."""
    import lostwax as lw
    from lostwax.reports import check_folder
    from lostwax.reports.figures import draw_rebuilt

    names = ("logistic_regression", "kernel_ridge", "reconn", "newton", "erased")
    for name in names:
        check_folder(out / name)
    out.mkdir(parents=True, exist_ok=True)
    learning: Any = {"shadows": shadows, "augment": lw.learning.Shifts(), "validation": 0.1, "store": out / "shadows"}
    regressor, decoder = lw.KernelRidge(**learning), lw.RecoNN(**learning, epochs=epochs)

    print("1. A logistic regression on scikit-learn's 1,797 handwritten digits.")
    print("   For every digit: could somebody who knows the others rebuild it from the model?\n", flush=True)
    regression = logistic_regression()
    _show(regression, out / names[0])
    first_of_each = [int((regression.truth.y == label).nonzero()[0, 0]) for label in range(10)]
    draw_rebuilt(regression, out / "rebuilt_digits.png", first_of_each)  # the picture in README

    print(f"2. A neural net, trained on 100 known digits and a secret one, {victims} times.")
    print("   The attack never saw the secrets.")
    print(f"   It learns from {shadows:,} shadow models, by kernel ridge regression.\n", flush=True)
    _show(neural_net(regressor, games=victims), out / names[1])

    print("3. The same victims and shadow models, but a decoder network learns from them.\n", flush=True)
    _show(neural_net(decoder, games=victims), out / names[2])

    print(f"4. {inverted} of the victims, by Newton's method: training is a function of the secret.")
    print("   Invert it.\n", flush=True)
    _show(neural_net(lw.Newton(bank=200), games=inverted), out / names[3])

    print("5. A patient asks to be erased, and the model is fitted again without this row.")
    print("   What do the two files tell somebody who knows no row at all?\n", flush=True)
    _show(erased(), out / names[4])

    print("The reports open in any browser:", *(f"  {out / name / 'report.html'}" for name in names), sep="\n")


def logistic_regression() -> Audit:
    """This model: every digit is rebuilt in closed form."""
    from sklearn.linear_model import LogisticRegression

    import lostwax as lw

    digits = lw.records.digits()
    model = LogisticRegression(max_iter=1_000).fit(digits.x.flatten(1).double().numpy(), digits.y.numpy())
    return lw.audit(model, digits)


def neural_net(attack: Attack, *, games: int) -> Audit:
    """This way of training: the attack runs against victims it never saw."""
    import lostwax as lw

    known, prior, secrets = lw.records.digits().split(100, 1_000, 400, seed=2)
    return lw.audit(
        lw.nets.mlp(64, 10, 10),
        trainer=lw.GD(lr=0.2, momentum=0.9, steps=50, init=lw.inits.LeCunNormal()),
        threat=lw.Informed(known),
        attack=attack,
        prior=prior,
        secrets=secrets,
        games=games,
    )


def erased() -> Audit:
    """Two releases: the difference between the sums that a scaler publishes is the erased row."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import lostwax as lw

    X, y = load_breast_cancer(return_X_y=True)
    left = np.delete(np.arange(len(X)), 17)
    before, after = (
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X[rows], y[rows]) for rows in (slice(None), left)
    )
    return lw.audit(after, (X[left], y[left]), before=(before, (X, y)))


def _show(audit: Audit, folder: Path) -> None:
    from lostwax.verbs import report

    print(f"{audit}\n\nreport: {report(audit, folder)}\n", flush=True)
