"""Packages that only some sources need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def optional(module: str, source: str, extra: str) -> ModuleType:
    """The module, or the command that installs it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is there, something inside it is broken
        raise ModuleNotFoundError(f"{source} needs {package}: pip install 'lostwax[{extra}]'", name=package) from error
