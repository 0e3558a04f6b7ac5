"""Ceilings on the success of every reconstruction attack, from the noise of training."""

from lostwax.bounds.bound import bound
from lostwax.bounds.calibrate import Plan, calibrate
from lostwax.bounds.ceiling import Ceiling, best_success
from lostwax.bounds.gaussian import gaussian
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
from lostwax.bounds.subsampled import subsampled

__all__ = ["Ceiling", "Plan", "best_success", "bound", "calibrate", "gaussian", "monte_carlo", "subsampled"]
__all__ += ["delta_from_success", "exact_reconstruction", "fano_advantage", "mse_lower_bound"]
__all__ += ["from_dp", "from_rdp", "from_zcdp"]
__all__ += ["kappa_discrete", "kappa_from_samples", "log_kappa_ball", "log_kappa_gaussian", "log_kappa_pixels"]
