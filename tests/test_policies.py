from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from audits.game import KNOWN, Reads, audited
from lostwax.audits.ceiling import privacy_of
from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson
from lostwax.policies import names

PRIVACY = privacy_of({"noise_multiplier": 2.0, "sample_rate": 1.0, "steps": 1})


@pytest.fixture(scope="module")
def leaky():
    return audited(Reads(noise=0.02))


@pytest.fixture(scope="module")
def blind():
    return audited(Reads(blind=1.0))


@pytest.fixture(scope="module")
def accident():
    X, y = load_iris(return_X_y=True)
    return lw.audit(LogisticRegression(max_iter=1_000, tol=1e-2).fit(X, y), (X, y))


@contextmanager
def suppress_ours(words):
    """Nothing, or an error of ours."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if words not in str(error):
            raise


def without_target(audit):
    """The same, as if its target had not been judged by itself."""
    return replace(audit, findings=tuple(replace(finding, target=None) for finding in audit.findings))


def only(policy, audit):
    (breach,) = policy.breaches(audit)
    return breach


def test_the_worse_end_of_the_interval_counts(blind):
    high = clopper_pearson(0, 200)[1]
    assert lw.Policy(max_rebuilt_share=high + 1e-6, max_nearer_share=0.5).breaches(blind) == ()
    breach = only(lw.Policy(max_rebuilt_share=high - 1e-6), blind)
    assert breach.found == pytest.approx(high)
    said = "0 of 200 records are rebuilt (error <= 0.05): a share of 0, and with 95 % confidence up to 0.0183"
    assert said in str(breach)


def test_true_positives(leaky, blind):
    policy = lw.Policy(max_tpr_at_1pct=0.1)
    assert policy.breaches(blind) == ()
    breach = only(policy, leaky)
    assert breach.found == leaky.tpr(0.01).high
    assert "TPR" in str(breach)
    assert "the gate uses the upper end" in str(breach)


def test_median_against_the_oracle(leaky, blind):
    policy = lw.Policy(min_median_ratio_to_oracle=0.9)
    assert policy.breaches(blind) == ()
    breach = only(policy, leaky)
    errors, oracle = leaky.errors, leaky.baselines[leaky.oracle][leaky.metric]
    assert breach.found < np.median(errors) / np.median(oracle)
    away = 2.241 * np.sqrt(200) / 2  # the textbook's order statistics, at 97.5 % for each of two medians
    low, high = np.sort(errors)[round(100 - away)], np.sort(oracle)[round(100 + away)]
    assert breach.found == pytest.approx(low / high, rel=0.05)


def test_where_every_row_was_played_for_nothing_is_estimated():
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X, y), (X, y))
    assert only(lw.Policy(max_rebuilt_share=0.99), audit).found == 1.0


def test_what_a_lazy_solver_hides_is_no_defence(accident):
    assert not accident.findings[0].rebuilt.any()
    breach = only(lw.Policy(max_rebuilt_share=0.5), accident)
    assert str(breach).startswith("max_rebuilt_share = 0.5: as converged: 150 of 150")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("max_tpr_at_1pct", "no null scores to count false positives by"),
        ("max_tpr_at_01pct", "no null scores to count false positives by"),
        ("max_ceiling", "not differentially private"),
    ],
)
def test_a_limit_that_cannot_be_judged_is_a_breach(limit, words, accident):
    breach = only(lw.Policy(**{limit: 0.999}), accident)
    assert breach.found is None
    assert "this audit cannot decide it" in str(breach)
    assert words in str(breach)


def test_of_two_lines_with_one_name_both_are_judged(leaky, blind):
    """Attacks of a user's class may have the same name."""
    policy = lw.Policy(max_rebuilt_share=0.5)
    for findings in ((*leaky.findings, *blind.findings), (*blind.findings, *leaky.findings)):
        assert policy.breaches(replace(leaky, findings=findings))


def test_an_audit_of_nets_does_not_tell_of_cells(leaky):
    breach = only(lw.Policy(max_exact_cell_share=0.999), leaky)
    assert breach.found is None
    assert "does not tell what is known of single cells" in str(breach)


def test_too_few_games_cannot_be_judged(leaky):
    few = audited(Reads(), games=5)
    assert "run 7 or more" in str(only(lw.Policy(min_median_ratio_to_oracle=0.1), few))
    assert "cannot be estimated from 5 null scores" in str(only(lw.Policy(max_tpr_at_1pct=0.9), few))
    assert "cannot be estimated from 200 null scores" in str(only(lw.Policy(max_tpr_at_01pct=0.9), leaky))


