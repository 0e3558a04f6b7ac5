"""Which rows of a table come back from the pipelines that people release, and what do other tools answer for them?

    python benchmarks/tables.py [--tools lostwax sacroml art] [--cases NAME ...] [--rows N] [--seconds 60]

23 fitted scikit-learn objects (`table_pipelines.py`) on wine, breast cancer, diabetes, digits, made-up texts, and a
made-up table of 5 columns of numbers and 6 of categories with missing values in both. 30 % of the rows are held out,
for attacks that need non-members. Every tool gets the same fits; SACRO-ML and the Adversarial Robustness Toolbox (ART)
are installed into environments of their own, `.venv-sacroml` and `.venv-art`. A peer that refuses a whole pipeline is
given its last step with the encoded table. An attack without an answer after `--seconds` is stopped. All seconds are
of processor time.

lostwax: rows rebuilt, cells exact (numbers to 1e-6 SD of their column, categories and missing values by name), beside
the share that guessing each column's most frequent value reaches, and seconds per row of the whole audit.
Goal: >= 99 % of rows at the optimum where the encoding is invertible.
Writes `results/tables.json`, and `results/tables.md` with one line per pipeline.
"""

import argparse
import json
import subprocess
import time
import venv
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import sklearn
from table_pipelines import CASES, SEED, fingerprint

import lostwax as lw
from lostwax_dev.results import Row, parse, read_rows, write_rows

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results" / "tables.json"
GOAL = 0.99  # of the rows
EXACT = 1e-6  # standard deviations of a column of numbers
PACKAGES = {"sacroml": "sacroml", "art": "adversarial-robustness-toolbox"}
TITLES = {"lostwax": "lostwax", "sacroml": "SACRO-ML", "art": "ART"}
LAST_STEP = "its last step, encoded table"  # what peers are given if they refuse the pipeline
FOOTNOTE = f"\\* Given {LAST_STEP}; the whole pipeline is refused."
LONGEST_ERROR = 300  # characters


def key(case):
    return case.name.replace(", ", ".").replace(" + ", "_").replace(" ", "_")


def by_lostwax(case, rows):
    """One audit, called as a user would; a refusal is a row with its message."""
    X, X_out, y, _ = case.split(rows)
    model = case.fitted(X, y)
    start, goal = time.process_time(), f">= {GOAL}" if case.invertible else None
    name = f"{key(case)}.lostwax"
    rebuilt = f"{case.name}: share of rows rebuilt at the optimum"
    try:
        audit = lw.audit(model, (X, y), seed=SEED)
    except Exception as error:  # as for the peers: whatever is raised is the answer
        words = f"no answer, {type(error).__name__}: {' '.join(str(error).split())}"
        return [Row(f"{name}.rebuilt", rebuilt, words[:LONGEST_ERROR], paper=goal, seed=SEED)]
    seconds = time.process_time() - start
    released, best = audit.findings[0], at_optimum(audit)
    low, high = (None, None) if audit.complete else audit.interval(int(best.rebuilt.sum()))
    found = [
        Row(f"{name}.rebuilt", rebuilt, float(best.rebuilt.mean()), low, high, paper=goal),
        Row(f"{name}.released", f"{case.name}: share of rows rebuilt as released", float(released.rebuilt.mean())),
        Row(f"{name}.labels", f"{case.name}: share of labels right at the optimum", float(best.labels_right.mean())),
        Row(f"{name}.grade", f"{case.name}: grade", str(audit.grade)),
        Row(f"{name}.seconds", f"{case.name}: seconds per row, whole audit", seconds / len(audit.games)),
        Row(
            f"{name}.fingerprint", f"{case.name}: mean squared prediction for rows held out", fingerprint(model, X_out)
        ),
    ]
    for finding in (released, best) if best is not released else (released,):
        error = float(finding.errors[audit.metric][0])
        found.append(Row(f"{name}.row 0 {finding.name}", f"{case.name}: error of row 0 in SD, {finding.name}", error))
    for words, share in cells_exact(X, audit, best).items():
        found.append(Row(f"{name}.{words}", f"{case.name}: share of {words}, at the optimum", share))
    return [replace(row, seed=SEED) for row in found]


def at_optimum(audit):
    return next((finding for finding in audit.findings if finding.name == "as converged"), audit.findings[0])


def cells_exact(X, audit, finding):
    """Shares of cells that are equal in the owner's units; of texts, cells are counts of words."""
    truth, guess = (part.flatten(1).double().numpy() for part in (audit.truth.x, finding.guess.records.x[:, 0]))
    numbers = np.ones(truth.shape[1], dtype=bool)
    if hasattr(X, "columns"):
        numbers = np.isin(X.columns, X.select_dtypes("number").columns)
        raw = X.iloc[audit.games].loc[:, numbers].to_numpy(dtype=float)
        if truth.shape[1] != X.shape[1] or not np.array_equal(truth[:, numbers], raw, equal_nan=True):
            return {"cells exact": "not in the units of the table"}
    near = np.abs(guess - truth) <= EXACT * np.nanstd(truth, axis=0)
    same = np.where(numbers, near, guess == truth) | (np.isnan(guess) & np.isnan(truth))  # (games, d)
    frequent = np.array([np.unique(column, return_counts=True)[1].max() for column in truth.T]) / len(truth)  # (d,)
    shares = {}
    for kind, columns in (("cells", np.ones_like(numbers)), ("categories", ~numbers)):
        if columns.any():
            shares[f"{kind} exact"] = float(same[:, columns].mean())
            shares[f"{kind} that are the most frequent"] = float(frequent[columns].mean())
    return shares


