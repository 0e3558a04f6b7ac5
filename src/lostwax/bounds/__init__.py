"""Ceilings on the success of every reconstruction attack, from the noise of training."""

from lostwax.bounds.batch_sizes import Allocation, FixedSize, TruncatedPoisson
from lostwax.bounds.bound import Plan, bound, calibrate
from lostwax.bounds.ceiling import Ceiling, Floor
from lostwax.bounds.closed_forms import (
    from_dp,
    kappa_from_samples,
    log_kappa_ball,
    log_kappa_gaussian,
    log_kappa_pixels,
)
from lostwax.bounds.correlated import Correlated, CorrelatedBins
from lostwax.bounds.goals import Attribute, Goal, MeanSquaredError, Membership, Record, Records
from lostwax.bounds.sampling import BallsInBins, Cyclic, FullBatch, Poisson, Sampling, Shuffled
from lostwax.released import LastWeights

__all__ = ["Ceiling", "Floor", "Plan", "bound", "calibrate"]
__all__ += ["Attribute", "Correlated", "Goal", "LastWeights", "MeanSquaredError", "Membership", "Record", "Records"]
__all__ += ["Allocation", "CorrelatedBins"]
__all__ += ["BallsInBins", "Cyclic", "FixedSize", "FullBatch", "Poisson", "Sampling", "Shuffled", "TruncatedPoisson"]
__all__ += ["from_dp"]
__all__ += ["kappa_from_samples", "log_kappa_ball", "log_kappa_gaussian", "log_kappa_pixels"]
