"""Several decoders as one."""

import torch

from lostwax.learning.decoders import Committee, MLPDecoder


def test_the_mean_answers_and_one_alone_is_heard_word_for_word():
    members = [MLPDecoder(width=8).build(5, (2, 3)).eval() for _ in range(3)]
    features, truth = torch.randn(7, 5), torch.rand(7, 2, 3)
    assert torch.equal(Committee(members[:1])(features), members[0](features))
    answers = torch.stack([member(features) for member in members])
    torch.testing.assert_close(Committee(members)(features), (answers[0] + answers[1] + answers[2]) / 3)
    variance = answers.var(0, correction=0).mean()
    error = (Committee(members)(features) - truth).square().mean()
    torch.testing.assert_close(error, (answers - truth).square().mean() - variance)
