"""A net that tells records from a decoder's answers, patch by patch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from lostwax.fields import at_least, check_fields

KERNEL = 4
SLOPE = 0.2


@dataclass(frozen=True)
class PatchDiscriminator:
    """Convolutions of 4 x 4, of stride 2 but for the last, then a single filter: a score a patch (S1 Table VIII).

    Of padding and activations Table VIII says nothing. Here zeros around the image leave ceil(side / stride) of a
    side, so that no image is too small for the stack (32 pixels give 4 x 4 scores, 8 give one), and LeakyReLU(0.2)
    stands between the layers, as in PatchGAN (Isola et al. 2017).
    """

    channels: tuple[int, ...] = (64, 128, 256, 512)

    def __post_init__(self) -> None:
        check_fields(self, channels=at_least(1))

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """(m, channels, height, width) -> (m, 1, rows, columns), near 1 where it takes a patch for a record's."""
        if len(shape) != 3:
            raise ValueError(
                f"PatchDiscriminator: expected images of shape (channels, height, width), got records of shape "
                f"{shape}. Reshape flattened images."
            )
        strides = [2] * (len(self.channels) - 1) + [1]
        layers: list[nn.Module] = []
        for (inputs, outputs), stride in zip(pairwise((shape[0], *self.channels)), strides, strict=True):
            layers += [_pad(), nn.Conv2d(inputs, outputs, KERNEL, stride), nn.LeakyReLU(SLOPE)]
        return nn.Sequential(*layers, _pad(), nn.Conv2d(self.channels[-1], 1, KERNEL))


def _pad() -> nn.Module:
    """floor((side + 3 - kernel) / stride) + 1 = ceil(side / stride)."""
    return nn.ZeroPad2d((1, 2, 1, 2))
