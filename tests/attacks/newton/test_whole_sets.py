"""Whole training sets: exact where the weights determine them, and never certified where the answer is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.least_squares import Linearised
from lostwax.attacks.newton import set_problem
from lostwax.attacks.newton.corners import Corners
from lostwax.attacks.newton.set_problem import SetPolisher, SetProblem, first_layer, record_span
from lostwax.attacks.newton.training_map import Problem, TrainingMap
from lostwax.attacks.newton.whole_sets import WholeSets
from lostwax.defences import Defended, Rounded
from lostwax.games import Cohort, Hints, Knowledge, Records, Release
from lostwax.inits import LeCunNormal
from lostwax.losses import SquaredError
from lostwax.nets import mlp
from lostwax.trainers import GD, SGD, Adam

DTYPE = torch.float64
TRAINER = GD(lr=0.5, steps=20, dtype=DTYPE, init=LeCunNormal())


def digits(dtype=DTYPE):
    """Zeros, ones and twos: those of nobody's and those of the secrets."""
    few = lw.records.digits()
    return [part.to(dtype) for part in few[few.y < 3].split(200, 100, seed=0)]


def game(rows, trainer=TRAINER, width=24, activation=nn.Tanh):
    prior, pool = digits(trainer.dtype)
    net = mlp(64, width, 3, activation=activation)
    own = pool[torch.tensor(rows)]
    own = own[own.y.argsort()]
    cohort = Cohort(pool[:0], own[torch.arange(len(rows))[None]], torch.arange(1))
    threat = lw.Weak(size=len(rows), per_class=(len(rows), 0, 0))  # of which only the size is used
    return Knowledge(net, trainer, threat, lw.access.Weights(), prior), cohort, own


def inverted(knowledge, cohort, labels=None, attack=lw.Newton()):  # noqa: B008
    release = knowledge.trainer(knowledge.net, cohort, seed=0)
    hints = None if labels is None else Hints(labels=labels)
    return attack.prepare(knowledge, seed=0).invert(release, hints)[0]


def errors(found, own):
    """Mean squared error of the guess nearest to each record."""
    guesses, truth = found.record.view(len(own), -1), own.x.flatten(1).double()
    return (guesses[:, None] - truth).square().mean(2).amin(0)


def test_four_digits_to_the_last_digits_with_labels_that_nobody_told():
    knowledge, cohort, own = game([0, 1, 2, 3])
    found = inverted(knowledge, cohort)
    assert found.certified
    assert found.label.tolist() == own.y.tolist()
    assert errors(found, own).max() < 1e-20


def test_ten_digits_of_all_classes_with_labels_that_nobody_told():
    prior, pool = (part.to(DTYPE) for part in lw.records.digits().split(1_000, 600, seed=1))
    own = pool[torch.arange(10)]  # of whichever classes
    net = mlp(64, 40, 10, activation=nn.Tanh)
    knowledge = Knowledge(net, TRAINER, lw.Weak(size=10), lw.access.Weights(), prior)
    found = inverted(knowledge, Cohort(pool[:0], own[torch.arange(10)[None]], torch.arange(1)))
    assert found.certified
    assert found.label.tolist() == sorted(own.y.tolist())
    assert errors(found, own).max() < 1e-10


@pytest.mark.parametrize(("classes", "steps"), [([0, 2], 20), ([1], 20), ([1], 21)])
def test_records_of_fewer_classes_than_the_net_has_outputs(classes, steps):
    prior, pool = (part[torch.isin(part.y, torch.tensor(classes))] for part in digits())
    own = pool[pool.y[:3].argsort()]
    threat = lw.Weak(size=3)
    knowledge = Knowledge(mlp(64, 24, 3, activation=nn.Tanh), TRAINER, threat, lw.access.Weights(), prior)
    release = replace(TRAINER, steps=steps)(
        knowledge.net, Cohort(pool[:0], own[torch.arange(3)[None]], torch.arange(1)), seed=0
    )
    (found,) = lw.Newton(jacobians=1).prepare(knowledge, seed=0).invert(release)
    assert errors(found, own).max() < 1e-20
    assert found.certified == (steps == TRAINER.steps)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 20])
