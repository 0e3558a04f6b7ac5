import math
import subprocess
import sys

import pytest

from lostwax.bounds import Records, bound, from_dp
from lostwax.trainers.dpsgd import noise_for

COLD = """
import sys
from lostwax.bounds import bound
bound(noise_multiplier=1.0, sample_rate=0.01, steps=1000, baseline=0.1)
print(sorted({"torch", "scipy.stats", "dp_accounting", "matplotlib", "sklearn"} & set(sys.modules)))
"""


def test_the_verb_takes_a_baseline_or_its_log():
    run = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 20}
    assert bound(**run, baseline=0.1) == bound(**run, log_baseline=math.log(0.1))
    with_two = bound(**run, goal=Records(2), baseline=0.1)
    assert with_two.lower > bound(**run, baseline=0.1).upper


def test_an_epsilon_stands_for_everything_that_has_it():
    ceiling = bound(epsilon=1.0, delta=1e-5, baseline=0.1)
    assert ceiling == from_dp(math.log(0.1), 1.0, 1e-5)
    noise = noise_for(1.0, 1e-5, steps=10, sample_rate=1.0)
    assert bound(noise_multiplier=noise, steps=10, baseline=0.1).upper < ceiling.upper


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "Pass noise_multiplier, with sample_rate and steps, or the epsilon"),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "Leave out noise_multiplier"),
        ({"epsilon": 1.0, "steps": 5}, "Leave out noise_multiplier, sample_rate, steps"),
        ({"epsilon": 1.0, "sampling": "shuffled"}, "steps, sampling and tolerance"),
        ({"epsilon": 1.0, "tolerance": 1e-6}, "steps, sampling and tolerance"),
        ({"epsilon": 1.0, "delta": 2.0}, r"delta=2.0 to lie in \[0, 1\)"),
        ({"noise_multiplier": 1.0, "delta": 1e-5}, "delta=1e-05 belongs to an epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_the_noise_or_an_epsilon(asked, words):
    with pytest.raises(ValueError, match=words):
        bound(**asked, baseline=0.1)


def test_an_answer_loads_nothing_heavy():
    found = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
