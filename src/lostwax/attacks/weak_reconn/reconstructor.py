"""A trained reconstructor of heads. It can be saved, and read back without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Standardise
from lostwax.attacks.reconn.reconstructor import ErrorLine
from lostwax.attacks.reconn.saved_folder import SavedFolder
from lostwax.attacks.weak_reconn.heads import Scale
from lostwax.attacks.weak_reconn.training import ReadAndDecode, answer
from lostwax.decoders import Span
from lostwax.types import Access, Guess, Hints, Records, Release

if TYPE_CHECKING:
    from lostwax.attacks.weak_reconn.attack import WeakRecoNN


class TrainedOnHeads(NamedTuple):
    """A prepared WeakRecoNN: g guesses for every head, one a class, or a single one of any class (g = 1, label -1).

    Guesses come in the dtype of the prior and on the device of the release. Confidence is minus the predicted mean
    squared error to the nearest record, in shares of the prior's range (squared) or in squared deviations (see Span).
    """

    net: nn.Module
    access: Access
    classes: tuple[int, ...]  # of the guesses
    scale: Scale
    reads: ReadAndDecode
    span: Span
    error_line: ErrorLine
    validation_error: float  # mean squared error over heads of records that were kept from learning
    attack: WeakRecoNN

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild a record of each class; which classes a set has is known, and hints tell nothing more."""
        home = next(iter(release.params.values())).device
        tokens = self.tokens(release)
        x = self.span.records(answer(self.reads, tokens))  # (m, g, ...)
        y = torch.tensor(self.classes or [-1], device=home).expand(len(x), -1)  # (m, g)
        predicted = self.error_line(answer(self.reads.reader, tokens).flatten(0, 1)).view(y.shape)
        return Guess(Records(x.to(home), y), -predicted.to(home))

    def tokens(self, release: Release) -> Tensor:
        """(m, tokens, numbers) what the net reads of the heads, standardised."""
        seen = self.attack.reader.see(self.net, self.access, release).to(self.span.shift.device)
        return self.scale(seen, self.span.shift.dtype)

    def save(self, folder: str | Path, *, half: bool = False) -> Path:
        """Write tensors (safetensors) and words (JSON) into `folder`; `WeakRecoNN.load` reads them.

        `half` rounds the weights of the net to bfloat16, in which it learns on a GPU: half the size.
        """
        tensors = {
            f"reads.{name}": value.bfloat16() if half and value.ndim > 1 else value  # not those of normalisation
            for name, value in self.reads.state_dict().items()
        }
        tensors |= {f"scale.{name}": getattr(self.scale.standardise, name) for name in ("kept", "mean", "deviation")}
        tensors |= {f"span.{name}": getattr(self.span, name) for name in ("shift", "scale")}
        words = {
            "attack": repr(self.attack),
            "reader": repr(self.attack.reader),
            "decoder": repr(self.attack.decoder),
            "access": repr(self.access),
            "net": repr(self.net),
            "classes": repr(self.attack.classes),
            "guesses": self.classes,
            "alike": self.scale.alike,
            "features": self.scale.standardise.features,
            "reach": self.scale.standardise.reach,
            "bounded": self.span.bounded,
            "error_line": self.error_line,
            "validation_error": self.validation_error,
        }
        return SavedFolder(words, tensors).write(folder)


class Saved(NamedTuple):
    """What `save` wrote, read back."""

    words: dict[str, object]
    classes: tuple[int, ...]
    scale: Scale
    reads: dict[str, Tensor]
    span: Span
    error_line: ErrorLine
    validation_error: float


def read(folder: str | Path, device: torch.device) -> Saved:
    """The saved tensors on the device, and the words."""
    saved = SavedFolder.read("WeakRecoNN.load", folder, device)
    words, tensors = saved
    kept, mean, deviation = (tensors[f"scale.{name}"] for name in ("kept", "mean", "deviation"))
    return Saved(
        words,
        tuple(words["guesses"]),
        Scale(Standardise(kept, mean, deviation, words["features"], words["reach"]), words["alike"]),
        saved.part("reads."),
        Span(tensors["span.shift"], tensors["span.scale"], words["bounded"]),
        ErrorLine(*words["error_line"]),
        words["validation_error"],
    )
