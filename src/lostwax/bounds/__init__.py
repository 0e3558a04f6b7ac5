"""Ceilings on the success of every reconstruction attack, from the noise of training."""

import warnings
from typing import Any

from lostwax.bounds.bound import bound
from lostwax.bounds.calibrate import Plan, calibrate
from lostwax.bounds.ceiling import Ceiling, best_success
from lostwax.bounds.inequalities import (
    delta_from_success,
    exact_reconstruction,
    fano_advantage,
    from_dp,
    from_rdp,
    from_zcdp,
    mse_lower_bound,
)
from lostwax.bounds.kappa import (
    kappa_discrete,
    kappa_from_samples,
    log_kappa_ball,
    log_kappa_gaussian,
    log_kappa_pixels,
)
from lostwax.bounds.monte_carlo import monte_carlo
from lostwax.bounds.sampling import (
    BallsInBins,
    Cyclic,
    FixedSize,
    FullBatch,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)

__all__ = ["Ceiling", "Plan", "best_success", "bound", "calibrate", "monte_carlo"]
__all__ += ["BallsInBins", "Cyclic", "FixedSize", "FullBatch", "Poisson", "Sampling", "Shuffled", "TruncatedPoisson"]
__all__ += ["delta_from_success", "exact_reconstruction", "fano_advantage", "mse_lower_bound"]
__all__ += ["from_dp", "from_rdp", "from_zcdp"]
__all__ += ["kappa_discrete", "kappa_from_samples", "log_kappa_ball", "log_kappa_gaussian", "log_kappa_pixels"]


def __getattr__(name: str) -> Any:
    """The functions that samplings replace, for one more release."""
    from lostwax.bounds import closed_forms, poisson

    old = {"gaussian": (closed_forms, "FullBatch()"), "subsampled": (poisson, "Poisson(rate)")}
    if name not in old:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, value = old[name]
    warnings.warn(
        f"lostwax: bounds.{name} is deprecated: use lw.bound(..., sampling=lw.bounds.{value}).",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(room, name)
