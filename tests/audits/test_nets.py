"""Nets as people write them, through the front door: a verdict, or a message that says what to do."""

import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.audits.play import Settings
from lostwax.audits.released import audit_released
from lostwax.games import Cohort, Guess
from lostwax.learning.costs import Cost
from of_papers import paper_lib

F = nn.functional


def loop(loss, *, epochs=2, size=16):
    """An ordinary training function: Adam, shuffled mini-batches."""

    def train(net, x, y, seed):
        net.train()
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).split(size):
                optimiser.zero_grad()
                loss(net(x[batch]), y[batch]).backward()
                optimiser.step()
        return net

    return train


def released(net, data, train, *, seed=7, known=True, change=lambda net: net, **options):
    """Train the net as its owner does, and audit it with its data."""
    start = deepcopy(net.state_dict())
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    trained = change(train(net, data.x, data.y, seed))
    trainer = lw.OwnTraining(train, seed=seed if known else None, init=lw.inits.Given(start))
    return lw.audit(trained, data, trainer=trainer, **{"games": 2, **options})


def procedure(net, data, trainer, **options):
    known, prior, secrets = data.split(20, 30, 5, seed=0)
    return lw.audit(net, trainer=trainer, threat=lw.Informed(known), prior=prior, secrets=secrets, **options)


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def classes(n, most):
    return torch.randint(most, (n,), generator=torch.Generator().manual_seed(n))


def mlp(inputs, outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 3)),
    )


RIDGE = lw.KernelRidge()


@pytest.mark.parametrize("known", [True, False], ids=["known seed", "private seed"])
def test_a_convolutional_net_with_batch_norm_dropout_adam_and_mini_batches(known):
    digits = lw.records.digits()
    data = digits[digits.y < 3].split(40, seed=0)[0]
    audit = released(convolutional(), data, loop(F.cross_entropy), known=known, attack=RIDGE)
    assert audit.kind == "this model"
    assert audit.attack == "KernelRidge"


@pytest.mark.slow
def test_the_same_net_as_a_way_of_training():
    digits = lw.records.digits()
    trainer = lw.OwnTraining(loop(F.cross_entropy))
    audit = procedure(convolutional(), digits[digits.y < 3], trainer, attack=RIDGE)
    assert audit.kind == "this procedure"


MANY = 80
X = draw(MANY, 6)
KINDS = {
    "regression": (mlp(6, 1), lw.Records(X, draw(MANY, 1)), F.mse_loss),
    "multi-label": (mlp(6, 3), lw.Records(X, (draw(MANY, 3) > 0).float()), F.binary_cross_entropy_with_logits),
    "multi-label, whole numbers": (
        mlp(6, 3),
        lw.Records(X, (draw(MANY, 3) > 0).long()),
        lambda outputs, y: F.binary_cross_entropy_with_logits(outputs, y.float()),
    ),
    "autoencoder": (mlp(6, 6), lw.Records(X, X), F.mse_loss),
    "segmentation": (
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ELU(), nn.Conv2d(4, 2, 1)),
        lw.Records(draw(MANY, 1, 4, 4).sigmoid(), (draw(MANY, 4, 4) > 0).long()),
        F.cross_entropy,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_labels_than_one_class(kind):
    net, data, loss = deepcopy(KINDS[kind])
    train = loop(loss)
    assert procedure(net, data, lw.OwnTraining(train), attack=RIDGE).findings
    assert released(net, data[:40], train, attack=RIDGE).findings


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("regression", r"For regression use loss=lw.losses.SquaredError\(\)"),
        ("multi-label", r"For several labels per record use loss=lw.losses.MultiLabel\(\)\."),
        ("multi-label, whole numbers", r"use loss=lw.losses.MultiLabel\(\), with y.float\(\)"),
        ("autoencoder", r"For regression use loss=lw.losses.SquaredError\(\)"),
        ("segmentation", r"For an output per pixel, or several outputs, use your own training function"),
    ],
)
def test_the_right_loss_is_suggested(kind, words):
    net, data, _ = deepcopy(KINDS[kind])
    with pytest.raises((TypeError, ValueError), match=words):
        procedure(net, data, lw.SGD(lr=0.1, epochs=1, batch_size=8))


