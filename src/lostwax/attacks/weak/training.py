"""Training a net to read records off heads, each seen once (Maciazek and Allison 2025, section 3.1)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.attacks.weak.objectives import GuessTargets, mean_errors, nearest, of_other_heads, softmin
from lostwax.games import Game, Knowledge, Records, Release
from lostwax.games.facts import hold_out_of
from lostwax.learning.decoders import Span
from lostwax.learning.shadow_tables import adversary_seed, finite_models
from lostwax.learning.standardise import Standardise
from lostwax.learning.training import Best, Criterion, answer, fit, resume, state_of, torch_seed
from lostwax.progress import progress
from lostwax.seeds import generator, seed_torch
from lostwax.shadows.checkpoints import KeptState

if TYPE_CHECKING:
    from lostwax.attacks.weak.attack import WeakRecoNN


class HeadScale(NamedTuple):
    """What is read of a head, standardised."""

    standardise: Standardise
    alike: bool  # all tokens share one mean and deviation

    @classmethod
    def fit(cls, seen: Tensor, *, alike: bool) -> HeadScale:
        """From (m, tokens, numbers). A constant number is read as its mean, so that tokens keep their size."""
        moving = Standardise.fit(_rows(seen, alike))
        count, places = moving.features, moving.kept
        mean = moving.mean.new_zeros(count).index_copy(0, places, moving.mean)
        deviation = moving.mean.new_full((count,), torch.inf).index_copy(0, places, moving.deviation)
        every = torch.arange(count, device=places.device)
        return cls(Standardise(every, mean, deviation, count, moving.reach), alike)

    def __call__(self, seen: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, tokens, numbers) -> the same shape."""
        return self.standardise(_rows(seen, self.alike), dtype).view(seen.shape)


