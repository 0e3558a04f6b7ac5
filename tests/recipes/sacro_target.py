"""How the folder `sacro_target` was made: `pip install sacroml==2.0.1`, then run this file. The model is left out."""

from pathlib import Path

from sacroml.attacks.target import Target
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

folder, (x, y) = Path(__file__).with_name("sacro_target"), load_iris(return_X_y=True)
model = LogisticRegression(max_iter=5_000).fit(x[::2], y[::2])
Target(model=model, dataset_name="iris", X_train=x[::2], y_train=y[::2], X_test=x[1::2], y_test=y[1::2]).save(folder)
for name in ("model", "X_test", "y_test"):  # a pickle of scikit-learn is tied to its version
    (folder / f"{name}.pkl").unlink()
