"""Shadow models and a regression in closed form."""

from lostwax.attacks.kernel_ridge.attack import KernelRidge
from lostwax.attacks.kernel_ridge.reconstructor import Regressed

__all__ = ["KernelRidge", "Regressed"]
