import torch
from sklearn.datasets import load_digits

from lostwax import records


def test_digits_are_scikit_learns_in_zero_to_one():
    found, (rows, labels) = records.digits(), load_digits(return_X_y=True)
    assert found.x.shape == (1797, 1, 8, 8)
    assert (found.x.dtype, found.y.dtype) == (torch.float32, torch.int64)
    assert (found.x.min(), found.x.max()) == (0, 1)
    assert torch.equal(found.x.flatten(1) * 16, torch.tensor(rows).float())
    assert torch.equal(found.y, torch.tensor(labels))
