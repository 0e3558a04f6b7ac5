"""Teaching a net to read records off heads (S2 section 3.1), each head seen once."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax import files
from lostwax.attacks.weak.heads import Heads
from lostwax.attacks.weak.objectives import Sought, mean_errors, nearest, of_others, softmin
from lostwax.files import read_tensors, write_tensors
from lostwax.games import Knowledge, Records, Release
from lostwax.inits import trainable
from lostwax.learning.decoders import Span
from lostwax.learning.saving import part
from lostwax.learning.shadow_tables import adversary_seed
from lostwax.learning.training import Criterion, torch_seed
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.shadows import Game

if TYPE_CHECKING:
    from lostwax.attacks.weak.attack import WeakRecoNN


# A training that was cut goes on where it was: its state on disk, without pickle, and whose it is.


STATE, OWNER = "state.safetensors", "belongs_to.json"


class Checkpoint(NamedTuple):
    """A folder that belongs to one training, told in words."""

    folder: Path

    @classmethod
    def of(cls, folder: str | Path, owner: Mapping[str, str]) -> Checkpoint:
        """The checkpoint of this training, begun where the folder has none; an error where it is another's."""
        ours = files.named("WeakRecoNN", folder)
        if (ours / OWNER).is_file():
            theirs = _owner(ours / OWNER)
            differ = [name for name in {**theirs, **owner} if theirs.get(name) != owner.get(name)]
            if differ:
                name = differ[0]
                raise ValueError(
                    f"WeakRecoNN: checkpoint={str(folder)!r} belongs to another training: its {name} is "
                    f"{theirs.get(name)}, and here it is {owner.get(name)}"
                    f"{f' (and {len(differ) - 1} more differ)' if len(differ) > 1 else ''}. Name another folder, or "
                    "delete that one."
                )
        else:
            files.make_folder("WeakRecoNN", ours)
            files.write(ours / OWNER, json.dumps(dict(owner), indent=1) + "\n", source="WeakRecoNN")
        return cls(ours)

    def read(self, device: torch.device) -> dict[str, Tensor] | None:
        """What was written last; None where nothing was."""
        path = self.folder / STATE
        return read_tensors("WeakRecoNN", path, str(device)) if path.is_file() else None

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """All or nothing: a kill leaves what was there before; what cannot be written is a warning, and no more."""
        try:
            write_tensors(self.folder / STATE, tensors, source="WeakRecoNN")
        except OSError as error:
            warnings.warn(
                f"{error} Training goes on without this checkpoint; the next one is tried in time.",
                RuntimeWarning,
                stacklevel=2,
            )


def _owner(path: Path) -> dict[str, str]:
    """Whose checkpoint it is."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"WeakRecoNN: {path} is damaged ({error}): whose checkpoint this is cannot be told. Delete its folder."
        ) from error
    return {str(name): str(value) for name, value in held.items()} if isinstance(held, dict) else {}


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, "3.exp_avg" for the fourth parameter's first moment."""
    state = optimiser.state_dict()["state"]
    return {f"{number}.{name}": value for number, held in state.items() for name, value in held.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put it back."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        number, name = path.split(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


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


SCALED = 4_096  # heads that tell the mean head, and the deviation from it


TESTED = 512  # heads of records that were kept from learning


HANDS = 8  # training sets that these can deal at once, at least, where half of the records are enough for them


FEWEST_HANDS = 2  # and always: of two sets the one tells what chance is for the other


def dealt_labels(knowledge: Knowledge) -> Tensor:
    """(k,) the labels of a training set, in the order in which every set has them."""
    return knowledge.threat.deal(knowledge.prior, 1, seed=0).own.y[0]


def dealt_classes(knowledge: Knowledge) -> tuple[int, ...]:
    """The classes of which a training set has records; none where labels are no classes."""
    y = dealt_labels(knowledge)
    return () if y.is_floating_point() or y.ndim > 1 else tuple(sorted(set(y.tolist())))


def shape_seen(attack: WeakRecoNN, knowledge: Knowledge) -> tuple[int, int]:
    """How many tokens a head has, of how many numbers."""
    one = Release({name: value.unsqueeze(0) for name, value in trainable(knowledge.net).items()})
    _, tokens, numbers = attack.reader.see(knowledge.net, knowledge.access, one).shape
    return tokens, numbers


def lessons_for(attack: WeakRecoNN, knowledge: Knowledge, span: Span, classes: tuple[int, ...], seed: int) -> Lessons:
    """The records of the prior dealt out: most to learn from, with copies where asked for, and some to be tested on."""
    learnt, tested = split(knowledge, attack.validation, seed)
    if attack.augment is not None:
        learnt = attack.augment(learnt, seed=adversary_seed(seed, "augment"))
    net, access, reader = knowledge.net, knowledge.access, attack.reader
    heads = Heads.of(
        _game(knowledge, learnt, span, adversary_seed(seed, "shadow")),
        lambda release: reader.see(net, access, release),
        alike=reader.alike(net, classes),
        models=min(SCALED, attack.shadows or SCALED),
    )
    others = heads._replace(game=_game(knowledge, tested, span, adversary_seed(seed, "validation")))
    sought = Sought.of(dealt_labels(knowledge), classes)
    return Lessons(heads, others.made(range(TESTED)), sought, 2.0 if span.bounded else 1.0)


def split(knowledge: Knowledge, validation: float, seed: int) -> tuple[Records, Records]:
    """Records to learn from, and a share of every class to be tested on, enough for several training sets."""
    prior, labels = knowledge.prior, dealt_labels(knowledge)
    classes = dealt_classes(knowledge)
    learnt, tested = [], []
    for label in classes or (None,):
        rows = np.arange(len(prior)) if label is None else (prior.y == label).nonzero().flatten().cpu().numpy()
        hand = len(labels) if label is None else int((labels == label).sum())
        order = generator(seed, "adversary", "split", "any" if label is None else label).permutation(rows)
        several = min(HANDS * hand, len(rows) // 2)
        count = min(max(several, round(validation * len(rows))), len(rows) - FEWEST_HANDS * hand)
        tested.append(order[:count])
        learnt.append(order[count:])
    ours, theirs = (torch.from_numpy(np.concatenate(part)).to(prior.x.device) for part in (learnt, tested))
    return prior[ours], prior[theirs]


def too_few(knowledge: Knowledge) -> str | None:
    """Why the prior cannot be cut in two, as a sentence; None when it can."""
    labels = dealt_labels(knowledge)
    for label in dealt_classes(knowledge) or (None,):
        held = len(knowledge.prior) if label is None else int((knowledge.prior.y == label).sum())
        hand = len(labels) if label is None else int((labels == label).sum())
        needed = 2 * FEWEST_HANDS * hand
        if held < needed:
            kind = "records" if label is None else f"records of class {label}"
            return (
                f"a training set takes {hand} {kind}, so that it needs {needed} in the prior, for two sets to learn "
                f"from and two others to be tested on, and there are {held}. Bring more of them"
            )
    return None


def _game(knowledge: Knowledge, pool: Records, span: Span, seed: int) -> Game:
    records = Records(span.shares(pool.x), pool.y, pool.inputs)  # what is rebuilt, and what is trained on
    return Game(knowledge.net, knowledge.trainer, knowledge.threat, records, seed)
