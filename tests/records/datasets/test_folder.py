import sys

import numpy as np
import pytest
import torch
from PIL import Image

from lostwax import records


@pytest.fixture
def pets(tmp_path, pixels):
    """Two cats and a dog of 6 x 5 pixels; hidden files and loose files do not count."""
    for name, image in zip(("cat/b.png", "cat/a.png", "dog/a.png"), pixels(3, 6, 5, 3), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / name)
    (tmp_path / "cat" / ".DS_Store").touch()
    (tmp_path / "README").touch()
    return tmp_path


def test_sorted_folders_are_classes(pets, pixels):
    found = records.folder(pets)
    images = torch.tensor(pixels(3, 6, 5, 3)[[1, 0, 2]])  # a.png before b.png
    assert torch.equal((found.x * 255).round(), images.movedim(-1, 1).float())
    assert found.x.dtype == torch.float32
    assert found.y.tolist() == [0, 0, 1]


def test_grey_is_luminance(pets):
    grey, colour = records.folder(pets, channels=1).x, records.folder(pets, channels=3).x
    assert grey.shape == (3, 1, 6, 5)
    luminance = (colour * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)  # ITU-R 601
    torch.testing.assert_close(grey, luminance, rtol=0, atol=1 / 255)


def test_size_brings_all_to_one_square(pets):
    Image.new("L", (9, 30), 128).save(pets / "dog" / "b.png")
    found = records.folder(pets, size=8)
    assert found.x.shape == (4, 3, 8, 8)
    assert found.x[3].unique().tolist() == [pytest.approx(128 / 255)]


def test_names_the_image_whose_size_differs(pets):
    Image.new("RGB", (9, 7)).save(pets / "dog" / "b.png")
    with pytest.raises(ValueError, match=r"b\.png is 9 x 7 and .*a\.png is 5 x 6: pass size="):
        records.folder(pets)


def _text(path):
    path.write_text("no image")


def _truncated(path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:500])


def _sixteen_bits(path):
    Image.fromarray(np.full((6, 5), 1_000, dtype=np.uint16)).save(path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_text, "cannot be read as an image"),
        (_truncated, "cannot be read as an image"),
        (lambda path: path.mkdir(), "cannot be read as an image"),
        (_sixteen_bits, "more than 8 bits"),
    ],
)
def test_names_the_file_that_cannot_be_read(pets, write, message):
    write(pets / "dog" / "odd.png")
    with pytest.raises(ValueError, match=rf"odd\.png .*{message}"):
        records.folder(pets)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be.*got 0"),
        ({"size": 2.5}, "size must be.*got 2.5"),
        ({"channels": 2}, "channels must be 1 .* or 3 .*got 2"),
    ],
)
def test_refuses_bad_arguments(pets, arguments, message):
    with pytest.raises(ValueError, match=message):
        records.folder(pets, **arguments)


def test_refuses_folders_without_classes_or_images(pets):
    with pytest.raises(FileNotFoundError, match="absent is not a directory"):
        records.folder(pets / "absent")
    with pytest.raises(ValueError, match="one sub-folder per class, got none"):
        records.folder(pets / "cat")
    (pets / "emu").mkdir()
    with pytest.raises(ValueError, match="emu is a class without images"):
        records.folder(pets)


def test_says_what_to_install(pets, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r"records\.folder needs PIL: pip install 'lostwax\[vision\]'"):
        records.folder(pets)
