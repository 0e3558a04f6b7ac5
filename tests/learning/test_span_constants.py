"""What never varies in the prior is answered exactly."""

import torch

from lostwax.learning.decoders import Span


def test_constant_features_are_exact_where_answers_are_bounded():
    prior = torch.rand(20, 5, generator=torch.Generator().manual_seed(0))
    prior[:, 2] = 0.25
    span = Span.of(prior)
    assert span.bounded
    assert torch.equal(span.records(torch.rand(3, 5))[:, 2], torch.full((3,), 0.25))
    torch.testing.assert_close(span.records(span.shares(prior)), prior)


def test_rounding_does_not_make_pixels_unbounded():
    pixels = torch.rand(20, 5, generator=torch.Generator().manual_seed(0))
    for scale, shift in ((1.0, 0.0), (2.0, -1.0)):
        prior = scale * pixels + shift
        prior[0, 0], prior[1, 0] = scale + shift + 1e-7, shift - 1e-7
        assert Span.of(prior).bounded
        prior[0, 0] = scale + shift + 1e-3
        assert not Span.of(prior).bounded
