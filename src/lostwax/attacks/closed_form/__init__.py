"""The closed-form attack (Balle et al. 2022, section III)."""

from lostwax.attacks.closed_form.attack import ClosedForm

__all__ = ["ClosedForm"]
