"""The scores of Hayes et al. (2023), against sums written out."""

import pytest
import torch

import lostwax as lw
from lostwax.attacks.dp_steps.prior_aware import Observed


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.001])
def test_products_are_summed_or_the_largest_of_them(paper_module, rate):
    scores, trainer = paper_module("lib.scores"), lw.DPSGD(noise_multiplier=2.0, steps=8, sample_rate=rate)
    products = torch.randn(8, 2, 3, dtype=torch.float64)  # (t, m, c)
    steps = [Observed(step, torch.ones(2, 3)) for step in products]
    torch.testing.assert_close(scores.InnerProducts()(iter(steps), trainer), products.sum(0) / 4)
    largest = products.sort(0, descending=True).values[: max(1, round(8 * rate))].sum(0) / 4
    torch.testing.assert_close(scores.LargestProducts()(iter(steps), trainer), largest)
