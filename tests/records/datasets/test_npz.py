import sys
import zipfile

import numpy as np
import pytest
import torch

from lostwax import records
from lostwax.records import datasets

LABELS = np.array([0, 3, 1, 2, 2, 300], dtype=np.uint16)
SPLIT = np.array([0, 1, 0, 0, 1, 0], dtype=np.uint8)


def test_plain_images_keep_order_and_scale(tmp_path, pixels):
    images = pixels(6, 5, 4)
    np.savez(tmp_path / "grey.npz", images=images, labels=LABELS)
    found = records.npz(tmp_path / "grey.npz")
    assert found.x.shape == (6, 1, 5, 4)
    assert (found.x.min(), found.x.max(), found.x.dtype) == (0, 1, torch.float32)
    assert torch.equal((found.x[:, 0] * 255).round(), torch.tensor(images).float())
    assert found.y.tolist() == LABELS.tolist()


def test_strips_hold_the_same_images_as_plain(tmp_path, pixels, strips):
    images = pixels(6, 5, 4, 3)
    np.savez(tmp_path / "plain.npz", images=images, labels=LABELS, split=SPLIT)
    np.savez(tmp_path / "strips.npz", **strips(images, 4), labels=LABELS, split=SPLIT)
    for part in ("train", "test", "all"):
        plain, packed = records.npz(tmp_path / "plain.npz", part), records.npz(tmp_path / "strips.npz", part)
        assert plain.x.shape[1:] == (3, 5, 4)
        assert torch.equal(plain.x, packed.x)
        assert torch.equal(plain.y, packed.y)
    assert torch.equal(plain.x[0, :, 1, 2], torch.tensor(images[0, 1, 2]) / 255)  # channels first


def test_parts_are_disjoint_and_make_up_the_whole(tmp_path, pixels):
    np.savez(tmp_path / "a.npz", images=pixels(6, 5, 4), labels=LABELS, split=SPLIT)
    train, test, whole = (records.npz(tmp_path / "a.npz", part) for part in ("train", "test", "all"))
    assert torch.equal(train.x, whole.x[torch.tensor(SPLIT) == 0])
    assert torch.equal(test.y, whole.y[torch.tensor(SPLIT) == 1])
    assert len(train) + len(test) == len(whole)


IMAGES = np.ones((6, 5, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    ("entries", "part", "message"),
    [
        ({"images": IMAGES, "labels": LABELS}, "trian", r"part: expected one of.*got 'trian'.*mean 'train'"),
        ({"images": IMAGES, "labels": LABELS}, "train", r"no `split`.*pass part='all'"),
        ({"images": IMAGES, "labels": LABELS, "split": SPLIT * 0}, "test", r"no 'test' images"),
        ({"images": IMAGES, "labels": LABELS, "split": SPLIT[:5]}, "test", r"expected shape \(6,\).*\(5,\)"),
        ({"images": IMAGES}, "all", "labels"),
        ({"labels": LABELS}, "all", "images"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "all", r"one per image: expected shape \(6,\)"),
        ({"images": IMAGES, "labels": LABELS / 2}, "all", "integers.*float64"),
        ({"images": IMAGES, "labels": LABELS.astype(int) - 1}, "all", "0 or more, but that of image 0 is not"),
        ({"images": IMAGES / np.nan, "labels": LABELS}, "all", "must be uint8.*got float64"),
        ({"images": IMAGES[0], "labels": LABELS}, "all", r"shape \(5, 4\)"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "all", "at least one image"),
        ({"images": np.array([None]), "labels": LABELS}, "all", "cannot be read"),
        ({"n_chunks": np.array(1), "shape": np.array([1, 2, 2, 3]), "labels": LABELS}, "all", "webp_000"),
    ],
)
def test_refuses_archives_that_do_not_fit(tmp_path, entries, part, message):
    np.savez(tmp_path / "bad.npz", **entries)
    with pytest.raises(ValueError, match=message):
        records.npz(tmp_path / "bad.npz", part)


def test_refuses_strips_that_are_not_the_shape_they_claim(tmp_path, pixels, strips):
    entries = strips(pixels(6, 5, 4, 3), 4)
    np.savez(tmp_path / "bad.npz", **(entries | {"shape": np.array([7, 5, 4, 3])}), labels=LABELS)
    with pytest.raises(ValueError, match="cannot be read"):
        records.npz(tmp_path / "bad.npz")


def test_refuses_what_is_no_archive(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.npz is not a file"):
        records.npz(tmp_path / "absent.npz")
    np.save(tmp_path / "array.npy", IMAGES)
    with pytest.raises(ValueError, match=r"not an \.npz archive"):
        records.npz(tmp_path / "array.npy")


def test_says_what_to_install_for_strips(tmp_path, pixels, strips, monkeypatch):
    np.savez(tmp_path / "strips.npz", **strips(pixels(6, 5, 4, 3), 4), labels=LABELS)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r"records\.npz needs PIL: pip install 'lostwax\[vision\]'"):
        records.npz(tmp_path / "strips.npz")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count", "classes"), [("notmnist_part", 10_000, 10), ("quickdraw28", 34_500, 345)])
def test_real_archives_load_whole(real_data, name, count, classes):
    found = records.npz(real_data / f"{name}.npz")
    assert found.x.shape == (count, 1, 28, 28)
    assert torch.equal(found.y.unique(), torch.arange(classes))
    assert found.y.bincount().unique().tolist() == [count // classes]


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(1099511627776, 8, 8)", "(4611686018427387904,)", "(-1, 8, 8)"])
def test_an_array_that_declares_more_than_the_file_holds(shape, tmp_path):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ValueError, match=r"images.npy declares uint8 of shape .*, more than its 128 bytes"):
        records.npz(tmp_path / "a.npz")


def test_a_small_file_does_not_fill_the_memory(tmp_path, monkeypatch):
    """Sizes are compared before anything is unpacked; the same images without compression are fine."""
    monkeypatch.setattr(datasets, "ANY_RATIO", 100_000)
    arrays = {"images": np.zeros((2_000, 10, 10), np.uint8), "labels": np.arange(2_000) % 2}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with monkeypatch.context() as patch:
        patch.setattr(np, "load", None)
        with pytest.raises(ValueError, match=r"unpack to .*, over 100 times as many"):
            records.npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **arrays)
    assert len(records.npz(tmp_path / "a.npz")) == 2_000


def test_a_small_strip_does_not_fill_the_memory(tmp_path, monkeypatch, strips):
    monkeypatch.setattr(datasets, "ANY_RATIO", 100_000)
    images = np.zeros((400, 10, 30, 3), np.uint8)
    np.savez(tmp_path / "a.npz", **strips(images, 200), labels=np.arange(400) % 2)
    with pytest.raises(ValueError, match=r"unpack to .*, over 100 times as many"):
        records.npz(tmp_path / "a.npz")