def test_ten_and_twenty_digits(size):
    prior, pool = (part.to(DTYPE) for part in lw.records.digits().split(1_000, 600, seed=1))
    net, trainer = mlp(64, 64, 10, activation=nn.Tanh), replace(TRAINER, steps=30)
    knowledge = Knowledge(net, trainer, lw.Weak(size=size), lw.access.Weights(), prior)
    cohort = knowledge.threat.deal(pool, 1, seed=0)
    found = inverted(knowledge, cohort, cohort.own.y)
    assert found.certified
    assert errors(found, cohort.own[0]).max() < 1e-10


@pytest.mark.parametrize("unknown", ["a step", "the order"])
def test_records_are_found_but_not_certified_where_training_was_another(unknown):
    """The span does not depend on the steps, and corners depend on the span alone."""
    knowledge, cohort, own = game([0, 1, 2, 3])
    trainer = replace(TRAINER, steps=21)
    if unknown == "the order":
        ordered = SGD(lr=0.3, epochs=5, batch_size=2, order_seed=1, dtype=DTYPE, init=LeCunNormal())
        knowledge, trainer = replace(knowledge, trainer=ordered), replace(ordered, order_seed=2)
    release = trainer(knowledge.net, cohort, seed=0)
    (found,) = lw.Newton(jacobians=2).prepare(knowledge, seed=0).invert(release, Hints(labels=cohort.own.y))
    assert errors(found, own).max() < 1e-10
    assert not found.certified


def table():
    """Six records of nine columns with four levels each, and others; a corner of their space may be no record."""
    random = np.random.default_rng(75)
    levels = torch.from_numpy(random.choice(4, (206, 9), p=(0.6, 0.2, 0.1, 0.1)))
    records = Records(nn.functional.one_hot(levels, 4).to(DTYPE).flatten(1), levels[:, 0] % 2)
    own = records[:6]
    own = own[own.y.argsort()]
    net = mlp(36, 24, 2, activation=nn.Tanh)
    knowledge = Knowledge(net, TRAINER, lw.Weak(size=6), lw.access.Weights(), records[6:])
    return knowledge, Cohort(records[:0], own[torch.arange(6)[None]], torch.arange(1)), own


def test_corners_that_are_no_records_do_not_end_the_search(monkeypatch):
    """As many as records, but all the same, from which no step leads away."""
    knowledge, cohort, own = game([0, 1, 2, 3])
    mean = own.x.double().flatten(1).mean(0).expand(4, -1)
    monkeypatch.setattr(
        WholeSets, "_corners", lambda _, sets: Corners(sets.inside.record.of_records(mean), mean[:0, :3])
    )
    found = inverted(knowledge, cohort, cohort.own.y)
    assert found.certified
    assert errors(found, own).max() < 1e-20


def test_a_corner_of_a_table_that_is_no_record():
    knowledge, cohort, own = table()
    found = inverted(knowledge, cohort, cohort.own.y)
    assert found.certified
    assert errors(found, own).max() < 1e-20


@pytest.mark.parametrize("many", [2_000, 5])
def test_a_picture_that_covers_another_and_is_nowhere_white_is_found(monkeypatch, many):
    """Beyond it, away from the other, all its brightest pixels reach white at once: a corner that is no record."""
    monkeypatch.setattr(set_problem, "MANY", many)
    knowledge, _, own = game([0, 1, 2, 3])
    x = own.x.clone()
    x[0] = 0.95 * (torch.maximum(x[0], x[2]) > 0.3)
    x[2] *= x[0] > 0
    own = Records(x, own.y)
    cohort = Cohort(own[:0], own[torch.arange(4)[None]], torch.arange(1))
    whole, release = lw.Newton().prepare(knowledge, seed=0), knowledge.trainer(knowledge.net, cohort, seed=0)
    sets = SetProblem.of(whole.exact, whole.quick, whole.prior, release, spanned(knowledge, release))
    shown = sets.inside.record(whole._corners(sets).sure)
    assert sorted((shown[:, None] - x.flatten(1)).square().mean(2).amin(1) > 1e-4) == [False, False, False, True]
    (found,) = whole.invert(release)
    assert found.certified
    assert errors(found, own).max() < 1e-20


