"""lostwax: how well can training records be rebuilt from a released model, and what protection is enough?"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lostwax import adapters as adapters
    from lostwax import bounds as bounds
    from lostwax import defences as defences
    from lostwax import inits as inits
    from lostwax import losses as losses
    from lostwax import metrics as metrics
    from lostwax import nets as nets
    from lostwax import records as records
    from lostwax import schedules as schedules
    from lostwax import shadows as shadows
    from lostwax.access import Layers as Layers
    from lostwax.access import Logits as Logits
    from lostwax.access import Neuron as Neuron
    from lostwax.access import Superparameters as Superparameters
    from lostwax.access import Weights as Weights
    from lostwax.adapters import OwnTraining as OwnTraining
    from lostwax.adapters import load_weights as load_weights
    from lostwax.attacks import Adversarial as Adversarial
    from lostwax.attacks import Affine as Affine
    from lostwax.attacks import Augmented as Augmented
    from lostwax.attacks import BeatChance as BeatChance
    from lostwax.attacks import ClosedForm as ClosedForm
    from lostwax.attacks import ConditionalReader as ConditionalReader
    from lostwax.attacks import EmbeddingRecoNN as EmbeddingRecoNN
    from lostwax.attacks import Ensemble as Ensemble
    from lostwax.attacks import FlatReader as FlatReader
    from lostwax.attacks import GradientInversion as GradientInversion
    from lostwax.attacks import InnerProducts as InnerProducts
    from lostwax.attacks import KernelRidge as KernelRidge
    from lostwax.attacks import LargestProducts as LargestProducts
    from lostwax.attacks import LogError as LogError
    from lostwax.attacks import LogLikelihood as LogLikelihood
    from lostwax.attacks import MeanError as MeanError
    from lostwax.attacks import Mnemonist as Mnemonist
    from lostwax.attacks import MnemonistRecoNN as MnemonistRecoNN
    from lostwax.attacks import NearestCandidate as NearestCandidate
    from lostwax.attacks import Newton as Newton
    from lostwax.attacks import Perceptual as Perceptual
    from lostwax.attacks import PriorAware as PriorAware
    from lostwax.attacks import RecoNN as RecoNN
    from lostwax.attacks import Refit as Refit
    from lostwax.attacks import Repeats as Repeats
    from lostwax.attacks import SetReader as SetReader
    from lostwax.attacks import Shifts as Shifts
    from lostwax.attacks import ToMean as ToMean
    from lostwax.attacks import ToStart as ToStart
    from lostwax.attacks import WeakRecoNN as WeakRecoNN
    from lostwax.attacks import row_scales as row_scales
    from lostwax.audits import Audit as Audit
    from lostwax.audits import Verdict as Verdict
    from lostwax.bounds import Ceiling as Ceiling
    from lostwax.bounds import Plan as Plan
    from lostwax.bounds import bound as bound
    from lostwax.bounds import calibrate as calibrate
    from lostwax.games import Hints as Hints
    from lostwax.games import Informed as Informed
    from lostwax.games import Knowledge as Knowledge
    from lostwax.games import Records as Records
    from lostwax.games import Weak as Weak
    from lostwax.grades import Grade as Grade
    from lostwax.learning import decoders as decoders
    from lostwax.policies import Policy as Policy
    from lostwax.trainers import DPSGD as DPSGD
    from lostwax.trainers import GD as GD
    from lostwax.trainers import SGD as SGD
    from lostwax.trainers import Adam as Adam
    from lostwax.trainers import AdamW as AdamW
    from lostwax.trainers import Optimum as Optimum
    from lostwax.trainers import own_gradients as own_gradients
    from lostwax.verbs import audit as audit
    from lostwax.verbs import report as report
    from lostwax.verbs import simulate as simulate

__version__ = "0.1.0"

_HOME = {
    "audit": "verbs",
    "report": "verbs",
    "simulate": "verbs",
    "bound": "bounds",
    "calibrate": "bounds",
    "Ceiling": "bounds",
    "Plan": "bounds",
    "Audit": "audits",
    "Verdict": "audits",
    "Grade": "grades",
    "Policy": "policies",
    "Hints": "games",
    "Knowledge": "games",
    "Records": "games",
    "DPSGD": "trainers",
    "GD": "trainers",
    "SGD": "trainers",
    "Adam": "trainers",
    "AdamW": "trainers",
    "Optimum": "trainers",
    "own_gradients": "trainers",
    "OwnTraining": "adapters",
    "load_weights": "adapters",
    "Informed": "games",
    "Weak": "games",
    "Layers": "access",
    "Logits": "access",
    "Neuron": "access",
    "Superparameters": "access",
    "Weights": "access",
    "Adversarial": "attacks",
    "Affine": "attacks",
    "Augmented": "attacks",
    "BeatChance": "attacks",
    "ClosedForm": "attacks",
    "ConditionalReader": "attacks",
    "EmbeddingRecoNN": "attacks",
    "Ensemble": "attacks",
    "FlatReader": "attacks",
    "KernelRidge": "attacks",
    "Perceptual": "attacks",
    "GradientInversion": "attacks",
    "InnerProducts": "attacks",
    "LargestProducts": "attacks",
    "LogError": "attacks",
    "LogLikelihood": "attacks",
    "MeanError": "attacks",
    "Mnemonist": "attacks",
    "MnemonistRecoNN": "attacks",
    "NearestCandidate": "attacks",
    "Newton": "attacks",
    "PriorAware": "attacks",
    "RecoNN": "attacks",
    "Refit": "attacks",
    "Repeats": "attacks",
    "SetReader": "attacks",
    "Shifts": "attacks",
    "ToMean": "attacks",
    "ToStart": "attacks",
    "WeakRecoNN": "attacks",
    "row_scales": "attacks",
}
_ROOMS = (
    "adapters",
    "bounds",
    "decoders",
    "defences",
    "inits",
    "losses",
    "metrics",
    "nets",
    "records",
    "schedules",
    "shadows",
)

__all__ = ["__version__", *_HOME, *_ROOMS]


def __getattr__(name: str) -> Any:
    """Load a public name where it is first used: `import lostwax` alone imports no torch (PEP 562)."""
    if name in _ROOMS:
        return import_module(f"lostwax.{'learning.decoders' if name == 'decoders' else name}")
    if name in _HOME:
        return getattr(import_module(f"lostwax.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lostwax' has no attribute '{name}'", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
