"""The slow definition: one model after the other, autograd of the loss, torch.optim."""

from copy import deepcopy

import numpy as np
import torch

from lostwax.seeds import generator, key
from lostwax.trainers import GD, SGD, Adam, AdamW
from lostwax.trainers.stacked import flat


def optimiser(trainer, parameters):
    match trainer:
        case GD() | SGD():
            return torch.optim.SGD(
                parameters, lr=trainer.lr, momentum=trainer.momentum, weight_decay=trainer.weight_decay
            )
        case Adam():
            kind = torch.optim.Adam
        case AdamW():
            kind = torch.optim.AdamW
    return kind(parameters, lr=trainer.lr, betas=trainer.betas, eps=trainer.eps, weight_decay=trainer.weight_decay)


def batches(trainer, n, number, seed):
    """Positions in shared-then-own, batch by batch."""
    size = getattr(trainer, "batch_size", None)
    for epoch in range(trainer.steps if isinstance(trainer, GD) else trainer.epochs):
        if size is None:
            yield torch.arange(n)
            continue
        public = trainer.order_seed is not None
        if public:
            order = generator(trainer.order_seed, "order", epoch).permutation(n)
        else:  # as 64 bits of each record sort them, by the model's own count
            bits = np.random.Philox(key=key(seed, "order", epoch), counter=number << 128).random_raw(n)
            order = bits.view(np.int64).argsort(kind="stable")
        for start in range(0, n, size):
            yield torch.from_numpy(order[start : start + size])


def train_alone(trainer, net, cohort, row, *, seed):
    """The parameters after training, and those before each step with the gradient there."""
    number = int(cohort.index[row])
    model = deepcopy(net).to(trainer.computes_in(net))
    start = trainer.init(net, [number], seed=seed)
    model.load_state_dict({name: value[0] for name, value in start.items()}, strict=False)
    x = torch.cat([cohort.shared.inputs, cohort.own.inputs[row]]).to(trainer.computes_in(net))
    y = torch.cat([cohort.shared.y, cohort.own.y[row]])
    plan = list(batches(trainer, len(x), number, seed))
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    torch_optimiser = optimiser(trainer, parameters.values())
    rate = torch.optim.lr_scheduler.LambdaLR(torch_optimiser, lambda step: trainer.schedule(step, len(plan)))
    history = []
    for rows in plan:
        torch_optimiser.zero_grad()
        trainer.loss(model(x[rows]), y[rows]).mean().backward()
        history.append(
            (
                {name: value.detach().clone() for name, value in parameters.items()},
                {name: value.grad.clone() for name, value in parameters.items()},
            )
        )
        torch_optimiser.step()
        rate.step()
    return {name: value.detach() for name, value in parameters.items()}, history


def tangents(base, records):
    """(m, p) delta theta_T of each record by linear response, forward, step by step."""
    records = base.inputs(records)
    moved = base.states[0].zeros(len(records))
    for step in base.steps():
        push = base.known_answer(step, moved.params)
        if step.secret:
            slopes = base.slopes(step, records)
            push = {name: value + slopes[name] / step.size for name, value in push.items()}
        moved = base.moved(step, moved, push)
    return flat(moved.params)
