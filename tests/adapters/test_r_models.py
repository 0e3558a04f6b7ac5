"""Models of R: their equations beside statsmodels' own fit of the same table, and what their files hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import lostwax as lw
from lostwax.adapters.r_files import load_r
from lostwax.adapters.r_models import released
from lostwax.audits import Settings
from lostwax.audits.tables import audit_table
from lostwax.grades import Grade
from lostwax.recipes import Recipe

smf = pytest.importorskip("statsmodels.formula.api")
sm = pytest.importorskip("statsmodels.api")

FILES = Path(__file__).parent / "r_files"
PATIENTS = pd.read_csv(FILES / "patients.csv")
ALL = PATIENTS[["age", "dose", "town", "smokes"]]
TWO = PATIENTS[["age", "dose"]]
WEIGHTS = PATIENTS["visits"] + 1
FITS = {  # file: X, y, sample weights, the same fit by statsmodels
    "lm_bare": (ALL, "pain", None, lambda: smf.ols("pain ~ age + dose + town + smokes", PATIENTS)),
    "lm_weights": (TWO, "pain", WEIGHTS, lambda: smf.wls("pain ~ age + dose", PATIENTS, weights=WEIGHTS)),
    "glm_binomial": (
        PATIENTS[["age", "dose", "smokes"]],
        "outcome",
        None,
        lambda: smf.logit("ill ~ age + dose + smokes", PATIENTS.assign(ill=(PATIENTS["outcome"] == "ill").astype(int))),
    ),
    "glm_poisson": (TWO, "visits", None, lambda: smf.poisson("visits ~ age + dose", PATIENTS)),
    "glm_gaussian": (TWO, "pain", None, lambda: smf.ols("pain ~ age + dose", PATIENTS)),
    "glm_gamma": (
        TWO,
        "pain",
        None,
        lambda: smf.glm("pain ~ age + dose", PATIENTS, family=sm.families.Gamma(sm.families.links.Log())),
    ),
}


def audited(name, X, y, **options):
    return lw.audit(FILES / name, (X, PATIENTS[y].astype(float) if y == "visits" else PATIENTS[y]), **options)


@pytest.mark.parametrize("name", FITS)
def test_coefficients_alone_give_every_row(name):
    X, y, weight, fit = FITS[name]
    release = released(
        load_r(FILES / f"{name}.rds"), (X, PATIENTS[y].astype(float) if y == "visits" else PATIENTS[y]), weight
    )
    equation = next(part.fitted.model for part in release.parts if part.fitted.model is not None)
    theirs = fit().fit(disp=0).params.to_numpy() if y != "pain" else fit().fit().params.to_numpy()
    ours = torch.cat([equation.bias, equation.weight[0]]).numpy()
    assert np.allclose(np.sort(ours), np.sort(theirs), rtol=1e-5)
    alone = replace(release, parts=tuple(part for part in release.parts if part.fitted.model is not None))
    audit = audit_table(alone, Settings(None, 0, 0.05, None, ()))
    assert audit.findings[-1].rebuilt.all()
    assert audit.findings[-1].labels_right.all()


@pytest.mark.parametrize(
    ("name", "place", "X"),
    [
        ("lm", "model", ALL),
        ("lm_qr", "qr", ALL),
        ("glm_qr", "qr", PATIENTS[["age", "dose", "smokes"]]),
        ("lm_environment", "terms..Environment.records.value", TWO),
        ("lm_attribute", "drift", ALL),
        ("closure", "environment.records.value", TWO),
    ],
)
def test_rows_in_a_file_are_found_wherever_they_are(name, place, X):
    audit = audited(f"{name}.rds", X, "outcome" if name == "glm_qr" else "pain")
    assert any(f"'s {place} holds 60 of 60 rows" in str(note) for note in audit.notes)
    anyone = audit.attackers.rungs[0]
    assert anyone.rebuilt > 30 or (name, anyone.cells) == ("lm_attribute", 120)  # two of its four columns
    assert audit.grade is Grade.EXACT


def test_coefficients_alone_are_nothing_to_anyone():
    audit = audited("glm_gaussian.rds", TWO, "pain")
    assert audit.grade.severe
    assert not audit.attackers.rungs[0].leaks


def test_a_table_beside_the_model_is_released_too():
    audit = audited("beside.RData", ALL, "pain")
    assert any("patients holds 60 of 60 rows" in str(note) for note in audit.notes)
    assert any("patients.pain holds the labels" in str(sentence) for sentence in audit.unanswered)


def test_terms_that_are_no_columns_come_from_the_model_matrix():
    with pytest.raises(ValueError, match=r"no column 'log\(age\)'.*model.matrix"):
        audited("lm_log.rds", TWO, "pain")
    matrix = pd.DataFrame({"log(age)": np.log(PATIENTS["age"]), "dose": PATIENTS["dose"]})
    assert audited("lm_log.rds", matrix, "pain").findings[0].rebuilt.all()
    assert audited("lm_log.rds", matrix.to_numpy(), "pain").findings[0].rebuilt.all()


def test_a_cox_model_gives_every_row_to_who_knows_the_others():
    data = (TWO, PATIENTS[["weeks", "died"]])
    release = released(load_r(FILES / "coxph.rds"), data)
    alone = replace(release, parts=tuple(part for part in release.parts if part.fitted.hazards is not None))
    assert audit_table(alone, Settings(None, 0, 0.05, None, ())).findings[0].rebuilt.all()
    audit = lw.audit(FILES / "coxph.rds", data)
    assert any("means includes the secret row" in str(note) for note in audit.notes)
    with pytest.raises(ValueError, match="coxph was not fitted on this data"):
        lw.audit(FILES / "coxph.rds", (TWO, PATIENTS[["weeks", "died"]][::-1].to_numpy()))


def of_hazards(name, data):
    """The audit of the score equation alone: the columns' means in the file are left out."""
    release = released(load_r(FILES / name), data)
    parts = tuple(part for part in release.parts if part.fitted.hazards is not None)
    return audit_table(replace(release, parts=parts), Settings(None, 0, 0.05, None, ())).findings[0].rebuilt


