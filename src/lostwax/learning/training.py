"""Nets that read records off models: the training loop, terms of the loss, errors, and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax import files
from lostwax.fields import above, at_least, between, check_fields
from lostwax.files import as_bytes, read_tensors
from lostwax.learning.decoders import Decoder, PatchDiscriminator, Span
from lostwax.learning.kernel_regression import log_size
from lostwax.learning.standardise import Standardise
from lostwax.metrics import LPIPS
from lostwax.provenance import fingerprint, versions
from lostwax.seeds import seed_torch

MODELS_AT_A_TIME = 1024  # models read at a time
RANGES = {  # of the settings that attacks share
    **{"mae": at_least(0), "mse": at_least(0), "epochs": at_least(1), "weight_decay": at_least(0)},
    **{"lr": above(0), "validation": between(0, 1, "()")},
}
Criterion = Callable[[Tensor, Tensor], Tensor]  # answers (b, ...), truth (b, ...) -> a loss


class TermFacts(NamedTuple):
    """What a term of a loss states: `term.facts()`."""

    learns: bool = False  # so that a checkpoint of the decoder alone is not enough


@runtime_checkable
class Term(Protocol):
    """A further term of the decoder's loss (Balle et al. 2022, section V-A c). It may state `facts()`."""

    def objection(self, records: Tensor) -> str | None:
        """Why it does not apply to such records (n, ...), as a sentence; None if it does."""

    def begin(self, like: Tensor) -> Criterion:
        """The term for one training, with answers like these (n, ...); draws come from torch's generator."""


def unlearnable(decoder: Decoder, terms: Iterable[Term], records: Tensor) -> str | None:
    """Why a decoder cannot learn such records (n, ...) with these terms, as a sentence; None if it can."""
    try:
        with torch.device("meta"):  # for its error message: no memory, no draws
            decoder.build(1, tuple(records.shape[1:]))
    except ValueError as error:
        return str(error)
    return next((reason for term in terms if (reason := term.objection(records)) is not None), None)


@dataclass(frozen=True)
class Perceptual:
    """weight * mean LPIPS(answer, truth). For AlexNet's weights see `LPIPS`: `Perceptual(metric=LPIPS("file"))`."""

    weight: float = 1.0
    metric: LPIPS = field(default_factory=LPIPS)

    def __post_init__(self) -> None:
        check_fields(self, weight=above(0))

    def objection(self, records: Tensor) -> str | None:
        """It needs images of one or three channels in a known range, and AlexNet's weights."""
        try:
            self.metric(records[:1], records[:1])  # for its error message
        except (FileNotFoundError, ValueError) as error:
            return f"its loss has a perceptual term, and {error}"
        if not Span.of(records).bounded:
            return (
                "its loss has a perceptual term, which needs pixels in [0, 1] or [-1, 1], and the prior has others. "
                "Rescale all records."
            )
        return None

    def begin(self, like: Tensor) -> Criterion:
        """Answers of a bounded span are images in [0, 1], as LPIPS requires."""
        return lambda answers, truth: self.weight * self.metric(answers, truth).mean()


@dataclass(frozen=True)
class Adversarial:
    """weight * mean (D(answer) - 1)^2, where the discriminator D learns to tell records from answers.

    D minimises  mean (D(truth) - 1)^2 / 2 + mean D(answer)^2 / 2  (least squares, Mao et al. 2017), one step before
    each of the decoder's. The learning rate is that of Balle et al. (2022), the rest PatchGAN's (Isola et al. 2017).
    """

    weight: float = 0.01
    lr: float = 1e-5
    discriminator: PatchDiscriminator = field(default_factory=PatchDiscriminator)

    def __post_init__(self) -> None:
        check_fields(self, weight=above(0), lr=above(0))

    def facts(self) -> TermFacts:
        return TermFacts(learns=True)

    def objection(self, records: Tensor) -> str | None:
        try:
            with torch.device("meta"):
                self.discriminator.build(tuple(records.shape[1:]))
        except ValueError as error:
            return f"its loss has an adversarial term, and {error}"
        return None

    def begin(self, like: Tensor) -> Criterion:
        discriminator = self.discriminator.build(tuple(like.shape[1:])).to(like)
        optimiser = torch.optim.Adam(discriminator.parameters(), lr=self.lr, betas=(0.5, 0.999), fused=like.is_cuda)

        def criterion(answers: Tensor, truth: Tensor) -> Tensor:
            discriminator.requires_grad_(True)
            real, fake = discriminator(truth), discriminator(answers.detach())  # (b, 1, rows, columns)
            loss = ((real - 1).square().mean() + fake.square().mean()) / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            discriminator.requires_grad_(False)  # only the decoder learns from here on
            scores: Tensor = discriminator(answers)
            return self.weight * (scores - 1).square().mean()

        return criterion


