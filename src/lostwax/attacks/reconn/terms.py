"""What a decoder may be taught beyond small pixel errors: to look right (S1 section V-A c, for CIFAR-10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lostwax.decoders import PatchDiscriminator, Span
from lostwax.metrics import LPIPS
from lostwax.types.fields import above, check_fields

Criterion = Callable[[Tensor, Tensor], Tensor]  # answers (b, ...), the truth (b, ...) -> a number to be lowered


@runtime_checkable
class Term(Protocol):
    """A further term of the decoder's loss."""

    def objection(self, records: Tensor) -> str | None:
        """Why it cannot judge such records (n, ...), as a sentence; None when it can."""
        ...

    def begin(self, like: Tensor) -> Criterion:
        """The term of one training, for answers like these (n, ...); what it draws comes from torch's generator."""
        ...


@dataclass(frozen=True)
class Perceptual:
    """weight * mean LPIPS(answer, truth).

    S1 adds it without naming a weight. For AlexNet's weights see `LPIPS`: `Perceptual(metric=LPIPS("file"))`.
    """

    weight: float = 1.0
    metric: LPIPS = field(default_factory=LPIPS)

    def __post_init__(self) -> None:
        check_fields(self, weight=above(0))

    def objection(self, records: Tensor) -> str | None:
        """It needs images of one or three channels in a known range, and AlexNet's weights."""
        try:
            self.metric(records[:1], records[:1])  # only to hear what it says
        except (FileNotFoundError, ValueError) as error:
            return f"its loss has a perceptual term, and {error}"
        if not Span.of(records).bounded:
            return (
                "its loss has a perceptual term, which needs pixels in [0, 1] or [-1, 1], but the prior's reach "
                "further. Rescale all records."
            )
        return None

    def begin(self, like: Tensor) -> Criterion:
        """Answers of a bounded span are images in [0, 1], as LPIPS asks."""
        return lambda answers, truth: self.weight * self.metric(answers, truth).mean()

    @classmethod
    def examples(cls) -> tuple[Perceptual, ...]:
        """Instances to test."""
        return cls(), cls(weight=0.1)


@dataclass(frozen=True)
class Adversarial:
    """weight * mean (D(answer) - 1)^2, where the discriminator D learns to tell records from answers.

    D lowers  mean (D(truth) - 1)^2 / 2 + mean D(answer)^2 / 2  (least squares, Mao et al. 2017): a step of its own
    before each of the decoder's. S1 names its learning rate, but no weight and no optimiser: a hundredth of the
    pixels' weight, and Adam with a momentum of 0.5, are PatchGAN's (Isola et al. 2017).
    """

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
        """A new discriminator, which learns with every batch it judges."""
        discriminator = self.discriminator.build(tuple(like.shape[1:])).to(like)
        optimiser = torch.optim.Adam(discriminator.parameters(), lr=self.lr, betas=(0.5, 0.999), fused=like.is_cuda)

        def criterion(answers: Tensor, truth: Tensor) -> Tensor:
            discriminator.requires_grad_(True)
            real, fake = discriminator(truth), discriminator(answers.detach())  # (b, 1, rows, columns)
            loss = ((real - 1).square().mean() + fake.square().mean()) / 2
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            discriminator.requires_grad_(False)  # from here on it is the decoder that learns
            taken_for_real: Tensor = discriminator(answers)
            return self.weight * (taken_for_real - 1).square().mean()

        return criterion

    @classmethod
    def examples(cls) -> tuple[Adversarial, ...]:
        """Instances to test."""
        return cls(), cls(weight=0.1, discriminator=PatchDiscriminator(channels=(8, 16)))
