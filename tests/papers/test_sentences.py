"""The small transformer, and training on token numbers."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort
from lostwax.trainers.linear_response import BaseTrajectory
from lostwax.trainers.stacked import flat
from of_papers import paper_lib
from trainers.reference import tangents

TextClassifier = paper_lib("sentences").TextClassifier


def sentences(n, seed, vocabulary=20, length=4):
    draw = torch.Generator().manual_seed(seed)
    return lw.Records(torch.randint(vocabulary, (n, length), generator=draw), torch.randint(2, (n,), generator=draw))


def dealt(known, secrets):
    numbers = torch.arange(len(secrets))
    return Cohort(known, secrets[numbers.unsqueeze(1)], numbers)


@pytest.mark.parametrize("tied", [False, True])
def test_stacked_training_on_tokens_equals_torch_optim(tied):
    torch.manual_seed(0)
    net = TextClassifier(20, 4, width=8, tied=tied).double()
    known, secrets = sentences(10, 0), sentences(3, 1)
    release = lw.GD(lr=0.1, momentum=0.9, steps=4)(net, dealt(known, secrets), seed=0)
    for number in range(3):
        x, y = torch.cat([known.x, secrets.x[number, None]]), torch.cat([known.y, secrets.y[number, None]])
        alone = TextClassifier(20, 4, width=8, tied=tied).double()
        alone.load_state_dict(net.state_dict())
        optimiser = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimiser.zero_grad()
            nn.functional.cross_entropy(alone(x), y).backward()
            optimiser.step()
        for name, value in alone.named_parameters():
            torch.testing.assert_close(release.params[name][number], value.detach())


def test_a_frozen_table_is_not_released_and_the_trainer_sets_the_dtype():
    net = TextClassifier(20, 4, width=8)
    net.tokens.weight.requires_grad_(False)
    release = lw.Adam(lr=0.01, epochs=1, batch_size=4, dtype=torch.float64)(
        net, dealt(sentences(10, 0), sentences(2, 1)), seed=0
    )
    assert "tokens.weight" not in release.params
    assert release.flat().dtype == torch.float64


def test_linear_response_takes_tokens():
    torch.manual_seed(0)
    net, trainer = TextClassifier(20, 4, width=8).double(), lw.GD(lr=0.05, steps=4)
    known, secrets = sentences(40, 0), sentences(2, 1)
    base = BaseTrajectory.of(trainer, net, known)
    moved = trainer(net, dealt(known, secrets), seed=0).flat() - flat(base.end)
    assert (tangents(base, secrets) - moved).norm() < 0.05 * moved.norm()


def test_whole_numbers_are_refused_where_they_cannot_be_tokens():
    with pytest.raises(ValueError, match="Whole numbers are taken for tokens"):
        lw.GD(lr=0.1, steps=1)(lw.nets.mlp(4, 2), dealt(sentences(10, 0), sentences(2, 1)), seed=0)
    net, trainer = (
        TextClassifier(20, 4, width=8),
        lw.DPSGD(lr=0.1, steps=1, noise_multiplier=1.0, clip=1.0),
    )
    with pytest.raises(TypeError, match="expected floating-point inputs"):
        trainer(net, dealt(sentences(10, 0), sentences(2, 1)), seed=0)
