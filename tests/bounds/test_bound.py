import math
import subprocess
import sys

from lostwax.bounds import bound

COLD = """
import sys
from lostwax.bounds import bound
bound(noise_multiplier=1.0, sample_rate=0.01, steps=1000, baseline=0.1)
print(sorted({"torch", "scipy.stats", "dp_accounting", "matplotlib", "sklearn"} & set(sys.modules)))
"""


def test_the_verb_takes_a_baseline_or_its_log():
    run = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 20}
    assert bound(**run, baseline=0.1) == bound(**run, log_baseline=math.log(0.1))
    assert bound(**run, baseline=0.1, records=2).lower > bound(**run, baseline=0.1).upper


def test_an_answer_loads_nothing_heavy():
    found = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
