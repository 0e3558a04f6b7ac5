import numpy as np
import pytest
import torch

from lostwax import records


@pytest.mark.parametrize(("name", "directory"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_reads_torchvisions_files(tmp_path, pixels, write_idx, name, directory):
    images, labels = pixels(5, 28, 28), np.array([7, 0, 9, 1, 1], dtype=np.uint8)
    for part, rows in (("train", slice(3)), ("t10k", slice(3, 5))):
        write_idx(tmp_path / directory / "raw" / f"{part}-images-idx3-ubyte", images[rows])
        write_idx(tmp_path / directory / "raw" / f"{part}-labels-idx1-ubyte", labels[rows])
    train, test, whole = (getattr(records, name)(part, root=tmp_path) for part in ("train", "test", "all"))
    assert torch.equal((whole.x[:, 0] * 255).round(), torch.tensor(images).float())
    assert whole.y.tolist() == labels.tolist()
    assert torch.equal(train.x, whole.x[:3])
    assert torch.equal(test.x, whole.x[3:])


def test_broken_files_are_one_of_our_errors(tmp_path):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (tmp_path / "MNIST" / "raw" / f"{part}-{kind}-ubyte").write_bytes(b"not an idx file")
    with pytest.raises(FileNotFoundError, match="none that can be read"):
        records.mnist(root=tmp_path)
