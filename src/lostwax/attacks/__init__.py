"""Ways to rebuild records."""

from lostwax.attacks import dp_steps, mnemonist, weak
from lostwax.attacks.calibrated_losses import CalibratedLosses
from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.dp_steps import GradientInversion, PriorAware
from lostwax.attacks.ensemble import Ensemble
from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.attacks.membership import NearestCandidate, Refit
from lostwax.attacks.mnemonist import Mnemonist, MnemonistRecoNN
from lostwax.attacks.newton import Newton
from lostwax.attacks.reconn import RecoNN
from lostwax.attacks.secant import Secant
from lostwax.attacks.text import Tokens, TunedWords
from lostwax.attacks.weak import WeakRecoNN

__all__ = [
    "CalibratedLosses",
    "ClosedForm",
    "Ensemble",
    "GradientInversion",
    "KernelRidge",
    "Mnemonist",
    "MnemonistRecoNN",
    "NearestCandidate",
    "Newton",
    "PriorAware",
    "RecoNN",
    "Refit",
    "Secant",
    "Tokens",
    "TunedWords",
    "WeakRecoNN",
    "dp_steps",
    "mnemonist",
    "weak",
]