class Heads(NamedTuple):
    """The shadow heads of a game, with their secrets.

    The game's pool holds records in the decoder's coordinates (Span) as x, and the head's inputs as features.
    """

    game: Game
    see: Callable[[Release], Tensor]  # (m, tokens, numbers)
    scale: HeadScale

    @classmethod
    def of(cls, game: Game, see: Callable[[Release], Tensor], *, alike: bool, models: int) -> Heads:
        """Standardised over the first `models` heads."""
        tile = game.tile()
        cut = (range(start, min(start + tile, models)) for start in range(0, models, tile))
        seen = torch.cat([see(game.trainer(game.net, game.deal(numbers), seed=game.seed)) for numbers in cut])
        finite_models("WeakRecoNN", seen.flatten(1))
        return cls(game, see, HeadScale.fit(seen, alike=alike))

    def trained(self, numbers: range) -> tuple[Tensor, Tensor]:
        """Train the heads with these numbers: what is read of them (m, tokens, numbers), and secrets (m, k, ...)."""
        cohort = self.game.deal(numbers)
        seen = self.see(self.game.trainer(self.game.net, cohort, seed=self.game.seed))
        return self.scale(seen, cohort.own.x.dtype), cohort.own.x

    def batches(self, steps: range, size: int, shadows: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """The batch of each step: fresh heads, or those of a fixed set of `shadows`, cyclically.

        Heads are trained a tile at a time, for many steps, without waiting for the device.
        """
        tile = self.game.tile()
        while steps:
            first, together = steps.start * size, min(max(tile // size, 1), len(steps))
            if shadows is not None:
                first %= shadows
                together = max(min(together, (shadows - first) // size), 1)
            last = first + together * size
            over = 0 if shadows is None else max(last - shadows, 0)  # beyond the end of the set: its first ones again
            parts = [self.trained(numbers) for numbers in (range(first, last - over), range(over)) if numbers]
            tokens, secrets = (torch.cat(part) for part in zip(*parts, strict=True))
            for rows in torch.split(torch.randperm(len(tokens), device=tokens.device), size):
                yield tokens[rows], secrets[rows]
            steps = steps[together:]


def _rows(seen: Tensor, alike: bool) -> Tensor:
    return seen.flatten(0, 1) if alike else seen.flatten(1)


LEG = 256  # steps between two validations, at most
LEGS = 10  # validations at least
WARMUP = 0.05  # share of the training in which the learning rate rises
LARGEST_STEP = 1.0  # the norm to which a gradient is clipped
SECONDS = 60  # between two checkpoints, at least
HEADS_AT_A_TIME = 128
SCALED = 4_096  # heads over which heads are standardised
TESTED = 512  # held-out heads
SETS = 8  # training sets' worth of held-out records, at least, if half of the records suffice
FEWEST_SETS = 2  # at least: one set gives the chance error of the other


class ReadAndDecode(nn.Module):
    """A reader and a decoder: (m, tokens, numbers) -> (m, guesses, ...)."""

    def __init__(self, reader: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.reader, self.decoder = reader, decoder

    def forward(self, tokens: Tensor) -> Tensor:
        features: Tensor = self.reader(tokens)  # (m, g, features)
        answers: Tensor = self.decoder(features.flatten(0, 1))
        return answers.view(*features.shape[:2], *answers.shape[1:])


class TrainingData(NamedTuple):
    """Heads to learn from, and held-out ones."""

    heads: Heads
    unseen: tuple[Tensor, Tensor]  # tokens and secrets of held-out heads
    targets: GuessTargets
    unit: float  # of the loss: 2 for bounded pixels, which the paper has in [-1, 1] and the decoder in [0, 1]


def train(
    net: ReadAndDecode, data: TrainingData, attack: WeakRecoNN, checkpoint: KeptState | None, *, seed: int
) -> None:
    """Fit the net in place by AdamW, and keep the weights with the least loss on unseen heads.

    The rate rises linearly, then falls as half a cosine, by the share of the steps or of the minutes that is over. Legs
    have fixed lengths and their own draws, so that a training which a checkpoint resumes is the same.
    """

    def validate() -> float:  # the objective of squared errors
        error, chance = (data.unit**2 * wrong for wrong in errors(net, data))  # (m, g) each
        return float(attack.aim(error, chance))

    device, length = data.unseen[0].device, min(LEG, -(-attack.steps // LEGS))
    optimiser = torch.optim.AdamW(net.parameters(), lr=attack.lr, fused=device.type == "cuda")
    halved = torch.autocast(device.type, torch.bfloat16, enabled=attack.half and device.type == "cuda")
    best, step = Best(net, validate), 0
    started = written = time.perf_counter()
    if checkpoint is not None and (tensors := checkpoint.read(str(device))) is not None:
        steps_done, seconds, best.error = tensors["numbers"].tolist()
        step, started = int(steps_done), time.perf_counter() - seconds
        resume(net, optimiser, best, tensors)

    def done(steps: float) -> float:
        minutes = 0.0 if attack.minutes is None else (time.perf_counter() - started) / (60 * attack.minutes)
        return max(steps / attack.steps, minutes)

    def losses(steps: range) -> Iterator[Tensor]:
        nonlocal step
        seed_torch(adversary_seed(seed, f"leg {steps.start}"))
        for tokens, secrets in data.heads.batches(steps, attack.batch_size, attack.shadows):
            if done(step) >= 1:
                break
            share = done(step + 0.5)  # mid-step, so that the first rate does not depend on the clock
            for group in optimiser.param_groups:
                group["lr"] = attack.lr * min(share / WARMUP, 1.0) * (1 + math.cos(math.pi * share)) / 2
            with halved:
                answers = run(tokens)
            yield loss_of(answers.to(secrets.dtype), secrets, data, criteria, attack)
            step += 1

    def legs() -> Iterator[Iterator[Tensor]]:
        nonlocal written
        advance(step)
        while done(step) < 1:
            start = step
            yield losses(range(start, min(start + length, attack.steps)))
            advance(step - start)
            if checkpoint is not None and (done(step) >= 1 or time.perf_counter() - written > SECONDS):
                numbers = torch.tensor([step, time.perf_counter() - started, best.error], dtype=torch.float64)
                _write(checkpoint, {**state_of(net, optimiser, best), "numbers": numbers})
                written = time.perf_counter()

    draws = torch_seed(adversary_seed(seed, "terms"), device)
    one_shape = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with progress("reconstructor steps", attack.steps) as advance, draws, one_shape:
        criteria = [term.begin(data.unseen[1].flatten(0, 1)) for term in attack.terms]
        run = torch.compile(net) if attack.compile else net
        fit(net, optimiser, legs(), best=best, clip=LARGEST_STEP)


def _write(checkpoint: KeptState, tensors: dict[str, Tensor]) -> None:
    try:
        checkpoint.write(tensors)
    except OSError as error:
        message = f"WeakRecoNN: {error} Training continues without this checkpoint; the next is tried later."
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def loss_of(
    answers: Tensor, secrets: Tensor, data: TrainingData, criteria: Sequence[Criterion], attack: WeakRecoNN
) -> Tensor:
    """The loss of guesses (b, g, ...) given the secrets of their heads (b, k, ...)."""
    unit, targets = data.unit, data.targets
    wanted = targets.of_each(secrets)  # (b, g, r, ...)

    def wrong(records: Tensor) -> Tensor:  # (b, g), Maciazek and Allison 2025, Eq. 3
        squared, absolute = mean_errors(unit * answers, unit * records)  # (b, g, r) each
        return softmin(attack.mse * squared + attack.mae * absolute, targets.counted, attack.softmin)

    loss = attack.aim(wrong(wanted), wrong(of_other_heads(wanted)))
    if criteria:
        _, place = nearest(mean_errors(answers, wanted)[0], targets.counted)  # (b, g)
        rows = [torch.arange(size, device=place.device) for size in place.shape]
        truth = wanted[rows[0][:, None], rows[1], place].flatten(0, 1)  # (b g, ...)
        for criterion in criteria:
            loss = loss + criterion(answers.flatten(0, 1), truth)
    return loss


def errors(net: nn.Module, data: TrainingData) -> tuple[Tensor, Tensor]:
    """(m, g) twice: mean squared errors on unseen heads, to the nearest secret of the guess's class and by chance.

    By chance: to the secrets of another head.
    """
    tokens, secrets = data.unseen
    targets, parts = data.targets, []
    wanted = targets.of_each(secrets)  # (m, g, r, ...)
    cut = (torch.split(tensor, HEADS_AT_A_TIME) for tensor in (tokens, wanted, of_other_heads(wanted)))
    for token_rows, *compared in zip(*cut, strict=True):
        answers = answer(net, token_rows, HEADS_AT_A_TIME)
        parts.append([nearest(mean_errors(answers, records)[0], targets.counted)[0] for records in compared])
    to_own, to_others = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return to_own, to_others


def dealt_labels(knowledge: Knowledge) -> Tensor:
    """(k,) the labels of every training set, in order."""
    return knowledge.threat.deal(knowledge.prior, 1, seed=0).own.y[0]


def dealt_classes(knowledge: Knowledge) -> tuple[int, ...]:
    """The classes in a training set; empty if labels are not classes."""
    y = dealt_labels(knowledge)
    return () if y.is_floating_point() or y.ndim > 1 else tuple(sorted(set(y.tolist())))


def training_data(
    attack: WeakRecoNN, knowledge: Knowledge, span: Span, classes: tuple[int, ...], seed: int
) -> TrainingData:
    """Split the prior into records to learn from, augmented if asked for, and held-out ones."""
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
    targets = GuessTargets.of(dealt_labels(knowledge), classes)
    return TrainingData(heads, others.trained(range(TESTED)), targets, 2.0 if span.bounded else 1.0)


def split(knowledge: Knowledge, validation: float, seed: int) -> tuple[Records, Records]:
    """Records to learn from, and a held-out share of every class, enough for several training sets.

    A threat whose training sets are not drawn class by class splits its pool itself: `threat.hold_out`.
    """
    if (hold_out := hold_out_of(knowledge.threat)) is not None:
        return hold_out(knowledge.prior, validation, seed=adversary_seed(seed, "split"))
    prior, learnt, tested = knowledge.prior, [], []
    for label, rows, per_set in _rows_by_class(knowledge):
        order = generator(seed, "adversary", "split", "any" if label is None else label).permutation(rows)
        several = min(SETS * per_set, len(rows) // 2)
        count = min(max(several, round(validation * len(rows))), len(rows) - FEWEST_SETS * per_set)
        tested.append(order[:count])
        learnt.append(order[count:])
    ours, theirs = (torch.from_numpy(np.concatenate(part)).to(prior.x.device) for part in (learnt, tested))
    return prior[ours], prior[theirs]


def too_few(knowledge: Knowledge) -> str | None:
    """Why the prior is too small to hold records out, as a sentence; None if it is not."""
    if hold_out_of(knowledge.threat) is not None:
        return None  # its `deal` raises an error
    for label, rows, per_set in _rows_by_class(knowledge):
        needed = 2 * FEWEST_SETS * per_set
        if len(rows) < needed:
            kind = "records" if label is None else f"records of class {label}"
            return (
                f"a training set takes {per_set} {kind}, so it needs {needed} in the prior, for two sets to learn from "
                f"and two held-out ones, and there are {len(rows)}. Provide more."
            )
    return None


def _rows_by_class(knowledge: Knowledge) -> Iterator[tuple[int | None, NDArray[np.int64], int]]:
    """Each class of a training set, its rows of the prior, and how many a set takes; None: labels are no classes."""
    y, labels = knowledge.prior.y, dealt_labels(knowledge)
    for label in dealt_classes(knowledge) or (None,):
        rows = np.arange(len(y)) if label is None else (y == label).nonzero().flatten().cpu().numpy()
        yield label, rows, len(labels) if label is None else int((labels == label).sum())


def _game(knowledge: Knowledge, pool: Records, span: Span, seed: int) -> Game:
    records = Records(span.shares(pool.x), pool.y, pool.inputs)  # targets and inputs
    return Game(knowledge.net, knowledge.trainer, knowledge.threat, records, seed)