class Best:
    """The weights of a net with the least error on unseen examples so far: at first those that it has."""

    legs_since = -1  # the best ones; the first leg counts as one of them

    def __init__(self, net: nn.Module, validate: Callable[[], float]) -> None:
        self.net, self.validate = net, validate
        self.error, self.weights = validate(), deepcopy(net.state_dict())

    def update(self) -> bool:
        """Keep the net's weights if they are better; whether they are."""
        error = self.validate()  # waits for the device
        self.legs_since += 1
        if better := error < self.error:
            self.error, self.weights, self.legs_since = error, deepcopy(self.net.state_dict()), 0
        return better

    def restore(self) -> None:
        self.net.load_state_dict(self.weights)


def fit(
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    legs: Iterable[Iterable[Tensor]],
    *,
    best: Best | None = None,
    clip: float | None = None,
) -> None:
    """Minimise the losses of every leg, and end with the best weights.

    A leg yields the loss of each step, and goes on after it: schedules and draws are a leg's; what is kept for later,
    and when to stop, are those of `legs`. Weights are compared after each leg. The norm of a gradient is at most
    `clip`.
    """
    for losses in legs:
        net.train()
        for loss in losses:
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimiser.step()
        net.eval()
        if best is not None:
            best.update()
    if best is not None:
        best.restore()


def state_of(net: nn.Module, optimiser: torch.optim.Optimizer, best: Best) -> dict[str, Tensor]:
    """What the next leg depends on, besides its draws and its schedule."""
    state = optimiser.state_dict()["state"]  # "3.exp_avg" is the fourth parameter's first moment
    moments = {f"{number}.{name}": value for number, group in state.items() for name, value in group.items()}
    groups = {"net": net.state_dict(), "kept": best.weights, "optimiser": moments}
    return {f"{group}.{name}": value for group, values in groups.items() for name, value in values.items()}


