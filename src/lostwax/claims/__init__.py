"""Does a training function keep its claim of differential privacy?"""

from lostwax.claims.check import ClaimCheck, check_dp
from lostwax.claims.one_run import OneRun
from lostwax.claims.planted import Planted, check_dp_once, plant

__all__ = ["ClaimCheck", "OneRun", "Planted", "check_dp", "check_dp_once", "plant"]