def test_candidates():
    audit = audited(lw.attacks.NearestCandidate(Reads()), threat=lw.Informed(KNOWN, candidates=2), games=50)
    assert "named among the candidates" in str(only(lw.Policy(max_rebuilt_share=0.6), audit))
    assert "Guessing alone" not in str(only(lw.Policy(max_rebuilt_share=0.6), audit))
    assert "Guessing alone names a share of 0.5: set a limit above" in str(
        only(lw.Policy(max_rebuilt_share=0.5), audit)
    )
    assert "limit max_rebuilt_share instead" in str(only(lw.Policy(min_median_ratio_to_oracle=1.0), audit))


def test_pictures_cannot_be_judged_by_the_share_rebuilt_alone(blind):
    breach = only(lw.Policy(max_rebuilt_share=0.05), blind)
    assert breach.found is None
    assert "set max_grade or max_nearer_share too" in str(breach)
    assert lw.Policy(max_rebuilt_share=0.05, max_grade="not found").breaches(blind) == ()


def test_the_share_of_exact_cells():
    X, y = load_iris(return_X_y=True)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    audit = without_target(lw.audit(model, (X, y)))
    share = audit.findings[0].cells.exact_share
    assert 0 < share < 1
    breach = only(lw.Policy(max_exact_cell_share=share / 2), audit)
    assert breach.found == pytest.approx(share)
    assert "of 750 cells are exact" in str(breach)
    above = lw.Policy(max_exact_cell_share=share + 1e-9, max_grade="not found")
    assert str(only(above, audit)).startswith("max_grade")
    some = without_target(lw.audit(model, (X, y), games=20))
    breach = only(lw.Policy(max_exact_cell_share=some.findings[0].cells.exact_share), some)
    assert "with 95 % confidence up to" in str(breach)


def test_the_target_is_judged_by_itself_however_many_columns_there_are():
    X, y = load_iris(return_X_y=True)
    X = np.c_[X, np.random.default_rng(0).normal(size=(150, 200))]
    audit = lw.audit(DecisionTreeClassifier(max_depth=1).fit(X, y), (X, y))
    assert audit.findings[0].cells.exact_share < 0.01
    breach = only(lw.Policy(max_exact_cell_share=0.01, max_nearer_share=0.9), audit)
    assert "the target of 150 of 150 rows is exact" in str(breach)


@pytest.mark.parametrize("limits", [{"max_rebuilt_share": 0.05}, {"max_nearer_share": 0.9}, {"max_rebuilt_share": 0.9}])
def test_a_policy_that_does_not_limit_cells_cannot_pass_exact_cells(limits):
    """A lasso with some weights gives these columns of all rows, the others not: no row is rebuilt."""
    random = np.random.default_rng(1)
    X = random.normal(size=(120, 12))
    y = X[:, :5] @ random.normal(size=5) + random.normal(size=120)
    audit = lw.audit(Lasso(alpha=0.2).fit(X, y), (X, y))
    assert audit.findings[-1].cells.exact > 120
    breach = only(lw.Policy(**limits), audit)
    assert "set max_exact_cell_share or max_grade too" in str(breach)


@pytest.mark.parametrize(
    "limits", [{"max_rebuilt_share": 0.9}, {"max_rebuilt_share": 0.9, "max_exact_cell_share": 0.9}]
)
def test_narrow_intervals_are_not_judged_by_what_is_exact_alone(limits):
    """Random thresholds give every cell to a small interval, none exactly, and hardly a row as a whole."""
    X, y = load_iris(return_X_y=True)
    audit = without_target(lw.audit(ExtraTreesClassifier(50, random_state=0).fit(X, y), (X, y)))
    assert audit.grade.leaks
    breach = only(lw.Policy(**limits), audit)
    assert breach.found is None
    assert "max_grade" in str(breach)
    assert lw.Policy(**limits, max_grade="not found").breaches(audit)


def test_the_grade_and_the_share_nearer_than_any_guess(leaky, blind):
    policy = lw.Policy(max_grade="better than chance")
    assert policy.breaches(blind) == ()
    breach = only(policy, leaky)
    assert breach.found == leaky.grade
    assert str(breach).startswith('max_grade = "better than chance": the grade is')
    nearer = lw.Policy(max_nearer_share=0.5)
    assert nearer.breaches(blind) == ()
    assert only(nearer, leaky).found > 0.9


