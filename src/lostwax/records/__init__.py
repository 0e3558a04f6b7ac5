"""Where records come from: one function a source, each returns `Records`."""

from lostwax.records.celeba import celeba
from lostwax.records.cifar10 import cifar10
from lostwax.records.cifar100 import cifar100
from lostwax.records.digits import digits
from lostwax.records.emnist import emnist
from lostwax.records.fashion_mnist import fashion_mnist
from lostwax.records.folder import folder
from lostwax.records.mnist import mnist
from lostwax.records.npz import npz
from lostwax.records.table import table

__all__ = [
    "celeba",
    "cifar10",
    "cifar100",
    "digits",
    "emnist",
    "fashion_mnist",
    "folder",
    "mnist",
    "npz",
    "table",
]
