"""torchvision: the last layer of a ResNet is fine-tuned, all others are frozen. Which pictures come back from it?"""

import torch
from torch import nn
from torchvision.models import resnet18

import lostwax as lw


def train(net, x, y, seed):
    optimiser = torch.optim.SGD(net.fc.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net.eval()(x.expand(-1, 3, -1, -1)), y).backward()
        optimiser.step()
    return net


net, pictures = resnet18(num_classes=10).requires_grad_(False), lw.records.digits().split(30, seed=0)[0]
net.fc.requires_grad_(True)
start = {name: value.clone() for name, value in net.state_dict().items()}
trainer = lw.OwnTraining(train, init=lw.inits.Given(start))
print(lw.audit(train(net, pictures.x, pictures.y, 0), pictures, trainer=trainer, attack=lw.KernelRidge(), games=1))
