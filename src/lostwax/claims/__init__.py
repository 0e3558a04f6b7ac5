"""Claims of differential privacy, tested by playing against the code that makes them."""

from lostwax.claims.check import ClaimCheck, check_dp

__all__ = ["ClaimCheck", "check_dp"]
