import torch

from lostwax.metrics import LargestError, SpreadRMSE


def test_one_feature_that_is_off_decides():
    truth = torch.zeros(2, 64, dtype=torch.float64)
    guess = truth.clone()
    guess[1, 3] = -0.8
    deviation = torch.full((64,), 2.0, dtype=torch.float64)
    assert LargestError(deviation)(guess, truth).tolist() == [0, 0.4]
    assert SpreadRMSE(deviation)(guess, truth)[1] <= 0.05  # which the mean hides


def test_constant_features_are_left_out_and_nan_is_kept():
    truth, guess = torch.zeros(2, 2), torch.tensor([[1.0, 7.0], [torch.nan, 0.0]])
    found = LargestError(torch.tensor([2.0, 0.0]))(guess, truth)
    assert found[0] == 0.5
    assert found[1].isnan()
    assert LargestError(torch.zeros(2))(guess, truth).tolist() == [0, 0]
