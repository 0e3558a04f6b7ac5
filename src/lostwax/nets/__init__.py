"""Victim architectures; any other `nn.Module` works as well."""

from lostwax.nets.cnn import cnn
from lostwax.nets.mlp import mlp

__all__ = ["cnn", "mlp"]
