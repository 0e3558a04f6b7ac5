"""What each extra is for, in a few lines: `python extras.py EXTRA FOLDER` says that it works, or what is missing.

`prepare` writes the files that they read. Run by test_distributions.py in an environment of its own.
"""

import sys
from contextlib import suppress
from pathlib import Path


def prepare(folder):
    import pandas as pd
    import xgboost
    from PIL import Image
    from sklearn.datasets import load_iris

    (folder / "pictures" / "cat").mkdir(parents=True)
    Image.new("RGB", (6, 5), (255, 0, 0)).save(folder / "pictures" / "cat" / "a.png")
    frame = pd.DataFrame({"age": [31.0, 44.0, 62.0], "pay": [1.0, 2.0, 3.0], "left": ["no", "yes", "no"]})
    frame.to_parquet(folder / "staff.parquet")
    X, y = load_iris(return_X_y=True)
    xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(X, y).get_booster().save_model(
        folder / "trees.ubj"
    )


def vision(folder):
    from lostwax import records

    assert records.folder(folder / "pictures").x.shape == (1, 3, 5, 6)
    with suppress(FileNotFoundError):  # torchvision looked for its files; there are none
        records.fashion_mnist(root=folder)


def tables(folder):
    from lostwax import records

    assert records.table(folder / "staff.parquet", target="left").x.shape == (3, 2)


def cluster(folder):
    import torch

    import lostwax as lw

    known = lw.Records(torch.randn(6, 4), torch.arange(6) % 2)
    shadows = lw.simulate(
        torch.nn.Linear(4, 2),
        trainer=lw.GD(lr=0.1, steps=2),
        threat=lw.Informed(known),
        prior=known,
        models=4,
        engine=lw.shadows.Ray(workers=1),
    )
    assert sum(len(cohort.index) for cohort, _ in shadows) == 4


def boosting(folder):
    from sklearn.datasets import load_iris

    import lostwax as lw

    assert "trees.ubj" in str(lw.audit(folder / "trees.ubj", load_iris(return_X_y=True), games=5))
    import catboost
    import lightgbm

    assert catboost.CatBoostClassifier
    assert lightgbm.LGBMClassifier


def solver(folder):
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    import lostwax as lw

    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(12, 4)).astype(float), rng.integers(0, 2, size=12)
    forest = RandomForestClassifier(6, max_depth=2, bootstrap=False, random_state=0).fit(X, y)
    audit = lw.audit(forest, (X, y), threat=lw.Weak(size=len(y)))
    if audit.unanswered:
        raise ModuleNotFoundError(audit.unanswered[0])


if __name__ == "__main__":
    extra, folder = sys.argv[1], Path(sys.argv[2])
    try:
        {f.__name__: f for f in (prepare, vision, tables, cluster, boosting, solver)}[extra](folder)
    except ImportError as error:
        print(error)
    else:
        print(f"{extra} works")
