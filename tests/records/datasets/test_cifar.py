import pickle
from hashlib import md5

import numpy as np
import pytest
import torch
from torchvision import datasets

from lostwax import records

FILES = {
    "cifar10": (datasets.CIFAR10, [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], "labels"),
    "cifar100": (datasets.CIFAR100, ["train", "test"], "fine_labels"),
}


@pytest.mark.parametrize("name", FILES)
def test_reads_torchvisions_files(tmp_path, monkeypatch, pixels, name):
    """torchvision reads small real batches, once it is told their checksums."""
    dataset, files, key = FILES[name]
    images = pixels(2 * len(files), 3, 32, 32)
    directory = tmp_path / dataset.base_folder
    directory.mkdir()

    def write(file, content):
        written = pickle.dumps(content)
        (directory / file).write_bytes(written)
        return file, md5(written).hexdigest()

    sums = [
        write(file, {"data": images[2 * i : 2 * i + 2].reshape(2, -1), key: [i, i + 1]}) for i, file in enumerate(files)
    ]
    meta = dataset.meta | {"md5": write(dataset.meta["filename"], {dataset.meta["key"]: ["a", "b"]})[1]}
    for field, value in (("train_list", sums[:-1]), ("test_list", sums[-1:]), ("meta", meta)):
        monkeypatch.setattr(dataset, field, value)

    train, test, whole = (getattr(records, name)(part, root=tmp_path) for part in ("train", "test", "all"))
    assert torch.equal((whole.x * 255).round(), torch.tensor(images).float())
    assert whole.y.tolist() == np.ravel([[i, i + 1] for i in range(len(files))]).tolist()
    assert torch.equal(train.x, whole.x[:-2])
    assert torch.equal(test.x, whole.x[-2:])


@pytest.mark.parametrize("name", FILES)
def test_never_unpickles_files_of_other_checksums(tmp_path, name):
    dataset, files, _ = FILES[name]
    (tmp_path / dataset.base_folder).mkdir()
    for file in files:
        (tmp_path / dataset.base_folder / file).write_bytes(pickle.dumps({"data": np.zeros((1, 3072))}))
    with pytest.raises(FileNotFoundError, match="corrupted"):
        getattr(records, name)(root=tmp_path)
