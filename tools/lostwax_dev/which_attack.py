"""The page "which attack for which training", made from what trainers, threats and attacks state."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import Weights
from lostwax.adapters.own_training import OwnTraining
from lostwax.audits.choice import all_attacks
from lostwax.games import Informed, Knowledge, Records, Threat, Trainer, Weak
from lostwax.games.facts import attack_facts, attack_name, trainer_facts
from lostwax.inits import LeCunNormal
from lostwax.trainers import DPSGD, GD, SGD, Adam, Optimum

PAGE = Path("docs") / "which_attack.md"


class WayOfTraining(NamedTuple):
    """A way of training, in words and as a value."""

    name: str
    code: str
    trainer: Trainer
    net: Callable[[], nn.Module] = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 3))
    threat: Callable[[Records], Threat] = Informed


def _function(net: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    return net


def _layer() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def _wide() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 3))


def _dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3))


def trainings() -> tuple[WayOfTraining, ...]:
    """What the page lists; the adversary knows all records but one, where nothing else is said."""
    noisy = DPSGD(noise_multiplier=1.0, clip=1.0, steps=5, publish_steps=False)
    published = DPSGD(noise_multiplier=1.0, clip=1.0, steps=5, publish_steps=True)
    return (
        WayOfTraining("full batches", "`GD(...)`", GD(steps=5)),
        WayOfTraining(
            "mini-batches, known order", "`SGD(...)`, `Adam(...)`, `AdamW(...)`", SGD(batch_size=4, epochs=2)
        ),
        WayOfTraining("mini-batches, private order", "`SGD(order_seed=None)`", Adam(batch_size=4, order_seed=None)),
        WayOfTraining("a net with dropout", "`GD(...)`, `nn.Dropout` in the net", GD(steps=5), _dropping),
        WayOfTraining(
            "private initial weights", "`init=LeCunNormal(seed=None)`", GD(steps=5, init=LeCunNormal(seed=None))
        ),
        WayOfTraining("linear layer at its optimum", "`Optimum(ridge=...)`", Optimum(ridge=0.1), _layer),
        WayOfTraining("own function, known seed", "`OwnTraining(train, seed=0)`", OwnTraining(_function, seed=0)),
        WayOfTraining("own function, private seed", "`OwnTraining(train)`", OwnTraining(_function)),
        WayOfTraining("own function that draws much", "the same, measured", OwnTraining(_function, noise=3.0)),
        WayOfTraining(
            "own function, ten candidates", "`Informed(known, candidates=10)`", OwnTraining(_function), threat=_ten
        ),
        WayOfTraining("DP-SGD, ten candidates", "`Informed(known, candidates=10)`", noisy, threat=_ten),
        WayOfTraining("DP-SGD, published steps, ten candidates", "`DPSGD(publish_steps=True)`", published, threat=_ten),
        WayOfTraining(
            "full batches, wide first layer, no record known", "`GD(...)`, `Weak(size=6)`", GD(steps=5), _wide, _six
        ),
        WayOfTraining(
            "new last layer, no record known", "`Weak(size=12)`", GD(steps=5), _layer, lambda known: Weak(size=12)
        ),
    )


def _ten(known: Records) -> Threat:
    return Informed(known, candidates=10)


def _six(known: Records) -> Threat:
    return Weak(size=6)


def applicable(training: WayOfTraining) -> tuple[str, ...]:
    """The attacks that do not object, the strongest first."""
    draw = torch.Generator().manual_seed(0)
    records = Records(torch.rand(120, 1, 8, 8, generator=draw), torch.arange(120) % 3)
    net = training.net()
    knowledge = Knowledge(net, training.trainer, training.threat(records[:40]), Weights(), records[40:])
    able = [attack for attack in all_attacks(knowledge) if attack.objection(knowledge) is None]
    strongest = sorted(able, key=lambda attack: attack_facts(attack).strength, reverse=True)
    return tuple(dict.fromkeys(attack_name(attack) for attack in strongest))


def page() -> str:
    """The whole page."""
    lines = []
    for training in trainings():
        facts = trainer_facts(training.trainer, training.net(), 41)
        yes = [
            "deterministic" if facts.deterministic else "private start" if facts.private_start else "private draws",
            *(["differentiable"] if facts.differentiable else []),
            *(["has an equation"] if facts.objective is not None else []),
            *(["a proven limit"] if facts.mechanism is not None else []),
            *(["trained one by one"] if facts.one_by_one else []),
        ]
        attacks = ", ".join(applicable(training)) or "none"
        lines.append(f"| {training.name} | {training.code} | {', '.join(yes)} | {attacks} |")
    return "\n".join(
        (
            "# Which attack for which training",
            "",
            "This page is generated (`python -m lostwax_dev.which_attack`): trainers state facts about themselves, "
            "and each attack is asked whether it applies, for a small net. Without `attack=`, `lw.audit` runs every "
            "attack that applies, the strongest first, and says why the others do not apply.",
            "",
            "| training | as a value | what the trainer states | attacks that apply |",
            "|---|---|---|---|",
            *lines,
            "",
            "With `data`, this very net is attacked by Newton if its training can be differentiated, by Secant if it "
            "is an own function with a known seed, and otherwise by Ensemble or KernelRidge ([this very "
            "net](nets.md#this-very-net)); `attack=lw.attacks.Refit()` tests which of two records was trained on. "
            "Sentences of token numbers: [text](text.md). Tables and forests are read, "
            "not retrained: [tables](tables.md), [trees](trees.md); with `threat=lw.Weak(size=...)` a forest is solved "
            "for its whole table, no row known.",
            "",
        )
    )


def main() -> None:
    """`python -m lostwax_dev.which_attack [ROOT]` rewrites the page."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    (root / PAGE).write_text(page())


if __name__ == "__main__":
    main()
