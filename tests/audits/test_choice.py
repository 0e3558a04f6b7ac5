import gc
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks import NearestCandidate
from lostwax.audits import choice
from lostwax.audits.choice import all_attacks, try_all
from lostwax.audits.play import Answer, Played
from lostwax.clock import Clock
from lostwax.games import Guess, Knowledge, Records, Release
from lostwax.grades import Grade
from lostwax.learning.costs import Rate
from lostwax.trainers import GD, Optimum


@pytest.fixture(scope="module")
def parts():
    X, y = load_iris(return_X_y=True)
    x = (X - X.mean(0)) / X.std(0)
    return Records(torch.from_numpy(x).float(), torch.from_numpy(y)).split(40, 40, 30, seed=0)


def knowledge(parts, trainer=None, **told):
    known, prior, _ = parts
    return Knowledge(nn.Linear(4, 3), trainer or GD(lr=0.5, steps=20), lw.Informed(known, **told), Weights(), prior)


def audited(parts, **changes):
    known, prior, secrets = parts
    game = {"trainer": Optimum(), "threat": lw.Informed(known), "prior": prior, "secrets": secrets, "games": 4}
    return lw.audit(nn.Linear(4, 3), **{**game, **changes})


@pytest.fixture
def small(monkeypatch):
    """The attacks of the room, with settings for a table of 40 rows."""
    settings = (lw.ClosedForm(), lw.Newton(bank=10), lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=16), epochs=3))
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: settings)
    return settings


def test_every_attack_of_the_room_is_asked(parts):
    kinds = {type(attack).__name__ for attack in all_attacks(knowledge(parts))}
    assert {"ClosedForm", "Newton", "Ensemble", "RecoNN", "Refit"} <= kinds
    assert "NearestCandidate" not in kinds  # it needs an attack to rebuild by


def test_among_candidates_attacks_that_rebuild_answer_the_nearest(parts):
    entrants = all_attacks(knowledge(parts, candidates=2))
    inside = {type(one.attack).__name__ for one in entrants if isinstance(one, NearestCandidate)}
    assert {"Newton", "Ensemble", "RecoNN"} <= inside
    assert "Refit" in {type(one).__name__ for one in entrants}


def test_the_best_comes_first_and_the_others_say_why_not(parts, small):
    audit = audited(parts)
    assert [finding.name for finding in audit.findings] == ["ClosedForm", "RecoNN"]
    assert audit.findings[0].rebuilt.all()
    assert "attack ClosedForm, the best of 2, through Weights" in str(audit)
    assert any(why.startswith("Newton is not applicable") for why in audit.left_out)
    assert audit.unanswered == ()  # who objects owes no answer
    alone = audited(parts, attack=small[2])
    assert np.array_equal(
        alone.errors, audit.finding("RecoNN").errors[audit.metric]
    )  # the same victims, the same adversary


def instead(attacks, slow=()):
    """Replace the attacks of the room, and `play`: at once, except for the slow ones, which take 12 s."""
    order = []

    def play(attack):
        order.append(type(attack).__name__)
        if attack in slow:
            time.sleep(12)
        records = Records(torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.long))
        return Played(Answer(attack, Guess(records, torch.zeros(1, 1)), 0.0), None)

    def tried(told, *, seconds=None, rate=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "all_attacks", lambda knowledge: attacks)
            clock = Clock.started(None if seconds is None else seconds / 60)
            return try_all(told, play, games=1, clock=clock, rate=rate), order

    return tried


def test_a_dear_attack_is_left_out_and_a_slow_one_stopped(parts):
    cheap, slow, dear = lw.Newton(bank=0), lw.RecoNN(epochs=1), lw.Ensemble(members=10**9)
    told, start = knowledge(parts), time.monotonic()
    tried, _ = instead((dear, slow, cheap), slow=(slow,))(told, seconds=2, rate=Rate.measured(told))
    assert time.monotonic() - start < 20
    assert [one.answer.attack for one in tried.lines] == [cheap]
    assert tried.unanswered[0].startswith("RecoNN was stopped: it was not done after")
    assert tried.unanswered[1].startswith("Ensemble would take about")
    assert tried.left_out == ()


