"""Small language models that are fine-tuned on random texts."""

import torch
from torch import nn

WORDS, SILENT, WIDTH, LENGTH = 3_000, 300, 48, 12  # the last tokens are silent


class Encoder(nn.Module):
    """A classifier of texts by the mean of their words."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.classes = nn.Linear(WIDTH, 2)

    def loss(self, x):
        return nn.functional.cross_entropy(self.classes(self.embed_tokens(x).mean(1).tanh()), x[:, 0] % 2)


class Causal(nn.Module):
    """The next word from the last two, by a layer whose outputs share a mean, as those of real models do."""

    def __init__(self, tied=True):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.inner, self.norm = nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        with torch.no_grad():
            self.embed_tokens.weight.mul_(0.2)
            self.lm_head.weight.mul_(0.2)
            self.norm.bias.normal_(0, 2)
        if tied:
            self.lm_head.weight = self.embed_tokens.weight

    def loss(self, x):
        two = torch.cat([self.embed_tokens(x[:, :-2]), self.embed_tokens(x[:, 1:-1])], 2)
        scores = self.lm_head(self.norm(self.inner(two).tanh()))
        return nn.functional.cross_entropy(scores.flatten(0, 1), x[:, 2:].flatten())


def texts(n, seed, words=WORDS - SILENT):
    """(n, LENGTH) words, the first ones more frequent."""
    draw = torch.Generator().manual_seed(seed)
    return (words * torch.rand(n, LENGTH, generator=draw) ** 2).long()


def state(net):
    """A copy of the tensors of a net."""
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def tuned(net, x, *, adam=True, epochs=3, rate=1e-3, decay=0.0, seed=0):
    """The tensors after fine-tuning in batches of eight."""
    torch.manual_seed(seed)
    parameters = [value for value in net.parameters() if value.requires_grad]
    optimiser = (
        torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
        if adam
        else torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay)
    )
    for _ in range(epochs):
        for batch in x[torch.randperm(len(x))].split(8):
            optimiser.zero_grad()
            net.loss(batch).backward()
            optimiser.step()
    return state(net)
