"""How much memory an attack will need, by arithmetic alone, and how much there is.

Counted are the tables that grow with the game: shadow models, decoders, Jacobians, kernels. What an attack is not
counted for here is taken to fit.
"""

from __future__ import annotations

import os
from functools import singledispatch
from pathlib import Path

import torch

from lostwax.attacks import Ensemble, KernelRidge, NearestCandidate, Newton, RecoNN
from lostwax.games import Attack, Knowledge
from lostwax.learning.decoders import RowDecoder, Span
from lostwax.learning.standardise import Standardise

TABLES = 2  # of what is seen of the shadow models: as they come, and standardised
OF_DECODER = 5  # its weights, their gradients, AdamW's two moments, and the best weights so far
KERNELS = 6  # of s x s numbers for the s shadow models of a class: products, likenesses, factors, eigenvectors
DOUBLE = 8  # bytes
SYSTEM = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
LIMITS = (  # of a container: limit, usage and details, in the two versions of control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


@singledispatch
def predicted_bytes(attack: Attack, knowledge: Knowledge, games: int, features: int) -> float:
    """The memory that it will need, `features` being what is seen of a model; 0 where nobody has said."""
    return 0.0


@predicted_bytes.register
def _(attack: NearestCandidate, knowledge: Knowledge, games: int, features: int) -> float:
    return predicted_bytes(attack.attack, knowledge, games, features)


@predicted_bytes.register
def _(attack: RecoNN, knowledge: Knowledge, games: int, features: int) -> float:
    shadows, size = attack.shadows or len(knowledge.prior), knowledge.prior.x.element_size()
    decoders = decoder_parameters(attack, knowledge, features) * (OF_DECODER + attack.members - 1)
    return float(size * (TABLES * shadows * features + decoders))


@predicted_bytes.register
def _(attack: KernelRidge, knowledge: Knowledge, games: int, features: int) -> float:
    shadows, size = attack.shadows or len(knowledge.prior), knowledge.prior.x.element_size()
    return float(size * (TABLES + 1) * shadows * features + DOUBLE * KERNELS * _of_a_class(knowledge, shadows) ** 2)


@predicted_bytes.register
def _(attack: Ensemble, knowledge: Knowledge, games: int, features: int) -> float:
    shadows = attack.members * classes(knowledge)
    return float(knowledge.prior.x.element_size() * (TABLES + 1) * shadows * features)


@predicted_bytes.register
def _(attack: Newton, knowledge: Knowledge, games: int, features: int) -> float:
    bank = (TABLES + 1) * (attack.bank + classes(knowledge)) * features
    if attack.products is not None:
        return 4.0 * bank
    unknowns = knowledge.prior.x.shape[1:].numel() * getattr(knowledge.threat, "secrets", 1)
    jacobian = features * min(attack.coordinates or unknowns, unknowns)
    return 4.0 * (bank + (classes(knowledge) + games) * jacobian) + 2 * DOUBLE * jacobian


def classes(knowledge: Knowledge) -> int:
    """How many there are in the prior; one, where labels are numbers."""
    y = knowledge.prior.y
    return 1 if y.is_floating_point() else len(torch.unique(y))


def decoder_parameters(attack: RecoNN, knowledge: Knowledge, features: int) -> int:
    """The parameters of its decoder, counted without making it."""
    span = Span.of(knowledge.prior.x)
    if isinstance(attack.decoder, RowDecoder):  # a small one, whatever the number of features
        still = torch.zeros(features, dtype=torch.float64)
        scale = Standardise(torch.arange(features), still, still + 1, features, torch.inf)
        decoder = attack.decoder_for(knowledge, scale, span)
    else:
        with torch.device("meta"):
            decoder = attack.decoder.build(features, tuple(span.shift.shape), bounded=span.bounded)
    return sum(value.numel() for value in decoder.parameters())


def available_bytes(device: torch.device) -> float:
    """What can be allocated there now, in a container too; infinite where the system does not say."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    return min(_of_the_system(), *(_of_a_group(*names) for names in LIMITS))


def in_bytes(number: float) -> str:
    """In words: 45 GB."""
    return f"{number / 1e9:,.2g} GB" if number < 1e10 else f"{number / 1e9:,.0f} GB"


def _of_the_system() -> float:
    if SYSTEM.is_file():
        found = _number(SYSTEM, "MemAvailable:")
        if found is not None:
            return 1024 * found  # it counts in kB
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")


def _of_a_group(limit: str, usage: str, details: str) -> float:
    """What a control group leaves: its limit less its usage, of which files read before can be dropped."""
    most, used = _number(GROUP / limit), _number(GROUP / usage)
    if most is None or used is None:
        return float("inf")
    return max(most - used + (_number(GROUP / details, "inactive_file") or 0.0), 0.0)


def _number(path: Path, name: str | None = None) -> float | None:
    """The number in a file of the kernel's, or behind a name in it; None where there is none, as for "max"."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    found = [line[-1] if name is None else line[1] for line in words if line and name in (None, line[0])]
    return float(found[0]) if found and found[0].isdigit() else None


def _of_a_class(knowledge: Knowledge, shadows: int) -> float:
    """Shadow models of the largest class."""
    y = knowledge.prior.y
    if y.is_floating_point():
        return float(shadows)
    return shadows * float(torch.unique(y, return_counts=True)[1].max()) / len(y)
