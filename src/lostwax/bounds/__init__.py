"""Ceilings on the success of every reconstruction attack, from the noise of training."""

import warnings
from typing import Any

from lostwax.bounds.batch_sizes import FixedSize, TruncatedPoisson
from lostwax.bounds.bound import bound
from lostwax.bounds.calibrate import Plan, calibrate
from lostwax.bounds.ceiling import Ceiling, best_success
from lostwax.bounds.correlated import Correlated
from lostwax.bounds.floor import Floor
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
from lostwax.bounds.monte_carlo import monte_carlo
from lostwax.bounds.sampling import BallsInBins, Cyclic, FullBatch, Poisson, Sampling, Shuffled

__all__ = ["Ceiling", "Floor", "Plan", "best_success", "bound", "calibrate", "monte_carlo"]
__all__ += ["Attribute", "Correlated", "Goal", "MeanSquaredError", "Membership", "Record", "Records"]
__all__ += ["BallsInBins", "Cyclic", "FixedSize", "FullBatch", "Poisson", "Sampling", "Shuffled", "TruncatedPoisson"]
__all__ += ["delta_from_success", "exact_reconstruction", "fano_advantage"]
__all__ += ["from_dp", "from_rdp", "from_zcdp"]
__all__ += ["kappa_discrete", "kappa_from_samples", "log_kappa_ball", "log_kappa_gaussian", "log_kappa_pixels"]


def __getattr__(name: str) -> Any:
    """The functions that samplings and goals replace, for one more release."""
    from lostwax.bounds import closed_forms, inequalities, poisson

    old = {
        "gaussian": (closed_forms, "sampling=lw.bounds.FullBatch()"),
        "subsampled": (poisson, "sampling=lw.bounds.Poisson(rate)"),
        "mse_lower_bound": (inequalities, "goal=lw.bounds.MeanSquaredError(prior)"),
    }
    if name not in old:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, value = old[name]
    warnings.warn(
        f"lostwax: bounds.{name} is deprecated: use lw.bound(..., {value}).",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(room, name)
