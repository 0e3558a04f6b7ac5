"""What `kkt.py` attacks, and how: nets trained to the margin; KKT conditions, corners of pixels and of neurons."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor
from torch.nn.functional import softplus

import lostwax as lw
from lostwax.attacks.newton.corners import corners
from lostwax.files import read_tensors, write_tensors
from lostwax.learning.coordinates import Coordinates
from lostwax.seeds import generator

WIDTH, START = 1_000, 1e-4
LOSS = 1e-40  # where training ends
RATE = 0.1  # of training, for a loss of 1 and inputs of unit length
SMALL_LOSS = 1e-3  # below it steps shrink
TEMPLATES = 40  # per record
SURPLUS = 4  # zeros of a column beyond those that a ray needs
ZERO = 1e-8  # of a column's largest number

Array = NDArray[np.float64]


class Setting(NamedTuple):
    """Of one run of the KKT attack."""

    lr: float
    start: float  # scale of the first pictures
    least: float  # lambda_min
    sharpness: float  # alpha: the derivative of ReLU is taken to be sigmoid(alpha x)


LAMBDA_LR, MOMENTUM = 1e-4, 0.9
PUBLISHED = {  # for n = 500 and D-1000-1000-1, rounded
    "mnist": (Setting(0.0305, 0.0350, 0.447, 150.0), Setting(0.282, 0.00174, 0.415, 19.2)),
    "cifar10": (Setting(0.555, 0.000886, 0.498, 19.1), Setting(0.346, 0.00447, 0.494, 21.7)),
}


@dataclass(frozen=True)
class Game:
    """One net."""

    data: str
    size: int  # n
    deep: bool = False

    @property
    def words(self) -> str:
        """What is trained."""
        return f"{self.size} pictures, D-{WIDTH}-{f'{WIDTH}-' * self.deep}1"


GAMES = {
    f"{short}_{size}{'_deep' * deep}": Game(data, size, deep)
    for deep in (False, True)
    for short, data in (("mnist", "mnist"), ("cifar", "cifar10"))
    for size in (10, 50, 100, 500)
}


class Net(NamedTuple):
    """theta: a homogeneous net up to the first biases."""

    first: Tensor  # (h, d + 1) weights and bias
    hidden: tuple[Tensor, ...]  # (h, h)
    last: Tensor  # (h,)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.first, *self.hidden, self.last)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Net:
        return cls(tensors[0], tuple(tensors[1:-1]), tensors[-1])

    def to(self, like: Tensor) -> Net:
        return Net.of([tensor.to(like) for tensor in self.tensors])


class Pictures(NamedTuple):
    """The training set, and others of its kind."""

    x: Tensor  # (n, c, height, width) in [0, 1]
    y: Tensor  # (n,) -1 or 1
    others: Tensor  # (o, c, height, width)

    @property
    def mean(self) -> Tensor:
        return self.x.mean(0)

    @property
    def inputs(self) -> Tensor:
        """(n, d + 1) what the net reads."""
        flat = (self.x - self.mean).flatten(1)
        return torch.cat([flat, torch.ones_like(flat[:, :1])], 1)


class Trained(NamedTuple):
    start: Net
    end: Net
    loss: float
    alignment: float  # cosine of theta and -grad loss: 1 at a KKT point
    seconds: float


def pictures(game: Game, options: argparse.Namespace) -> Pictures:
    """n / 2 of each class, and as many other pictures as the KKT attack has candidates."""
    records = {"mnist": lw.records.mnist, "cifar10": lw.records.cifar10}[game.data]("train", root=options.data)
    positive = records.y % 2 == 0 if game.data == "mnist" else (records.y >= 2) & (records.y <= 7)  # animals
    order = torch.from_numpy(generator(options.seed, "deal", game.data, game.size).permutation(len(records)))
    drawn = torch.cat([order[~positive[order]][: game.size // 2], order[positive[order]][: game.size // 2]])
    left = order[~torch.isin(order, drawn)][: 2 * game.size * options.runs]
    x, others = (records.x[some].to(options.device, torch.float64) for some in (drawn, left))
    return Pictures(x, torch.where(positive[drawn], 1.0, -1.0).to(x), others)


def started(game: Game, numbers: int, options: argparse.Namespace) -> Net:
    """The first layer small, the others as torch draws them."""
    draws = generator(options.seed, "start", game.data, game.size, int(game.deep))
    first = START * draws.standard_normal((WIDTH, numbers + 1))
    later = [draws.uniform(-1, 1, shape) / math.sqrt(WIDTH) for shape in [(WIDTH, WIDTH)] * game.deep + [(WIDTH,)]]
    return Net.of([torch.from_numpy(array).to(options.device) for array in (first, *later)])


def outputs(net: Net, inputs: Tensor) -> Tensor:
    """Phi, (n,)."""
    values = (inputs @ net.first.mT).relu()
    for layer in net.hidden:
        values = (values @ layer.mT).relu()
    return values @ net.last


def train(game: Game, own: Pictures, options: argparse.Namespace) -> Trained:
    """Full-batch gradient descent, its rate divided by the loss (Lyu and Li 2020).

    The margin is about -log loss, and the curvature grows with it: steps shrink as it grows.
    """
    begun, start = time.perf_counter(), started(game, own.x[0].numel(), options)
    net = Net.of([tensor.clone().requires_grad_() for tensor in start.tensors])
    inputs = own.inputs
    rate = RATE / float(inputs.square().sum(1).mean())
    for _ in range(options.steps):
        loss = softplus(-own.y * outputs(net, inputs)).mean()
        slopes = torch.autograd.grad(loss, net.tensors)
        if (reached := loss.item()) < LOSS:
            break
        shrunk = math.log(SMALL_LOSS) / math.log(reached) if reached < SMALL_LOSS else 1.0
        with torch.no_grad():
            for tensor, slope in zip(net.tensors, slopes, strict=True):
                tensor -= rate * shrunk / reached * slope
    theta, slope = (torch.cat([part.flatten() for part in parts]) for parts in (net.tensors, slopes))
    alignment = -float(theta.detach() / theta.detach().norm() @ slope / slope.norm())  # of very small slopes too
    end = Net.of([tensor.detach() for tensor in net.tensors])
    return Trained(start, end, reached, alignment, time.perf_counter() - begun)


def trained(name: str, own: Pictures, options: argparse.Namespace) -> Trained:
    """Read from the folder of nets, or trained and written there."""
    path = None if options.nets is None else Path(options.nets) / f"{name}.{options.seed}.safetensors"
    if path is not None and path.exists():
        kept = read_tensors("kkt", path, options.device)
        count = (len(kept) - 1) // 2
        start, end = (Net.of([kept[f"{part}.{k}"] for k in range(count)]) for part in ("start", "end"))
        return Trained(start, end, *kept["numbers"].tolist())
    made = train(GAMES[name], own, options)
    if path is not None:
        tensors = {f"{part}.{k}": one for part in ("start", "end") for k, one in enumerate(getattr(made, part).tensors)}
        write_tensors(path, tensors | {"numbers": torch.tensor(made[2:], dtype=torch.float64)})
    return made


class _SmoothReLU(torch.autograd.Function):
    """ReLU with the derivative sigmoid(alpha x)."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, values: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return values.relu()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None