def test_a_threshold_too_small_hides_nothing():
    """An audit may ask for fifteen digits; the policy counts what is within its own threshold."""
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X, y), (X, y), threshold=1e-15)
    assert not audit.findings[0].rebuilt.all()
    breach = only(lw.Policy(max_rebuilt_share=0.05), audit)
    assert "150 of 150 records are rebuilt (error <= 0.05)" in str(breach)
    assert audit.grade == "recognisable"
    assert only(lw.Policy(max_grade="recognisable"), audit).found == "exact"


def test_the_ceiling(blind):
    ceiling = lw.bound(noise_multiplier=2.0, baseline=0.1)
    under = replace(blind, ceiling=ceiling, privacy=PRIVACY)
    assert lw.Policy(max_ceiling=ceiling.upper).breaches(under) == ()
    assert lw.Policy(max_grade="limited by proof").breaches(under) == ()
    assert only(lw.Policy(max_ceiling=ceiling.upper - 1e-6), under).found == ceiling.upper
    estimated = replace(blind, ceiling=replace(ceiling, certified=False))
    assert "The ceiling is not certified" in str(only(lw.Policy(max_ceiling=0.999), estimated))


@pytest.mark.parametrize("limit", [{"max_rebuilt_share": 0.5}, {"max_tpr_at_1pct": 0.5}])
def test_an_attack_without_an_answer_is_a_breach(limit, blind):
    stopped = ("Newton was stopped: it was not done after about 53 s.", "Ensemble failed: OutOfMemoryError.")
    policy = lw.Policy(**limit, max_nearer_share=0.5)
    assert policy.breaches(replace(blind, left_out=("ClosedForm is not applicable.",))) == ()
    breach = only(policy, replace(blind, unanswered=stopped))
    assert breach.found is None
    assert "this audit cannot decide it. Undecided" in str(breach)
    assert all(f"Not answered: {why}" in str(breach) for why in stopped)


def test_what_is_known_comes_before_what_is_not(leaky):
    policy = lw.Policy(max_tpr_at_1pct=0.1)
    assert policy.breaches(replace(leaky, unanswered=("Newton was stopped.",))) == policy.breaches(leaky) != ()


def test_a_ceiling_needs_no_answer(blind):
    ceiling, unanswered = lw.bound(noise_multiplier=2.0, baseline=0.1), ("Newton was stopped.",)
    under = replace(blind, ceiling=ceiling, privacy=PRIVACY, unanswered=unanswered)
    assert lw.Policy(max_ceiling=under.ceiling.upper).breaches(under) == ()


def test_an_optimum_that_was_not_reached_is_a_breach():
    X, y = load_iris(return_X_y=True)
    separable = (y == 0).astype(int)
    audit = lw.audit(LogisticRegression(C=np.inf).fit(X, separable), (X, separable))
    breach = only(lw.Policy(max_rebuilt_share=0.999), audit)
    assert breach.found is None
    assert "no optimum could be reached" in str(breach)


def test_guesses_from_one_victim_are_one_game(blind):
    several = replace(blind, groups=np.repeat(np.arange(4), 50))
    breach = only(lw.Policy(max_rebuilt_share=0.05), several)
    assert breach.found == pytest.approx(clopper_pearson(0, 4)[1])
    assert "0 of 200 records are rebuilt (error <= 0.05), from 4 victims: a share of 0" in str(breach)
    errors = {several.criterion: np.arange(200) % 2.0}
    half = replace(several, findings=(replace(several.findings[0], errors=several.findings[0].errors | errors),))
    assert only(lw.Policy(max_rebuilt_share=0.05), half).found == pytest.approx(clopper_pearson(2, 4)[1])
    for limit in ({"max_tpr_at_1pct": 0.9}, {"min_median_ratio_to_oracle": 0.1}):
        breach = only(lw.Policy(**limit), several)
        assert breach.found is None
        assert "Its 200 games come from 4 independent victims" in str(breach)