def test_the_stronger_attack_that_fits_goes_first_and_what_does_not_fit_last(parts):
    """At 0.1 s a model KernelRidge takes 4 s, RecoNN some more, Newton 12 s and Ensemble 100 s."""
    newton, ensemble = lw.Newton(bank=100), lw.Ensemble(members=100, rounds=8)
    room = (lw.RecoNN(epochs=1), lw.KernelRidge(), ensemble, newton)
    told, rate = knowledge(parts), Rate(0.1, 15, 15)
    _, order = instead(room)(told)
    assert order == ["Newton", "Ensemble", "KernelRidge", "RecoNN"]
    _, order = instead(room)(told, seconds=1_000, rate=rate)
    assert order == ["Newton", "Ensemble", "KernelRidge", "RecoNN"]
    assert 90 < choice.predicted(ensemble, told, 1, rate).seconds < 200
    _, order = instead(room)(told, seconds=50, rate=rate)
    assert order == ["Newton", "KernelRidge", "RecoNN", "Ensemble"]


def test_candidates_are_named_by_the_stronger_attack_first(parts):
    room = (lw.attacks.NearestCandidate(lw.RecoNN()), lw.attacks.NearestCandidate(lw.Newton()), lw.attacks.Refit())
    _, order = instead(room)(knowledge(parts, candidates=2))
    assert order == ["Refit", "NearestCandidate", "NearestCandidate"]
    ranks = [attack.facts().strength for attack in room]
    assert ranks == sorted(ranks)


def test_a_strong_attack_that_is_too_slow_leaves_time_for_quick_ones(parts):
    newton, quick = lw.Newton(bank=100), lw.KernelRidge()
    told, rate = knowledge(parts), Rate(1e-2, 15, 15)
    tried, order = instead((newton, quick), slow=(newton,))(told, seconds=4, rate=rate)
    assert order == ["Newton", "KernelRidge"]
    assert [one.answer.attack for one in tried.lines] == [quick]
    assert tried.unanswered[0].startswith("Newton was stopped: it was not done after")


def test_a_rate_that_is_six_times_too_slow_cuts_no_newton(parts, monkeypatch):
    """As on a busy machine: the prediction is above the limit, and Newton rebuilds every record within it."""
    measured = Rate.measured
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.KernelRidge(), lw.Newton(bank=10)))

    def slow(told, **_):
        rate = measured(told)
        seconds = choice.predicted(lw.Newton(bank=10), told, 4, rate).seconds
        return rate._replace(training=rate.training * 5 * 60 / seconds)  # predicted: five times the limit

    monkeypatch.setattr(Rate, "measured", slow)
    monkeypatch.setattr(choice, "models_before_attacks", lambda *_: 0)
    trainer = GD(lr=0.5, steps=20, dtype=torch.float64)
    audit = audited(parts, trainer=trainer, max_minutes=1)
    assert audit.finding("Newton").rebuilt.all()
    assert not any(why.startswith("Newton") for why in audit.unanswered)


@dataclass(frozen=True)
class Slow:
    """A trainer that takes `seconds` for every call with more than `quick` models, and catches what interrupts it."""

    seconds: float
    quick: int = 0
    catches: type[BaseException] = Exception

    def __call__(self, net, cohort, *, seed):
        for _ in range(3):
            try:
                time.sleep(self.seconds if len(cohort) > self.quick else 0.0)
                break
            except self.catches:
                continue
        return Release({"x": cohort.own.x[:, 0]})

    def tile_size(self, net, cohort):
        return 2


@pytest.mark.parametrize("quick", [0, 2], ids=["the probe", "the victims"])
def test_slow_victims_are_stopped_and_named(parts, quick):
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"audit: max_minutes is too short: .*Allow more minutes"):
        audited(parts, trainer=Slow(60, quick), games=20, max_minutes=0.02)
    assert time.monotonic() - start < 20


def test_victims_whose_training_was_cut_are_not_taken(parts):
    """Code with a bare except catches even the alarm, and goes on with half of its work done."""
    with pytest.raises(ValueError, match=r"audit: max_minutes is too short"):
        audited(parts, trainer=Slow(1, 2, BaseException), games=20, max_minutes=0.01)


def test_an_answer_that_was_cut_is_not_taken(parts):
    newton, quick = lw.Newton(bank=0), lw.KernelRidge()
    told = knowledge(parts)

    def play(attack):
        with suppress(BaseException):
            time.sleep(60 if attack is newton else 0)
        return Played(Answer(attack, Guess(told.prior[:1], torch.zeros(1, 1)), 0.0), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "all_attacks", lambda knowledge: (newton, quick))
        tried = try_all(told, play, games=1, clock=Clock.started(4 / 60), rate=Rate(1e-2, 15, 15))
    assert [one.answer.attack for one in tried.lines] == [quick]
    assert tried.unanswered[0].startswith("Newton was stopped")


