"""Where a model stores a record (S4)."""

from lostwax.attacks.mnemonist.attack import Focused, MnemonistRecoNN
from lostwax.attacks.mnemonist.dynamics import Scales, row_scales
from lostwax.attacks.mnemonist.embedding import Embedded, EmbeddingRecoNN
from lostwax.attacks.mnemonist.erasures import ToMean, ToStart
from lostwax.attacks.mnemonist.explanation import Explanation, Mnemonist

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
