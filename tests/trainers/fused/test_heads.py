"""All steps in one kernel give the heads that go step by step."""

import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.inits import Normal, TorchDefault
from lostwax.losses import CrossEntropy, SquaredError
from lostwax.schedules import Cosine
from lostwax.trainers import GD
from lostwax.trainers import gram as heads
from lostwax.trainers.gram import Head
from lostwax.trainers.stacked import Architecture

S2 = GD(lr=0.05, weight_decay=1e-2, steps=8, init=Normal(0.1, seed=None))
TRAINERS = {
    "plain": S2,
    "momentum and a schedule": replace(S2, momentum=0.9, schedule=Cosine(warmup=2), init=TorchDefault(seed=None)),
    "no decay": replace(S2, weight_decay=0.0, lr=1.0),
}
SIZES = {"S2's": (10, 10), "as large as a tile": (16, 16), "many records": (40, 10), "many classes": (7, 40)}


def games(m, records, classes, *, features=70):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(m, records, features, generator=random)
    y = torch.randint(classes, (m, records), generator=random)
    return Cohort(Records(x[0, :0], y[0, :0]), Records(x, y), torch.arange(m)), nn.Linear(features, classes)


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_kernel_takes_all_steps(trainer, size, monkeypatch):
    """By Triton's interpreter (see conftest.py)."""
    pytest.importorskip("triton", reason="Triton comes with torch on Linux")
    cohort, net = games(3, *size)
    theirs = trainer(net, cohort, seed=0).params
    monkeypatch.setattr(heads, "has_kernel", lambda dual, loss: True)
    monkeypatch.setattr(GD, "update", None)  # not called
    for name, value in trainer(net, cohort, seed=0).params.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-5, atol=1e-6)


class Parity(CrossEntropy):
    """A loss that looks at the labels in its own way."""

    def residual(self, outputs, y):
        return super().residual(outputs, y % 2)


def test_only_what_it_was_made_for_goes_through_it():
    pytest.importorskip("triton", reason="Triton comes with torch on Linux")
    cohort, net = games(2, 5, 4)
    ours = Architecture.of(net, torch.device("cpu"), torch.float32)
    dual = Head.of(ours, cohort).dual(ours.initial(cohort.own.x), cohort)
    on_gpu = dual._replace(gram=OnGPU(dual.gram))
    assert heads.has_kernel(on_gpu, S2.loss)
    assert not heads.has_kernel(dual, S2.loss)
    assert not heads.has_kernel(on_gpu, SquaredError())
    assert not heads.has_kernel(on_gpu, Parity())
    assert not heads.has_kernel(on_gpu._replace(outputs=torch.zeros(2, 4, 65)), S2.loss)
    assert not heads.has_kernel(on_gpu._replace(gram=OnGPU(dual.gram.double())), S2.loss)
    behind = dual.head._replace(later=Architecture(nn.Sequential(), {}))
    assert not heads.has_kernel(on_gpu._replace(head=behind), S2.loss)


class OnGPU:
    """A tensor that says so."""

    def __init__(self, tensor):
        self.dtype, self.is_cuda = tensor.dtype, True


@pytest.mark.gpu
@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_compiled_it_gives_the_heads_of_a_cpu(trainer, size):
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    cohort, net = games(300, *size)
    there = Cohort(cohort.shared.to("cuda"), cohort.own.to("cuda"), cohort.index.cuda())
    ours, theirs = trainer(net, there, seed=0).params, trainer(net, cohort, seed=0).params
    for name, value in ours.items():
        torch.testing.assert_close(value.cpu(), theirs[name], rtol=1e-4, atol=1e-5)
    again = trainer(net, there[100:], seed=0).params["weight"]
    torch.testing.assert_close(again, ours["weight"][100:], rtol=1e-5, atol=1e-6)