def in_another_thread(work):
    """What comes of it there."""
    found = []

    def run():
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return found[0]


def test_in_another_thread_attacks_are_stopped_too(parts):
    """The same that is tried in the main thread is tried there, for it can be stopped."""
    room = (lw.KernelRidge(), lw.Newton(bank=1_000))  # predicted: 4 s and 100 s
    told = knowledge(parts)
    _, order = in_another_thread(lambda: instead(room)(told, seconds=50, rate=Rate(0.1, 15, 15)))
    assert order == ["KernelRidge", "Newton"]


def test_where_shadow_models_take_too_long_they_are_computed_by_linear_response(parts):
    """At 50 ms per training 4,000 models take 200 s. The net has 15 parameters, so 15 directions are enough."""
    told, ridge = knowledge(parts, GD(lr=0.1, steps=20)), lw.KernelRidge(shadows=4_000, augment=lw.learning.Repeats())
    rate = Rate(0.05, 15, 15)  # seconds per training, features, parameters
    for seconds, engine in ((1_000, None), (30, 256)):
        chosen = choice._affordable(ridge, told, 4, Clock.started(seconds / 60), rate).attack
        assert (chosen.engine and chosen.engine.directions) == engine
    assert choice._affordable(ridge, told, 4, Clock.started(None), rate)[0] is ridge
    wild = knowledge(parts, Optimum())  # has no linear response
    assert choice._affordable(ridge, wild, 4, Clock.started(0.01), rate)[0] is ridge


def test_an_audit_says_that_a_cheaper_form_ran(parts):
    """Its full form might find more, so that nothing found is no all-clear."""
    told = knowledge(parts, GD(lr=0.1, steps=20))
    room = (lw.KernelRidge(shadows=4_000, augment=lw.learning.Repeats()),)
    said, order = instead(room)(told, seconds=30, rate=Rate(0.05, 15, 15))
    assert order == ["KernelRidge"]
    assert said.unanswered == (
        "KernelRidge ran with engine=LinearResponse(directions=256, checked=64, rank=None), because there was no time "
        "for its full form, which might find more.",
    )


def test_an_attack_that_still_runs_is_the_last(parts, monkeypatch, untraced):
    """A sleep in another thread cannot be interrupted: it is left behind, and nothing is begun beside it."""
    monkeypatch.setattr("lostwax.clock.STOPPING", 0.2)
    quick, slow, waits = lw.KernelRidge(), lw.RecoNN(epochs=1), lw.Ensemble(members=10)
    told, start = knowledge(parts), time.monotonic()
    room = instead((quick, slow, waits), slow=(waits,))
    tried, _ = in_another_thread(lambda: room(told, seconds=6, rate=Rate(1e-3, 15, 15)))
    assert time.monotonic() - start < 20
    assert not tried.lines
    stopped, *others = tried.unanswered
    assert stopped.startswith("Ensemble was stopped")
    assert others == [f"{name} was not begun: Ensemble still runs." for name in ("KernelRidge", "RecoNN")]


@pytest.mark.parametrize("where", [lambda work: work(), in_another_thread], ids=["main thread", "another"])
def test_an_endless_training_function_is_stopped(parts, where):
    """It catches whatever is raised, and tries again."""

    def train(net, x, y, seed):
        while True:
            try:
                time.sleep(0.01)
            except:  # noqa: E722
                continue

    def work():
        with pytest.raises(ValueError, match="max_minutes is too short"):
            audited(parts, trainer=lw.OwnTraining(train), max_minutes=0.02)
        return True

    start = time.monotonic()
    gc.disable()  # the alarm may ring while a destructor runs, in which nothing can be raised
    try:
        assert where(work) is True
    finally:
        gc.enable()
    assert time.monotonic() - start < 15


def test_victims_that_would_take_far_too_long_are_not_begun(parts):
    """0.1 s for two victims, so 2 s for forty, and 0.3 s are allowed: about a tenth of the games might do."""
    start = time.monotonic()
    known, prior, _ = parts
    with pytest.raises(ValueError, match=r"training 40 victims takes about 2.* about [1-3] of 40 might do"):
        audited((known, known, prior), trainer=Slow(0.1), games=40, max_minutes=0.005)
    assert time.monotonic() - start < 20


def test_a_slow_null_of_a_weak_game_is_stopped_and_named(parts, monkeypatch):
    """Gaussian weights take thousands of shadow models."""
    monkeypatch.setattr("lostwax.audits.procedure.gaussian_weights", lambda *_: time.sleep(60))
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.WeakRecoNN(),))
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"training 4 victims and 4,096 models for the null takes about"):
        audited(parts, threat=lw.Weak(size=3), trainer=GD(lr=0.5, steps=1), games=4, max_minutes=0.05)
    assert time.monotonic() - start < 30


