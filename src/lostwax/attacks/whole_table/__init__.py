"""A whole table from a forest that was grown on it, with no row known."""

from lostwax.attacks.whole_table.attack import RebuiltTable, WholeTable
from lostwax.attacks.whole_table.equations import NoTableError
from lostwax.attacks.whole_table.solutions import Search
from lostwax.attacks.whole_table.survivors import TooManyCellsError

__all__ = ["NoTableError", "RebuiltTable", "Search", "TooManyCellsError", "WholeTable"]
