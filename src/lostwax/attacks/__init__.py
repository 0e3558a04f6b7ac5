"""Ways to rebuild records."""

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.ensemble import Ensemble
from lostwax.attacks.nearest_candidate import NearestCandidate
from lostwax.attacks.newton import Newton
from lostwax.attacks.reconn import Adversarial, Affine, Perceptual, RecoNN, Repeats, Shifts
from lostwax.attacks.refit import Refit

__all__ = [
    "Adversarial",
    "Affine",
    "ClosedForm",
    "Ensemble",
    "NearestCandidate",
    "Newton",
    "Perceptual",
    "RecoNN",
    "Refit",
    "Repeats",
    "Shifts",
]
