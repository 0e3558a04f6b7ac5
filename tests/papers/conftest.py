import importlib
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "papers"


@pytest.fixture(scope="module")
def paper_module():
    """Imports modules of papers/ by name, and forgets them afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PAPERS)
        patch.setattr(sys, "dont_write_bytecode", True)
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").is_relative_to(PAPERS):
            del sys.modules[name]
