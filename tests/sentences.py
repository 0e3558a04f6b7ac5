"""The small transformer of papers/."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FILE = Path(__file__).parent.parent / "papers" / "lib" / "sentences.py"
SPEC = spec_from_file_location("sentences_of_papers", FILE)
MODULE = sys.modules[SPEC.name] = module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
TextClassifier = MODULE.TextClassifier