def test_many_unknowns_take_one_exact_jacobian(monkeypatch):
    monkeypatch.setattr(set_problem, "MANY", 5)
    knowledge, cohort, own = game([0, 1, 2, 3])
    found = inverted(knowledge, cohort)
    assert (found.certified, found.jacobians) == (True, 1)
    assert errors(found, own).max() < 1e-20
    assert len(found.directions) == 12


@pytest.mark.slow
def test_predicted_errors_are_those_of_the_corners_answered():
    """One of them is no record, and training was another, so that nothing shows it."""
    knowledge, cohort, own = table()
    release = replace(TRAINER, steps=21)(knowledge.net, cohort, seed=0)
    (found,) = lw.Newton(jacobians=2).prepare(knowledge, seed=0).invert(release, Hints(labels=cohort.own.y))
    assert not found.certified
    assert found.predicted >= errors(found, own).mean()
    wrong = (found.record.view(6, -1)[:, None] - own.x).square().mean(2).amin(1) > 1e-10  # (k,) guesses
    assert (found.variance.mean(1)[wrong] > found.blind).all()


def test_kinks_are_certified_where_corners_show_the_records():
    knowledge, cohort, own = game([0, 1, 2, 3], activation=nn.ReLU)
    found = inverted(knowledge, cohort)
    assert found.certified
    assert errors(found, own).max() < 1e-20


def test_kinks_are_never_certified_unless_right():
    knowledge, cohort, own = game([0, 1, 2, 3], activation=nn.ReLU)
    found = inverted(knowledge, cohort, cohort.own.y, lw.Newton(jacobians=1))
    assert not found.certified or errors(found, own).max() < 1e-10


@pytest.mark.slow
def test_a_rounded_release_shows_the_records_roughly():
    knowledge, cohort, own = game([0, 1, 2, 3])
    knowledge = replace(knowledge, trainer=Defended(TRAINER, by=Rounded(torch.float16)))
    found = inverted(knowledge, cohort, cohort.own.y)
    assert errors(found, own).max() < 1e-4
    assert not found.certified


@pytest.mark.slow
def test_audited():
    prior, pool = digits()
    net = mlp(64, 24, 3, activation=nn.Tanh)
    audit = lw.audit(
        net,
        trainer=TRAINER,
        threat=lw.Weak(size=3),
        attack=lw.Newton(),
        access=lw.access.Weights(),
        prior=prior,
        secrets=pool,
        games=3,
    )
    assert audit.findings[0].guess.certified.all()


@pytest.mark.parametrize(
    "trainer",
    [
        TRAINER,
        replace(TRAINER, momentum=0.9, weight_decay=0.01),
        SGD(lr=0.3, epochs=5, batch_size=2, order_seed=1, dtype=DTYPE, init=LeCunNormal()),
        replace(TRAINER, dtype=torch.float32),
    ],
)
def test_the_first_layer_shows_the_span_of_the_records(trainer):
    knowledge, cohort, own = game([0, 1, 2, 3, 4], trainer)
    release = trainer(knowledge.net, cohort, seed=0)
    span = spanned(knowledge, release)
    truth = own.x.double().flatten(1)
    assert span.complete
    assert len(span.points.directions) == 4
    tolerance = 1e-10 if trainer.dtype == DTYPE else 1e-3
    assert torch.allclose(span.points(span.points.of_records(truth)), truth, atol=tolerance)


