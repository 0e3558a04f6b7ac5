"""Clipped gradients of single records, against autograd on one record after the other."""

import pytest
import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.losses import CrossEntropy, SquaredHinge
from lostwax.nets import mlp
from lostwax.trainers.clipping import Ghost, PerRecord, Sample, slopes_along
from lostwax.trainers.stacked import Architecture, Batch, record_gradients
from trainers.game import cohort, convolutions

EXACT = {"rtol": 1e-10, "atol": 1e-12}
CHAINS = {
    "mlp": lambda: mlp(16, 5, 3),
    "deep, tanh, one layer without bias": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 5, bias=False), nn.LeakyReLU(), nn.Linear(5, 3)
    ),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)),
    "a bare layer": lambda: nn.Linear(16, 3),
    "a bare layer without bias": lambda: nn.Linear(16, 3, bias=False),
    "an activation below, one used twice": lambda: nn.Sequential(
        nn.Flatten(), nn.ELU(), nn.Linear(16, 4), same := nn.Sigmoid(), nn.Linear(4, 4), same, nn.Linear(4, 3)
    ),
    "nested activation": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(16, 5), nn.Sequential(nn.Tanh()), nn.Linear(5, 3)
    ),
}


def game(module, m=3):
    games = cohort(m)
    if type(module) is nn.Linear:
        flat = [Records(part.x.flatten(-3), part.y) for part in (games.shared, games.own)]
        games = Cohort(*flat, games.index)
    net = Architecture.of(module, torch.device("cpu"), torch.float64)
    one = games.shared.x[0]
    random = torch.Generator().manual_seed(0)
    params = {
        name: torch.stack([value + 0.3 * torch.randn(value.shape, generator=random).double() for _ in range(m)])
        for name, value in net.initial(one).items()
    }
    batch = Batch(((games.shared.x, games.shared.y),), ((games.own.x, games.own.y),))
    return net, params, batch, one


def slowly(net, loss, params, model, x, y):
    """The gradient of one record's loss in one model, by autograd."""
    leaves = {name: value[model].clone().requires_grad_() for name, value in params.items()}
    value = loss(net(leaves, x[None]), y[None]).sum()
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


def slow_norms_and_total(net, loss, params, batch, included, clip):
    ((x, y),), ((own_x, own_y),) = batch.shared, batch.own
    norms, totals = [], []
    for model in range(len(own_x)):
        records = [*zip(x, y, strict=True), *zip(own_x[model], own_y[model], strict=True)]
        counted = torch.cat([part[model] for part in included])
        gradients = [slowly(net, loss, params, model, *record) for record in records]
        lengths = torch.stack([torch.cat([g.flatten() for g in one.values()]).norm() for one in gradients])
        factors = counted * torch.clamp(clip / lengths, max=1)
        norms.append(lengths)
        totals.append({n: sum(f * one[n] for f, one in zip(factors, gradients, strict=True)) for n in params})
    return torch.stack(norms), {name: torch.stack([total[name] for total in totals]) for name in params}


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredHinge()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("clip", [0.5, float("inf")])
@pytest.mark.parametrize("make", [*CHAINS.values(), convolutions], ids=[*CHAINS, "convolutions"])
def test_norms_and_sums_are_those_of_the_slow_definition(make, clip, loss):
    net, params, batch, one = game(make())
    included = (torch.rand(3, 9).round().double(), torch.tensor([[1.0, 0], [0, 0], [1, 1]]).double())
    norms, total = slow_norms_and_total(net, loss, params, batch, included, clip)
    ways = [PerRecord()] if make is convolutions else [PerRecord(), Ghost.of(net, one)]
    for way in ways:
        torch.testing.assert_close(torch.cat(way.norms(net, loss, params, batch), 1), norms, **EXACT)
        got = way.total(net, loss, params, Sample(batch, included), clip)
        assert list(got) == list(params)
        for name in params:
            torch.testing.assert_close(got[name], total[name], **EXACT)


@pytest.mark.parametrize("make", [CHAINS["mlp"], convolutions], ids=["mlp", "convolutions"])
def test_the_slope_along_a_direction_is_an_inner_product(make):
    net, params, batch, _ = game(make())
    random = torch.Generator().manual_seed(1)
    direction = {name: torch.randn(value.shape, generator=random).double() for name, value in params.items()}
    gradients = record_gradients(net, CrossEntropy(), params, batch.own[0])
    wanted = sum(torch.einsum("mb...,m...->mb", gradients[name], direction[name]) for name in params)
    got = slopes_along(net, CrossEntropy(), params, direction, batch.own[0])
    torch.testing.assert_close(got, wanted, **EXACT)


