"""From what is seen of a model to a record: nets, untrained."""

from lostwax.decoders.committee import Committee
from lostwax.decoders.conv import ConvDecoder
from lostwax.decoders.decoder import Decoder
from lostwax.decoders.discriminator import PatchDiscriminator
from lostwax.decoders.mlp import MLPDecoder
from lostwax.decoders.residual import ResidualDecoder
from lostwax.decoders.rowwise import RowDecoder
from lostwax.decoders.span import Span

__all__ = [
    "Committee",
    "ConvDecoder",
    "Decoder",
    "MLPDecoder",
    "PatchDiscriminator",
    "ResidualDecoder",
    "RowDecoder",
    "Span",
]
