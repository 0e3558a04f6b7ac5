"""Images turned, scaled and moved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform

import lostwax as lw
from attacks.reconn.game import PRIOR, Leaks, knowledge
from lostwax.seeds import generator


def test_affine_moves_as_scipy_does():
    """Oblong images in two channels, each output pixel traced back to where it came from."""
    x = torch.rand(4, 2, 7, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    more = lw.learning.Affine(degrees=30, scale=0.2, pixels=2)(lw.Records(x, torch.arange(4)), 40, seed=3)
    assert torch.equal(more.x[:4], x)
    assert torch.equal(more.y, torch.arange(40) % 4)
    middle = np.array([3.0, 5.0])
    for number, (turn, grow, right, down) in enumerate(generator(3, "affine").uniform(-1, 1, (40, 4))):
        angle, factor = np.pi / 6 * turn, 1 + 0.2 * grow
        matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) / factor  # (row, column)
        offset = middle - matrix @ middle - 2 * np.array([down, right])
        if number >= 4:
            for got, image in zip(more.x[number], x[number % 4], strict=True):
                wanted = affine_transform(image.numpy(), matrix, offset, order=1, mode="nearest")
                np.testing.assert_allclose(got.numpy(), wanted, atol=1e-12)


def test_affine_keeps_to_the_range_and_to_its_seed():
    digits = lw.records.digits()[:50]
    more, again, other = (lw.learning.Affine()(digits, 200, seed=seed).x for seed in (0, 0, 1))
    assert torch.equal(more, again)
    assert not torch.equal(more, other)
    assert more.dtype == digits.x.dtype
    assert more.min() >= 0
    assert more.max() <= 1 + 1e-6
    assert torch.equal(lw.learning.Affine()(digits, 20, seed=0).x, digits.x[:20])


def test_affine_mirrors_half_of_the_copies():
    digits = lw.records.digits()[:50]
    by = lw.learning.Affine(degrees=0, scale=0, pixels=0, mirror=True)
    more = by(digits, 450, seed=0).x
    assert torch.equal(more[:50], digits.x)
    copies = more[50:].view(8, 50, 1, 8, 8)
    upright, mirrored = (
        (copies - x).abs().flatten(2).amax(2) < 1e-6 for x in (digits.x, digits.x.flip(3))
    )  # (copies, digits)
    assert bool((upright | mirrored).all())
    assert 160 < int(mirrored.sum()) < 240
    turned = lw.learning.Affine(mirror=True)(digits, 450, seed=0).x[50:]
    same = lw.learning.Affine()(digits, 450, seed=0).x[50:]
    sides = mirrored.flatten()
    torch.testing.assert_close(turned[~sides], same[~sides])  # the other draws are as without


def test_affine_refuses_what_it_cannot_move():
    for field, value in {"degrees": -1.0, "scale": 1.0, "pixels": -0.5}.items():
        with pytest.raises(ValueError, match=f"Affine: expected {field} .*, got {value}"):
            lw.learning.Affine(**{field: value})
    game = knowledge(Leaks())
    attack = lw.RecoNN(shadows=1_000, augment=lw.learning.Affine())
    assert attack.objection(game) is None
    flat = replace(game, prior=lw.Records(PRIOR.x.flatten(1), PRIOR.y))
    assert "Affine moves images (n, channels, height, width), but the prior has shape (400, 6)." in attack.objection(
        flat
    )
