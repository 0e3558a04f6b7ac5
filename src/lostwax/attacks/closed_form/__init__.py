"""The closed-form attack (S1 section III)."""

from lostwax.attacks.closed_form.attack import ClosedForm

__all__ = ["ClosedForm"]
