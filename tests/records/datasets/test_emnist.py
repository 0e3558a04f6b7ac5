import numpy as np
import pytest
import torch

from lostwax import records


def test_torchvisions_letters_stand_upright_and_count_from_zero(tmp_path, pixels, write_idx):
    upright, labels = pixels(3, 28, 28), np.array([1, 26, 13], dtype=np.uint8)
    for part, rows in (("train", slice(2)), ("test", slice(2, 3))):
        raw = tmp_path / "EMNIST" / "raw" / f"emnist-letters-{part}"
        write_idx(raw.with_name(f"{raw.name}-images-idx3-ubyte"), upright[rows].swapaxes(1, 2))
        write_idx(raw.with_name(f"{raw.name}-labels-idx1-ubyte"), labels[rows])
    whole = records.emnist("all", root=tmp_path)
    assert torch.equal((whole.x[:, 0] * 255).round(), torch.tensor(upright).float())
    assert whole.y.tolist() == [0, 25, 12]
    assert len(records.emnist("test", root=tmp_path)) == 1


def test_archived_letters_are_upright_already(tmp_path, pixels):
    images = pixels(2, 28, 28)
    np.savez(tmp_path / "emnist_letters_part.npz", images=images, labels=[1, 2], split=[1, 1])
    found = records.emnist("test", root=tmp_path)
    assert torch.equal((found.x[:, 0] * 255).round(), torch.tensor(images).float())
    assert found.y.tolist() == [0, 1]
    with pytest.raises(ValueError, match="no 'train' images"):
        records.emnist("train", root=tmp_path)


@pytest.mark.parametrize("label", [0, 27])
def test_refuses_labels_that_are_no_letters(tmp_path, pixels, label):
    np.savez(tmp_path / "emnist_letters.npz", images=pixels(2, 28, 28), labels=[1, label])
    with pytest.raises(ValueError, match=r"1-26 for A-Z, got"):
        records.emnist("all", root=tmp_path)
