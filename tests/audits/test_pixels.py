"""The range of pixels, and metrics that do not depend on it."""

import pytest
import torch

import lostwax as lw
from lostwax.audits.scoring import PixelRange, pixel_metrics, pixel_range

DIGITS = lw.records.digits().x[:40].double()


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 1, PixelRange(0, 1)),
        (-1, 1, PixelRange(-1, 1)),
        (0, 255, PixelRange(0, 255)),
        (-1e-9, 1 + 1e-9, PixelRange(0, 1)),  # rounding
        (-2, 3, None),
        (0, 256, None),
    ],
)
def test_the_narrowest_customary_range(low, high, found):
    images = low + (high - low) * DIGITS
    assert pixel_range(images) == found
    assert pixel_range(images[:, 0]) is None  # perhaps a sequence
    assert pixel_range(images.flatten(1)) is None  # a table


@pytest.mark.parametrize("channels", [2, 4])
def test_what_is_no_image_has_no_pixel_metrics(channels):
    assert pixel_metrics(torch.rand(5, channels, 8, 8)) == ()


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 255)])
def test_the_range_changes_no_metric(low, high, monkeypatch):
    monkeypatch.delenv("LOSTWAX_DATA", raising=False)
    guess, truth = DIGITS[:20], DIGITS[20:]
    moved = [low + (high - low) * x for x in (DIGITS, guess, truth)]
    unit, other = pixel_metrics(DIGITS), pixel_metrics(moved[0])
    assert [metric.name for metric in unit] == [metric.name for metric in other]
    assert len(unit) == 2
    for one, two in zip(unit, other, strict=True):
        torch.testing.assert_close(one(guess, truth), two(*moved[1:]))
        assert one.better == "higher"
