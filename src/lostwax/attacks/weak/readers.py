"""From a head's parameters to a row of features per guess, which a decoder turns into a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields, expect
from lostwax.games import Access, Knowledge, Release
from lostwax.learning.decoders import Equivariant


class Neurons(NamedTuple):
    """The first linear layer of a head, and the parameters of each of its neurons."""

    weight: str  # the names of its parameters
    bias: str | None
    outgoing: str | None  # the weight of the next layer; None if it is the last
    neurons: int

    @classmethod
    def of(cls, net: nn.Module) -> Neurons | None:
        """Of a linear layer, or of a sequence of linear layers and activations; None for other nets."""
        named = [("", net)] if isinstance(net, nn.Linear) else list(net.named_children())
        layers = [(name, layer) for name, layer in named if any(True for _ in layer.parameters())]
        linear = [(name, layer) for name, layer in layers if isinstance(layer, nn.Linear)]
        if not isinstance(net, nn.Linear | nn.Sequential) or not linear or len(linear) < len(layers):
            return None
        (name, first), *behind = linear
        prefix = f"{name}." if name else ""
        bias = None if first.bias is None else f"{prefix}bias"
        return cls(f"{prefix}weight", bias, f"{behind[0][0]}.weight" if behind else None, first.out_features)

    def tokens(self, release: Release) -> Tensor:
        """(m, neurons, numbers): a neuron's row, its bias, its outgoing weights; then the parameters that all share."""
        params = release.params
        per_neuron = [params[self.weight]]  # (m, h, d)
        if self.bias is not None:
            per_neuron.append(params[self.bias].unsqueeze(-1))  # (m, h, 1)
        if self.outgoing is not None:
            per_neuron.append(params[self.outgoing].mT)  # (m, h, c)
        common = [value for name, value in params.items() if name not in (self.weight, self.bias, self.outgoing)]
        shared = [value.flatten(1).unsqueeze(1).expand(-1, self.neurons, -1) for value in common]
        return torch.cat([*per_neuron, *shared], -1)


@runtime_checkable
class Reader(Protocol):
    """A reader's architecture, as a value."""

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot read such heads, as a clause; None if it can."""

    def guesses(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        """The class of each guess; empty if it makes one guess, of any class."""

    def see(self, net: nn.Module, access: Access, release: Release) -> Tensor:
        """(m, tokens, numbers) what it reads."""

    def alike(self, net: nn.Module, classes: tuple[int, ...]) -> bool:
        """Whether tokens are exchangeable, and share one mean and deviation."""

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        """The untrained net (m, tokens, numbers) -> (m, guesses, features)."""


@dataclass(frozen=True)
class SetReader:
    """The neurons of a head as tokens, self-attention among them, and all classes in one pass (see Equivariant).

    To first order, row c of a linear head is the record of class c minus the set's mean, plus noise from the start.
    """

    width: int = 512
    layers: int = 3
    heads: int = 8

    def __post_init__(self) -> None:
        check_fields(self, width=at_least(1), layers=at_least(1), heads=at_least(1))
        expect(self, "width", f"to be a multiple of heads={self.heads}", self.width % self.heads == 0)

    def objection(self, knowledge: Knowledge) -> str | None:
        if Neurons.of(knowledge.net) is None:
            return (
                f"SetReader reads the neurons of a head, a sequence of linear layers, and the net is "
                f"{type(knowledge.net).__name__}. Pass the trained head alone as net, and its inputs as features: "
                "records.through(backbone). For other nets use reader=ConditionalReader()."
            )
        if not knowledge.facts.access.all_weights:
            return (
                f"SetReader reads whole rows of weights, and the access is {type(knowledge.access).__name__}. Use "
                "access=Weights() or reader=ConditionalReader()."
            )
        return _no_classes("SetReader", knowledge)

    def guesses(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        return classes

    def see(self, net: nn.Module, access: Access, release: Release) -> Tensor:
        """(m, neurons, numbers)."""
        neurons = Neurons.of(net)
        assert neurons is not None  # else there was an objection
        return neurons.tokens(release)

    def alike(self, net: nn.Module, classes: tuple[int, ...]) -> bool:
        """Hidden neurons are exchangeable; outputs for classes are not."""
        return not _of_class(net, classes)

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        return Equivariant(tokens, numbers, classes, of_class=_of_class(net, classes), **asdict(self))


@dataclass(frozen=True)
class _AllInARow:
    """All that is seen of a head as one token. Nothing is learnt here: the decoder's first layer reads."""

    def see(self, net: nn.Module, access: Access, release: Release) -> Tensor:
        return access(net, release).unsqueeze(1)

    def alike(self, net: nn.Module, classes: tuple[int, ...]) -> bool:
        return False


@dataclass(frozen=True)
class ConditionalReader(_AllInARow):
    """All that is seen of a head in one row, and the class as a one-hot vector (Maciazek and Allison 2025, 3.1)."""

    def objection(self, knowledge: Knowledge) -> str | None:
        return _no_classes("ConditionalReader", knowledge)

    def guesses(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        return classes

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        return _BesideClasses(len(classes))


@dataclass(frozen=True)
class FlatReader(_AllInARow):
    """All that is seen of a head in one row, for one guess of any class (Maciazek and Allison 2025, 3.2 point 3)."""

    def objection(self, knowledge: Knowledge) -> str | None:
        return None

    def guesses(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        return nn.Identity()


class _BesideClasses(nn.Module):
    """(m, 1, numbers) -> (m, classes, numbers + classes): the same numbers for all, and a one-hot vector."""

    one_hot: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("one_hot", torch.eye(classes), persistent=False)

    def forward(self, seen: Tensor) -> Tensor:
        classes = self.one_hot.expand(len(seen), -1, -1)  # (m, classes, classes)
        return torch.cat([seen.expand(-1, len(self.one_hot), -1), classes], -1)


def _of_class(net: nn.Module, classes: tuple[int, ...]) -> bool:
    """Whether neuron c is the output for class c."""
    neurons = Neurons.of(net)
    return neurons is not None and neurons.outgoing is None and neurons.neurons > max(classes)


def _no_classes(reader: str, knowledge: Knowledge) -> str | None:
    y = knowledge.prior.y
    if y.ndim == 1 and not y.is_floating_point():
        return None
    return (
        f"{reader} rebuilds a record of each class, but the labels are not class numbers: {y.dtype} of shape "
        f"{tuple(y.shape)}. Use reader=FlatReader()."
    )