@pytest.mark.parametrize("clip", [1e-3, 0.3, 10.0])
def test_no_record_counts_for_more_than_the_clip(clip):
    net, params, batch, one = game(mlp(16, 5, 3))
    for way in (PerRecord(), Ghost.of(net, one)):
        for record in range(9):
            alone = (torch.zeros(3, 9).double().index_fill(1, torch.tensor(record), 1.0), torch.zeros(3, 2).double())
            total = way.total(net, CrossEntropy(), params, Sample(batch, alone), clip)
            assert torch.cat([value.flatten(1) for value in total.values()], 1).norm(dim=1).max() <= clip * (1 + 1e-12)


WILD = {torch.float32: [1e-40, 1e-25, 1e10, 1e20, 1e30, 3e38], torch.float64: [1e-200, 1e20, 1e160, 1e250, 1.7e308]}


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredHinge()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("clip", [1e-3, 1.0])
@pytest.mark.parametrize("dtype", WILD)
@pytest.mark.parametrize("make", [*CHAINS.values(), convolutions], ids=[*CHAINS, "convolutions"])
def test_a_wild_record_counts_for_no_more_than_the_clip(make, dtype, clip, loss):
    """Records whose squares overflow, or whose gradient does: the sum stays finite, and each share within C."""
    module = make()
    _, exact, batch, one = game(module)
    params = {name: value.to(dtype) for name, value in exact.items()}
    for size in WILD[dtype]:
        ((x, y),) = batch.shared
        unit = x / x.flatten(1).amax(1).view(-1, *(1,) * (x.ndim - 1))
        wild = Batch((((unit * size).to(dtype), y),), ())
        ours = Architecture.of(module, torch.device("cpu"), dtype)
        for way in filter(None, (PerRecord(), Ghost.of(ours, one.to(dtype)))):
            for record in range(3):
                alone = (torch.zeros(3, 9, dtype=dtype).index_fill(1, torch.tensor(record), 1.0),)
                total = way.total(ours, loss, params, Sample(wild, alone), clip)
                share = torch.cat([value.double().flatten(1) for value in total.values()], 1)
                assert share.isfinite().all()
                assert share.norm(dim=1).max() <= clip * (1 + 1e-5)


@pytest.mark.parametrize("size", [1e10, 1e20, 1e30])
def test_a_large_gradient_is_clipped_and_not_dropped(size):
    """In the direction that float64 gives, where float32 would overflow."""
    net, params, batch, one = game(mlp(16, 5, 3))
    ((x, y),) = batch.shared
    lone = {name: value.float() for name, value in params.items()}
    for way in (PerRecord(), Ghost.of(net, one)):
        for chosen in range(3):
            exact = Batch(((size * x[chosen : chosen + 1], y[chosen : chosen + 1]),), ())
            rough = Batch(tuple((part.float(), label) for part, label in exact.shared), ())
            wanted = way.total(net, CrossEntropy(), params, Sample.whole(exact, 3), 0.5)
            got = way.total(net, CrossEntropy(), lone, Sample.whole(rough, 3), 0.5)
            for name, value in wanted.items():
                torch.testing.assert_close(got[name].double(), value, rtol=0, atol=1e-4)


def test_a_record_without_a_gradient_is_left_as_it_is():
    net = Architecture.of(nn.Sequential(nn.Linear(2, 3, bias=False)), torch.device("cpu"), torch.float64)
    batch = Batch(((torch.zeros(1, 2).double(), torch.tensor([0])),), ())
    params = {"0.weight": torch.ones(1, 3, 2).double()}
    for way in (PerRecord(), Ghost.of(net, torch.zeros(2).double())):
        total = way.total(net, CrossEntropy(), params, Sample.whole(batch, 1), 0.1)
        assert total["0.weight"].eq(0).all()


class Odd(nn.Sequential):
    """A Sequential with a forward of its own."""

    def forward(self, x):
        return super().forward(2 * x)


def test_only_plain_chains_of_linear_layers_have_ghost_norms():
    rows = nn.Sequential(nn.Flatten(2), nn.Linear(16, 3), nn.Flatten(), nn.Linear(3, 3))  # a layer over three axes
    tied = nn.Linear(16, 16)
    hooked = nn.Linear(16, 3)
    hooked.register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    frozen = nn.Sequential(nn.Flatten(), nn.Linear(16, 4).requires_grad_(False), nn.ELU(), nn.Linear(4, 3))
    for module in (
        convolutions(),
        rows,
        frozen,
        hooked,
        nn.Sequential(nn.Flatten(), tied, tied, nn.Linear(16, 3)),
        Odd(nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 3)),
    ):
        net, _, _, one = game(module)
        assert Ghost.of(net, one) is None