@pytest.mark.parametrize("trainer", [TRAINER, replace(TRAINER, momentum=0.9, weight_decay=0.01)])
def test_training_within_the_span_is_the_same_training(trainer):
    knowledge, cohort, own = game([0, 1, 2, 3, 4], trainer)
    release = trainer(knowledge.net, cohort, seed=0)
    span = spanned(knowledge, release)
    weights = TrainingMap(knowledge.net, trainer, knowledge.prior[:0], 5)
    other = own.x.flip(0)  # of the same span, other labels
    z = torch.cat([span.inputs(own.x).flatten()[None], span.inputs(other).flatten()[None]])
    reduced = span.reduced_map(weights)(z, own.y.expand(2, -1))
    full = trainer(knowledge.net, Cohort(cohort.shared, Records(other[None], own.y[None]), cohort.index), seed=0)
    for ours, theirs in zip(reduced, (release, full), strict=True):
        assert torch.allclose(ours, span.reduced(theirs)[0], atol=1e-12)


def spanned(knowledge, release):
    weights = TrainingMap(knowledge.net, knowledge.trainer, knowledge.prior[:0], knowledge.threat.size)
    return record_span(weights, release)


def test_singular_vectors_that_are_orthogonal_only_roughly(monkeypatch):
    """As a GPU's are: training within their span would be another, further from the release than rounding."""
    svd = torch.linalg.svd

    def rough(matrix, full_matrices=True):
        found = svd(matrix, full_matrices=full_matrices)
        if len(matrix) == 24 and not full_matrices:  # the layer
            found.Vh[:4] += 1e-12 * torch.ones(4, 4, dtype=DTYPE) @ found.Vh[:4]  # of the same span
        return found

    monkeypatch.setattr(torch.linalg, "svd", rough)
    knowledge, cohort, own = game([0, 1, 2, 3])
    found = inverted(knowledge, cohort)
    assert found.certified
    assert errors(found, own).max() < 1e-24


@pytest.mark.parametrize("dtype", [torch.float32, DTYPE])
def test_the_noise_of_a_span_is_what_a_record_misses_it_by(dtype):
    knowledge, cohort, own = game([0, 1, 2, 3, 4, 5], replace(TRAINER, dtype=dtype))
    span = spanned(knowledge, knowledge.trainer(knowledge.net, cohort, seed=0))
    x = own.x.flatten(1).double()
    missed = (span.points(span.points.of_records(x)) - x).abs().amax(1) / x.norm(dim=1)
    assert 1e-3 * span.noise < missed.max() < 3 * span.noise


def test_six_digits_in_single_precision_with_labels_that_nobody_told():
    knowledge, cohort, own = game([0, 1, 2, 3, 4, 5], replace(TRAINER, dtype=torch.float32))
    found = inverted(knowledge, cohort)
    assert found.certified
    assert found.label.tolist() == own.y.tolist()
    assert errors(found, own).max() < 1e-8


def test_equal_records_span_less():
    knowledge, cohort, _ = game([0, 1, 2, 2])
    span = spanned(knowledge, knowledge.trainer(knowledge.net, cohort, seed=0))
    assert len(span.points.directions) == 2
    assert not span.complete


def test_more_records_than_numbers_are_certified_by_the_weights_alone():
    """They span the whole space, outside of which no record can be."""
    random = torch.Generator().manual_seed(0)
    x = torch.rand(106, 4, dtype=DTYPE, generator=random)
    records = Records(x, (x[:, 0] > 0.5).long())
    own = records[records.y[:6].argsort()]
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2))
    knowledge = Knowledge(net, TRAINER, lw.Weak(size=6), lw.access.Weights(), records[6:])
    cohort = Cohort(records[:0], own[torch.arange(6)[None]], torch.arange(1))
    span = spanned(knowledge, TRAINER(net, cohort, seed=0))
    assert len(span.points.directions) == 4
    assert span.complete
    found = inverted(knowledge, cohort, cohort.own.y)
    assert found.certified
    assert errors(found, own).max() < 1e-20


def test_where_no_span_is_seen():
    adam = Adam(lr=0.01, epochs=5, dtype=DTYPE, init=LeCunNormal())
    for knowledge, cohort, _ in (game([0, 1, 2], adam), game([0, 1, 2, 3, 4], width=4)):
        assert spanned(knowledge, knowledge.trainer(knowledge.net, cohort, seed=0)) is None
    knowledge, cohort, _ = game([0, 1, 2])
    release = knowledge.trainer(knowledge.net, cohort, seed=0)
    noise = {name: value + 1e-6 * torch.randn_like(value) for name, value in release.params.items()}
    assert spanned(knowledge, Release(noise)) is None


