"""A recipe: can records be rebuilt from this scikit-learn model?

    lostwax audit recipe.py

It runs as it is, on scikit-learn's wine table. Replace the lines marked <- by your own model and data.
"""

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

# The table that the model was fitted on: all rows, in any order. A DataFrame, a sparse matrix or texts will do too.
X, y = load_wine(return_X_y=True)  # <- your X and y
data = (X, y)

# The model as you would release it: an estimator, or the whole pipeline with its encoders. To audit an existing one,
# load it here instead of fitting it:
#     import joblib
#     model = joblib.load("model.joblib")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)  # <- your model

# Optional: how many rows to attack (default: all), and which error counts as rebuilt, in feature standard deviations.
games = 100
threshold = 0.05

# Optional, for models that are refitted because they have no equation: a time limit (default: 5 minutes), and an
# adversary who sees only predictions.
#     max_minutes = 2
#     access = lw.access.Outputs()  # import lostwax as lw

# Optional: what stands at the top of the report.
#     report = {"title": "Wine quality, review", "model": "wine", "version": "1.0", "data_set": "wine", "owner": "..."}
