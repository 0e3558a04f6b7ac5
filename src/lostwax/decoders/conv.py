"""A decoder for images, by transposed convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lostwax.decoders.noise import InputNoise
from lostwax.types.fields import at_least, check_fields

STRIDE = 2
KERNEL = 5


@dataclass(frozen=True)
class ConvDecoder:
    """A linear layer onto a small image of many channels, doubled in size twice (S1 Table VII).

    The defaults are Table VII's for CIFAR-10: 4096 units as 64 channels of 8 x 8, then 32 filters of 5 x 5 with
    stride 2, then as many as there are colours. ReLU between the layers, of which Table VII says nothing. An image
    whose sides are no multiple of four is cut from one whose sides are.
    """

    channels: tuple[int, ...] = (64, 32)
    input_noise: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, channels=at_least(1), input_noise=at_least(0))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, channels, height, width); within [0, 1] where `bounded`."""
        if len(shape) != 3:
            raise ValueError(
                f"ConvDecoder: expected images of shape (channels, height, width), got records of shape {shape}. "
                "Use MLPDecoder for other records."
            )
        colours, height, width = shape
        times = STRIDE ** len(self.channels)
        small = (self.channels[0], -(-height // times), -(-width // times))  # rounded up
        first, later = self.channels[0], (*self.channels[1:], colours)
        layers: list[nn.Module] = [
            InputNoise(self.input_noise),
            nn.Linear(features, small[0] * small[1] * small[2]),
            nn.Unflatten(1, small),
        ]
        inputs = first
        for outputs in later:  # the side doubles: (side - 1) stride - 2 padding + kernel + output_padding = 2 side
            double = nn.ConvTranspose2d(inputs, outputs, KERNEL, STRIDE, padding=2, output_padding=1)
            layers += [nn.ReLU(), double]
            inputs = outputs
        layers.append(_crop(small, times, height, width))
        return nn.Sequential(*layers, nn.Sigmoid() if bounded else nn.Identity())

    @classmethod
    def examples(cls) -> tuple[ConvDecoder, ...]:
        """Instances to test."""
        return cls(), cls(channels=(8,), input_noise=0.0)


def _crop(small: tuple[int, int, int], times: int, height: int, width: int) -> nn.Module:
    """Rows and columns beyond the image cut off, below and at the right."""
    return nn.ZeroPad2d((0, width - times * small[2], 0, height - times * small[1]))  # negative padding cuts
