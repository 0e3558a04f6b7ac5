"""A whole table from a forest that was grown on it, with no row known."""

from lostwax.attacks.whole_table.attack import RebuiltTable, WholeTable
from lostwax.attacks.whole_table.places import TooManyCellsError
from lostwax.attacks.whole_table.solutions import NoTableError, Search

__all__ = ["NoTableError", "RebuiltTable", "Search", "TooManyCellsError", "WholeTable"]
