"""Two releases of a table's model, with and without one row: what do they tell an attacker who knows no row?

    python benchmarks/two_releases.py [--parts list scaler equations audits further] [--games 200] [--digits 1000]

"list": every estimator of scikit-learn that publishes sums or stores rows (docs/tables.md), fitted on a small table
with and without each of ten rows. "scaler": a StandardScaler before a logistic regression on breast cancer, for 100
rows. "equations": linear models at their optimum, of a table that was scaled with public numbers, so that only the
weights tell of the row. Beside `lw.audit(..., before=...)`'s solver stand one Newton step with a public Hessian, our
own implementation of the formula of Bertran et al. (NeurIPS 2024, arXiv 2405.20272), on the same fits, and the nearest
public row. Tables are divided anew `--splits` times, as how well intervals hold depends on the public sample; those of
coverage count these. "audits": `lw.audit` of whole models, one removed row each. "further": a net that is trained on
from public weights, on new records alone, which come back as a whole set.
Goals: every sum to 1e-9 standard deviations; softmax on digits with 600 public rows at most 0.0010 median squared
error; nearer than the formula in 90 % of games; 90 to 97 % of cells within their 90 % interval, over 1,000 games.
"""

import argparse
import time
import warnings
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_regressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators
from table_pipelines import ONE_HOT, logistic, mixed, with_missing
from torch import nn

import lostwax as lw
from lostwax.attacks.two_releases import PublicSample, solve_changed_row
from lostwax.attacks.two_releases.equation import first_order
from lostwax.games import Cohort, Records, Stationary
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError, SquaredHinge
from lostwax.metrics.estimate import clopper_pearson
from lostwax.trainers.optimum import polish
from lostwax_dev.results import Row, parse, write_rows
from lostwax_dev.supported import SUITED, Gives, _tables, listed

EXACT = 1e-9  # standard deviations
WITHIN = 1.6448536  # standard deviations of a 90 % interval
PUBLIC = (50, 200, 1_000)
LISTED = (Gives.SUM, Gives.ALL_STORED)


def share(name, quantity, won, games, paper=None):
    low, high = clopper_pearson(won, games)
    return Row(name, f"{quantity} ({games:,} games)", won / games, low, high, paper)


def fitted(kind, name, table, needed, rows):
    """An estimator on some rows, and what it was fitted on."""
    estimator = kind(*needed, **SUITED.get(name, {}))
    estimator.set_params(**dict.fromkeys({"random_state"} & set(estimator.get_params()), 0))
    X, y = table.x[rows], (table.targets if is_regressor(estimator) else table.labels)[rows]
    return estimator.fit(X, y), (X, y)


def list_rows(games=10):
    """Every estimator with sums or stored rows: the largest error of some removed rows, in standard deviations."""
    kinds, exact, rest = dict(all_estimators()), Counter(), {}
    for supported in listed():
        if supported.gives not in LISTED or "(" in supported.name:
            continue
        kind = kinds[supported.name]
        for needed, table in product(((), (LogisticRegression(),)), _tables(kind)):
            try:
                before = fitted(kind, supported.name, table, needed, np.arange(60))
                pairs = [
                    fitted(kind, supported.name, table, needed, np.delete(np.arange(60), row)) for row in range(games)
                ]
                audits = [lw.audit(*after, before=before) for after in pairs]
            except (TypeError, ValueError, AttributeError, IndexError):
                continue
            errors = [float(audit.errors[0]) for audit in audits]
            exact[supported.gives] += max(errors) <= EXACT
            if max(errors) > EXACT:
                rest[supported.name] = np.median(errors)
            break
    for gives in LISTED:
        yield Row(f"list.{gives.name}", f"estimators, {gives}: removed rows to {EXACT:g} SD", exact[gives])
    for name, error in rest.items():
        yield Row(f"list.not.{name}", f"{name}: not exact, median error in SD", float(error))


def scaler_rows():
    """A scaler in a pipeline, 100 rows removed one at a time."""
    X, y = load_breast_cancer(return_X_y=True)

    def fit(rows):
        return make_pipeline(StandardScaler(), LogisticRegression()).fit(X[rows], y[rows]), (X[rows], y[rows])

    every, errors = np.arange(len(X)), []
    before = fit(every)
    for row in range(100):
        errors.append(float(lw.audit(*fit(np.delete(every, row)), before=before).errors[0]))
    yield share(
        "scaler.exact", f"StandardScaler, LogisticRegression: within {EXACT:g} SD", sum(np.array(errors) <= EXACT), 100
    )
    yield Row("scaler.largest", "StandardScaler, LogisticRegression: largest error in SD", max(errors))