def environment(tool):
    """The Python of an environment with one peer and our version of scikit-learn; installed on first use."""
    folder = ROOT / f".venv-{tool}"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {PACKAGES[tool]} into {folder.name} ...", flush=True)
        venv.create(folder, with_pip=True)
        packages = [PACKAGES[tool], f"scikit-learn=={sklearn.__version__}", "packaging", "pandas"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


@cache
def version(tool):
    """That of the peer, as installed: it belongs to its numbers."""
    code = f"import importlib.metadata; print(importlib.metadata.version({PACKAGES[tool]!r}))"
    return subprocess.run([environment(tool), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def by_peer(tool, case, rows, seconds):
    script = Path(__file__).resolve().parent / "peers" / f"{tool}_tables.py"
    question = json.dumps({"case": case.name, "rows": rows, "seconds": seconds})
    done = subprocess.run([environment(tool), script, question], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script.name} failed for {case.name!r}: {done.stderr.strip().splitlines()[-1]}")
    reply = json.loads(done.stdout.splitlines()[-1])
    name = f"{key(case)}.{tool}"
    words = f"{case.name}: {TITLES[tool]} {version(tool)}"
    found = [Row(f"{name}.fingerprint", f"{words}, mean squared prediction for rows held out", reply["fingerprint"])]
    for answer in reply["answers"]:
        attack = f"{words} {answer['attack']}, {answer['given']}"
        where = f"{name}.{answer['attack']}.{answer['given']}"
        if "error" in answer:
            found.append(Row(f"{where}.error", f"{attack}: error", answer["error"]))
            continue
        for quantity, value in answer["values"].items():
            value, low, high = value if isinstance(value, list) else (value, None, None)
            found.append(Row(f"{where}.{quantity}", f"{attack}: {quantity}", value, low, high))
        found.append(Row(f"{where}.seconds", f"{attack}: seconds", answer["seconds"]))
    return [replace(row, seed=SEED) for row in found]


def answered(tool, case, rows, seconds):
    return by_lostwax(case, rows) if tool == "lostwax" else by_peer(tool, case, rows, seconds)


def prefix(case, tool):
    return f"{key(case)}.{tool}."


def merged(found):
    """With the rows of earlier runs for other cases and tools, in the order of the cases."""
    earlier = {row.id: row for row in read_rows(RESULTS)} if RESULTS.exists() else {}
    asked = {name: rows for name, rows in found.items() if rows}
    rows = []
    for case in CASES:
        for tool in TITLES:
            start = prefix(case, tool)
            rows += asked.get(start) or [row for name, row in earlier.items() if name.startswith(start)]
    return rows


def different_fits(rows):
    """Cases whose fits differ between environments, by their fingerprints."""
    for case in CASES:
        marks = [row.value for row in rows if row.id in {f"{prefix(case, tool)}fingerprint" for tool in TITLES}]
        if marks and not np.allclose(marks, marks[0], rtol=1e-6):
            yield case.name


def as_table(rows):
    """One line per pipeline, one column per tool, in Markdown."""
    lines = [f"| pipeline | table | {' | '.join(TITLES.values())} |", "|---" * (2 + len(TITLES)) + "|"]
    for case in CASES:
        cells = [summary(rows, prefix(case, tool)) for tool in TITLES]
        lines.append(f"| {case.name} | {case.table.__name__.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\n{FOOTNOTE}\n"


def summary(rows, start):
    """What a tool answers, in a few words; the kind of error only where an attack has no answer."""
    answers, errors = {}, {}
    for row in rows:
        if not row.id.startswith(start) or row.id.endswith(".fingerprint"):
            continue
        *attack, quantity = row.id.removeprefix(start).split(".")
        name, mark = attack[0] if attack else "", " *" if attack[1:] == [LAST_STEP] else ""
        value = row.value if isinstance(row.value, str) else f"{row.value:.3g}"
        if quantity == "error":
            errors[name] = value.split(":")[0]
        else:
            answers.setdefault(name, []).append(f"{quantity} {value}{mark}")
    answers |= {name: [error] for name, error in errors.items() if name not in answers}
    return "<br>".join(f"{name}: {', '.join(words)}".removeprefix(": ") for name, words in answers.items()) or "not run"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], metavar="NAME")
    parser.add_argument("--rows", type=int, help="of each table, members and held out; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="limit of each peer's attack")
    options = parse(parser)
    warnings.simplefilter("ignore")
    found = {}
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        for tool in options.tools:
            found[prefix(case, tool)] = answered(tool, case, options.rows, options.seconds)
            for row in found[prefix(case, tool)]:
                print(f"{row.quantity} = {row.value}", flush=True)
    rows = merged(found)
    written = write_rows(__file__, rows)
    print("written to", written)
    written.with_suffix(".md").write_text(as_table(rows))
    for name in different_fits(rows):
        print(f"The fits of {name!r} differ between environments; install the same version of scikit-learn in all.")


if __name__ == "__main__":
    main()
