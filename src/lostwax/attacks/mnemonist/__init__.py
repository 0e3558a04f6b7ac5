"""Where a model stores a record (Shamsabadi et al. 2023)."""

from lostwax.attacks.mnemonist.attack import Embedded, EmbeddingRecoNN, Focused, MnemonistRecoNN
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist, Scales, ToMean, ToStart, row_scales

__all__ = [
    "Embedded",
    "EmbeddingRecoNN",
    "Explanation",
    "Focused",
    "Mnemonist",
    "MnemonistRecoNN",
    "Scales",
    "ToMean",
    "ToStart",
    "row_scales",
]
