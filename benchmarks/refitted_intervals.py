"""Do 95 % intervals of refitted audits cover the mean over splits of the table?

Each setting is audited with many seeds, and each seed splits the table anew. The mean share over all seeds is what an
interval should cover. Printed: how many intervals do if they count games alone (Clopper-Pearson), and as audits give
them, which allow for other splits; and the mean widths of both. About ten minutes on one core:

    python benchmarks/refitted_intervals.py
"""

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, QuantileRegressor, RANSACRegressor, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.audits import refitted
from lostwax.audits.audit import Audit
from lostwax.audits.play import Settings
from lostwax.games import Columns
from lostwax.metrics.estimate import clopper_pearson

COLUMNS = 4
OUTPUTS = lw.access.Outputs()


class Setting(NamedTuple):
    rows: int
    model: BaseEstimator
    classes: bool = True
    access: lw.games.Access | None = None


SETTINGS = {
    "tree, 160 rows": Setting(160, DecisionTreeClassifier(max_depth=3, random_state=0)),
    "tree, 400 rows, outputs": Setting(400, DecisionTreeClassifier(max_depth=3, random_state=0), access=OUTPUTS),
    "stump, 300 rows, outputs": Setting(300, DecisionTreeClassifier(max_depth=1, random_state=0), access=OUTPUTS),
    "linear SVC, 400 rows": Setting(400, SVC(C=0.01, kernel="linear")),
    "SVC, 160 rows, outputs": Setting(160, SVC(C=0.3), access=OUTPUTS),
    "SVR, 200 rows": Setting(200, SVR(C=0.1, epsilon=1.0), classes=False),
    "neighbours, 200 rows, outputs": Setting(200, KNeighborsClassifier(5), access=OUTPUTS),
    "median regression, 100 rows": Setting(100, QuantileRegressor(alpha=0.1), classes=False),
    "RANSAC, 100 rows": Setting(100, RANSACRegressor(random_state=0), classes=False),
    "L1 logistic, 120 rows": Setting(120, LogisticRegression(l1_ratio=1.0, C=0.05, solver="liblinear")),
    "boosting, 120 rows, outputs": Setting(120, HistGradientBoostingClassifier(max_iter=3), access=OUTPUTS),
    "naive Bayes, 160 rows, outputs": Setting(160, GaussianNB(), access=OUTPUTS),
    "SGD, 60 rows, private draws": Setting(60, SGDClassifier(max_iter=20)),
}


def played(setting: Setting, seed: int) -> list[Audit]:
    """Both questions, membership and reconstruction, on one split of the table."""
    draw = np.random.default_rng(1)
    X = draw.normal(size=(setting.rows, COLUMNS))
    score = X[:, 0] + 0.7 * draw.normal(size=setting.rows)
    y = (score > 0).astype(int) if setting.classes else score
    audits, plain = [], refitted.audit_procedure

    def kept(*arguments, **named):
        audits.append(plain(*arguments, **named))
        return audits[-1]

    refitted.audit_procedure = kept
    try:
        refitted.audit_refitted(
            setting.model.fit(X, y),
            X,
            y,
            Settings(seed=seed),
            table=lw.Records(torch.from_numpy(X), torch.from_numpy(y)),
            columns=Columns(tuple("abcd"), ((),) * COLUMNS),
            sample_weight=None,
            access=setting.access,
            reasons=(),
        )
    finally:
        refitted.audit_procedure = plain
    return audits


def shares(audit: Audit) -> dict[str, int]:
    """The games that were won, by what counts as that."""
    finding = audit.findings[0]
    if audit.chance is not None:
        return {"named": int(finding.rebuilt.sum())}
    return {"rebuilt": int(finding.rebuilt.sum()), "nearer": int(audit.beats_baselines(finding).sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':32}{'share':>8}{'mean':>8}{'games alone: cover':>20}{'width':>8}{'over splits: cover':>20}{'width':>8}")
    worst = {False: 1.0, True: 1.0}
    for name in asked.settings:
        found = defaultdict(list)
        for seed in range(asked.seeds):
            for audit in played(SETTINGS[name], seed):
                over_splits = replace(audit, split_spread=refitted.SPLIT_SPREAD)
                for what, won in shares(audit).items():
                    wide = over_splits.interval(won)
                    found[what].append((won / len(audit.games), clopper_pearson(won, len(audit.games)), wide))
        for what, rows in found.items():
            mean = float(np.mean([share for share, *_ in rows]))
            if mean in (0, 1):
                continue
            cells = []
            for place in (1, 2):
                covered = np.mean([row[place][0] <= mean <= row[place][1] for row in rows])
                worst[place == 2] = min(worst[place == 2], float(covered))
                cells.append(f"{covered:>20.2f}{np.mean([row[place][1] - row[place][0] for row in rows]):>8.2f}")
            print(f"{name:32}{what:>8}{mean:>8.3f}{''.join(cells)}", flush=True)
    print(f"least: {worst[False]:.2f} by games alone, {worst[True]:.2f} over splits")


if __name__ == "__main__":
    main()
