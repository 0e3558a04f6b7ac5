"""Random numbers by counter: those of model i are there at once, the same bits on a CPU and on a GPU."""

from lostwax.philox.counter import bits
from lostwax.philox.draws import happens, normal, orders, uniform

__all__ = ["bits", "happens", "normal", "orders", "uniform"]
