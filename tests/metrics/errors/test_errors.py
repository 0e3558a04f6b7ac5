import torch

from lostwax.metrics import MSE, SpreadRMSE


def test_mse_is_per_pixel():
    truth = torch.zeros(2, 1, 4, 4)
    assert MSE()(truth + torch.tensor([1.0, 3.0]).reshape(2, 1, 1, 1), truth).tolist() == [1.0, 9.0]


def test_spread_rmse_counts_in_deviations():
    metric = SpreadRMSE(torch.tensor([2.0, 4.0]))
    assert metric(torch.tensor([[2.0, 4.0]]), torch.zeros(1, 2)).tolist() == [1.0]


def test_constant_features_must_be_right():
    metric = SpreadRMSE(torch.tensor([2.0, 0.0]))
    truth = torch.tensor([[0.0, 7.0]] * 2, dtype=torch.float64)
    guess = torch.tensor([[2.0, 7.0 + 1e-9], [2.0, 7.1]], dtype=torch.float64)
    assert metric(guess, truth).tolist() == [1.0, torch.inf]
    assert SpreadRMSE(torch.zeros(2))(truth, truth).tolist() == [0.0, 0.0]
