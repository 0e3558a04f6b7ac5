"""Metrics of sentences."""

import torch

from lostwax.metrics import BagRight, EditDistance, TokensWrong

TRUTH = torch.tensor([[1, 2, 2, 3]])


def scores(guess):
    guess = torch.tensor([guess])
    return [float(metric(guess, TRUTH)) for metric in (TokensWrong(), BagRight(), EditDistance())]


def test_order_is_counted_separately():
    assert scores([1, 2, 2, 3]) == [0.0, 1.0, 0.0]
    assert scores([3, 2, 2, 1]) == [0.5, 1.0, 2.0]
    assert scores([2, 2, 3, 1]) == [0.75, 1.0, 2.0]  # one removed, one inserted


def test_no_token_is_half_right():
    guess = torch.tensor([[1.0, 2.0, 2.5, torch.nan]])
    assert float(TokensWrong()(guess, TRUTH)) == 0.5


def test_repeated_tokens_count_as_often_as_they_occur():
    assert scores([2, 2, 2, 2]) == [0.5, 0.5, 2.0]
