"""Untrained nets from what is seen of a model to a record, and their discriminator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.fields import LARGEST_SIZE, at_least, between, check_fields, check_sizes, is_number, shown
from lostwax.learning.standardise import SeenLayer, SeenRows


@runtime_checkable
class Decoder(Protocol):
    """An architecture, as a value."""

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """The untrained net (m, features) -> (m, *shape); within [0, 1] where `bounded` (see Span)."""


@runtime_checkable
class RowReading(Protocol):
    """A decoder that must know which features are the weights of one neuron: RowDecoder, for one."""

    @property
    def picture(self) -> Decoder:
        """What makes the record of its summary of the rows."""

    def build_from_rows(self, rows: SeenRows, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """The untrained net (m, features) -> (m, *shape), where these rows lie among the features."""


class InputNoise(nn.Module):
    """Adds N(0, sigma^2) in training, against overfitting: shadow models are few."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, features: Tensor) -> Tensor:
        if not self.training or self.sigma == 0:
            return features
        return features + self.sigma * torch.randn_like(features)

    def extra_repr(self) -> str:
        return f"sigma={self.sigma}"


class Committee(nn.Module):
    """The mean of its members' answers. Its squared error is the mean of theirs minus the variance among them."""

    members: nn.ModuleList

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, features: Tensor) -> Tensor:
        """(m, features) -> (m, ...); a single member's answer is returned unchanged."""
        return torch.stack([member(features) for member in self.members]).mean(0)


PIXEL_ROUNDING = 1e-6  # that a pixel may lie outside its range, after interpolation


@dataclass(frozen=True, eq=False)
class Span:
    """The coordinates in which a decoder answers:  record = shift + scale * answer.

    Pixels in [0, 1] or [-1, 1] are answered as shares of that range, other numbers as deviations from their mean.
    """

    shift: Tensor  # (...) of a record's shape
    scale: Tensor
    bounded: bool

    @classmethod
    def of(cls, prior: Tensor) -> Span:
        low, high = float(prior.min()), float(prior.max())
        for lowest in (0.0, -1.0):
            if low >= lowest - PIXEL_ROUNDING and high <= 1 + PIXEL_ROUNDING:
                varies = prior.amax(0) > prior.amin(0)  # constant numbers are answered exactly
                shift = torch.where(varies, lowest, prior[0])
                return cls(shift, torch.where(varies, 1 - lowest, 0.0).to(prior), bounded=True)
        return cls.of_deviations(prior)

    @classmethod
    def of_deviations(cls, prior: Tensor) -> Span:
        """Unbounded coordinates, for any records."""
        deviation, mean = torch.std_mean(prior.double(), dim=0, correction=0)
        return cls(mean.to(prior), deviation.to(prior), bounded=False)

    def shares(self, records: Tensor) -> Tensor:
        return (records - self.shift) / torch.where(self.scale > 0, self.scale, 1.0)

    def records(self, answers: Tensor) -> Tensor:
        return self.shift + self.scale * answers