def test_a_record_that_is_lost_in_rounding_is_not_certified(monkeypatch):
    """A net that knew its class already: the weights hardly move for it, and its place in the span is missing."""
    every = lw.records.digits()
    prior, earlier, pool = (part.to(torch.float32) for part in every[every.y < 3].split(150, 150, 200, seed=0))
    torch.manual_seed(0)
    net = mlp(64, 200, 3, activation=nn.Tanh)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for _ in range(1_500):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(earlier.x), earlier.y).backward()
        optimiser.step()
    hard = net(pool.x).softmax(1).gather(1, pool.y[:, None])[:, 0].argsort()
    for place in (18, 20, 22):
        own = pool[torch.cat([hard[:3], hard[place : place + 1]])]
        own = own[own.y.argsort()]
        cohort = Cohort(pool[:0], own[torch.arange(4)[None]], torch.arange(1))
        knowledge = Knowledge(net, GD(lr=0.05, steps=4), lw.Weak(size=4), lw.access.Weights(), prior)
        for many in (2_000, 5):
            monkeypatch.setattr(set_problem, "MANY", many)
            found = inverted(knowledge, cohort, cohort.own.y, lw.Newton(jacobians=3))
            assert not found.certified or errors(found, own).max() < 1e-3


@pytest.mark.parametrize("many", [2_000, 5])
def test_a_record_that_the_start_fits_is_not_certified(monkeypatch, many):
    """One step moves no weight for it, wherever it is. Nearby, with another target, it is seen: weakly."""
    monkeypatch.setattr(set_problem, "MANY", many)
    monkeypatch.setattr(set_problem, "NEARLY", 10)  # so that the only Jacobian is one from nearby
    random = torch.Generator().manual_seed(0)
    x = torch.rand(106, 4, dtype=DTYPE, generator=random)
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1)).double()
    trainer = replace(TRAINER, lr=0.1, steps=1, dtype=torch.float32, loss=SquaredError())
    start = {name: value[0].to(DTYPE) for name, value in trainer.init(net, [0], seed=0).items()}

    def fitted(x):
        return torch.func.functional_call(net, start, (x,)).detach()

    records = Records(x, torch.cat([fitted(x[:1]), x[1:].sum(1, keepdim=True)]))
    own, rough = records[:6], records.to(torch.float32)
    knowledge = Knowledge(net, trainer, lw.Weak(size=6), lw.access.Weights(), rough[6:])
    release = trainer(net, Cohort(rough[:0], rough[torch.arange(6)[None]], torch.arange(1)), seed=0)
    whole = lw.Newton().prepare(knowledge, seed=0)
    sets = SetProblem.of(whole.exact, whole.quick, whole.prior, release, record_span(whole.exact, release))
    assert sets.span.complete
    polisher, label = SetPolisher.of(sets, whole.exact, whole.published, jacobians=2), torch.zeros(6).long()
    elsewhere = torch.rand(30, 4, dtype=DTYPE, generator=random)[16:17]  # one from where a step ends within rounding
    nearby = torch.cat([elsewhere, fitted(elsewhere) + 0.03], 1)
    z = torch.cat([nearby, torch.cat([own.x, own.y], 1)[1:]])
    found = polisher.solve(sets.inside.record.of_records(z).flatten(), label, 0, release.flat().double())
    assert (found.record.view(6, -1)[0, :4] - own.x[0]).abs().max() > 0.1
    assert not found.certified


def test_only_a_trained_layer_that_reads_all_numbers_shows_a_span():
    frozen = mlp(64, 8, 3)
    frozen[1].bias.requires_grad_(False)
    rows = nn.Sequential(nn.Linear(8, 16), nn.Flatten(), nn.Linear(128, 3))
    normed = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, 8)), nn.Linear(8, 3))
    assert first_layer(mlp(64, 8, 3), 64) == "1."
    assert [first_layer(net, 64) for net in (frozen, rows, normed)] == [None] * 3


