import torch

from lostwax.metrics import MAE


def test_mae_is_per_pixel():
    truth = torch.zeros(2, 1, 4, 4)
    assert MAE()(truth + torch.tensor([-1.0, 3.0]).reshape(2, 1, 1, 1), truth).tolist() == [1.0, 3.0]
