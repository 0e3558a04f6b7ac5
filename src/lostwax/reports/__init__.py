"""Write an audit as a report for people, and read it back."""

from lostwax.reports.folder import check_folder, read, write

__all__ = ["check_folder", "read", "write"]
