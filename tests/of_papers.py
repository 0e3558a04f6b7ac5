"""Modules of papers/lib, for tests: `paper_lib("other_bounds").from_rdp`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

LIB = Path(__file__).parent.parent / "papers" / "lib"


def paper_lib(name: str) -> ModuleType:
    """The module of this name, loaded once."""
    known_as = f"of_papers_{name}"
    if known_as not in sys.modules:
        spec = spec_from_file_location(known_as, LIB / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known_as] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known_as])
    return sys.modules[known_as]