def problems():
    """Name, rows, labels, and a model without weights: its loss and its ridge."""
    x, y = load_digits(return_X_y=True)
    yield "softmax, digits", x / 16, y, 1_197, CrossEntropy(), 10, 10.0
    x, y = load_breast_cancer(return_X_y=True)
    yield "logistic, breast cancer", x, y, 369, BinaryCrossEntropy(), 1, 1.0
    frame, labels = mixed(1_000, missing=0)
    yield "logistic, mixed table", pd.get_dummies(frame).to_numpy(float), labels, 700, BinaryCrossEntropy(), 1, 1.0
    yield "squared hinge, breast cancer", x, y, 369, SquaredHinge(), 1, 1.0
    x, y = load_diabetes(return_X_y=True)
    yield "ridge, diabetes", x, (y - y.mean()) / y.std(), 242, SquaredError(), 1, 1.0


def standardised(name, x, public):
    """With the mean and deviation of public rows; pictures as they are."""
    return x if "digits" in name else (x - public.mean(0)) / np.maximum(public.std(0), 1e-9)


def play(name, x, y, train, loss, c, ridge, publics, seed):
    """For each size of the public sample its number of games, one removed row per game."""
    order = np.random.default_rng(seed).permutation(len(x))
    ours, pool = order[:train], order[train:]
    x = torch.from_numpy(standardised(name, x, x[pool]))
    y = torch.from_numpy(y)
    d, table = x.shape[1], Records(x[ours], y[ours])
    start = Stationary(
        torch.zeros(c, d).double(), torch.zeros(c).double(), loss, torch.full((c,), ridge).double(),
        torch.zeros(c).double(), torch.zeros(d).double(), torch.ones(d).double(),
    )  # fmt: skip
    first = polish(start, table, torch.ones(train).double()).model
    spread = x.std(0)
    played = {size: [] for size in publics}
    for game, row in enumerate(np.random.default_rng(seed + 1).permutation(train)[: max(publics.values())].tolist()):
        rest = torch.arange(train) != row
        later = polish(replace(first), table[rest.nonzero().flatten()], torch.ones(train - 1).double()).model
        truth, unit = table.x[row], torch.ones(d) if "digits" in name else spread
        for size in (size for size, games in publics.items() if game < games):
            public = Records(x[pool[:size]], y[pool[:size]])
            sample = PublicSample(public.x, public.x, public.y)
            solved = solve_changed_row(first, later, sample, train, (torch.ones(d).double(), torch.zeros(d).double()))
            theirs, _ = first_order(first, later, public, train)
            varies = public.x.std(0) > 0
            inside = ((solved.x - truth).abs() <= WITHIN * solved.deviation)[varies].double().mean()
            errors = [
                float(((guess - truth) / unit).square().mean())
                for guess in (solved.x, theirs.clamp(public.x.amin(0), public.x.amax(0)))
            ]
            nearest = float(((public.x - truth) / unit).square().mean(1).min())
            cosine = [float(torch.cosine_similarity(guess, truth, 0)) for guess in (solved.x, theirs)]
            right = float((solved.label - table.y[row]).abs()) < 0.05
            played[size].append((*errors, nearest, float(inside), right, *cosine))
    return {size: np.array(each) for size, each in played.items()}


