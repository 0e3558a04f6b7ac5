"""A recipe: can records be rebuilt from this scikit-learn model?

    lostwax audit recipe.py --out audit/

It runs as it is, on scikit-learn's wine table. Replace the lines marked <- by your own model and data.
"""

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

# The table that the model was fitted on: all rows, in any order.
X, y = load_wine(return_X_y=True)  # <- your X and y
data = (X, y)

# The model as you would release it. To audit an existing one, load it here instead of fitting it:
#     import joblib
#     model = joblib.load("model.joblib")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)  # <- your model

# Optional: how many rows to attack (default: all), and which error counts as rebuilt, in feature standard deviations.
games = 100
threshold = 0.05