def test_several_labels_with_a_built_in_trainer():
    net, data, _ = deepcopy(KINDS["multi-label"])
    audit = procedure(net, data, lw.GD(lr=0.5, steps=10, loss=lw.losses.MultiLabel()), attack=lw.Newton(), games=2)
    assert audit.grade == "exact"


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(4, 5), nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, first, second):
        return self.out(torch.tanh(self.first(first) + self.second(second)))


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["dict", "tuple"])
def test_several_inputs_are_packed(named):
    inputs = {"first": draw(80, 4), "second": draw(80, 3)}
    x, parts = lw.records.pack(inputs if named else tuple(inputs.values()))
    data = lw.Records(x, classes(80, 2))

    def train(net, x, y, seed):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
        for _ in range(5):
            optimiser.zero_grad()
            taken = parts(x)
            F.cross_entropy(net(**taken) if named else net(*taken), y).backward()
            optimiser.step()
        return net

    torch.manual_seed(0)
    audit = released(Two(), data[:40], train, games=3)
    assert audit.findings[0].rebuilt.any()
    inside = parts.taken_by(Two())
    assert procedure(inside, data, lw.GD(lr=0.5, steps=5), attack=lw.Newton(), games=2).grade == "exact"


def test_several_inputs_that_are_not_packed_are_told_how():
    data = {"first": draw(40, 4), "second": draw(40, 3)}
    trainer = lw.OwnTraining(loop(F.cross_entropy))
    for inputs in (data, tuple(data.values())):
        with pytest.raises(TypeError, match=r"lw\.records\.pack"):
            lw.audit(Two(), (inputs, classes(40, 2)), trainer=trainer)
        with pytest.raises(TypeError, match=r"lw\.records\.pack"):
            lw.Records(inputs, classes(40, 2))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm, self.out = nn.Embedding(20, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.lstm(self.table(x))[0][:, -1])


def transformer():
    return paper_lib("sentences").TextClassifier(20, 5)


TRAINER = lw.GD(lr=0.3, steps=4)


def sentences(n, seed):
    draw = torch.Generator().manual_seed(seed)
    return lw.Records(torch.randint(20, (n, 3), generator=draw), torch.randint(2, (n,), generator=draw))


def classifier():
    torch.manual_seed(0)
    return paper_lib("sentences").TextClassifier(20, 3, width=6, layers=1)


def test_sentences_come_back():
    """With nothing named, Tokens runs; the nearest sentence is the one with most tokens in common."""
    known, prior, secrets = sentences(10, 0), sentences(30, 1), sentences(6, 2)
    audit = lw.audit(classifier(), trainer=TRAINER, threat=lw.Informed(known), prior=prior, secrets=secrets)
    assert audit.grade == "exact"
    assert audit.attack.startswith("Tokens")
    assert audit.metric == "share of tokens wrong"
    assert audit.guess.certified.all()
    pool = torch.cat([prior.x, known.x])
    nearest = (audit.truth.x[:, None] != pool).double().mean(2).amin(1)
    assert audit.baselines[audit.oracle][audit.metric].tolist() == pytest.approx(nearest.tolist())


def test_sentences_of_this_very_net():
    data, net = sentences(12, 0), classifier()
    start = deepcopy(net.state_dict())
    trainer = lw.GD(lr=0.3, steps=4, init=lw.inits.Given(start))
    release = trainer(net, Cohort(data[:0], data[torch.arange(12)[None]], torch.zeros(1).long()), seed=0)
    net.load_state_dict({name: value[0] for name, value in release.params.items()}, strict=False)
    audit = lw.audit(net, (data.x.numpy(), data.y.numpy()), trainer=trainer, games=3)
    assert audit.grade == "exact"
    assert audit.errors.max() == 0


