"""The demonstration: are a logistic regression and a small neural net on handwritten digits safe to release?"""

from __future__ import annotations

from pathlib import Path


def run(out: Path) -> None:
    """Fit, audit, print, and leave pictures and JSON files in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    logistic_regression(out)
    neural_net(out)
    inverted_training(out)


def logistic_regression(out: Path) -> None:
    """This very model: every digit is rebuilt in closed form."""
    from sklearn.linear_model import LogisticRegression

    from lostwax import records
    from lostwax.reports.figures import draw_rebuilt
    from lostwax.verbs import audit

    digits = records.digits()
    print("Fitting scikit-learn's LogisticRegression on its 1,797 handwritten digits ...", flush=True)
    model = LogisticRegression(max_iter=1_000).fit(digits.x.flatten(1).double().numpy(), digits.y.numpy())
    print("Asking of every digit: could somebody who knows the others rebuild it from the model?\n", flush=True)
    result = audit(model, digits)
    print(result)
    one_of_each = [int((result.truth.y == label).nonzero()[0, 0]) for label in range(10)]
    picture = draw_rebuilt(result, out / "rebuilt_digits.png", one_of_each)
    numbers = result.to_json(out / "audit.json")
    print(f"\nThe rebuilt digits beside the originals: {picture}\nEvery game's numbers:                    {numbers}")


def neural_net(out: Path) -> None:
    """This way of training: shadow models and a reconstructor network (S1), on victims it never saw."""
    import lostwax as lw
    from lostwax.reports.figures import draw_rebuilt

    print(
        "\nTraining a neural net on 300 known digits and a secret one, 400 times, and an attack on 3,000 shadow models"
    )
    print("of it (about half a minute) ...\n", flush=True)
    known, prior, secrets = lw.records.digits().split(300, 1_000, 400, seed=2)
    result = lw.audit(
        lw.nets.mlp(64, 10, 10),
        trainer=lw.GD(lr=0.2, momentum=0.9, steps=100),
        threat=lw.Informed(known),
        attack=lw.RecoNN(shadows=3_000, augment=lw.Shifts(), epochs=40),
        prior=prior,
        secrets=secrets,
    )
    print(result)
    middle = [int(place) for place in result.errors.argsort()[195:205]]  # the ten games around the median error
    picture = draw_rebuilt(result, out / "rebuilt_by_reconn.png", middle)
    numbers = result.to_json(out / "reconn.json")
    print(f"\nTen secrets of median error, and what was rebuilt: {picture}\nEvery game's numbers: {numbers}")


def inverted_training(out: Path) -> None:
    """A way of training, inverted: nothing is learnt, and every digit is found to the last pixel."""
    import lostwax as lw
    from lostwax.reports.figures import draw_rebuilt

    print("\nA net again, attacked without a decoder: training is a function of the secret, so invert it ...\n")
    known, prior, secrets = lw.records.digits().split(300, 1_000, 400, seed=2)
    result = lw.audit(
        lw.nets.mlp(64, 10, 10),
        trainer=lw.GD(lr=0.2, momentum=0.9, steps=50),
        threat=lw.Informed(known),
        attack=lw.Newton(bank=200),
        prior=prior,
        secrets=secrets,
        games=5,
    )
    print(result)
    picture = draw_rebuilt(result, out / "rebuilt_by_newton.png", list(range(5)))
    print(f"\nFive secrets, and what was rebuilt: {picture}")
