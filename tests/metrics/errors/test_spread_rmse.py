import math

import pytest
import torch

from lostwax.metrics import SpreadRMSE

METRIC = SpreadRMSE(torch.tensor([2.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("guess", "error"),
    [((3.0, 5.0), 1.0), ((3.0, 5.1), math.inf), ((3.0, math.nan), math.inf), ((3.0, math.inf), math.inf)],
)
def test_what_never_varies_must_be_right(guess, error):
    truth = torch.tensor([[1.0, 5.0]], dtype=torch.float64)
    assert METRIC(torch.tensor([guess], dtype=torch.float64), truth).tolist() == [error]


def test_a_table_that_never_varies():
    constant = SpreadRMSE(torch.zeros(1, dtype=torch.float64))
    guesses = torch.tensor([[5.0], [4.0], [math.nan]], dtype=torch.float64)
    assert constant(guesses, torch.full_like(guesses, 5.0)).tolist() == [0.0, math.inf, math.inf]