@dataclass(frozen=True)
class MLPDecoder:
    """`depth` hidden layers of `width` ReLUs (Balle et al. 2022, Table V), and input noise against overfitting."""

    width: int = 1000
    depth: int = 2
    input_noise: float = 0.1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, width=at_least(1), depth=at_least(0), input_noise=at_least(0), dropout=between(0, 1, "[)"))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, *shape); within [0, 1] where `bounded`."""
        layers: list[nn.Module] = [InputNoise(self.input_noise)]
        inputs = features
        for _ in range(self.depth):
            layers += [nn.Linear(inputs, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
            inputs = self.width
        layers += [nn.Linear(inputs, math.prod(shape)), nn.Unflatten(1, shape)]
        return nn.Sequential(*layers, nn.Sigmoid() if bounded else nn.Identity())


FIRST_SIDE = 4  # side of the first image


@dataclass(frozen=True)
class ResidualDecoder:
    """A 4 x 4 image, doubled in size by each residual block (Maciazek and Allison 2025, Table 2 and Appendix B).

    With `width` S, blocks of 2 S, S, S, ... channels follow the first 4 S: S = 256 for MNIST, 512 for CIFAR-10 and
    CelebA. 32 x 32 pixels take three blocks, 64 x 64 four. Other sizes are cropped from the next larger.
    """

    width: int = 256

    def __post_init__(self) -> None:
        check_fields(self, width=at_least(1))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, channels, height, width); within [0, 1] where `bounded`."""
        colours, height, width = _image_shape("ResidualDecoder", shape)
        doublings = max(1, (-(-max(height, width) // FIRST_SIDE) - 1).bit_length())
        side = FIRST_SIDE << doublings
        channels = [4 * self.width, 2 * self.width, *[self.width] * (doublings - 1)]
        blocks = [ResidualBlock(inputs, outputs) for inputs, outputs in pairwise(channels)]
        return nn.Sequential(
            nn.Unflatten(1, (features, 1, 1)),
            nn.ConvTranspose2d(features, 4 * self.width, FIRST_SIDE),
            *blocks,
            nn.BatchNorm2d(channels[-1]),
            nn.ReLU(),
            nn.Conv2d(channels[-1], colours, 3, padding=1),
            nn.ZeroPad2d((0, width - side, 0, height - side)),  # negative padding crops
            nn.Sigmoid() if bounded else nn.Identity(),  # on [-1, 1] the paper's tanh(z) = 2 sigmoid(2 z) - 1
        )


class ResidualBlock(nn.Module):
    """An image of twice the side: the enlarged input plus two convolutions (Maciazek and Allison 2025, Figure 10).

    After Gulrajani et al. (2017), except for the 1 x 1 convolution where the number of channels changes.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        check_sizes("ResidualBlock", inputs=inputs, outputs=outputs)
        self.changed = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.kept = nn.Sequential(  # in this order a quarter of the products suffices
            nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1), nn.Upsample(scale_factor=2)
        )

    def forward(self, image: Tensor) -> Tensor:
        """(m, inputs, s, s) -> (m, outputs, 2 s, 2 s)."""
        drawn: Tensor = self.changed(image) + self.kept(image)
        return drawn


STRIDE = 2
KERNEL_SIDE = 5


@dataclass(frozen=True)
class ConvDecoder:
    """A linear layer onto a small image of many channels, doubled in size twice (Balle et al. 2022, Table VII).

    The defaults are the table's for CIFAR-10; the ReLUs between layers are ours. Other sides than multiples of four are
    cropped.
    """

    channels: tuple[int, ...] = (64, 32)
    input_noise: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, channels=at_least(1), input_noise=at_least(0))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, channels, height, width); within [0, 1] where `bounded`."""
        colours, height, width = _image_shape("ConvDecoder", shape)
        times = STRIDE ** len(self.channels)
        small = (self.channels[0], -(-height // times), -(-width // times))  # rounded up
        layers = [InputNoise(self.input_noise), nn.Linear(features, math.prod(small)), nn.Unflatten(1, small)]
        for inputs, outputs in pairwise((*self.channels, colours)):
            # the side doubles: (side - 1) stride - 2 padding + kernel + output_padding = 2 side
            layers += [nn.ReLU(), nn.ConvTranspose2d(inputs, outputs, KERNEL_SIDE, STRIDE, padding=2, output_padding=1)]
        layers.append(nn.ZeroPad2d((0, width - times * small[2], 0, height - times * small[1])))  # crops
        return nn.Sequential(*layers, nn.Sigmoid() if bounded else nn.Identity())


def _image_shape(
    owner: str, shape: tuple[int, ...], cure: str = "Use MLPDecoder for other records."
) -> tuple[int, ...]:
    """The shape, if it is an image's."""
    if len(shape) != 3:
        raise ValueError(
            f"{owner}: expected images of shape (channels, height, width), got records of shape {shape}. {cure}"
        )
    return shape


EMBEDDING = 0.02  # initial deviation of a class's embedding, relative to tokens of about unit size


class Equivariant(nn.Module):
    """Neurons as tokens, self-attention among them (Xiong et al. 2020), and a row of features for every class.

    Where neuron c is the output for class c (`of_class`), they are those of its neuron, followed by its own numbers for
    a linear read-out. Where neurons are hidden, every class has a learned query token, and their order does not matter.
    """

    classes: Tensor

    def __init__(
        self, neurons: int, numbers: int, classes: Sequence[int], *, of_class: bool, width: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        check_sizes("Equivariant", neurons=neurons, numbers=numbers, width=width, layers=layers, heads=heads)
        if not isinstance(of_class, bool):
            raise ValueError(f"Equivariant: expected of_class to be True or False, got {shown(of_class)}.")
        named = isinstance(classes, Sequence) and all(is_number(label, whole=True) for label in classes)
        if not named or not classes or min(classes) < 0 or max(classes) >= (neurons if of_class else LARGEST_SIZE):
            raise ValueError(
                "Equivariant: expected classes to be one or more class numbers, each of a neuron if of_class, got "
                f"{shown(classes)}."
            )
        if width % heads:
            raise ValueError(f"Equivariant: expected a width that is a multiple of heads, got {width} and {heads}.")
        self.of_class = of_class
        self.register_buffer("classes", torch.tensor(classes), persistent=False)  # (g,)
        self.embed = nn.Linear(numbers, width)
        kinds = neurons if of_class else max(classes) + 1
        self.kinds = nn.Parameter(EMBEDDING * torch.randn(kinds, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.attend = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(m, neurons, numbers) -> (m, g, width), and `numbers` more where neurons are of classes."""
        neurons: Tensor = self.embed(tokens)
        if self.of_class:
            attended: Tensor = self.attend(neurons + self.kinds)
            return torch.cat([attended, tokens.to(attended.dtype)], -1)[:, self.classes]
        queries = self.kinds[self.classes].expand(len(tokens), -1, -1).to(neurons.dtype)  # (m, g, width)
        answered: Tensor = self.attend(torch.cat([queries, neurons], 1))
        return answered[:, : queries.shape[1]]


MIN_LOG_SIZE, MAX_SIZE = -5.0, 3.0  # to which a row's size and its logarithm are clamped
BESIDE = 3  # gate inputs per row besides its summary: log size, size, bias


@dataclass(frozen=True)
class RowDecoder:
    """The directions of all rows, summed layer by layer with weights from gates that see all rows.

    The secret moves a row by a multiple of its layer's input (Shamsabadi et al. 2023, Eq. 2), but with ReLU another
    row for every record. So a net with two layers of `width` computes for each model the weight of every row, from its
    size, bias and `summary` numbers of its direction. `picture` makes the record from the `sums` of every layer.
    """

    sums: int = 4
    summary: int = 16
    width: int = 128
    input_noise: float = 0.05
    picture: Decoder = field(default_factory=lambda: MLPDecoder(depth=0, input_noise=0.0))

    def __post_init__(self) -> None:
        check_fields(self, sums=at_least(1), summary=at_least(1), width=at_least(1), input_noise=at_least(0))

    def build_from_rows(self, rows: SeenRows, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, *shape); within [0, 1] where `bounded`."""
        pooled = self.sums * sum(layer.place.shape[1] for layer in rows.layers) + len(rows.others)
        return nn.Sequential(RowSums(rows, self), self.picture.build(pooled, shape, bounded=bounded))


class RowSums(nn.Module):
    """(m, features) -> (m, sums * columns of all layers + others)."""

    others: Tensor

    def __init__(self, rows: SeenRows, settings: RowDecoder) -> None:
        super().__init__()
        layers = [_Layer(layer, settings) for layer in rows.layers]
        self.layers = nn.ModuleList(layers)
        self.register_buffer("others", rows.others)
        self.heights = [len(layer.place) for layer in rows.layers]
        self.gates = nn.Sequential(
            nn.Linear(sum(layer.gate_inputs for layer in layers) + len(rows.others), settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, settings.sums * sum(self.heights)),
            nn.Unflatten(1, (settings.sums, sum(self.heights))),
        )

    def forward(self, features: Tensor) -> Tensor:
        directions, about = zip(*(layer(features) for layer in self.layers), strict=True)
        others = features[:, self.others]
        gates = torch.split(self.gates(torch.cat([*about, others], 1)), self.heights, 2)  # (m, sums, rows) per layer
        sums = [(gate @ copies).flatten(1) for gate, copies in zip(gates, directions, strict=True)]
        return torch.cat([*sums, others], 1)


class _Layer(nn.Module):
    """One layer's rows: directions (m, rows, columns), and gate inputs (m, rows * inputs)."""

    place: Tensor
    unit: Tensor

    def __init__(self, layer: SeenLayer, settings: RowDecoder) -> None:
        super().__init__()
        self.register_buffer("place", layer.place.clamp_min(0))
        self.register_buffer("unit", layer.unit.float())
        self.biased = layer.biased
        self.noise = InputNoise(settings.input_noise)
        rows, columns = layer.place.shape
        numbers = min(settings.summary, columns)  # of a direction, that the gates get
        self.summary = nn.Identity() if numbers == columns else nn.Linear(columns, numbers, bias=False)
        self.gate_inputs = rows * (numbers + BESIDE)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        moved = features[:, self.place] * self.unit  # (m, rows, columns), in deviations of the row
        size = moved.norm(dim=2, keepdim=True).clamp_min(torch.finfo(moved.dtype).tiny)
        direction = self.noise(moved / size * math.sqrt(moved.shape[2]))
        bias = direction[..., -1:] if self.biased else torch.zeros_like(size)
        beside = size.log().clamp(MIN_LOG_SIZE, MAX_SIZE), size.clamp_max(MAX_SIZE), bias  # (m, rows, 1) each
        return direction, torch.cat([self.summary(direction), *beside], 2).flatten(1)


PATCH = 4
LEAK = 0.2


@dataclass(frozen=True)
class PatchDiscriminator:
    """Convolutions of 4 x 4, of stride 2 except the last, then one filter: a score per patch.

    Balle et al. (2022, Table VIII) state neither padding nor activations. Here zero padding leaves ceil(side / stride)
    of a side, so that no image is too small, and LeakyReLU(0.2) is as in PatchGAN (Isola et al. 2017).
    """

    channels: tuple[int, ...] = (64, 128, 256, 512)

    def __post_init__(self) -> None:
        check_fields(self, channels=at_least(1))

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """(m, channels, height, width) -> (m, 1, rows, columns), near 1 for patches of records."""
        colours, _, _ = _image_shape("PatchDiscriminator", shape, "Reshape flattened images.")
        strides = [2] * (len(self.channels) - 1) + [1]
        layers: list[nn.Module] = []
        pad = nn.ZeroPad2d((1, 2, 1, 2))  # floor((side + 3 - kernel) / stride) + 1 = ceil(side / stride)
        for (inputs, outputs), stride in zip(pairwise((colours, *self.channels)), strides, strict=True):
            layers += [pad, nn.Conv2d(inputs, outputs, PATCH, stride), nn.LeakyReLU(LEAK)]
        return nn.Sequential(*layers, pad, nn.Conv2d(self.channels[-1], 1, PATCH))