def test_no_time_for_any(parts, monkeypatch):
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.Ensemble(members=10**9),))
    audit = audited(parts, trainer=GD(lr=0.5, steps=20), max_minutes=0.1)
    assert audit.grade is Grade.UNDECIDED
    assert audit.attack == "BlindGuess through Weights"
    assert audit.unanswered[0].startswith("Ensemble would take about")
    assert not audit.beats_baselines(audit.findings[0]).any(), "it is the blind guess"
    assert lw.Policy(max_grade="recognisable").breaches(audit), "a gate does not pass over it"


@pytest.mark.parametrize("threat", [{"candidates": 3}, {"label_known": True}, {}], ids=str)
def test_what_is_done_is_kept_whatever_the_game(parts, monkeypatch, threat):
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.Ensemble(members=10**9),))
    audit = audited(parts, threat=lw.Informed(parts[0], **threat), trainer=GD(lr=0.5, steps=20), max_minutes=0.1)
    assert not audit.conclusion.line.grade.leaks
    assert audit.grade is Grade.UNDECIDED or audit.conclusion.by_membership, "which was asked before any attack began"


def test_a_named_attack_has_a_limit_too(parts):
    trainer = GD(lr=0.5, steps=20)
    start = time.monotonic()
    slow = audited(parts, trainer=trainer, attack=lw.Ensemble(members=10**9), max_minutes=0.1)
    assert time.monotonic() - start < 20
    assert slow.grade is Grade.UNDECIDED
    assert [line.name for line in slow.findings] == ["as released"]
    both = [lw.Ensemble(members=10**9), lw.KernelRidge(shadows=40)]
    audit = audited(parts, trainer=trainer, attack=both, max_minutes=0.5)
    assert [line.name for line in audit.findings] == ["KernelRidge"]
    assert [why.split()[0] for why in audit.unanswered] == ["Ensemble"]
    free, limited = (audited(parts, attack=lw.ClosedForm(), max_minutes=minutes) for minutes in (None, 5))
    assert np.array_equal(free.errors, limited.errors)
    assert not limited.unanswered


def test_an_error_of_a_named_attack_is_no_matter_of_time(parts, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("ClosedForm: no.")

    monkeypatch.setattr(lw.ClosedForm, "prepare", refuse)
    with pytest.raises(ValueError, match=r"ClosedForm: no\."):
        audited(parts, attack=lw.ClosedForm(), max_minutes=5)


def test_nobody_can_play(parts, monkeypatch):
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.ClosedForm(),))
    with pytest.raises(ValueError, match=r"no attack is applicable\. ClosedForm is not applicable"):
        audited(parts, trainer=GD(lr=0.5, steps=20))


def test_an_attack_that_fails_leaves_the_field_to_the_others(parts, small, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("RecoNN: all shadow models diverged.")

    monkeypatch.setattr(lw.RecoNN, "prepare", refuse)
    audit = audited(parts)
    assert [finding.name for finding in audit.findings] == ["ClosedForm"]
    assert audit.unanswered == ("RecoNN failed: RecoNN: all shadow models diverged.",)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"),
            "OutOfMemoryError: CUDA out of memory. Tried",
        ),
        (np.linalg.LinAlgError("Singular matrix"), "Singular matrix"),
        (MemoryError(), "MemoryError"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_the_machine_refuses_one_attack_is_not_the_others_loss(error, words, parts, small, monkeypatch, caplog):
    def run_out(*_, **__):
        raise error

    monkeypatch.setattr(lw.RecoNN, "prepare", run_out)
    audit = audited(parts)
    assert [finding.name for finding in audit.findings] == ["ClosedForm"]
    (why,) = audit.unanswered
    assert why.startswith("RecoNN failed: ")
    assert words in why
    assert "\n" not in why
    if not isinstance(error, ValueError):  # nobody wrote a sentence for it: the way there is kept
        assert "run_out" in caplog.text


def test_a_broken_ceiling_still_stops_the_audit(parts, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("A ceiling is a theorem")

    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: (lw.ClosedForm(),))
    monkeypatch.setattr("lostwax.audits.procedure.check_under", broken)
    with pytest.raises(RuntimeError, match="A ceiling is a theorem"):
        audited(parts)


def test_other_threads_have_no_alarm_but_play(parts, small):
    found = []
    thread = threading.Thread(target=lambda: found.append(audited(parts, max_minutes=5)))
    thread.start()
    thread.join()
    assert len(found[0].findings) == 2


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), 10**400, "3", True])
def test_bad_limits(parts, minutes):
    with pytest.raises((TypeError, ValueError), match="audit: expected max_minutes"):
        audited(parts, max_minutes=minutes)


