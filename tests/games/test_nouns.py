"""What is played with."""

import torch

from lostwax.games import Hints, Records


def test_hints_of_some_games():
    candidates = Records(torch.arange(6.0).view(3, 2, 1), torch.arange(6).view(3, 2))
    hints = Hints(labels=torch.tensor([[5], [6], [7]]), candidates=candidates)
    some = hints[torch.tensor([2, 0])]
    assert some.labels.tolist() == [[7], [5]]
    assert some.candidates.y.tolist() == [[4, 5], [0, 1]]
    assert some.parts is None
    assert some.chances is None
    assert hints[1:].labels.tolist() == [[6], [7]]
