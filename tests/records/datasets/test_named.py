import sys

import numpy as np
import pytest
import torch

from lostwax import records

SOURCES = {
    "mnist": "mnist.npz",
    "fashion_mnist": "fashion_mnist.npz",
    "cifar10": "cifar10.npz",
    "cifar100": "cifar100.npz",
}
ONE_TO_SIX = np.arange(1, 7)


@pytest.mark.parametrize(("name", "archive"), SOURCES.items())
def test_reads_the_archive_in_root_or_else_in_the_data_directory(tmp_path, monkeypatch, pixels, name, archive):
    given, fallback = tmp_path / "given", tmp_path / "fallback"
    for directory, side in ((given, 5), (fallback, 4)):
        directory.mkdir()
        np.savez(directory / archive, images=pixels(6, side, side), labels=ONE_TO_SIX, split=ONE_TO_SIX % 2)
    monkeypatch.setenv("LOSTWAX_DATA", str(fallback))
    load = getattr(records, name)
    assert load(root=given).x.shape == (3, 1, 5, 5)
    assert load().x.shape == (3, 1, 4, 4)
    assert load("all").x.shape == (6, 1, 4, 4)


@pytest.mark.parametrize("name", SOURCES)
def test_says_what_was_looked_for_where_and_the_cures(tmp_path, name):
    archive = SOURCES[name]
    with pytest.raises(FileNotFoundError) as caught:
        getattr(records, name)(root=tmp_path / "absent")
    for text in (f"records.{name}", archive, str(tmp_path / "absent"), "no such directory"):
        assert text in str(caught.value)
    for cure in ("LOSTWAX_DATA", "root=", "download=True"):
        assert cure in str(caught.value)
    assert not list(tmp_path.iterdir())  # nothing fetched, nothing made


@pytest.mark.parametrize("name", SOURCES)
def test_asks_for_a_directory_when_none_is_known(name):
    with pytest.raises(FileNotFoundError, match=rf"records\.{name} has no directory.*root=.*LOSTWAX_DATA"):
        getattr(records, name)()


@pytest.mark.parametrize("name", SOURCES)
def test_refuses_an_unknown_part(tmp_path, name):
    with pytest.raises(ValueError, match=rf"records\.{name}: part: .*got 'tests'\. Did you mean 'test'"):
        getattr(records, name)("tests", root=tmp_path)


@pytest.mark.parametrize("name", SOURCES)
def test_says_what_to_install(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    message = rf"records\.{name} needs torchvision: pip install 'lostwax\[vision\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        getattr(records, name)(root=tmp_path)


def test_a_failed_download_is_one_of_our_errors(tmp_path):
    (tmp_path / "in the way").touch()
    with pytest.raises(FileNotFoundError, match=r"records\.mnist looked in"):
        records.mnist(root=tmp_path / "in the way", download=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part", "shape"),
    [
        ("mnist", "train", (60_000, 1, 28, 28)),
        ("mnist", "test", (10_000, 1, 28, 28)),
        ("cifar10", "train", (50_000, 3, 32, 32)),
        ("cifar10", "test", (10_000, 3, 32, 32)),
    ],
)
def test_real_sets_load(real_data, name, part, shape):
    found = getattr(records, name)(part, root=real_data)
    assert found.x.shape == shape
    assert (found.x.min(), found.x.max(), found.y.min()) == (0, 1, 0)


@pytest.mark.slow
def test_cifar10_has_the_published_moments(real_data):
    x = records.cifar10(root=real_data).x
    deviation, mean = torch.std_mean(x.double(), dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(mean.tolist(), [0.49139968, 0.48215841, 0.44653091], rtol=0, atol=1e-7)
    torch.testing.assert_close(deviation.tolist(), [0.24703223, 0.24348513, 0.26158784], rtol=0, atol=1e-7)