@pytest.mark.parametrize(
    "attack",
    [
        lw.Newton(bank=10),
        lw.Ensemble(members=24, rounds=2),
        lw.RecoNN(epochs=30),
        lw.attacks.Refit(),
        NearestCandidate(lw.RecoNN()),
    ],
    ids=lambda attack: type(attack).__name__,
)
def test_predictions_are_finite_and_grow_with_the_work(attack, parts):
    told, rate = knowledge(parts, candidates=2), Rate(0.01, 15, 15)
    few, many = (choice.predicted(attack, told, games, rate).seconds for games in (1, 1_000))
    assert 0 < few <= 2 * many
    assert many < 1e6
    assert choice.predicted(lw.ClosedForm(), told, 1, rate).seconds == 0
    assert choice.predicted(object(), told, 1, rate).seconds == float("inf")


def test_gradient_inversion_costs_by_starts_and_steps(parts):
    rate, steps = Rate(0.01, 15, 15), lw.DPSGD(steps=20)
    told, guessed = (knowledge(parts, steps, label_known=label) for label in (True, False))
    attack = lw.GradientInversion(iterations=100)
    assert (
        0
        < 2 * choice.predicted(attack, told, 1, rate).seconds
        < choice.predicted(attack, guessed, 1, rate).seconds
        < 1e6
    )
    assert choice.predicted(attack, knowledge(parts), 1, rate).seconds == float("inf")  # a game that it cannot play


@pytest.mark.parametrize(
    ("attack", "trainer"),
    [
        (lw.RecoNN(epochs=10), GD(lr=0.2, steps=50)),
        (lw.GradientInversion(iterations=50), lw.DPSGD(lr=0.5, steps=20, noise_multiplier=0.1)),
    ],
    ids=["RecoNN", "GradientInversion"],
)
def test_the_prediction_is_of_the_right_order(attack, trainer):
    """A net of digits, prepared and played: within a factor of four, in one of three tries on a busy machine."""
    known, prior, secrets = lw.records.digits().split(100, 200, 50, seed=0)
    told = Knowledge(lw.nets.mlp(64, 10, 10), trainer, lw.Informed(known), Weights(), prior)
    release = trainer(told.net, told.threat.deal(secrets, 2, seed=0), seed=0)

    def right() -> bool:
        foretold = choice.predicted(attack, told, 2, Rate.measured(told)).seconds
        start = time.monotonic()
        attack.prepare(told, seed=0)(release)
        return foretold / 4 < time.monotonic() - start < 4 * foretold + 1

    assert any(right() for _ in range(3))


def test_a_slow_first_training_is_not_the_rate(parts):
    """With Adam the first call of a process loads code for seconds."""

    @dataclass(frozen=True)
    class Cold:
        calls: list

        def __call__(self, net, cohort, *, seed):
            time.sleep(0.0 if self.calls else 0.5)
            self.calls.append(1)
            return Release({"x": cohort.own.x[:, 0]})

        def tile_size(self, net, cohort):
            return 1

    cold = Cold([])
    assert Rate.measured(knowledge(parts, cold), seconds=0.1).training < 0.1
    assert 2 <= len(cold.calls) <= 5


def test_an_own_function_is_audited_without_naming_an_attack():
    """Private draws hide a record from rounds of an ensemble: it is left out, and the audit is not undecided."""

    def train(net, x, y, seed):
        with torch.no_grad():
            for value in net.parameters():
                value += torch.randn_like(value)
        return net

    known, prior, secrets = lw.records.digits().split(20, 40, 30, seed=0)
    audit = lw.audit(
        lw.nets.mlp(64, 2, 10),
        trainer=lw.OwnTraining(train),
        threat=lw.Informed(known),
        prior=prior,
        secrets=secrets,
        max_minutes=2,
    )
    assert audit.grade == "not found"
    assert any("Training draws private random numbers" in note for note in map(str, audit.notes))
    assert any(why.startswith("Ensemble is not applicable: private random draws") for why in audit.left_out)


def test_a_cheaper_ensemble_has_enough_members(parts):
    told = knowledge(parts)
    assert [form.members for form in lw.Ensemble().cheaper(told)] == [500, 187]
    assert lw.Ensemble(members=100).cheaper(told) == ()