def test_a_file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('# what we let out\nmax_grade = "not found"\nmax_rebuilt_share = 0.05\nthreshold = 0.1\n')
    assert lw.Policy.read(path) == lw.Policy(max_grade="not found", max_rebuilt_share=0.05, threshold=0.1)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("max_tpr_at_1_pct = 0.1", ValueError, r"which is not a limit. Did you mean max_tpr_at_1pct\?"),
        ("max_median_ratio_to_oracle = 1", ValueError, r"Did you mean min_median_ratio_to_oracle\?"),
        ("epsilon = 1", ValueError, "Expected max_grade, max_rebuilt_share, "),
        ("max_ceiling = 5", ValueError, r"a share from 0 to below 1 \(5 % is 0.05\), got 5"),
        ("max_rebuilt_share = 1", ValueError, "Such a limit would pass everything"),
        ("max_tpr_at_1pct = 1.0", ValueError, "Such a limit would pass everything"),
        ("min_median_ratio_to_oracle = 0", ValueError, "Such a limit would pass everything"),
        ('max_grade = "exact"', ValueError, 'expected max_grade to be one of "limited by proof", "not found"'),
        ('max_grade = "undecided"', ValueError, "expected max_grade to be one of"),
        ("threshold = 0", ValueError, "expected threshold to be a number >= 0.01"),
        ("threshold = 0.1", ValueError, "no limit is set, so everything would pass"),
        ("max_ceiling = nan", ValueError, "a share from 0 to below 1"),
        ("min_median_ratio_to_oracle = -1", ValueError, "a number >= 0.01"),
        ('max_ceiling = "5 %"', TypeError, "expected max_ceiling to be a number"),
        ("max_ceiling = true", TypeError, "expected max_ceiling to be a number"),
        ("", ValueError, "no limit is set, so everything would pass"),
        ("max_ceiling", ValueError, "is not TOML"),
        ("[limits]\nmax_ceiling = 1", ValueError, "'limits', which is not a limit"),
    ],
)
def test_files_that_are_no_policy(text, error, words, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(error, match=words) as raised:
        lw.Policy.read(path)
    assert "policy.toml" in str(raised.value)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        lw.Policy.read(tmp_path / "policy.toml")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60) | st.builds(lambda n, v: f"{n} = {v}".encode(), st.sampled_from(names()), st.text())
)
def test_any_bytes_are_a_policy_or_our_error(content, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_bytes(content)
    with suppress_ours("policy.toml"):
        lw.Policy.read(path)


def test_two_models_of_one_grade_are_two_decisions():
    """Nearest neighbours hold every row for anyone; a logistic regression needs somebody who has nearly all rows."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    neighbours, regression = (
        lw.audit(model.fit(X, y), (X, y)) for model in (KNeighborsClassifier(), LogisticRegression(tol=1e-10))
    )
    assert neighbours.grade is regression.grade is Grade.EXACT
    assert neighbours.conclusion.headline == "Anyone who gets the file can read 178 of 178 rows."
    assert regression.conclusion.headline.startswith("Somebody who knows all but 2 rows can rebuild the missing ones")
    strangers = lw.Policy(attackers={"anyone": {"max_grade": "not found", "max_rebuilt_share": 0.01}})
    assert {breach.limit for breach in strangers.breaches(neighbours)} == {
        "attackers.anyone.max_grade",
        "attackers.anyone.max_rebuilt_share",
    }
    assert strangers.breaches(regression) == ()
    assert lw.Policy(max_knowledge_margin=2).breaches(neighbours)[0].found == 178
    assert lw.Policy(attackers={"insider": {"max_grade": "not found"}}).breaches(regression)


def test_limits_of_attackers_are_read_from_a_file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('max_knowledge_margin = 1\n[attackers.anyone]\nmax_grade = "not found"\nmax_rebuilt_share = 0.05\n')
    limits = {"anyone": {"max_grade": "not found", "max_rebuilt_share": 0.05}}
    assert lw.Policy.read(path) == lw.Policy(max_knowledge_margin=1, attackers=limits)


def test_an_attacker_whom_nobody_played_does_not_pass():
    X, y = load_wine(return_X_y=True)
    audit = lw.audit(LogisticRegression(tol=1e-10).fit(X, y), (X, y), attackers=["insider"])
    (breach,) = lw.Policy(attackers={"anyone": {"max_grade": "not found"}}).breaches(audit)
    assert breach.found is None
    assert "no attacker of this kind was tried" in str(breach)


@pytest.mark.parametrize(
    "attackers",
    [{"stranger": {"max_grade": "not found"}}, {"anyone": {}}, {"anyone": {"max_ceiling": 0.1}}, {"anyone": 1}],
)
def test_limits_of_no_attacker(attackers):
    with pytest.raises((TypeError, ValueError), match="attackers"):
        lw.Policy(attackers=attackers)
