"""A person is erased, the model is fitted again, and both files are out: what did the erasure show?

The attacker has the two files and knows no row of the training set. First a pipeline with a scaler: the erased row is
the difference of two sums. Then a softmax regression alone, with 600 public digits: the two optimality conditions.
"""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw

# A pipeline, with and without row 17.
X, y = load_breast_cancer(return_X_y=True)
left = np.delete(np.arange(len(X)), 17)
before = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
after = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[left], y[left])
audit = lw.audit(after, (X[left], y[left]), before=(before, (X, y)))
print(audit)
lw.report(audit, "erased", title="After the erasure of row 17")

# A softmax regression of handwritten digits, without any scaler: eight erasures, one at a time.
X, y = load_digits(return_X_y=True)
X, order = X / 16, np.random.default_rng(0).permutation(len(X))
(X, y), public = (X[order[:1_197]], y[order[:1_197]]), (X[order[1_197:]], y[order[1_197:]])
softmax = LogisticRegression(C=0.1, tol=1e-8, max_iter=10_000)
before, rows = LogisticRegression(**softmax.get_params()).fit(X, y), []
for row in [int(np.flatnonzero(y == digit)[0]) for digit in range(8)]:
    left = np.delete(np.arange(len(X)), row)
    after = LogisticRegression(**softmax.get_params()).fit(X[left], y[left])
    audit = lw.audit(after, (X[left], y[left]), before=(before, (X, y)), prior=public)
    nearest = public[0][((public[0] - X[row]) ** 2).sum(1).argmin()]
    rows.append((X[row], audit.guess.records.x[0, 0].numpy(), nearest))
    print(f"digit {y[row]}: {audit.grade}, label read: {audit.guess.records.y[0, 0]}")

figure = Figure(figsize=(8, 3.2))
FigureCanvasAgg(figure)
for place, axes in enumerate(figure.subplots(3, len(rows)).flat):
    line, digit = divmod(place, len(rows))
    axes.imshow(rows[digit][line].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    if digit == 0:
        label = ("erased", "read from\nboth files", "nearest\npublic one")[line]
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
figure.tight_layout()
figure.savefig("erased.png", dpi=100)
