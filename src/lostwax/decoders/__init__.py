"""From what is seen of a model to a record: nets, untrained."""

from lostwax.decoders.conv import ConvDecoder
from lostwax.decoders.decoder import Decoder
from lostwax.decoders.mlp import MLPDecoder
from lostwax.decoders.span import Span

__all__ = ["ConvDecoder", "Decoder", "MLPDecoder", "Span"]
