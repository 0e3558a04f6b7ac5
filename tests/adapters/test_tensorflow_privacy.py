import dp_accounting as dp
import pytest
from dp_accounting.rdp import RdpAccountant

import lostwax as lw
from lostwax.adapters.tensorflow_privacy import mechanism
from lostwax.bounds import Poisson, Shuffled

RUN = {"number_of_examples": 60_000, "batch_size": 256, "num_epochs": 2.5, "noise_multiplier": 1.0}


def test_a_loop_shuffles_unless_it_is_said_to_sample():
    found = mechanism(**RUN, used_microbatching=False)
    assert found == {"noise_multiplier": 1.0, "steps": 3 * 235, "sampling": Shuffled(3)}
    sampled = mechanism(**RUN, used_microbatching=False, poisson=True)
    assert sampled == {"noise_multiplier": 1.0, "steps": 586, "sampling": Poisson(256 / 60_000)}
    assert lw.bound(**found, baseline=0.1).lower > lw.bound(**sampled, baseline=0.1).upper


def test_microbatches_halve_the_noise():
    """As in the library's own formula for the numbers of its statement."""
    found = mechanism(**RUN, poisson=True)
    rate = 256 / 60_000
    step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(1.0 / 2))
    theirs = RdpAccountant().compose(step, 586).get_epsilon(1e-5)
    assert found["steps"] == 586
    assert found["sampling"].epsilon(found["noise_multiplier"], 586, 1e-5) <= theirs


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="batch_size=70000 of at most number_of_examples=60000"):
        mechanism(**RUN | {"batch_size": 70_000})