def equation_rows(games, digits, splits, seed, some):
    for name, x, y, train, loss, c, ridge in problems():
        if some not in name:
            continue
        publics = {min(size, len(x) - train): min(games, train) for size in PUBLIC}
        if "digits" in name:
            publics = {size: digits if size == max(publics) else digits // 2 for size in publics}
        publics = {size: -(-count // splits) for size, count in publics.items()}
        parts = [play(name, x, y, train, loss, c, ridge, publics, seed + 1_000 * split) for split in range(splits)]
        for size in publics:
            each = np.concatenate([part[size] for part in parts])
            key, words = f"{name}.{size}", f"{name}, {size} public rows"
            ours, theirs, nearest, inside, right, cosine, their_cosine = each.T
            n = len(each)
            yield Row(f"{key}.ours", f"{words}: median squared error", float(np.median(ours)), *middle(ours))
            yield Row(
                f"{key}.formula", f"{words}: the same by one Newton step", float(np.median(theirs)), *middle(theirs)
            )
            yield Row(f"{key}.nearest", f"{words}: the same of the nearest public row", float(np.median(nearest)))
            yield share(f"{key}.nearer", f"{words}: nearer than one Newton step", int((ours < theirs).sum()), n)
            yield share(
                f"{key}.than_public", f"{words}: nearer than the nearest public row", int((ours < nearest).sum()), n
            )
            yield Row(
                f"{key}.coverage",
                f"{words}: cells within their 90 % interval ({n:,} games)",
                float(inside.mean()),
                *middle(np.array([part[size][:, 3].mean() for part in parts]), np.mean),
            )
            yield share(f"{key}.labels", f"{words}: label right", int(right.sum()), n)
            yield Row(f"{key}.cosine", f"{words}: median cosine", float(np.median(cosine)))
            yield Row(
                f"{key}.formula_cosine", f"{words}: median cosine by one Newton step", float(np.median(their_cosine))
            )


def middle(errors, of=np.median):
    """The ends of the 95 % interval of a median, or a mean."""
    draws = of(np.random.default_rng(0).choice(errors, (1_000, len(errors))), 1)
    return np.quantile(draws, [0.025, 0.975]).tolist()


def audit_rows(games):
    """Whole models with one row removed: the grade, and the share of cells that come back exactly."""
    import xgboost

    X, y = load_breast_cancer(return_X_y=True)
    models = {
        "LogisticRegression": lambda: LogisticRegression(max_iter=100_000, tol=1e-10),
        "StandardScaler, LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "imputers, StandardScaler, OneHotEncoder, LogisticRegression": lambda: logistic(with_missing(ONE_HOT)),
        "SVC": lambda: SVC(),
        "StandardScaler, SVC": lambda: make_pipeline(StandardScaler(), SVC()),
        "GaussianNB": lambda: GaussianNB(),
        "DecisionTreeClassifier": lambda: DecisionTreeClassifier(random_state=0),
        "RandomForestClassifier": lambda: RandomForestClassifier(50, random_state=0),
        "GradientBoostingClassifier": lambda: GradientBoostingClassifier(n_estimators=20, random_state=0),
        "XGBClassifier": lambda: xgboost.XGBClassifier(n_estimators=20),
        "StandardScaler, MLPClassifier": lambda: make_pipeline(StandardScaler(), MLPClassifier(random_state=0)),
    }
    for name, make in models.items():
        table, labels = mixed() if "OneHot" in name else (pd.DataFrame(X), y)
        (table, labels), public = (table[:400], labels[:400]), (table[400:], labels[400:])
        before, audits = (make().fit(table, labels), (table, labels)), []
        for row in range(games):
            left = table.drop(index=row), np.delete(labels, row)
            audits.append(lw.audit(make().fit(*left), left, before=before, prior=public))
        grades = Counter(str(audit.grade) for audit in audits)
        said = ", ".join(f"{count} {grade}" for grade, count in grades.most_common())
        exact = float(np.mean([audit.findings[0].cells.exact_share for audit in audits]))
        yield Row(f"audit.{name}.grades", f"{name}: grades of {games} removed rows", said)
        yield Row(f"audit.{name}.cells", f"{name}: cells that come back exactly", exact)


def trained(net, trainer, records):
    """The net with the weights that training on all these records ends at."""
    cohort = Cohort(records[:0], records[torch.arange(len(records))[None]], torch.zeros(1, dtype=torch.long))
    after = deepcopy(net)
    after.load_state_dict(trainer(net, cohort, seed=0)[0])
    return after


def further_rows(games):
    """A tanh net of digits, 64-12-10, trained on 350 records and then on 1, 5 or 10 new ones."""
    digits = lw.records.digits()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(digits)))
    old, others = digits[order[:350]], digits[order[350:]]
    first = lw.GD(lr=0.1, momentum=0.9, steps=40, init=lw.inits.LeCunNormal())
    before, further = trained(lw.nets.mlp(64, 12, 10, activation=nn.Tanh), first, old), lw.GD(lr=0.05, steps=8)
    for count in (1, 5, 10):
        certified, errors = 0, []
        for game in range(games):
            drawn = others[torch.from_numpy(np.random.default_rng(game + 1).permutation(len(others)))]
            after = trained(before, further, drawn[:count])
            audit = lw.audit(after, drawn[:count], before=(before, None), trainer=further, prior=drawn[count:])
            certified += bool(audit.guess.certified.all())
            errors.append(float(audit.errors.max()))
        name = f"fine-tuned on {count} new record{'s' if count > 1 else ''}"
        yield share(f"further.{count}.certified", f"{name}: all certified", certified, games)
        yield Row(f"further.{count}.median", f"{name}: median of the largest error", float(np.median(errors)))
        yield Row(f"further.{count}.largest", f"{name}: largest error", max(errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("list", "scaler", "equations", "audits", "further")
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=parts)
    parser.add_argument("--games", type=int, default=200, help="rows of each problem")
    parser.add_argument("--digits", type=int, default=1_000, help="rows of the digits with the largest public sample")
    parser.add_argument("--splits", type=int, default=10, help="divisions into training set and public sample")
    parser.add_argument("--problems", default="", help="a part of the name of the equations' problems; all by default")
    parser.add_argument("--audits", type=int, default=10, help="games of each whole model, or net")
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser)
    warnings.simplefilter("ignore")
    made = {
        "list": list_rows,
        "scaler": scaler_rows,
        "equations": lambda: equation_rows(
            options.games, options.digits, options.splits, options.seed, options.problems
        ),
        "audits": lambda: audit_rows(options.audits),
        "further": lambda: further_rows(options.audits),
    }
    for part in options.parts:
        start, rows = time.perf_counter(), []
        for row in made[part]():
            print(f"{row.quantity}: {row.value}", flush=True)
            rows.append(row)
        print(f"{part}: {time.perf_counter() - start:.0f} s", flush=True)
        write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
