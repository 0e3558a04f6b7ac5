"""What SACRO-ML answers for one of the pipelines; run by tables.py in SACRO-ML's own environment."""

import logging
import tempfile
from dataclasses import asdict

import numpy as np
from asking import Release, auc, main
from sacroml.attacks.attribute_attack import AttributeAttack
from sacroml.attacks.instance_based_attack import InstanceBasedAttack
from sacroml.attacks.likelihood_attack import LIRAAttack
from sacroml.attacks.qmia_attack import QMIAAttack
from sacroml.attacks.structural_attack import StructuralAttack
from sacroml.attacks.target import Target
from sacroml.attacks.worst_case_attack import WorstCaseAttack


def target(release: Release) -> Target:
    """As its documentation says: processed and original arrays, and which columns encode which feature."""
    original, original_out = without_gaps(release.table), without_gaps(release.table_out)
    found = Target(
        model=release.model,
        X_train=release.X,
        y_train=release.y,
        X_test=release.X_out,
        y_test=release.y_out,
        X_train_orig=original,
        y_train_orig=release.y,
        X_test_orig=original_out,
        y_test_orig=release.y_out,
    )
    for name, indices in release.columns.items():
        found.add_feature(name, indices, "onehot" if len(indices) > 1 else "float")
    return found


def without_gaps(table):
    """The table as an array; the attribute attack sorts the values of a column, so that none may be missing."""
    if not hasattr(table, "columns"):
        return np.asarray(table)
    return table.fillna(dict.fromkeys(table.select_dtypes(exclude="number"), "missing")).to_numpy()


def run(attack, release):
    report = attack.attack(target(release))
    if not report:
        raise ValueError("attackable() is False")
    if "fail_reason" in report:
        raise ValueError(report["fail_reason"])
    return list(report["attack_experiment_logger"]["attack_instance_logger"].values())


def folder():
    return {"output_dir": tempfile.mkdtemp(), "write_report": False}


def of_all(found, release):
    return auc(found[0]["AUC"], len(release.y), len(release.y_out))


def worst_case(release):
    found = [one["AUC"] for one in run(WorstCaseAttack(**folder()), release)]
    return {
        "membership AUC, mean and range of 10 splits": [
            float(np.mean(found)),
            float(np.min(found)),
            float(np.max(found)),
        ]
    }


def lira(release):
    return {"membership AUC": of_all(run(LIRAAttack(**folder()), release), release)}


def qmia(release):
    return {"membership AUC": of_all(run(QMIAAttack(**folder()), release), release)}


def structural(release):
    attack = StructuralAttack(**folder())
    run(attack, release)
    risks = [name.removesuffix("_risk") for name, value in asdict(attack.results).items() if value is True]
    return {"risks named": ", ".join(risks) or "none"}


def instance_based(release):
    found = run(InstanceBasedAttack(**folder()), release)[0]
    return {"share of rows found stored": found["n_matched"] / found["n_training_samples"]}


def attribute(release):
    """Shares of members and of others whose value is inferred right, and what the most frequent value reaches."""
    found = run(AttributeAttack(**folder(), n_cpu=1), release)[0]
    values = {}
    for kind, share in (("categorical", lambda one: one[0] / one[4]), ("quantitative", float)):
        for sample, words in (("train", "members"), ("test", "others")):
            if found[kind]:
                shares = [share(one[sample]) for one in found[kind]]
                values[f"{kind} cells of {words} inferred"] = float(np.mean(shares))
    if found["categorical"]:
        values["most frequent value"] = float(np.mean([one["train"][2] / 100 for one in found["categorical"]]))
    return values


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(
        {
            "worst case": worst_case,
            "LiRA": lira,
            "QMIA": qmia,
            "structural": structural,
            "instance based": instance_based,
            "attribute": attribute,
        }
    )
