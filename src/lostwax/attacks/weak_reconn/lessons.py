"""What a reconstructor of heads learns from: heads of the prior's records, and others to be tested on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.reconn.shadow_table import adversary_seed
from lostwax.attacks.weak_reconn.heads import Heads
from lostwax.attacks.weak_reconn.sought import Sought
from lostwax.attacks.weak_reconn.training import Lessons
from lostwax.decoders import Span
from lostwax.inits import trainable
from lostwax.seeds import generator
from lostwax.shadows import Game
from lostwax.types import Knowledge, Records, Release

if TYPE_CHECKING:
    from lostwax.attacks.weak_reconn.attack import WeakRecoNN

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
