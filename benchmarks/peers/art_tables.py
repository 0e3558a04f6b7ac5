"""What the Adversarial Robustness Toolbox answers for one of the pipelines; run by tables.py in ART's environment."""

import numpy as np
from art.attacks.inference.attribute_inference import AttributeInferenceBaseline, AttributeInferenceBlackBox
from art.attacks.inference.membership_inference import (
    MembershipInferenceBlackBox,
    MembershipInferenceBlackBoxRuleBased,
)
from art.attacks.inference.reconstruction import DatabaseReconstruction
from art.estimators.classification import SklearnClassifier
from art.estimators.regression.scikitlearn import ScikitlearnRegressor
from asking import Release, auc, main
from sklearn.base import is_regressor
from sklearn.metrics import r2_score, roc_auc_score

RECORD = 0
COLUMN = 0  # of the attribute attack


def wrapped(release: Release):
    return (ScikitlearnRegressor if is_regressor(release.model) else SklearnClassifier)(release.model)


def reconstruction(release):
    """One member, from all others; the error is in standard deviations of what the attack is given."""
    attack = DatabaseReconstruction(wrapped(release))
    guess, _ = attack.reconstruct(np.delete(release.X, RECORD, 0), np.delete(release.y, RECORD))
    scale = release.X.std(0)
    missed = np.abs(guess[0] - release.X[RECORD]) / np.where(scale > 0, scale, 1)
    error = float(np.sqrt(np.mean(missed**2)))
    return {"error of row 0 in SD": error, "cells of row 0 exact": float(np.mean(missed <= 1e-6))}


def rule_based(release):
    attack = MembershipInferenceBlackBoxRuleBased(wrapped(release))
    members, others = attack.infer(release.X, release.y), attack.infer(release.X_out, release.y_out)
    right, right_out = members.mean(), 1 - others.mean()
    value = (right + right_out) / 2
    half = 1.96 * (right * (1 - right) / len(members) + right_out * (1 - right_out) / len(others)) ** 0.5 / 2
    return {"membership balanced accuracy": [float(value), float(value - half), float(value + half)]}


def black_box(release):
    """Learned from half of the members and others, measured on the rest."""
    estimator = wrapped(release)
    kind = "loss" if is_regressor(release.model) else "prediction"
    attack = MembershipInferenceBlackBox(estimator, input_type=kind, attack_model_type="rf")
    half, half_out = len(release.X) // 2, len(release.X_out) // 2
    attack.fit(release.X[:half], release.y[:half], release.X_out[:half_out], release.y_out[:half_out])
    scores = [
        np.asarray(attack.infer(X, y, probabilities=True)).reshape(len(X), -1)[:, -1]
        for X, y in ((release.X[half:], release.y[half:]), (release.X_out[half_out:], release.y_out[half_out:]))
    ]
    truth = np.repeat([1, 0], [len(score) for score in scores])
    return {"membership AUC": auc(roc_auc_score(truth, np.concatenate(scores)), *map(len, scores))}


def attribute(release):
    """The first column of members, learned from the others; beside the attack that does not ask the model."""
    estimator = wrapped(release)
    rest, settings = np.delete(release.X, COLUMN, 1), {"attack_feature": COLUMN, "is_continuous": True}
    asking = AttributeInferenceBlackBox(estimator, attack_model_type="rf", **settings)
    asking.fit(release.X_out)
    seen = estimator.predict(release.X)
    predictions = seen if is_regressor(release.model) else seen.argmax(1)
    guess = asking.infer(rest, pred=predictions.reshape(-1, 1))
    blind = AttributeInferenceBaseline(attack_model_type="rf", **settings)
    blind.fit(release.X_out)
    truth = release.X[:, COLUMN]
    return {
        "R2 of the first column": float(r2_score(truth, guess)),
        "R2 of the first column, model not asked": float(r2_score(truth, blind.infer(rest))),
    }


if __name__ == "__main__":
    main(
        {
            "database reconstruction": reconstruction,
            "membership, rule based": rule_based,
            "membership, learned": black_box,
            "attribute": attribute,
        }
    )
