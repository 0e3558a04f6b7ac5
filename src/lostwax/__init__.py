"""lostwax: how well can training records be rebuilt from a released model, and what protection is enough?"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

__version__ = "0.3.0"

_HOME = {  # public name -> the module it lives in; the list itself is `__init__.pyi`
    name.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for name in node.names
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    """Load a public name where it is first used: `import lostwax` alone imports no torch (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'lostwax' has no attribute '{name}'", name=name, obj=sys.modules[__name__])
    if _HOME[name] == "lostwax":
        return import_module(f"lostwax.{name}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
