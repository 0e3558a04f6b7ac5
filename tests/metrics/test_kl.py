import math

import pytest
import torch
from torch import nn

from lostwax.metrics import KL, Classifier


class Passed(nn.Module):
    """The record is the logits."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        return self.scale * x


def test_equals_the_sum_over_classes():
    p, q = [0.7, 0.2, 0.1], [0.5, 0.1, 0.4]
    metric = KL(Classifier(Passed()))
    truth, guess = (torch.tensor([numbers]).log() for numbers in (p, q))
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))  # KL(p_truth || p_guess), not the reverse
    assert metric(guess, truth).item() == pytest.approx(expected)
    assert metric(truth, guess).item() != pytest.approx(expected)
    assert metric(guess, truth).dtype == guess.dtype


def test_different_records_may_show_the_same():
    """S1 Fig. 5b: a small KL does not imply a small mean squared error."""
    truth = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert KL(Classifier(Passed()))(truth + 10, truth).max() < 1e-12
