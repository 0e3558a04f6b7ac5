"""Answering with a candidate: the highest score, and what the game tells rules the others out."""

import pytest
import torch

from lostwax.games import Hints, Records
from lostwax.learning.candidates import choose, weighed

CANDIDATES = Records(torch.arange(6.0).view(2, 3, 1), torch.tensor([[0, 1, 1], [2, 2, 0]]))
SCORES = torch.tensor([[9.0, 1.0, 4.0], [torch.nan, 5.0, 8.0]])


def test_the_highest_score_answers_as_sure_as_it_leads():
    guess = choose(Hints(candidates=CANDIDATES), SCORES)
    assert guess.records.x[:, 0, 0].tolist() == [0.0, 5.0]
    assert guess.confidence[:, 0].tolist() == [5.0, 3.0]
    assert guess.alternatives.x[:, :, 0].tolist() == [[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]]


def test_a_told_label_rules_out_candidates_of_others():
    guess = choose(Hints(candidates=CANDIDATES, labels=torch.tensor([[1], [2]])), SCORES)
    assert guess.records.x[:, 0, 0].tolist() == [2.0, 4.0]
    assert guess.records.y[:, 0].tolist() == [1, 2]
    assert guess.confidence[:, 0].tolist() == [3.0, torch.inf]  # the other of its class diverged


def test_labels_that_are_numbers_rule_out_too():
    real = Records(CANDIDATES.x, torch.tensor([[0.5, 1.5, 1.5], [2.5, 2.5, 0.5]]).unsqueeze(2))
    guess = choose(Hints(candidates=real, labels=torch.tensor([[[1.5]], [[2.5]]])), SCORES)
    assert guess.records.x[:, 0, 0].tolist() == [2.0, 4.0]


def test_equal_scores_leave_the_choice_to_the_chances():
    chances = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])
    tied = torch.tensor([[1.0, 1.0, 1.0], [torch.nan, -torch.inf, torch.nan]])
    guess = choose(Hints(candidates=CANDIDATES, chances=chances), tied)
    assert guess.alternatives.x[:, :, 0].tolist() == [[2.0, 1.0, 0.0], [3.0, 4.0, 5.0]]
    assert guess.confidence.tolist() == [[0.0], [0.0]]
    assert choose(Hints(candidates=CANDIDATES, chances=chances), SCORES).records.x[:, 0, 0].tolist() == [0.0, 5.0]
    labels = torch.tensor([[1], [0]])
    known = choose(Hints(candidates=CANDIDATES, chances=chances, labels=labels), tied)
    assert known.records.y[:, 0].tolist() == [1, 0]  # even where its model diverged


def test_log_likelihoods_are_weighed_by_the_chances():
    chances = torch.tensor([[0.2, 0.3, 0.5]])
    assert weighed(Hints(), SCORES) is SCORES
    torch.testing.assert_close(weighed(Hints(chances=chances), torch.zeros(1, 3)).exp(), chances)


def test_without_candidates_there_is_nothing_to_choose():
    with pytest.raises(ValueError, match="expected candidates to choose among"):
        choose(Hints(), SCORES)
