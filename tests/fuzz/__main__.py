"""`make fuzz`: ten thousand hostile inputs, and how each kind of them ended."""

import argparse
import sys

from fuzz.suite import bugs, describe, run

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--cases", type=int, default=10_000)
parser.add_argument("--seed", type=int, default=0)
asked = parser.parse_args()
found = run(asked.cases, asked.seed, progress=True)
print(describe(found))
sys.exit(1 if bugs(found) else 0)
