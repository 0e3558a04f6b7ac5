"""Teaching a net to read records off heads (S2 section 3.1), each head seen once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.reconn.saved_folder import part
from lostwax.attacks.reconn.shadow_table import adversary_seed
from lostwax.attacks.reconn.terms import Criterion
from lostwax.attacks.reconn.training import torch_seed
from lostwax.attacks.weak_reconn.checkpoint import Checkpoint, optimiser_tensors, restore_optimiser
from lostwax.attacks.weak_reconn.heads import Heads
from lostwax.attacks.weak_reconn.sought import Sought, mean_errors, nearest, of_others, softmin
from lostwax.progress import progress

if TYPE_CHECKING:
    from lostwax.attacks.weak_reconn.attack import WeakRecoNN

LEG = 256  # steps between two looks at unseen heads, at most
LEGS = 10  # at least
WARMUP = 0.05  # of the training, in which the learning rate rises
LARGEST_STEP = 1.0  # the norm to which a gradient is clipped: a batch of odd heads undoes no more than another
SECONDS = 60  # between two checkpoints, at least
HEADS_AT_A_TIME = 128


class ReadAndDecode(nn.Module):
    """A reader, and a decoder for all guesses at once: (m, tokens, numbers) -> (m, guesses, ...)."""

    def __init__(self, reader: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.reader, self.decoder = reader, decoder

    def forward(self, tokens: Tensor) -> Tensor:
        """Guesses are folded into the batch."""
        features: Tensor = self.reader(tokens)  # (m, g, features)
        answers: Tensor = self.decoder(features.flatten(0, 1))
        return answers.view(*features.shape[:2], *answers.shape[1:])


class Lessons(NamedTuple):
    """What there is to learn from."""

    heads: Heads
    unseen: tuple[Tensor, Tensor]  # other heads, of records kept from learning, and their secrets
    sought: Sought
    unit: float  # of the loss, in the decoder's coordinates: S2's pixels lie in [-1, 1], which is twice [0, 1]


@dataclass
class _Course:
    """How far a training has come."""

    net: ReadAndDecode
    optimiser: torch.optim.Optimizer
    best: float  # on unseen heads, see `_judge`
    kept: dict[str, Tensor]  # the weights that made it
    step: int = 0
    started: float = field(default_factory=time.perf_counter)
    written: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """That it has taken, in all its runs."""
        return time.perf_counter() - self.started

    def done(self, attack: WeakRecoNN, *, into: float = 0.0) -> float:
        """The share that is over, so far `into` the step: of the steps, or of the minutes if that is more."""
        by_time = 0.0 if attack.minutes is None else self.seconds / (60 * attack.minutes)
        return max((self.step + into) / attack.steps, by_time)

    def look(self, judged: float) -> None:
        """Keep the weights that read unseen heads best."""
        if judged < self.best:
            self.best, self.kept = judged, deepcopy(self.net.state_dict())

    def save(self, to: Checkpoint) -> None:
        """Everything that the next leg depends on."""
        numbers = torch.tensor([self.step, self.seconds, self.best], dtype=torch.float64)
        groups = {"net": self.net.state_dict(), "kept": self.kept, "optimiser": optimiser_tensors(self.optimiser)}
        tensors = {f"{group}.{name}": value for group, held in groups.items() for name, value in held.items()}
        to.write({**tensors, "numbers": numbers})
        self.written = time.perf_counter()

    def resume(self, tensors: dict[str, Tensor]) -> None:
        """As it was saved."""
        step, seconds, self.best = tensors["numbers"].tolist()
        self.step, self.started, self.kept = int(step), time.perf_counter() - seconds, part(tensors, "kept.")
        self.net.load_state_dict(part(tensors, "net."))
        restore_optimiser(self.optimiser, part(tensors, "optimiser."))


def train(
    net: ReadAndDecode, lessons: Lessons, attack: WeakRecoNN, checkpoint: Checkpoint | None, *, seed: int
) -> None:
    """Fit the net in place, to the weights that read unseen heads best, be it those it came with (see tune).

    AdamW, the learning rate a straight line up and half a cosine down over the steps, or over the minutes. Legs of
    fixed length have draws of their own: one that is taken up again from a checkpoint is the same leg.
    """
    device = lessons.unseen[0].device
    optimiser = torch.optim.AdamW(net.parameters(), lr=attack.lr, fused=device.type == "cuda")
    course = _Course(net, optimiser, _judge(net, lessons, attack), deepcopy(net.state_dict()))
    if checkpoint is not None and (saved := checkpoint.read(device)) is not None:
        course.resume(saved)
    run = torch.compile(net) if attack.compile else net
    with torch_seed(adversary_seed(seed, "terms"), device):
        criteria = [term.begin(lessons.unseen[1].flatten(0, 1)) for term in attack.terms]
    leg = min(LEG, -(-attack.steps // LEGS))
    with progress("reconstructor steps", attack.steps) as advance:
        advance(course.step)
        while course.done(attack) < 1:
            steps = range(course.step, min(course.step + leg, attack.steps))
            draws = torch_seed(adversary_seed(seed, f"leg {course.step}"), device)
            with draws, torch.backends.cudnn.flags(enabled=True, benchmark=True):  # of one shape, step after step
                _learn(course, run, steps, lessons, criteria, attack)
            advance(course.step - steps.start)
            course.look(_judge(net, lessons, attack))  # waits for the device
            due = course.done(attack) >= 1 or time.perf_counter() - course.written > SECONDS
            if checkpoint is not None and due:
                course.save(checkpoint)
    net.load_state_dict(course.kept)
    net.eval()


def _learn(
    course: _Course,
    run: Callable[[Tensor], Tensor],
    steps: range,
    lessons: Lessons,
    criteria: Sequence[Criterion],
    attack: WeakRecoNN,
) -> None:
    """One leg, or less where the minutes are over."""
    net, optimiser, device = course.net, course.optimiser, lessons.unseen[0].device
    halved = torch.autocast(device.type, torch.bfloat16, enabled=attack.half and device.type == "cuda")
    net.train()
    for tokens, secrets in lessons.heads.batches(steps, attack.batch_size, attack.shadows):
        if course.done(attack) >= 1:
            break
        done = course.done(attack, into=0.5)  # its middle: at 0 the clock would set the rate of the first step
        for group in optimiser.param_groups:
            group["lr"] = attack.lr * min(done / WARMUP, 1.0) * (1 + math.cos(math.pi * done)) / 2
        with halved:
            answers = run(tokens)
        loss = loss_of(answers.to(secrets.dtype), secrets, lessons, criteria, attack)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(net.parameters(), LARGEST_STEP)
        optimiser.step()
        course.step += 1
    net.eval()


def loss_of(
    answers: Tensor, secrets: Tensor, lessons: Lessons, criteria: Sequence[Criterion], attack: WeakRecoNN
) -> Tensor:
    """The loss of guesses (b, g, ...) for the secrets of their heads (b, k, ...), a number."""
    unit, sought = lessons.unit, lessons.sought
    wanted = sought.of_each(secrets)  # (b, g, r, ...)

    def wrong(records: Tensor) -> Tensor:  # (b, g), S2 Eq. 3
        squared, absolute = mean_errors(unit * answers, unit * records)  # (b, g, r) each
        return softmin(attack.mse * squared + attack.mae * absolute, sought.counted, attack.softmin)

    loss = attack.aim(wrong(wanted), wrong(of_others(wanted)))
    if criteria:
        _, place = nearest(mean_errors(answers, wanted)[0], sought.counted)  # (b, g)
        rows = [torch.arange(size, device=place.device) for size in place.shape]
        truth = wanted[rows[0][:, None], rows[1], place].flatten(0, 1)  # (b g, ...)
        for criterion in criteria:
            loss = loss + criterion(answers.flatten(0, 1), truth)
    return loss


def _judge(net: ReadAndDecode, lessons: Lessons, attack: WeakRecoNN) -> float:
    """By which weights are kept: what is aimed at, of the squared errors on unseen heads."""
    own, chance = (lessons.unit**2 * wrong for wrong in errors(net, lessons))  # (m, g) each
    return float(attack.aim(own, chance))


@torch.no_grad()
def answer(net: nn.Module, tokens: Tensor) -> Tensor:
    """(m, g, ...) what the net makes of the heads, some at a time."""
    return torch.cat([net(some) for some in torch.split(tokens, HEADS_AT_A_TIME)])


class Errors(NamedTuple):
    """Mean squared errors to the nearest secret of the guess's class."""

    own: Tensor  # (m, g)
    chance: Tensor  # (m, g) where the secrets are those of another head


def errors(net: nn.Module, lessons: Lessons) -> Errors:
    """On unseen heads."""
    tokens, secrets = lessons.unseen
    sought, parts = lessons.sought, []
    wanted = sought.of_each(secrets)  # (m, g, r, ...)
    cut = (torch.split(whole, HEADS_AT_A_TIME) for whole in (tokens, wanted, of_others(wanted)))
    for some, *whose in zip(*cut, strict=True):
        answers = answer(net, some)
        parts.append([nearest(mean_errors(answers, one)[0], sought.counted)[0] for one in whose])
    return Errors(*(torch.cat(each) for each in zip(*parts, strict=True)))
