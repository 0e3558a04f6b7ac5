"""The closed-form attack (Balle et al. 2022, section III)."""

from lostwax.attacks.closed_form.attack import ClosedForm, known_label
from lostwax.attacks.closed_form.cells import revealed
from lostwax.attacks.closed_form.stored import row_keys

__all__ = ["ClosedForm", "known_label", "revealed", "row_keys"]