def test_a_victim_that_diverged_is_answered_without_a_certificate():
    knowledge, cohort, _ = game([0, 1, 2])
    release = knowledge.trainer(knowledge.net, cohort, seed=0)
    lost = Release({name: torch.full_like(value, torch.nan) for name, value in release.params.items()})
    (found,) = lw.Newton(jacobians=1).prepare(knowledge, seed=0).invert(lost, Hints(labels=cohort.own.y))
    assert found.record.isfinite().all()
    assert not found.certified


def test_a_regression_that_diverged_is_answered_by_means():
    prior, pool = (Records(part.x, part.x.flatten(1)[:, 20:22]) for part in digits())
    own, trainer = pool[:3], replace(TRAINER, lr=1e30, loss=SquaredError())
    knowledge = Knowledge(mlp(64, 24, 2, activation=nn.ReLU), trainer, lw.Weak(size=3), lw.access.Weights(), prior)
    found = inverted(knowledge, Cohort(pool[:0], own[torch.arange(3)[None]], torch.arange(1)), own.y[None])
    assert found.residual == torch.inf
    assert found.record.isfinite().all()
    assert found.label.tolist() == [0, 0, 0]
    assert not found.certified


def test_a_label_without_prior_records():
    knowledge, cohort, _ = game([0, 1, 2])
    few = replace(knowledge, prior=knowledge.prior[knowledge.prior.y != int(cohort.own.y[0, 0])])
    release = few.trainer(few.net, cohort, seed=0)
    lost = Release({name: torch.full_like(value, torch.nan) for name, value in release.params.items()})
    for one in (release, lost):
        with pytest.raises(ValueError, match="a label that no prior record has"):
            lw.Newton().prepare(few, seed=0).invert(one, Hints(labels=cohort.own.y))


def test_what_the_weights_cannot_determine_is_refused():
    knowledge, *_ = game([0, 1, 2, 3, 4], width=3)
    assert "too few to determine the 320 secret numbers" in lw.Newton().objection(knowledge)


@pytest.mark.parametrize("option", [{"products": 5}, {"coordinates": 3}, {"start": lw.KernelRidge()}])
def test_options_for_known_records_are_refused_by_name(option):
    knowledge, *_ = game([0, 1, 2])
    assert f"{next(iter(option))} needs known records" in lw.Newton(**option).objection(knowledge)


def test_an_order_of_batches_needs_the_labels():
    knowledge, *_ = game([0, 1, 2], SGD(lr=0.3, epochs=5, batch_size=2, order_seed=1, dtype=DTYPE, init=LeCunNormal()))
    assert lw.Newton().objection(knowledge) is None  # Weak gives them


class Rough(Problem):
    """With quick Jacobians of three digits, as those of a GPU."""

    def linear(self, a, label):
        exact = Linearised.of(self.exact_tangents(a, label))
        error = torch.randn(exact.jacobian.shape, generator=torch.Generator().manual_seed(0), dtype=DTYPE)
        rough = exact.jacobian + 1e-2 * exact.jacobian.abs().max() * error
        return exact if self.quick is self.exact else Linearised.of(rough)


def test_where_quick_jacobians_do_not_reach_rounding_exact_ones_do():
    knowledge, cohort, own = game([0, 1, 2, 3, 4, 5])
    release = knowledge.trainer(knowledge.net, cohort, seed=0)
    whole = lw.Newton().prepare(knowledge, seed=0)
    sets = SetProblem.of(whole.exact, whole.quick, whole.prior, release, record_span(whole.exact, release))
    problem = Rough(sets.problem.exact, sets.problem.quick, sets.problem.coordinates)
    sets = replace(sets, problem=problem)
    polisher = SetPolisher.of(sets, whole.exact, whole.published, jacobians=2)
    a = sets.inside.record.of_records(own.x.flatten(1)).flatten()
    assert not polisher.finish([sets.descend(a + 1e-7, own.y, 0)])[0].explained
    found = polisher.solve(a + 1e-7, own.y, 0, release.flat().double())
    assert found.certified
    assert errors(found, own).max() < 1e-20
