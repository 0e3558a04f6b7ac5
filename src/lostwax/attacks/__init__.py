"""Ways to rebuild records."""

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.reconn import RecoNN, Repeats, Shifts

__all__ = ["ClosedForm", "RecoNN", "Repeats", "Shifts"]
