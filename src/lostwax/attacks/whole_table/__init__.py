"""A whole table from trees that were grown on it, with no row known."""

from lostwax.attacks.whole_table.attack import RebuiltTable, WholeTable
from lostwax.attacks.whole_table.boosting import BoostedTable, NotTheseRowsError
from lostwax.attacks.whole_table.places import TooManyCellsError
from lostwax.attacks.whole_table.solutions import NoTableError, Search

__all__ = [
    "BoostedTable",
    "NoTableError",
    "NotTheseRowsError",
    "RebuiltTable",
    "Search",
    "TooManyCellsError",
    "WholeTable",
]