def test_strata_and_weights_of_a_cox_model():
    y = PATIENTS[["weeks", "died"]]
    assert of_hazards("coxph_weights.rds", (TWO, y)).mean() > 0.9  # of several rows that solve it the likeliest
    assert of_hazards("coxph_strata.rds", (PATIENTS[["age", "dose", "town"]], y)).mean() > 0.9
    with pytest.raises(ValueError, match="has strata by town"):
        lw.audit(FILES / "coxph_strata.rds", (TWO, y))
    shuffled = PATIENTS.assign(town=PATIENTS["town"].to_numpy()[::-1])[["age", "dose", "town"]]
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(FILES / "coxph_strata.rds", (shuffled, y))
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(FILES / "coxph_weights.rds", (TWO, y), sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="coxph with times of the kind 'counting' is not read"):
        lw.audit(FILES / "coxph_interval.rds", (TWO, y))


def test_interactions_come_from_the_model_matrix():
    with pytest.raises(
        ValueError, match=r"no column 'age:town', which is a term of lm. Pass the columns of model.matrix"
    ):
        audited("lm_interaction.rds", PATIENTS[["age", "town"]], "pain")
    assert audited("lm_interaction.rds", pd.read_csv(FILES / "interaction.csv"), "pain").grade is Grade.EXACT


def test_slips_are_named():
    with pytest.raises(ValueError, match=r"weights that its file does not hold.*sample_weight"):
        audited("lm_weights.rds", TWO, "pain")
    with pytest.raises(ValueError, match="fitted on 60 rows without missing values, and X has 59"):
        lw.audit(FILES / "lm_bare.rds", (ALL[1:], PATIENTS["pain"][1:]))
    with pytest.raises(ValueError, match="column 'town' of X has a value that the model was not fitted on in 60 rows"):
        audited("lm_bare.rds", ALL.assign(town="Leeds"), "pain")
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(FILES / "lm_bare.rds", (ALL, PATIENTS["pain"].sample(frac=1, random_state=0).to_numpy()))
    with pytest.raises(ValueError, match="2 models"):
        audited("several.RData", ALL, "pain")


def test_models_that_are_not_read_are_named():
    with pytest.raises(TypeError, match=r"randomForest of R is not read.*predicted, oob.times, y hold a number"):
        audited("forest.rds", TWO, "pain")


def test_a_recipe_may_name_the_file(tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        f"import pandas as pd\npatients = pd.read_csv({str(FILES / 'patients.csv')!r})\n"
        f"model = {str(FILES / 'lm.rds')!r}\ndata = (patients[['age', 'dose', 'town', 'smokes']], patients['pain'])\n"
    )
    assert Recipe.read(recipe).audit().findings[0].rebuilt.all()
