"""S1's own recipe on MNIST, varied one part at a time: why is its error 0.0152 here, where S1 reports 0.0089?

    python papers/s1_recipe.py --device cuda [--rows printed decay ...] [--data FOLDER]

"printed" is `s1_table2.py --attack printed`: what S1's Table V says, and the rest as torch has it. Each of the next
rows changes one thing that S1 does not print, "haiku" several of them to what S1's libraries do by default. Then the
victims vary: float32 rather than TF32, easier ones, or ones whose training accuracy exceeds 94 % (`s1_victims.py`). All
rows are reported; none is chosen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from s1_mnist import VALIDATION, VICTIM, Game, arguments, knowledge, rows_of, score, split, write
from s1_printed import AS_IN_TORCH, Shadows, Unprinted, taught, train_shadows

HAIKU = Unprinted(decay=0.9, lecun_start=True, sigmoid=False)
DEFAULT = Game(paper=0.0089, copies=1)
FLOAT32 = replace(DEFAULT, trainer=replace(VICTIM, tf32=False))
NO_MOMENTUM = Game(paper=0.0063, trainer=replace(VICTIM, momentum=0.0), copies=1)
LONGER = Game(trainer=replace(VICTIM, steps=200), copies=1)


@dataclass(frozen=True)
class Variant:
    """One row: the recipe as printed on S1's default victim, except the fields that are set."""

    what: str
    unprinted: Unprinted = AS_IN_TORCH
    game: Game = DEFAULT


VARIANTS = {
    "printed": Variant("as printed"),
    "haiku": Variant("Haiku's and Optax's defaults, no sigmoid", HAIKU),
    "decay": Variant("RMSProp's decay 0.9", Unprinted(decay=0.9)),
    "lecun": Variant("decoder's start as Haiku's", Unprinted(lecun_start=True)),
    "linear": Variant("no sigmoid behind the decoder", Unprinted(sigmoid=False)),
    "best": Variant("best epoch on held-out models", Unprinted(keep_best=True)),
    "float32": Variant("victims in float32", game=FLOAT32),
    "haiku_float32": Variant("Haiku's and Optax's defaults, no sigmoid, victims in float32", HAIKU, FLOAT32),
    "no_momentum": Variant("victims without momentum", game=NO_MOMENTUM),
    "epochs_200": Variant("victims of 200 epochs", game=LONGER),
}


def main() -> None:
    options = arguments(__doc__ or "", VARIANTS, width=1_000, epochs=100)
    data = split(options)
    torch.set_float32_matmul_precision("high")  # for the decoder; the trainer says what it uses
    trained: dict[Game, Shadows] = {}  # one at a time
    for name in options.rows:
        start, variant = time.perf_counter(), VARIANTS[name]
        game = variant.game
        if game not in trained:
            facts = knowledge(game, data)
            trained = {game: train_shadows(facts, width=options.width, validation=VALIDATION, seed=options.seed)}
        reconstruct = taught(trained[game], epochs=options.epochs, seed=options.seed, unprinted=variant.unprinted)
        played = score(reconstruct, game, data, options, variant.what)
        write(__file__, rows_of(name, game, played, data), options)
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
