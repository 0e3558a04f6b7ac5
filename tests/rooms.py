"""The modules of the package's rooms, found by walking."""

import importlib
import pkgutil


def modules(room):
    """Every module of `lostwax.<room>`, but for kernels: Triton is not everywhere."""
    package = importlib.import_module(f"lostwax.{room}")
    entries = pkgutil.walk_packages(getattr(package, "__path__", ()), f"lostwax.{room}.")
    names = [entry.name for entry in entries if not entry.name.endswith(("kernel", "kernels"))]
    return [package, *map(importlib.import_module, names)]
