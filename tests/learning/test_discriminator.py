"""Records from answers, patch by patch."""

import pytest
import torch
from torch import nn

from instances import instances
from lostwax.learning.decoders import PatchDiscriminator


def test_layers_are_those_of_table_viii():
    layers = [layer for layer in PatchDiscriminator().build((3, 32, 32)) if isinstance(layer, nn.Conv2d)]
    assert [(layer.out_channels, layer.kernel_size, layer.stride[0]) for layer in layers] == [
        (64, (4, 4), 2),
        (128, (4, 4), 2),
        (256, (4, 4), 2),
        (512, (4, 4), 1),
        (1, (4, 4), 1),
    ]


@pytest.mark.parametrize("discriminator", instances(PatchDiscriminator))
@pytest.mark.parametrize(("shape", "scores"), [((3, 32, 32), (4, 4)), ((1, 28, 28), (4, 4)), ((2, 1, 9), (1, 2))])
def test_no_image_is_too_small(discriminator, shape, scores):
    with torch.device("meta"):
        judged = discriminator.build(shape)(torch.empty(5, *shape))
    assert judged.shape == (5, 1, *(scores if len(discriminator.channels) == 4 else shape[1:]))


def test_bad_settings_and_records_are_named():
    with pytest.raises(ValueError, match=r"expected channels to hold at least one number, got \(\)"):
        PatchDiscriminator(channels=())
    with pytest.raises(ValueError, match=r"records of shape \(784,\)\. Reshape"):
        PatchDiscriminator().build((784,))
