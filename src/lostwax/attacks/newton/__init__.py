"""Inverting training itself."""

from lostwax.attacks.newton.attack import Newton
from lostwax.attacks.newton.inverter import Inversion, Inverter

__all__ = ["Inversion", "Inverter", "Newton"]
