"""Teaching a decoder to read records off models (S1 section IV-B, step 2)."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.reconn.progress import progress

if TYPE_CHECKING:
    from lostwax.attacks.reconn.attack import RecoNN

ROWS = 1024  # models read at a time


class Examples(NamedTuple):
    """Standardised models, and what is to be read off them."""

    features: Tensor  # (s, features)
    answers: Tensor  # (s, ...) records in the decoder's coordinates
    y: Tensor  # (s,) or (s, targets)


def train(decoder: nn.Module, shadows: Examples, unseen: Examples, attack: RecoNN) -> Tensor:
    """Fit the decoder to the shadows, and keep the weights that read unseen ones best: their errors, (validation,).

    AdamW on a one-cycle schedule in place of S1's RMSProp, which overfits. Draws from torch's global generator: whoever
    calls sets its seed.
    """
    batches = -(-len(shadows.features) // attack.batch_size)  # an epoch, rounded up
    optimiser = torch.optim.AdamW(decoder.parameters(), lr=attack.lr, weight_decay=attack.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, attack.lr, total_steps=attack.epochs * batches)
    best, best_epoch, kept = torch.inf, 0, deepcopy(decoder.state_dict())
    with progress("decoder epochs", attack.epochs) as advance:
        for epoch in range(attack.epochs):
            decoder.train()
            order = torch.randperm(len(shadows.features)).to(shadows.features.device)
            for rows in torch.tensor_split(order, batches):  # of even size: a last one of a few records would undo much
                wrong = decoder(shadows.features[rows]) - shadows.answers[rows]  # (b, ...)
                loss = attack.mae * wrong.abs().mean() + attack.mse * wrong.square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
            decoder.eval()
            error = float(errors(decoder, unseen).mean())
            if error < best:
                best, best_epoch, kept = error, epoch, deepcopy(decoder.state_dict())
            advance(1)
            if attack.patience is not None and epoch - best_epoch >= attack.patience:
                break
    decoder.load_state_dict(kept)
    return errors(decoder, unseen)


@torch.no_grad()
def answer(decoder: nn.Module, features: Tensor) -> Tensor:
    """(m, ...) the decoder's answers, some models at a time."""
    return torch.cat([decoder(rows) for rows in torch.split(features, ROWS)])


def errors(decoder: nn.Module, examples: Examples) -> Tensor:
    """(m,) mean squared errors of the answers."""
    return (answer(decoder, examples.features) - examples.answers).square().flatten(1).mean(1)
