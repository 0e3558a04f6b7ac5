"""An audit as something a person reads."""

from lostwax.reports.folder import check_folder, read, write

__all__ = ["check_folder", "read", "write"]