def stationarity(net: Net, inputs: Tensor, weight: Tensor, sharpness: Tensor) -> Tensor:
    """|theta - sum_i weight_i grad Phi(x_i)|^2 for each run; inputs (runs, m, d + 1), weight (runs, m).

    The sum over i is written out, with sigmoid(alpha x) for every derivative of ReLU: one pass backwards remains.
    """
    values, slopes, reads = inputs, [], [inputs]
    for layer in (net.first, *net.hidden):
        before = values @ layer.mT  # (runs, m, h)
        slopes.append((sharpness * before).sigmoid())
        values = _SmoothReLU.apply(before, slopes[-1].detach())
        reads.append(values)
    loss = (net.last - (weight.unsqueeze(2) * values).sum(1)).square().sum(1)
    error = weight.unsqueeze(2) * net.last * slopes[-1]  # (runs, m, h): weight dPhi / d before
    for layer, read, slope in zip(reversed(net.hidden), reversed(reads[1:-1]), reversed(slopes[:-1]), strict=True):
        loss = loss + (layer - error.mT @ read).square().sum((1, 2))
        error = (error @ layer) * slope
    return loss + (net.first - error.mT @ inputs).square().sum((1, 2))


def settings(game: Game, options: argparse.Namespace) -> list[Setting]:
    """The published ones, and draws from the ranges of their search."""
    draws = generator(options.seed, "settings", game.data, game.size, int(game.deep))
    drawn = [
        Setting(
            10 ** draws.uniform(-5, 0), 10 ** draws.uniform(-6, -1), draws.uniform(0.01, 0.5), draws.uniform(10, 500)
        )
        for _ in range(options.runs)
    ]
    return [*PUBLISHED[game.data], *drawn][: options.runs]


class Candidates(NamedTuple):
    x: Tensor  # (c, d) less the mean
    steps: int = 0
    doubtful: Tensor | None = None  # (e, d) less the mean: no answers


