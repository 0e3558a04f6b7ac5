"""Inverting training itself."""

from lostwax.attacks.newton.attack import Newton
from lostwax.attacks.newton.evidence import Inversion
from lostwax.attacks.newton.inverter import Inverter

__all__ = ["Inversion", "Inverter", "Newton"]
