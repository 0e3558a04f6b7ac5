"""The noise that an (epsilon, delta) asks for, from dp-accounting."""

from __future__ import annotations

import math

COARSE = 1e-3  # dp-accounting's grid of losses: coarser is faster, and asks for more noise, never less
LARGE = 10.0  # an epsilon from which on the grid grows with it
PRECISION = 1e-4  # relative, of the noise


def noise_for(epsilon: float, delta: float, *, steps: int, sample_rate: float) -> float:
    """The least noise multiplier of T Poisson-sampled Gaussian steps, adding or removing one record, rounded up."""
    for name, value, wanted, holds in (
        ("epsilon", epsilon, "finite and > 0", 0 < epsilon < math.inf),
        ("delta", delta, "in (0, 1)", 0 < delta < 1),
        ("steps", steps, ">= 1", steps >= 1),
        ("sample_rate", sample_rate, "in (0, 1]", 0 < sample_rate <= 1),
    ):
        if not holds:
            raise ValueError(f"DPSGD.for_epsilon: expected {name} {wanted}, got {value}.")
    drawn = -math.expm1(steps * math.log1p(-sample_rate)) if sample_rate < 1 else 1.0  # the chance to be drawn at all
    if delta >= drawn:
        raise ValueError(
            f"DPSGD.for_epsilon: expected delta < {drawn:.3g}, the chance that a record is ever drawn, got {delta}: "
            "without any noise it would be kept. Ask for a smaller one."
        )

    def enough(noise: float) -> bool:
        return _delta(noise, epsilon, steps, sample_rate) <= delta

    high = 1.0
    while not enough(high):
        high *= 2
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _delta(noise: float, epsilon: float, steps: int, sample_rate: float) -> float:
    """What T steps spend at this epsilon, never too little."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    from dp_accounting.privacy_accountant import NeighboringRelation

    if sample_rate == 1:  # T full-batch steps tell as much as one with less noise, in closed form
        return float(GaussianPrivacyLoss(noise / math.sqrt(steps)).get_delta_for_epsilon(epsilon))
    grid = COARSE * max(1.0, epsilon / LARGE)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=grid)
    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise))
    return float(accountant.compose(step, steps).get_delta(epsilon))
