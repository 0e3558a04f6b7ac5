"""S1's reconstructor for MNIST as its Table V prints it: RMSProp on MAE + MSE, batches of 128, no noise on the weights.

`lw.RecoNN` learns by AdamW on one cycle and keeps the weights that read held-out models best; here the last ones stay.
The learning rate is 1e-3 and never changes. A thirtieth of the prior is held out as in our recipe, so the decoder
learns from 57,033 shadow models of 59,000. What S1 does not print is in `Unprinted`, by default as torch has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

import lostwax as lw
from lostwax.attacks.reconn import Trained
from lostwax.games import Knowledge
from lostwax.learning.decoders import Committee
from lostwax.learning.shadow_tables import shadow_tables
from lostwax.learning.training import Best, Examples, errors, fit

BATCH, RATE = 128, 1e-3


@dataclass(frozen=True, kw_only=True)
class Unprinted:
    """What S1's Table V leaves open; S1 used Haiku and its companion Optax, whose defaults differ from torch's."""

    decay: float = 0.99  # of RMSProp's mean square; Optax: 0.9
    lecun_start: bool = False  # Haiku's: normal, cut at two deviations of 1 / sqrt(inputs), biases zero
    sigmoid: bool = True  # behind the last layer
    keep_best: bool = False  # the epoch that reads held-out models best, rather than the last


AS_IN_TORCH = Unprinted()


class Shadows(NamedTuple):
    """What a decoder is taught by, and a reconstructor in which only the decoder is to be replaced."""

    attack: lw.RecoNN
    facts: Knowledge
    untaught: Trained
    learnt: Examples
    held_out: Examples


def prepare_as_printed(knowledge: Knowledge, *, width: int, epochs: int, validation: float, seed: int) -> Trained:
    """Train the shadows and the decoder; held-out records of the prior are for `validation_error` alone."""
    return taught(train_shadows(knowledge, width=width, validation=validation, seed=seed), epochs=epochs, seed=seed)


def train_shadows(knowledge: Knowledge, *, width: int, validation: float, seed: int) -> Shadows:
    """The shadow models, standardised."""
    decoder = lw.decoders.MLPDecoder(width=width, input_noise=0.0)
    attack = lw.RecoNN(decoder=decoder, epochs=1, batch_size=BATCH, validation=validation)
    facts, shadows, unseen = shadow_tables(attack, knowledge, seed)
    start = attack.learn(facts, shadows, unseen, seed=seed)  # for its scale and its labels: the decoder is made anew
    return Shadows(attack, facts, start, start.examples(shadows), start.examples(unseen))


def taught(shadows: Shadows, *, epochs: int, seed: int, unprinted: Unprinted = AS_IN_TORCH) -> Trained:
    """The reconstructor with a new decoder."""
    attack, facts, start, learnt, held_out = shadows
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        decoder = attack.decoder_for(facts, start.standardise, start.span)
        if unprinted.lecun_start:
            decoder.apply(start_as_haiku)
        if not unprinted.sigmoid:
            decoder = decoder[:-1]
        decoder = decoder.to(start.span.shift)
        best = Best(decoder, lambda: float(errors(decoder, held_out).mean())) if unprinted.keep_best else None
        optimiser = torch.optim.RMSprop(decoder.parameters(), lr=RATE, alpha=unprinted.decay)
        fit(decoder, optimiser, (epoch_losses(decoder, learnt) for _ in range(epochs)), best=best)
    committee = Committee([decoder]).eval()
    return start._replace(decoder=committee, validation_error=float(errors(committee, held_out).mean()))


def epoch_losses(decoder: nn.Module, learnt: Examples) -> Iterator[Tensor]:
    order = torch.randperm(len(learnt.features), device=learnt.features.device)
    for rows in torch.split(order, BATCH):
        wrong = decoder(learnt.features[rows]) - learnt.answers[rows]
        yield wrong.abs().mean() + wrong.square().mean()


def start_as_haiku(layer: nn.Module) -> None:
    """Initialise a linear layer as Haiku does."""
    if isinstance(layer, nn.Linear):
        deviation = layer.in_features**-0.5
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        nn.init.zeros_(layer.bias)
