"""The demonstration: is a logistic regression on handwritten digits safe to release?"""

from __future__ import annotations

from pathlib import Path


def run(out: Path) -> None:
    """Fit, audit, print, and leave a picture and a JSON file in `out`."""
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
    out.mkdir(parents=True, exist_ok=True)
    one_of_each = [int((result.truth.y == label).nonzero()[0, 0]) for label in range(10)]
    picture = draw_rebuilt(result, out / "rebuilt_digits.png", one_of_each)
    numbers = result.to_json(out / "audit.json")
    print(f"\nThe rebuilt digits beside the originals: {picture}\nEvery game's numbers:                   {numbers}")
