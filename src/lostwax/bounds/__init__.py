"""Ceilings on the success of every reconstruction attack, from the noise of training."""

from lostwax.bounds.batch_sizes import Allocation, FixedSize, TruncatedPoisson
from lostwax.bounds.bound import Plan, bound, calibrate
from lostwax.bounds.ceiling import Ceiling, Floor, best_success
from lostwax.bounds.correlated import Correlated, CorrelatedBins
from lostwax.bounds.goals import Attribute, Goal, MeanSquaredError, Membership, Record, Records
from lostwax.bounds.inequalities import (
    delta_from_success,
    exact_reconstruction,
    fano_advantage,
    from_dp,
    from_rdp,
    from_zcdp,
)
from lostwax.bounds.kappa import (
    kappa_discrete,
    kappa_from_samples,
    log_kappa_ball,
    log_kappa_gaussian,
    log_kappa_pixels,
)
from lostwax.bounds.random_batches import monte_carlo
from lostwax.bounds.sampling import BallsInBins, Cyclic, FullBatch, Poisson, Sampling, Shuffled
from lostwax.released import LastWeights

__all__ = ["Ceiling", "Floor", "Plan", "best_success", "bound", "calibrate", "monte_carlo"]
__all__ += ["Attribute", "Correlated", "Goal", "LastWeights", "MeanSquaredError", "Membership", "Record", "Records"]
__all__ += ["Allocation", "CorrelatedBins"]
__all__ += ["BallsInBins", "Cyclic", "FixedSize", "FullBatch", "Poisson", "Sampling", "Shuffled", "TruncatedPoisson"]
__all__ += ["delta_from_success", "exact_reconstruction", "fano_advantage"]
__all__ += ["from_dp", "from_rdp", "from_zcdp"]
__all__ += ["kappa_discrete", "kappa_from_samples", "log_kappa_ball", "log_kappa_gaussian", "log_kappa_pixels"]