def resume(net: nn.Module, optimiser: torch.optim.Optimizer, best: Best, tensors: Mapping[str, Tensor]) -> None:
    """Take up what `state_of` gave."""
    best.weights = part(tensors, "kept.")
    net.load_state_dict(part(tensors, "net."))
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in part(tensors, "optimiser.").items():
        number, name = path.split(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


class Examples(NamedTuple):
    """Standardised models and the records to be read off them."""

    features: Tensor  # (s, features)
    answers: Tensor  # (s, ...) records in the decoder's coordinates
    y: Tensor  # (s,) or (s, targets)
    target_mask: Tensor  # (...) which numbers of an answer count; the others are given


@torch.no_grad()
def answer(net: nn.Module, features: Tensor, at_a_time: int = MODELS_AT_A_TIME) -> Tensor:
    """(m, ...) the net's answers, some models at a time."""
    return torch.cat([net(rows) for rows in torch.split(features, at_a_time)])


def errors(decoder: nn.Module, examples: Examples) -> Tensor:
    """(m,) mean squared errors of the answers."""
    wrong = torch.where(examples.target_mask, answer(decoder, examples.features) - examples.answers, 0.0)
    return wrong.square().flatten(1).mean(1)


@contextmanager
def torch_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generator within the context, and restore the user's afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_torch(seed)
        yield


class ErrorLine(NamedTuple):
    """log predicted error = level + slope * log |features|: models of unusual records are far, and rebuilt worse."""

    level: float
    slope: float

    @classmethod
    def fit(cls, features: Tensor, errors: Tensor) -> ErrorLine:
        """Least squares over held-out models (v, features) and their errors (v,)."""
        size, error = log_size(features), errors.double().clamp_min(1e-30).log()
        from_mean = size - size.mean()
        spread = float(from_mean.square().sum())
        slope = float((from_mean * error).sum()) / spread if spread > 1e-12 else 0.0
        return cls(float(error.mean()) - slope * float(size.mean()), slope)

    def __call__(self, features: Tensor) -> Tensor:
        """(m,) predicted mean squared errors, in the decoder's coordinates."""
        return (self.level + self.slope * log_size(features)).exp()


UNKNOWN_ERRORS = ErrorLine(torch.inf, 0.0), torch.inf  # predicted and validated, of an untrained reconstructor

TENSORS, WORDS = "reconstructor.safetensors", "reconstructor.json"


class Calibration(NamedTuple):
    """What every saved reconstructor has besides its nets."""

    standardise: Standardise
    span: Span
    error_line: ErrorLine
    validation_error: float


class SavedFolder(NamedTuple):
    """The contents of the folder."""

    words: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(
        cls, words: dict[str, Any], tensors: dict[str, Tensor], calibration: Calibration, *, scale: str
    ) -> SavedFolder:
        """With the calibration's own words and tensors; `scale` is the prefix of those that standardise."""
        standardise, span, error_line, validation_error = calibration
        moments = {"kept": standardise.kept, "mean": standardise.mean, "deviation": standardise.deviation}
        scales = {f"{scale}.{name}": value for name, value in moments.items()}
        spans = {"span.shift": span.shift, "span.scale": span.scale}
        ours = {"features": standardise.features, "reach": standardise.reach, "bounded": span.bounded}
        errors = {"error_line": error_line, "validation_error": validation_error}
        return cls({**words, **ours, **errors}, {**tensors, **scales, **spans})

    @classmethod
    def read(cls, source: str, folder: str | Path, device: torch.device) -> SavedFolder:
        """Read a folder, with tensors on the device; errors name `source`."""
        folder = files.named(source, folder)
        if not (folder / TENSORS).is_file() or not (folder / WORDS).is_file():
            raise FileNotFoundError(f"{source}: {folder} holds no {TENSORS} and {WORDS}. Name one that save wrote.")
        try:
            words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{source}: {folder / WORDS} is damaged ({error}). Save it again.") from error
        tensors = read_tensors(source, folder / TENSORS, str(device))
        if not isinstance(words, dict) or words.get("tensors") not in _marks(words, tensors):
            raise ValueError(
                f"{source}: {folder / WORDS} does not belong to the {TENSORS} beside it: saving was cut short, or one "
                "of them was replaced or damaged. Save it again."
            )
        return cls(words, tensors)

    def write(self, folder: str | Path) -> Path:
        """Write the folder, with the versions of lostwax and its dependencies."""
        folder = files.named("save", folder)
        words = {**self.words, "versions": versions()}
        words["tensors"], _ = _marks(words, self.tensors)
        files.make_folder("save", folder)
        files.sweep(folder)
        with (
            files.Draft(folder / TENSORS, as_bytes(self.tensors), source="save", private=True) as tensors,
            files.Draft(folder / WORDS, json.dumps(words, indent=2) + "\n", source="save") as text,
        ):
            tensors.publish()  # both drafts are complete
            text.publish()
        return folder

    def calibration(self, *, scale: str) -> Calibration:
        words, tensors = self
        feature_numbers, mean, deviation = (tensors[f"{scale}.{name}"] for name in ("kept", "mean", "deviation"))
        return Calibration(
            Standardise(feature_numbers, mean, deviation, words["features"], words["reach"]),
            Span(tensors["span.shift"], tensors["span.scale"], words["bounded"]),
            ErrorLine(*words["error_line"]),
            words["validation_error"],
        )


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_same(subject: str, before: Mapping[str, Any], now: Mapping[str, Any], cure: str) -> None:
    """Raise a ValueError if a reconstructor made with other settings (`before`) is to be used with these."""
    for name, value in now.items():
        if before[name] != value:
            raise ValueError(f"{subject} with {name} {before[name]}, but this is {value}. {cure} the same {name}.")


def _marks(words: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[str, str]:
    """Fingerprints by which the settings refer to the tensors saved with them and to themselves; as up to 0.2.0."""
    ours = fingerprint(*(tensors[name] for name in sorted(tensors)))
    text = json.dumps({name: value for name, value in words.items() if name != "tensors"}, sort_keys=True)
    return f"{ours}:{fingerprint(torch.tensor(list(text.encode())))}", ours
