"""A decoder for images, by residual blocks: the generator of a GAN, fed with weights (S2, Appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from lostwax.types.fields import at_least, check_fields

SMALL = 4  # the side of the first image


@dataclass(frozen=True)
class ResidualDecoder:
    """What is seen of a model as an image of 4 x 4, doubled in size by each residual block (S2 Table 2).

    With `width` S, blocks of 2 S, S, S, ... channels follow the first 4 S: S = 256 for MNIST, 512 for CIFAR-10 and
    CelebA. As many as the image needs: 32 x 32 takes three, 64 x 64 four. Another size is cut from the next larger.
    """

    width: int = 256

    def __post_init__(self) -> None:
        check_fields(self, width=at_least(1))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, channels, height, width); within [0, 1] where `bounded`."""
        if len(shape) != 3:
            raise ValueError(
                f"ResidualDecoder: expected images of shape (channels, height, width), got records of shape {shape}. "
                "Use MLPDecoder for other records."
            )
        colours, height, width = shape
        doublings = max(1, (-(-max(height, width) // SMALL) - 1).bit_length())
        side = SMALL << doublings
        blocks: list[nn.Module] = []
        inputs = 4 * self.width
        for number in range(doublings):
            outputs = 2 * self.width if number == 0 else self.width
            blocks.append(ResidualBlock(inputs, outputs))
            inputs = outputs
        return nn.Sequential(
            nn.Unflatten(1, (features, 1, 1)),
            nn.ConvTranspose2d(features, 4 * self.width, SMALL),
            *blocks,
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, colours, 3, padding=1),
            nn.ZeroPad2d((0, width - side, 0, height - side)),  # negative padding cuts
            nn.Sigmoid() if bounded else nn.Identity(),  # on [-1, 1] S2's tanh(z) = 2 sigmoid(2 z) - 1, see Span
        )

    @classmethod
    def examples(cls) -> tuple[ResidualDecoder, ...]:
        """Instances to test."""
        return cls(width=8), cls(width=1)


class ResidualBlock(nn.Module):
    """An image of twice the side: the enlarged input, and what two convolutions make of it (S2 Figure 10).

    After Gulrajani et al. 2017, but for the 1 x 1 convolution where the number of channels changes.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.changed = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.kept = nn.Sequential(  # which of the two comes first is all the same, but for a quarter of the products
            nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1), nn.Upsample(scale_factor=2)
        )

    def forward(self, image: Tensor) -> Tensor:
        """(m, inputs, s, s) -> (m, outputs, 2 s, 2 s)."""
        drawn: Tensor = self.changed(image) + self.kept(image)
        return drawn
