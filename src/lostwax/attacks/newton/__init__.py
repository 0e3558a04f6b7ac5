"""Inverting training itself."""

from lostwax.attacks.newton.attack import Newton
from lostwax.attacks.newton.inverter import Inversion, Inverter
from lostwax.attacks.newton.misfit import compared_bytes

__all__ = ["Inversion", "Inverter", "Newton", "compared_bytes"]
