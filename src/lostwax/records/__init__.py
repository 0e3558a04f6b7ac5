"""Sources of records: each function returns `Records`."""

from lostwax.records.datasets import celeba, cifar10, cifar100, digits, emnist, fashion_mnist, folder, mnist, npz
from lostwax.records.packing import pack
from lostwax.records.tables import table

__all__ = ["celeba", "cifar10", "cifar100", "digits", "emnist", "fashion_mnist", "folder", "mnist", "npz", "pack"]
__all__ += ["table"]
