"""The residual generator of S2."""

import pytest
import torch
from torch import nn

from instances import instances
from lostwax.learning.decoders import ResidualBlock, ResidualDecoder


@pytest.mark.parametrize("decoder", instances(ResidualDecoder))
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 7, 9), (1, 3, 4)])
def test_answers_have_the_shape_of_a_record_and_keep_within_the_bounds(decoder, shape):
    net = decoder.build(11, shape)
    answers = net(torch.randn(5, 11))
    assert answers.shape == (5, *shape)
    assert answers.min() >= 0
    assert answers.max() <= 1
    assert isinstance(decoder.build(11, shape, bounded=False)[-1], nn.Identity)


@pytest.mark.parametrize(("shape", "sides"), [((1, 32, 32), [4, 8, 16, 32]), ((3, 64, 64), [4, 8, 16, 32, 64])])
def test_the_layers_are_those_of_table_2(shape, sides):
    width, seen = 2, []
    net = ResidualDecoder(width).build(20, shape)
    for layer in net:
        if isinstance(layer, nn.ConvTranspose2d | ResidualBlock):
            layer.register_forward_hook(lambda layer, inputs, output: seen.append(tuple(output.shape[1:])))
    net(torch.randn(2, 20))
    channels = [4 * width, 2 * width, *[width] * (len(sides) - 2)]
    assert seen == [(count, side, side) for count, side in zip(channels, sides, strict=True)]
    assert sum(value.numel() for value in net[1].parameters()) == 4 * width * (16 * 20 + 1)  # S2, Appendix F


def test_a_block_adds_to_what_it_enlarges():
    block, image = ResidualBlock(3, 3), torch.randn(2, 3, 4, 4)
    nn.init.zeros_(block.changed[-1].weight)
    nn.init.zeros_(block.changed[-1].bias)
    assert torch.equal(block(image), image.repeat_interleave(2, 2).repeat_interleave(2, 3))


def test_where_channels_change_what_is_kept_is_the_enlarged_image_convolved():
    block, image = ResidualBlock(3, 2), torch.randn(2, 3, 4, 4)
    nn.init.zeros_(block.changed[-1].weight)
    nn.init.zeros_(block.changed[-1].bias)
    (convolution,) = (layer for layer in block.kept if isinstance(layer, nn.Conv2d))
    enlarged = convolution(image.repeat_interleave(2, 2).repeat_interleave(2, 3))  # S2 Figure 10
    torch.testing.assert_close(block(image), enlarged)


def test_what_it_cannot_build():
    with pytest.raises(ValueError, match="expected width >= 1, got 0"):
        ResidualDecoder(width=0)
    with pytest.raises(ValueError, match=r"records of shape \(4,\)\. Use MLPDecoder"):
        ResidualDecoder().build(3, (4,))
