"""One record rebuilt by the Adversarial Robustness Toolbox; run by closed_form.py in ART's own environment."""

import json
import sys
import time
import warnings

import numpy as np
from art.attacks.inference.reconstruction import DatabaseReconstruction
from art.estimators.classification.scikitlearn import ScikitlearnGaussianNB, ScikitlearnLogisticRegression
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

warnings.simplefilter("ignore")
question = json.loads(sys.argv[1])
X, y = {"iris": load_iris, "wine": load_wine}[question["data"]](return_X_y=True)
X = StandardScaler().fit_transform(X)
if question["model"] == "GaussianNB":
    estimator = ScikitlearnGaussianNB(model=GaussianNB().fit(X, y))
else:
    model = LogisticRegression(solver="newton-cg", tol=1e-12, max_iter=1_000).fit(X, y)
    estimator = ScikitlearnLogisticRegression(model=model)
record = question["record"]
start = time.perf_counter()
guess, _ = DatabaseReconstruction(estimator).reconstruct(np.delete(X, record, 0), np.delete(y, record))
seconds = time.perf_counter() - start
print(json.dumps({"error": float(np.sqrt(np.mean((guess - X[record]) ** 2))), "seconds": seconds}))
