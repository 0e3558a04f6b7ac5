"""An answer or its start: the one that predicts the smaller error."""

import pytest
import torch

from lostwax.attacks.newton.bank import Entry, Likely
from lostwax.attacks.newton.inverter import Inversion
from lostwax.learning.coordinates import Coordinates

NUMBERS = 4
LABEL = torch.tensor([1])
PIXELS = Coordinates(torch.zeros(NUMBERS), torch.eye(NUMBERS), torch.zeros(NUMBERS), torch.ones(NUMBERS))
REGRESSED, NEAREST, MEAN = (Entry(torch.full((NUMBERS,), a), LABEL, torch.tensor([3.0, 4.0])) for a in (0.2, 0.4, 0.6))


def found(predicted, residual=1.0):
    return Inversion(
        record=torch.full((NUMBERS,), 0.9),
        label=torch.tensor([0]),
        residual=residual,
        rounding=1e-6,
        variance=torch.full((1, NUMBERS), predicted),
        prior_variance=torch.full((1, NUMBERS), 0.1),
        directions=torch.ones(NUMBERS),
        determined=True,
        jacobians=1,
    )


@pytest.mark.parametrize(
    ("predicted", "residual", "likely", "answer"),
    [
        (0.01, 1.0, Likely(REGRESSED, NEAREST, MEAN, 0.02), 0.9),
        (0.03, 1.0, Likely(REGRESSED, NEAREST, MEAN, 0.02), 0.2),
        (0.03, 1e-6, Likely(REGRESSED, NEAREST, MEAN, 0.02), 0.9),  # it explains the release
        (0.1, 1.0, Likely(REGRESSED, NEAREST, MEAN, 0.5), 0.9),  # the regression says that it is worse than blind
        (0.1, 1.0, Likely(None, NEAREST, None, torch.inf), 0.9),
        (torch.nan, torch.nan, Likely(REGRESSED, NEAREST, MEAN, torch.nan), 0.6),  # a victim that diverged
        (torch.nan, torch.nan, Likely(None, NEAREST, None, torch.inf), 0.4),
    ],
)
def test_the_answer_is_the_one_that_predicts_the_smaller_error(predicted, residual, likely, answer):
    before = found(predicted, residual)
    one = before.or_start(likely, PIXELS, torch.zeros(2))
    torch.testing.assert_close(one.record, torch.full((NUMBERS,), answer))
    if answer == 0.9:
        assert one is before
    else:
        assert torch.equal(one.label, LABEL)
        assert one.residual == 5.0
        assert not one.certified
        assert one.predicted == pytest.approx(0.02 if answer == 0.2 else 0.1)