@dataclass(frozen=True)
class AnyKnown:
    """Answers a sentence that it knows, without a look at the release."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        known = knowledge.facts.known_records

        def reconstruct(release, hints=None):
            rows = torch.randint(len(known), (len(release), 1), generator=torch.Generator().manual_seed(seed))
            return Guess(known[rows], torch.zeros(len(release), 1))

        return reconstruct


def test_known_sentences_as_guesses_are_no_leak():
    audit = procedure(classifier(), sentences(90, 3), TRAINER, attack=AnyKnown())
    assert not audit.grade.leaks
    assert not audit.beats_baselines(audit.findings[0]).any()


@pytest.mark.parametrize("made", [Recurrent, pytest.param(transformer, marks=pytest.mark.slow)])
def test_token_numbers(made):
    """Candidates have a verdict; of a training function sentences are not rebuilt, with what to do."""
    torch.manual_seed(0)
    data = lw.Records(torch.randint(20, (80, 5)), classes(80, 2))
    net, train = made(), loop(F.cross_entropy)
    with pytest.raises(TypeError, match=r"Informed\(known, candidates=10\)"):
        released(deepcopy(net), data, train)
    with pytest.raises(TypeError, match=r"Informed\(known, candidates=10\)"):
        procedure(net, data, lw.OwnTraining(train))
    known, prior, secrets = data.split(20, 30, 12, seed=0)
    audit = lw.audit(
        net,
        trainer=lw.OwnTraining(train, seed=1),
        threat=lw.Informed(known, candidates=4),
        attack=lw.attacks.Refit(),
        prior=prior,
        secrets=secrets,
    )
    assert audit.grade.leaks


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_release_of_float32_training(dtype):
    data = lw.Records(draw(40, 6), classes(40, 3))
    audit = released(mlp(6, 3), data, loop(F.cross_entropy), change=lambda net: net.to(dtype), attack=RIDGE)
    assert any("to a relative error of 0," in note for note in map(str, audit.notes))


def test_a_net_in_half_precision_gets_its_records_so():
    seen = []

    def train(net, x, y, seed):
        seen.append(x.dtype)
        return loop(lambda outputs, y: F.cross_entropy(outputs.float(), y))(net, x, y, seed)

    data = lw.Records(draw(80, 6), classes(80, 3))
    procedure(mlp(6, 3).bfloat16(), data, lw.OwnTraining(train), attack=RIDGE)
    assert set(seen) == {torch.bfloat16}


@pytest.mark.slow
def test_a_compiled_net():
    data = lw.Records(draw(80, 6), classes(80, 3))
    train = loop(F.cross_entropy)
    assert procedure(torch.compile(mlp(6, 3), backend="eager"), data, lw.OwnTraining(train), attack=RIDGE).findings
    compiled = torch.compile(mlp(6, 3))
    assert procedure(compiled, data, lw.GD(lr=0.5, steps=10), attack=lw.Newton(), games=1).grade == "exact"


def test_frozen_layers_are_not_released():
    net = mlp(6, 3)
    net[0].requires_grad_(False)
    train = loop(F.cross_entropy)
    data = lw.Records(draw(80, 6), classes(80, 3))
    cohort = lw.Informed(data[:20]).deal(data[20:], 2, seed=0)
    assert set(lw.OwnTraining(train)(net, cohort, seed=0).params) == {"2.weight", "2.bias"}

    def unfreezes(net, x, y, seed):
        return train(net.requires_grad_(True), x, y, seed)

    with pytest.raises(ValueError, match=r"changed 0.weight, which the net freezes .*Set requires_grad=True"):
        lw.OwnTraining(unfreezes)(net, cohort, seed=0)
    frozen = mlp(6, 3).requires_grad_(False)  # for use, after training
    assert len(lw.OwnTraining(unfreezes)(frozen, cohort, seed=0).params) == 4


def test_an_error_of_the_function_says_what_it_was_given():
    data = lw.Records(draw(80, 6), classes(80, 3))
    cohort = lw.Informed(data[:20]).deal(data[20:], 2, seed=0)
    with pytest.raises(RuntimeError) as caught:
        lw.OwnTraining(loop(F.cross_entropy))(mlp(5, 3), cohort, seed=0)
    assert "which was given x (21, 6) torch.float32, y (21,) torch.int64" in caught.value.__notes__[0]


def test_a_net_without_a_trainer_is_told_what_to_pass():
    with pytest.raises(
        TypeError, match=r"pass trainer=lw.OwnTraining\(train\), with a function train\(net, x, y, seed\)"
    ):
        lw.audit(convolutional(), lw.records.digits()[:40])


class Waits:
    """KernelRidge that does not come to an end in its third game."""

    strength, games = 0, 0

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        self.games += 1
        time.sleep(0 if self.games < 3 else 3_600)
        return lw.KernelRidge(shadows=20).prepare(knowledge, seed=seed)


class Large:
    """KernelRidge that says to need much memory."""

    strength = 0

    def objection(self, knowledge):
        return None

    def cost(self, knowledge, games, rate):
        return Cost(games * rate.training, 3e9)

    def prepare(self, knowledge, *, seed):
        return lw.KernelRidge(shadows=20).prepare(knowledge, seed=seed)


def test_memory_is_stated_where_it_is_much():
    data = lw.Records(draw(40, 6), classes(40, 3))
    audits = [released(mlp(6, 3), data, loop(F.cross_entropy), attack=attack, games=1) for attack in (Large(), RIDGE)]
    assert [sum("about 3 GB of memory" in note for note in map(str, audit.notes)) for audit in audits] == [1, 0]


@pytest.mark.slow
def test_the_time_is_kept_where_an_attack_is_slower_than_predicted():
    """The records that were attacked until then are the audit."""
    net, data = mlp(6, 3), lw.Records(draw(40, 6), classes(40, 3))
    cohort = Cohort(data[:-1], data[-1:][None], torch.zeros(1, dtype=torch.long))
    trainer = lw.GD(lr=0.5, steps=10, init=lw.inits.Given(deepcopy(net.state_dict())))
    net.load_state_dict({name: value[0] for name, value in trainer(net, cohort, seed=0).params.items()})
    audit = audit_released(net, data, Settings(games=10, max_minutes=0.4), trainer=trainer, attack=Waits())
    assert len(audit.games) == 2
    assert any("the time was over after 2 of 10 records" in note for note in map(str, audit.notes))
