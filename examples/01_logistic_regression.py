"""Is this logistic regression safe to release? The shortest audit there is."""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw

X, y = load_breast_cancer(return_X_y=True)

# A pipeline: the scaler was fitted on every row, and reveals each of them by itself.
print(lw.audit(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), (X, y), games=100), "\n")

# The same model on data scaled beforehand: what the weights alone reveal.
scaled = StandardScaler().fit_transform(X)
print(lw.audit(LogisticRegression().fit(scaled, y), (scaled, y), games=100))
