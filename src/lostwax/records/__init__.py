"""Sources of records: each function returns `Records`."""

from lostwax.records.datasets import cifar10, cifar100, digits, fashion_mnist, folder, mnist, npz
from lostwax.records.packing import pack
from lostwax.records.tables import table

__all__ = ["cifar10", "cifar100", "digits", "fashion_mnist", "folder", "mnist", "npz", "pack", "table"]
