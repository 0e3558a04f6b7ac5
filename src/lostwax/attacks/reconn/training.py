"""Teaching decoders to read records off models (S1 section IV-B, step 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.reconn.shadow_table import adversary_seed
from lostwax.decoders import Committee
from lostwax.progress import progress

if TYPE_CHECKING:
    from lostwax.attacks.reconn.attack import RecoNN

ROWS = 1024  # models read at a time


class Examples(NamedTuple):
    """Standardised models, and what is to be read off them."""

    features: Tensor  # (s, features)
    answers: Tensor  # (s, ...) records in the decoder's coordinates
    y: Tensor  # (s,) or (s, targets)
    sought: Tensor  # (...) which numbers of an answer count: the others are told, and need not be read off


def train(committee: Committee, shadows: Examples, unseen: Examples, attack: RecoNN, *, seed: int) -> Tensor:
    """Fit every member to the shadows: the errors of their mean on unseen ones, (validation,).

    Members learn one after another, from the same shadows and draws of their own (batches, noise, discriminators).
    """
    with progress("decoder epochs", attack.epochs * len(committee.members)) as advance:
        for number, member in enumerate(committee.members):
            with torch_seed(adversary_seed(seed, f"decoder {number}"), shadows.features.device):
                _train_member(member, shadows, unseen, attack, advance)
    return errors(committee, unseen)


def _train_member(
    decoder: nn.Module, shadows: Examples, unseen: Examples, attack: RecoNN, advance: Callable[[int], None]
) -> None:
    """Fit one decoder, and keep the weights that read unseen models best, be it those it came with (see RecoNN.tune).

    AdamW on a one-cycle schedule in place of S1's RMSProp, which overfits. Best is by pixel error whatever the loss:
    a discriminator that learns is no fixed measure, and by pixels the attack will be judged.
    """
    features, truth = shadows.features, shadows.answers
    batches = -(-len(features) // attack.batch_size)  # an epoch, rounded up
    optimiser = torch.optim.AdamW(
        decoder.parameters(), lr=attack.lr, weight_decay=attack.weight_decay, fused=features.is_cuda
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, attack.lr, total_steps=attack.epochs * batches)
    criteria = [term.begin(truth) for term in attack.terms]
    best, best_epoch, kept = float(errors(decoder, unseen).mean()), 0, deepcopy(decoder.state_dict())
    for epoch in range(attack.epochs):
        decoder.train()
        order = torch.randperm(len(features), device=features.device)
        for rows in torch.tensor_split(order, batches):  # of even size: a last one of a few records would undo much
            wanted = truth[rows]  # (b, ...)
            answers = torch.where(shadows.sought, decoder(features[rows]), wanted)  # told numbers in their place
            wrong = answers - wanted
            loss = attack.mae * wrong.abs().mean() + attack.mse * wrong.square().mean()
            for criterion in criteria:
                loss = loss + criterion(answers, wanted)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
        decoder.eval()
        error = float(errors(decoder, unseen).mean())  # the one wait for the device in an epoch
        if error < best:
            best, best_epoch, kept = error, epoch, deepcopy(decoder.state_dict())
        advance(1)
        if attack.patience is not None and epoch - best_epoch >= attack.patience:
            advance(attack.epochs - 1 - epoch)  # those it does without
            break
    decoder.load_state_dict(kept)


@torch.no_grad()
def answer(decoder: nn.Module, features: Tensor) -> Tensor:
    """(m, ...) the decoder's answers, some models at a time."""
    return torch.cat([decoder(rows) for rows in torch.split(features, ROWS)])


def errors(decoder: nn.Module, examples: Examples) -> Tensor:
    """(m,) mean squared errors of the answers."""
    wrong = torch.where(examples.sought, answer(decoder, examples.features) - examples.answers, 0.0)
    return wrong.square().flatten(1).mean(1)


@contextmanager
def torch_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own draws (weights, batches, noise) from this seed, and the user's generator left as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
