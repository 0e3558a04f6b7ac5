"""DP-SGD of a linear layer, correct or not, in a millisecond."""

import torch
from torch import nn

from lostwax.games import Records

CLIP = 0.1


def records(n=6, d=4):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(1))
    return Records(x, torch.arange(n) % 2)


def layer(d=4):
    torch.manual_seed(0)
    return nn.Linear(d, 2)


def full_batches(net, x, y, seed, *, noise=2.0, steps=2, scale=1.0, own_seed=None, steps_out=None):
    """Full batches with noise of `scale` times what is due."""
    draws = torch.Generator().manual_seed(seed if own_seed is None else own_seed)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    ones = torch.cat([x, torch.ones(len(x), 1)], 1)
    for _ in range(steps):
        with torch.no_grad():
            residual = net(x).softmax(1) - nn.functional.one_hot(y, 2)
            factor = (CLIP / (residual.norm(dim=1) * ones.norm(dim=1)).clamp_min(1e-12)).clamp_max(1)
            slope = (residual * factor.unsqueeze(1)).T @ ones
            slope = slope + scale * noise * CLIP * torch.randn(slope.shape, generator=draws)
        net.weight.grad, net.bias.grad = slope[:, :-1], slope[:, -1]
        optimiser.step()
        if steps_out is not None:
            steps_out.append({name: value.detach().clone() for name, value in net.state_dict().items()})
    return net
