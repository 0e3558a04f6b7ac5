"""Victim architectures; any other `nn.Module` works as well."""

from lostwax.nets.cnn import cnn
from lostwax.nets.mlp import mlp
from lostwax.nets.vgg import vgg11

__all__ = ["cnn", "mlp", "vgg11"]