def by_kkt(net: Net, game: Game, options: argparse.Namespace, basis: Tensor | None = None) -> Candidates:
    """Haim et al.'s attack; with an orthonormal basis (r, d), within its span."""
    chosen, m = settings(game, options), 2 * game.size
    lr, scale, least, sharpness = torch.tensor(chosen, device=options.device).T.reshape(4, -1, 1, 1)
    draws = generator(options.seed, "candidates", game.data, game.size)
    net = net.to(torch.zeros((), device=options.device))
    x = torch.from_numpy(draws.standard_normal((len(chosen), m, net.first.shape[1] - 1), np.float32))
    x = scale * x.to(options.device)
    if basis is not None:  # the same steps, in fewer numbers; what is left out of the layer is constant
        basis = basis.to(x)
        x = x @ basis.mT
        net = net._replace(first=torch.cat([net.first[:, :-1] @ basis.mT, net.first[:, -1:]], 1))
    weight = torch.from_numpy(draws.random((len(chosen), m), np.float32)).to(options.device)
    labels = torch.where(torch.arange(m, device=options.device) < m // 2, -1.0, 1.0)
    ones, unknowns = torch.ones_like(x[..., :1]), (x.requires_grad_(), weight.requires_grad_())
    rates, speeds = (lr, LAMBDA_LR), [torch.zeros_like(x), torch.zeros_like(weight)]
    begun, step = time.perf_counter(), 0
    for step in range(1, options.iterations + 1):
        loss = stationarity(net, torch.cat([x, ones], 2), weight * labels / m, sharpness).sum()
        pixels = x if basis is None else x @ basis
        loss = loss + (pixels.abs() - 1).relu().square().sum() + 5 * (least[..., 0] - weight).relu().square().sum()
        with torch.no_grad():
            for one, rate, speed, slope in zip(
                unknowns, rates, speeds, torch.autograd.grad(loss, unknowns), strict=True
            ):
                one -= rate * speed.mul_(MOMENTUM).add_(slope)
        if step % 50 == 0:
            float(loss.detach())  # waits for the GPU
            if time.perf_counter() - begun > options.seconds:
                break
    found = (x.detach() if basis is None else x.detach() @ basis).flatten(0, 1).double()
    return Candidates(found[found.isfinite().all(1)], step)


def standing_out(first: Tensor) -> Tensor:
    """(r, d) orthonormal: the space of a layer's weights above the noise of its start, of unknown size.

    Singular values count above 1.1 times the largest of noise, (sqrt(h) + sqrt(d)) sigma, with sigma from the median,
    as if most were noise (Gavish and Donoho 2014).
    """
    weights = first[:, :-1]
    _, sizes, rows = torch.linalg.svd(weights, full_matrices=False)
    smaller, larger = sorted(weights.shape)
    draws = torch.from_numpy(generator(0, "noise").standard_normal((smaller, larger))).to(weights)
    typical = float(torch.linalg.svdvals(draws).median())
    edge = 1.1 * float(sizes.median()) / typical * (math.sqrt(smaller) + math.sqrt(larger))
    return rows[: int((sizes > edge).sum())]


def by_span(net: Net, game: Game, options: argparse.Namespace) -> Candidates:
    """The KKT attack in the space that the first layer shows; none if it shows none."""
    basis = standing_out(net.first)
    print(f"  {len(basis)} directions stand out", flush=True)
    return by_kkt(net, game, options, basis) if len(basis) else Candidates(basis)


def by_corners(moved: Tensor, game: Game, mean: Tensor, seed: int) -> Candidates:
    """Pictures in [0, 1] that are corners of the span of the layer's move (h, d + 1); doubtful ones apart."""
    moved, mean = moved.cpu(), mean.cpu().flatten()
    _, sizes, rows = torch.linalg.svd(moved, full_matrices=False)
    if not _determined(sizes, game.size):
        return Candidates(moved[:0, :-1])
    basis = rows[: game.size]  # [x, 1] = m basis
    turn = torch.linalg.svd(basis[:, -1:].mT, full_matrices=True).Vh  # the first row along the last column
    origin = (turn[0] @ basis)[:-1] / (turn[0] @ basis[:, -1]) + mean
    anywhere = torch.full((game.size - 1,), torch.inf, dtype=torch.float64)
    space = Coordinates(origin, turn[1:] @ basis[:, :-1], -anywhere, anywhere)
    draws, count = generator(seed, "templates", game.data, game.size), TEMPLATES * game.size
    templates = torch.from_numpy(np.maximum(draws.uniform(-2, 1, (count, len(mean))), 0))  # two thirds black
    found = corners(space, torch.zeros_like(mean), torch.ones_like(mean), templates, game.size, 0.0)
    return Candidates(space(found.sure) - mean, doubtful=space(found.doubtful) - mean)


def by_neurons(start: Net, end: Net, game: Game, options: argparse.Namespace) -> Candidates:
    """Records of a net with one hidden layer that agree with the neurons they activate; none if rays are missing."""
    kept = (start.last * end.last > 0) & (end.last.abs() > 1e-3 * end.last.abs().max())
    before, after, last = (part[kept].cpu() for part in (start.first, end.first, end.last))
    moved = (after - before) / last.unsqueeze(1)
    draws = generator(options.seed, "templates", game.data, game.size)
    found = records_by_neurons(moved, game.size, draws, options.search)
    if found is None:
        return Candidates(moved[:0, :-1])
    inputs = torch.cat([found.x, torch.ones_like(found.x[:, :1])], 1)
    values = torch.maximum(before @ inputs.mT, after @ inputs.mT)  # (h, n) at the start or at the end
    untouched = found.columns < ZERO * found.columns.amax(0)
    return Candidates(found.x[~((values > ZERO * values.abs().amax(0)) & untouched).any(0)])


class Found(NamedTuple):
    x: Tensor  # (n, d)
    y: Tensor  # (n,)
    columns: Tensor  # (h, n) m


def records_by_neurons(moved: Tensor, count: int, draws: np.random.Generator, seconds: float = 60.0) -> Found | None:
    """Inputs and labels from the move of the hidden layer (h, d + 1), divided by the last weights.

    With one hidden layer and one output, full-batch descent moves neuron j by

        W_j - W_j(0)  =  v_j sum_i m_ji y_i [x_i, 1],     m_ji >= 0,   m_ji = 0 if record i never activated the neuron,

    as long as v_j keeps its sign. So the column m_i is >= 0, has many zeros, and lies in the n-dimensional space of the
    columns of the move: it is a ray of a cone that more neurons hold in place than a ray needs. Linear programs find
    the rays. With all n, least squares gives  y_i [x_i, 1]  up to a factor, which the last number tells. Neither
    pixels' range nor labels, steps, rates or their number are used. None if not all rays are found in
    `seconds`.

    If one record activates all neurons that another does, its column is no ray: a ray is then their difference, and the
    second record comes out mixed with the first. Such an answer disagrees with its own column about which neurons it
    activates: `by_neurons` leaves it out.
    """
    left, sizes, _ = torch.linalg.svd(moved, full_matrices=False)
    if not _determined(sizes, count):
        return None
    span = left[:, :count].numpy()  # (h, n)
    lengths = np.linalg.norm(span, axis=1, keepdims=True)
    used = lengths[:, 0] > 0  # a neuron that no record activated says nothing
    cone = (span / np.where(lengths > 0, lengths, 1))[used]
    rays: list[Array] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        active = cone @ draws.standard_normal(count) > 0  # as if for a record drawn at random in the span
        towards = cone[active].sum(0)
        if rays:  # 0 on the rays that are found
            found = np.stack(rays, 1)
            towards = towards - found @ np.linalg.lstsq(found, towards, rcond=None)[0]
        ray = _sparsest(cone, np.where(active, 0.02, 1.0), towards)
        if ray is not None and all(np.linalg.norm(ray - one) > 1e-6 for one in rays):
            rays.append(ray)
        if len(rays) == count:
            break
    else:
        return None
    columns = torch.from_numpy(span @ np.stack(rays, 1))
    scaled = torch.linalg.lstsq(columns, moved, driver="gelsd").solution  # y_i [x_i, 1] times a positive number
    return Found(scaled[:, :-1] / scaled[:, -1:], scaled[:, -1].sign(), columns)


def _sparsest(cone: Array, price: Array, towards: Array) -> Array | None:
    """(n,) a unit ray q of  cone q >= 0,  towards q > 0  with more zeros than a ray needs, by reweighted programs."""
    none = np.zeros(len(cone))
    for near in (0.3, 0.1, 0.03, 0.01, 0.003):
        solved = linprog(price @ cone, A_ub=-cone, b_ub=none, A_eq=towards[None], b_eq=[1.0], bounds=(None, None))
        if solved.x is None:
            return None
        column = cone @ solved.x
        zeros = cone[column < ZERO * column.max()]
        if len(zeros) >= len(towards) - 1 + SURPLUS:
            _, sizes, directions = np.linalg.svd(zeros, full_matrices=True)
            if sizes[-2] > 1e-6 * sizes[0] and sizes[-1] < 1e-7 * sizes[0]:  # they leave one direction
                ray: Array = directions[-1]
                return ray if ray @ solved.x > 0 else -ray
        price = 1 / (np.maximum(column, 0) / column.max() + near)
    return None


def _determined(sizes: Tensor, count: int) -> bool:
    """True if n singular values and no more are above rounding."""
    return len(sizes) > count and int((sizes > 1e-12 * sizes[0]).sum()) == count
