"""Ways to rebuild records."""

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.dp_steps import GradientInversion, InnerProducts, LargestProducts, LogLikelihood, PriorAware
from lostwax.attacks.ensemble import Ensemble
from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.attacks.membership import NearestCandidate, Refit
from lostwax.attacks.mnemonist import EmbeddingRecoNN, Mnemonist, MnemonistRecoNN, ToMean, ToStart, row_scales
from lostwax.attacks.newton import Newton
from lostwax.attacks.reconn import RecoNN
from lostwax.attacks.weak import (
    Augmented,
    BeatChance,
    ConditionalReader,
    FlatReader,
    LogError,
    MeanError,
    SetReader,
    WeakRecoNN,
)
from lostwax.learning.augment import Affine, Repeats, Shifts
from lostwax.learning.training import Adversarial, Perceptual

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
