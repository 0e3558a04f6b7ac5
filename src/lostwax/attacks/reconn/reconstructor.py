"""A trained reconstructor: from what is seen of a release to a guess. It can be saved, and read back without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Standardise
from lostwax.attacks.reconn.labels import LabelHead
from lostwax.attacks.reconn.saved_folder import SavedFolder
from lostwax.attacks.reconn.shadow_table import seen_and_told
from lostwax.attacks.reconn.training import answer
from lostwax.decoders import Committee, Span
from lostwax.types import Access, Guess, Hints, Records, Release

if TYPE_CHECKING:
    from lostwax.attacks.reconn.attack import RecoNN


class ErrorLine(NamedTuple):
    """log of the predicted error = level + slope * log |features|, a line through held-out shadow models.

    A model far from the other shadows holds an unusual record, and unusual records are rebuilt worse.
    """

    level: float
    slope: float

    @classmethod
    def fit(cls, features: Tensor, errors: Tensor) -> ErrorLine:
        """Least squares over held-out models (v, features) and their errors (v,)."""
        size, error = _log_size(features), errors.double().clamp_min(1e-30).log()
        from_mean = size - size.mean()
        spread = float(from_mean.square().sum())
        slope = float((from_mean * error).sum()) / spread if spread > 1e-12 else 0.0
        return cls(float(error.mean()) - slope * float(size.mean()), slope)

    def __call__(self, features: Tensor) -> Tensor:
        """(m,) predicted mean squared errors, in the decoder's coordinates."""
        return (self.level + self.slope * _log_size(features)).exp()


def _log_size(features: Tensor) -> Tensor:
    return features.double().square().sum(1).clamp_min(1e-60).log() / 2


class Trained(NamedTuple):
    """A prepared RecoNN.

    Guesses come in the dtype of the prior and on the device of the release. Confidence is minus the predicted mean
    squared error, in shares of the prior's range (squared) or in squared feature deviations (see Span). The shadows
    held out for `validation_error` and for the confidence also chose when to stop: both are a little optimistic.
    """

    net: nn.Module
    access: Access
    standardise: Standardise
    decoder: Committee
    label: LabelHead
    span: Span
    error_line: ErrorLine
    validation_error: float  # mean squared error over held-out shadow models, in the same coordinates
    attack: RecoNN

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Rebuild each model's secret; what the hints tell of it, its label or some of its numbers, is as they say."""
        seen = seen_and_told(self.access(self.net, release), hints)  # (m, features)
        home, ours = seen.device, self.span.shift
        features = self.standardise(seen.to(ours.device), ours.dtype)  # (m, kept)
        x = self.span.records(answer(self.decoder, features)).unsqueeze(1)  # (m, 1, ...)
        with torch.no_grad():
            y = self.label.guess(features).unsqueeze(1)  # (m, 1)
        if hints is not None and hints.labels is not None:
            y = hints.labels
        if hints is not None and hints.parts is not None:
            told = hints.parts.to(x)
            x = torch.where(told.isnan(), x, told)
        return Guess(Records(x.to(home), y.to(home)), -self.error_line(features).unsqueeze(1).to(home))

    def save(self, folder: str | Path) -> Path:
        """Write tensors (safetensors) and words (JSON) into `folder`; `RecoNN.load` reads them."""
        tensors = {f"decoder.{name}": value for name, value in self.decoder.state_dict().items()}
        tensors |= {f"label.{name}": value for name, value in self.label.state_dict().items()}
        tensors |= {f"standardise.{name}": getattr(self.standardise, name) for name in ("kept", "mean", "deviation")}
        tensors |= {f"span.{name}": getattr(self.span, name) for name in ("shift", "scale")}
        words = {
            "attack": repr(self.attack),
            "decoder": repr(self.attack.decoder),
            "members": self.attack.members,
            "access": repr(self.access),
            "features": self.standardise.features,
            "reach": self.standardise.reach,
            "bounded": self.span.bounded,
            "error_line": self.error_line,
            "validation_error": self.validation_error,
        }
        return SavedFolder(words, tensors).write(folder)


class Saved(NamedTuple):
    """What `save` wrote, read back."""

    words: dict[str, object]
    decoder: dict[str, Tensor]
    label: dict[str, Tensor]
    standardise: Standardise
    span: Span
    error_line: ErrorLine
    validation_error: float


def read(folder: str | Path, device: torch.device) -> Saved:
    """The saved tensors on the device, and the words."""
    saved = SavedFolder.read("RecoNN.load", folder, device)
    words, tensors = saved
    kept, mean, deviation = (tensors[f"standardise.{name}"] for name in ("kept", "mean", "deviation"))
    return Saved(
        words,
        saved.part("decoder."),
        saved.part("label."),
        Standardise(kept, mean, deviation, words["features"], words["reach"]),
        Span(tensors["span.shift"], tensors["span.scale"], words["bounded"]),
        ErrorLine(*words["error_line"]),
        words["validation_error"],
    )
