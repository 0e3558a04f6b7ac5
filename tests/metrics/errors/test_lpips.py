"""The wiring with random weights against torch's own modules; the real weights where they are to be had."""

import pytest
import torch
from torch import nn

from lostwax import records
from lostwax.metrics import LPIPS

safetensors = pytest.importorskip("safetensors.torch")


def alexnet():
    """The convolutions of torchvision's AlexNet, as modules."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
    )


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return alexnet().requires_grad_(False), [torch.rand(width) for width in (64, 192, 384, 256, 256)]


@pytest.fixture
def weights(net, tmp_path):
    backbone, heads = net
    tensors = {f"features.{name}": value for name, value in backbone.state_dict().items()}
    safetensors.save_file(
        tensors | {f"lin{n}.weight": head for n, head in enumerate(heads)}, tmp_path / "lpips_alex.safetensors"
    )
    return tmp_path / "lpips_alex.safetensors"


def by_modules(net, guess, truth):
    """One pair of (3, h, w) images, position by position."""
    backbone, heads = net
    mean, deviation = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    one, other = ((2 * z - 1 - mean[:, None, None]) / deviation[:, None, None] for z in (guess, truth))
    total, layer = 0.0, 0
    for module in backbone:
        one, other = module(one), module(other)
        if isinstance(module, nn.ReLU):
            _, rows, columns = one.shape
            for row in range(rows):
                for column in range(columns):
                    a, b = (z[:, row, column] / (z[:, row, column].norm() + 1e-10) for z in (one, other))
                    total += float((heads[layer] * (a - b) ** 2).sum()) / (rows * columns)
            layer += 1
    return total


@pytest.mark.parametrize("size", [(32, 32), (40, 64)])
def test_equals_the_definition(net, weights, size):
    guess, truth = torch.rand(2, 2, 3, *size, generator=torch.Generator().manual_seed(1))
    expected = torch.tensor([by_modules(net, a, b) for a, b in zip(guess, truth, strict=True)])
    torch.testing.assert_close(LPIPS(weights)(guess, truth), expected, rtol=1e-4, atol=1e-6)


def test_small_grey_images_are_enlarged_and_repeated(net, weights):
    guess, truth = torch.rand(2, 1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    big = [nn.Upsample(size=(32, 32), mode="bilinear")(z).expand(-1, 3, -1, -1)[0] for z in (guess, truth)]
    expected = pytest.approx(by_modules(net, *big), rel=1e-4)
    assert LPIPS(weights)(guess, truth).item() == expected
    assert LPIPS(weights)(guess[:, 0].double(), truth[:, 0].double()).item() == expected


def test_laws(weights, monkeypatch):
    monkeypatch.setattr("lostwax.metrics.errors.GAMES_AT_A_TIME", 2)
    guess, truth = torch.rand(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    metric = LPIPS(weights)
    assert metric(truth, truth).tolist() == [0.0] * 3
    torch.testing.assert_close(metric(guess, truth), metric(truth, guess))
    torch.testing.assert_close(metric(guess, truth)[2:], metric(guess[2:], truth[2:]))  # alone as among others


def test_it_is_a_loss_even_where_features_vanish(weights):
    guess = torch.zeros(1, 1, 28, 28, requires_grad=True)
    LPIPS(weights)(guess, torch.ones(1, 1, 28, 28)).sum().backward()
    assert guess.grad.isfinite().all()
    assert guess.grad.abs().sum() > 0


def test_weights_are_found_by_the_environment(weights, monkeypatch):
    images = torch.rand(1, 3, 32, 32)
    monkeypatch.setenv("LOSTWAX_DATA", str(weights.parent))
    assert LPIPS()(images, images).item() == 0
    monkeypatch.setenv("LOSTWAX_DATA", str(weights.parent / "elsewhere"))
    with pytest.raises(FileNotFoundError, match=r"finds no file .*: set the environment variable LOSTWAX_DATA"):
        LPIPS()(images, images)
    monkeypatch.delenv("LOSTWAX_DATA")
    with pytest.raises(FileNotFoundError, match="as weights="):
        LPIPS()(images, images)


def test_other_files_are_refused(tmp_path):
    images = torch.rand(1, 3, 32, 32)
    (tmp_path / "text").write_text("not weights")
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        LPIPS(tmp_path / "text")(images, images)
    safetensors.save_file({"features.0.weight": torch.zeros(64, 3, 3, 3)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"features.0.weight of shape \(64, 3, 11, 11\), got shape \(64, 3, 3, 3\)"):
        LPIPS(tmp_path / "other")(images, images)


@pytest.mark.slow
def test_the_real_weights_see_what_they_should(shared_data):
    """As noted beside the weights, at 64 x 64: 0.19 for noise of 0.1 (on the scale [-1, 1]), 0.50 for other images."""
    path = shared_data / "lpips_alex.safetensors"
    if not path.exists():
        pytest.skip("no lpips_alex.safetensors in the folder of real data")
    images = records.cifar10("test", root=shared_data).x[:64]
    images = nn.Upsample(size=(64, 64), mode="bilinear")(images)
    noisy = images + 0.1 / 2 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    metric = LPIPS(path)
    assert metric(images, images).abs().max() == 0
    assert metric(noisy, images).mean().item() == pytest.approx(0.19, abs=0.05)
    assert metric(images.roll(1, 0), images).mean().item() == pytest.approx(0.50, abs=0.05)
