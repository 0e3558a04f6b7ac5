"""S1's reconstructor for MNIST as its Table V prints it: RMSProp on MAE + MSE, batches of 128, no noise on the weights.

`lw.RecoNN` learns by AdamW on one cycle and keeps the weights that read held-out models best; here the last ones stay.
The learning rate is 1e-3 and never changes, RMSProp's other constants are torch's. A thirtieth of the prior is held out
as in our recipe, so the decoder learns from 57,033 shadow models of 59,000.
"""

from __future__ import annotations

import torch

import lostwax as lw
from lostwax.attacks.reconn import Trained
from lostwax.games import Knowledge
from lostwax.learning.decoders import Committee
from lostwax.learning.shadow_tables import shadow_tables
from lostwax.learning.training import Examples, errors

BATCH, RATE = 128, 1e-3


def prepare_as_printed(knowledge: Knowledge, *, width: int, epochs: int, validation: float, seed: int) -> Trained:
    """Train the shadows and the decoder; held-out records of the prior are for `validation_error` alone."""
    decoder = lw.decoders.MLPDecoder(width=width, input_noise=0.0)
    attack = lw.RecoNN(decoder=decoder, epochs=1, batch_size=BATCH, validation=validation)
    facts, shadows, unseen = shadow_tables(attack, knowledge, seed)
    start = attack.learn(facts, shadows, unseen, seed=seed)  # for its scale and its labels: the decoder is made anew
    scale, span = start.standardise, start.span
    learnt, held_out = (
        Examples(scale(table.seen, span.shift.dtype), span.shares(table.records.x), table.records.y, table.target_mask)
        for table in (shadows, unseen)
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = attack.decoder_for(facts, scale, span).to(span.shift)
        optimiser = torch.optim.RMSprop(fresh.parameters(), lr=RATE)
        for _ in range(epochs):
            order = torch.randperm(len(learnt.features), device=span.shift.device)
            for rows in torch.split(order, BATCH):
                wrong = fresh(learnt.features[rows]) - learnt.answers[rows]
                optimiser.zero_grad()
                torch.autograd.backward(wrong.abs().mean() + wrong.square().mean())
                optimiser.step()
    committee = Committee([fresh]).eval()
    return start._replace(decoder=committee, validation_error=float(errors(committee, held_out).mean()))
