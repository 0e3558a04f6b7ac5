"""Training decoders to read records off models (Balle et al. 2022, section IV-B, step 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.fields import above, at_least, between, check_fields
from lostwax.learning.decoders import Committee, PatchDiscriminator, Span
from lostwax.learning.kernel_regression import log_size
from lostwax.learning.shadow_tables import adversary_seed
from lostwax.metrics import LPIPS
from lostwax.progress import progress
from lostwax.seeds import seed_torch

ROWS = 1024  # models read at a time
RANGES = {  # of the settings that attacks share
    **{"mae": at_least(0), "mse": at_least(0), "epochs": at_least(1), "weight_decay": at_least(0)},
    **{"lr": above(0), "validation": between(0, 1, "()")},
}
Criterion = Callable[[Tensor, Tensor], Tensor]  # answers (b, ...), truth (b, ...) -> a loss


@runtime_checkable
class Term(Protocol):
    """A further term of the decoder's loss (Balle et al. 2022, section V-A c). It may state `learns`."""

    def objection(self, records: Tensor) -> str | None:
        """Why it does not apply to such records (n, ...), as a sentence; None if it does."""

    def begin(self, like: Tensor) -> Criterion:
        """The term for one training, with answers like these (n, ...); draws come from torch's generator."""


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

    learns: ClassVar[bool] = True  # so that a checkpoint of the decoder alone is not enough

    weight: float = 0.01
    lr: float = 1e-5
    discriminator: PatchDiscriminator = field(default_factory=PatchDiscriminator)

    def __post_init__(self) -> None:
        check_fields(self, weight=above(0), lr=above(0))

    def objection(self, records: Tensor) -> str | None:
        """It needs images."""
        try:
            with torch.device("meta"):
                self.discriminator.build(tuple(records.shape[1:]))
        except ValueError as error:
            return f"its loss has an adversarial term, and {error}"
        return None

    def begin(self, like: Tensor) -> Criterion:
        """A new discriminator, which learns from every batch."""
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


class _Settings(Protocol):
    """Those of RecoNN."""

    @property
    def epochs(self) -> int: ...
    @property
    def patience(self) -> int | None: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def mae(self) -> float: ...
    @property
    def mse(self) -> float: ...
    @property
    def terms(self) -> tuple[Term, ...]: ...


class Examples(NamedTuple):
    """Standardised models and the records to be read off them."""

    features: Tensor  # (s, features)
    answers: Tensor  # (s, ...) records in the decoder's coordinates
    y: Tensor  # (s,) or (s, targets)
    target_mask: Tensor  # (...) which numbers of an answer count; the others are given


def train(committee: Committee, shadows: Examples, unseen: Examples, settings: _Settings, *, seed: int) -> Tensor:
    """Fit every member to the shadows, with its own draws; return the errors of their mean on unseen ones (v,)."""
    with progress("decoder epochs", settings.epochs * len(committee.members)) as advance:
        for number, member in enumerate(committee.members):
            with torch_seed(adversary_seed(seed, f"decoder {number}"), shadows.features.device):
                _train_member(member, shadows, unseen, settings, advance)
    return errors(committee, unseen)


def _train_member(
    decoder: nn.Module, shadows: Examples, unseen: Examples, settings: _Settings, advance: Callable[[int], None]
) -> None:
    """Fit one decoder, and keep the weights with the least error on unseen models, even if these are the initial ones.

    AdamW on a one-cycle schedule replaces the RMSProp of Balle et al. (2022), which overfits. The error is that of
    pixels whatever the loss: attacks are scored by it, and a discriminator changes while it learns.
    """
    features, truth = shadows.features, shadows.answers
    batches = -(-len(features) // settings.batch_size)  # per epoch, rounded up
    optimiser = torch.optim.AdamW(
        decoder.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=features.is_cuda
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, settings.lr, total_steps=settings.epochs * batches)
    criteria = [term.begin(truth) for term in settings.terms]
    best, best_epoch, kept = float(errors(decoder, unseen).mean()), 0, deepcopy(decoder.state_dict())
    for epoch in range(settings.epochs):
        decoder.train()
        order = torch.randperm(len(features), device=features.device)
        for rows in torch.tensor_split(order, batches):  # of even size: a small last batch would add noise
            wanted = truth[rows]  # (b, ...)
            answers = torch.where(shadows.target_mask, decoder(features[rows]), wanted)
            wrong = answers - wanted
            loss = settings.mae * wrong.abs().mean() + settings.mse * wrong.square().mean()
            for criterion in criteria:
                loss = loss + criterion(answers, wanted)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
        decoder.eval()
        error = float(errors(decoder, unseen).mean())  # the only wait for the device per epoch
        if error < best:
            best, best_epoch, kept = error, epoch, deepcopy(decoder.state_dict())
        advance(1)
        if settings.patience is not None and epoch - best_epoch >= settings.patience:
            advance(settings.epochs - 1 - epoch)  # skipped
            break
    decoder.load_state_dict(kept)


@torch.no_grad()
def answer(decoder: nn.Module, features: Tensor) -> Tensor:
    """(m, ...) the decoder's answers, some models at a time."""
    return torch.cat([decoder(rows) for rows in torch.split(features, ROWS)])


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
