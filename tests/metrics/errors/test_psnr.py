import math

import pytest
import torch

from lostwax.metrics import MSE, PSNR


def test_a_tenth_of_the_range_is_twenty_decibels():
    truth = torch.zeros(1, 8, dtype=torch.float64)
    assert PSNR()(truth + 0.1, truth).item() == pytest.approx(20)
    assert PSNR(peak=255)(truth + 25.5, truth).item() == pytest.approx(20)


def test_psnr_orders_guesses_as_mse_does():
    truth = torch.rand(50, 6, generator=torch.Generator().manual_seed(0))
    guess = truth.flip(0)
    assert torch.equal(PSNR()(guess, truth).argsort(), (-MSE()(guess, truth)).argsort())
    assert PSNR()(truth, truth).tolist() == [math.inf] * 50


def test_a_range_must_be_positive():
    with pytest.raises(ValueError, match="expected peak > 0"):
        PSNR(peak=0)
