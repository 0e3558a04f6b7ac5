"""The missing sentence: found, certified, and not certified where there is none."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks.text.attack import table_of
from lostwax.attacks.text.search import _shifted, _swapped
from lostwax.games import Cohort, Knowledge
from of_papers import paper_lib

VOCABULARY, LENGTH = 40, 4
ATTACK = lw.attacks.Tokens(directions=40, starts=12)
TRAINER = lw.GD(lr=0.3, steps=4)


def sentences(n, seed):
    draw = torch.Generator().manual_seed(seed)
    return lw.Records(torch.randint(VOCABULARY, (n, LENGTH), generator=draw), torch.randint(2, (n,), generator=draw))


KNOWN, PRIOR, SECRETS = sentences(16, 0), sentences(40, 1), sentences(2, 2)


def classifier(frozen=False, tied=False, rank=None):
    torch.manual_seed(0)
    net = paper_lib("sentences").TextClassifier(VOCABULARY, LENGTH, width=8, layers=1, tied=tied)
    net.tokens.weight.requires_grad_(not frozen)
    return net if rank is None else lw.nets.lora(net, rank)


def prepared(net, trainer=TRAINER, known=KNOWN):
    return ATTACK.prepare(Knowledge(net, trainer, lw.Informed(known), Weights(), PRIOR), seed=0)


def released(net, trainer=TRAINER, known=KNOWN):
    numbers = torch.arange(len(SECRETS))
    return trainer(net, Cohort(known, SECRETS[numbers.unsqueeze(1)], numbers), seed=0)


@pytest.mark.parametrize(
    ("kind", "trainer"),
    [
        ({}, TRAINER),
        pytest.param({"frozen": True}, TRAINER, marks=pytest.mark.slow),
        pytest.param({"rank": 4}, lw.SGD(lr=0.3, batch_size=6, epochs=2), marks=pytest.mark.slow),
        pytest.param({"tied": True}, lw.SGD(lr=0.1, batch_size=6, epochs=3), marks=pytest.mark.slow),
    ],
)
def test_the_sentence_comes_back_certified(kind, trainer):
    net = classifier(**kind)
    guess = prepared(net, trainer)(released(net, trainer))
    assert torch.equal(guess.records.x[:, 0], SECRETS.x)
    assert torch.equal(guess.records.y[:, 0], SECRETS.y)
    assert guess.certified.all()


def test_responses_in_embedding_space_are_those_of_the_tokens():
    net = classifier(rank=2)
    response = prepared(net).response
    e = response.embeddings[SECRETS.x]
    value, jacobian = response.linearised(e, SECRETS.y)
    torch.testing.assert_close(value, response(SECRETS.x, SECRETS.y), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(value, response.of_embeddings(e, SECRETS.y), rtol=1e-3, atol=1e-3)
    step = 1e-2 * torch.randn(e.shape, generator=torch.Generator().manual_seed(0))
    moved = response.of_embeddings(e + step, SECRETS.y) - response.of_embeddings(e - step, SECRETS.y)
    expected = 2 * (jacobian * step.unsqueeze(1)).sum((2, 3))
    assert (moved - expected).norm() < 0.05 * expected.norm()


def test_moved_rows_give_new_tokens_away():
    net = classifier()
    search = prepared(net)
    rows, new = search.moved_rows(released(net)), ~torch.isin(torch.arange(VOCABULARY), KNOWN.x)
    for game, x in enumerate(SECRETS.x):
        held = torch.isin(torch.arange(VOCABULARY), x)
        assert (rows[game][new & ~held] == 0).all()
        assert (rows[game][new & held] > 0).all()


def test_a_release_without_the_sentence_is_not_certified():
    """A false pass that is tried: models of the known sentences alone, and of other known sentences."""
    net = classifier()
    search = replace(prepared(net), starts=2)
    without = TRAINER(net, Cohort(KNOWN[:-1], KNOWN[-1:][None], torch.zeros(1, dtype=torch.long)), seed=0)
    assert not search(without).certified.any()
    wrong = lw.Records(KNOWN.x, torch.cat([1 - KNOWN.y[:1], KNOWN.y[1:]]))
    assert not search(released(net, known=wrong)).certified.any()


@pytest.mark.slow
def test_an_order_that_the_weights_do_not_tell_is_not_certified():
    """Without positions, every order of the tokens gives the same weights."""
    net = classifier()
    net.positions = torch.nn.Parameter(torch.zeros(LENGTH, 8), requires_grad=False)
    guess = prepared(net)(released(net))
    assert torch.equal(guess.records.x[:, 0].sort(1).values, SECRETS.x.sort(1).values)
    assert not guess.certified.any()


@pytest.mark.parametrize(
    ("trainer", "threat", "reason"),
    [
        (
            lw.SGD(lr=0.1, batch_size=4, epochs=1, order_seed=None),
            lw.Informed(KNOWN),
            "batch orders or dropout are private",
        ),
        (TRAINER, lw.Informed(KNOWN, candidates=2), "Use Refit for candidates"),
        (TRAINER, lw.Weak(size=4), "must know all others"),
    ],
)
def test_it_says_why_it_is_not_applicable(trainer, threat, reason):
    knowledge = Knowledge(classifier(), trainer, threat, Weights(), PRIOR)
    assert reason in ATTACK.objection(knowledge)


def test_the_table_is_the_embedding_that_is_given_the_tokens():
    assert table_of(classifier(), KNOWN.x[:1]) == "tokens"
    with pytest.raises(ValueError, match=r"expected one nn\.Embedding"):
        table_of(torch.nn.Identity(), KNOWN.x[:1])


def test_every_pair_is_swapped_once():
    assert len(_swapped(torch.arange(5)).unique(dim=0)) == 10


def test_sentences_may_be_filled_up():
    """The row of the token that fills them up never moves, and is considered all the same."""
    net = classifier()
    net.tokens.padding_idx = 0
    secret = lw.Records(torch.tensor([[5, 6, 0, 0]]), torch.tensor([1]))
    first = torch.zeros(1, dtype=torch.long)
    release = TRAINER(net, Cohort(KNOWN, secret[first.unsqueeze(1)], first), seed=0)
    guess = prepared(net)(release)
    assert guess.records.x[0, 0].tolist() == [5, 6, 0, 0]
    assert guess.certified.all()


class Circular(nn.Module):
    """Takes every rotation of a sentence for the same; or with padding, where a sentence begins makes no difference."""

    def __init__(self, padding):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 6, padding_idx=0 if padding else None)
        self.conv, self.out = nn.Conv1d(6, 10, 3, padding=1, padding_mode="circular"), nn.Linear(10, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(self.tokens(x).transpose(1, 2))).mean(2))


@pytest.mark.parametrize("padding", [False, True])
def test_a_sentence_that_could_begin_elsewhere_is_not_certified(padding):
    torch.manual_seed(3)
    net = Circular(padding)
    guess = prepared(net)(released(net))
    assert not guess.certified.any()


def test_shifted_sentences_are_the_same_tokens_in_another_order():
    x = torch.arange(5)
    others = {tuple(row) for row in _shifted(x).tolist()}
    assert all(sorted(row) == x.tolist() for row in others)
    assert {(4, 3, 2, 1, 0), (1, 2, 3, 4, 0), (3, 4, 0, 1, 2), (0, 3, 1, 2, 4)} <= others
    assert len(_shifted(torch.arange(64))) < 20_000
