"""Ways to rebuild records."""

from lostwax.attacks.closed_form import ClosedForm

__all__ = ["ClosedForm"]
