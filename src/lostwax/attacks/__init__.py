"""Ways to rebuild records."""

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.ensemble import Ensemble
from lostwax.attacks.gradient import GradientInversion
from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.attacks.mnemonist import EmbeddingRecoNN, Mnemonist, MnemonistRecoNN, ToMean, ToStart, row_scales
from lostwax.attacks.nearest_candidate import NearestCandidate
from lostwax.attacks.newton import Newton
from lostwax.attacks.prior_aware import InnerProducts, LargestProducts, LogLikelihood, PriorAware
from lostwax.attacks.reconn import Adversarial, Affine, Perceptual, RecoNN, Repeats, Shifts
from lostwax.attacks.refit import Refit
from lostwax.attacks.weak_reconn import (
    Augmented,
    BeatChance,
    ConditionalReader,
    FlatReader,
    LogError,
    MeanError,
    SetReader,
    WeakRecoNN,
)

__all__ = [
    "Adversarial",
    "Affine",
    "Augmented",
    "BeatChance",
    "ClosedForm",
    "ConditionalReader",
    "EmbeddingRecoNN",
    "Ensemble",
    "FlatReader",
    "GradientInversion",
    "InnerProducts",
    "KernelRidge",
    "LargestProducts",
    "LogError",
    "LogLikelihood",
    "MeanError",
    "Mnemonist",
    "MnemonistRecoNN",
    "NearestCandidate",
    "Newton",
    "Perceptual",
    "PriorAware",
    "RecoNN",
    "Refit",
    "Repeats",
    "SetReader",
    "Shifts",
    "ToMean",
    "ToStart",
    "WeakRecoNN",
    "row_scales",
]
