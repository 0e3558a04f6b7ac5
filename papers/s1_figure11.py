"""S1 Figure 11 and Algorithm 2, MNIST: can an informed adversary tell whether a record was trained on?

    python papers/s1_figure11.py --device cuda [--rows losses refit rebuild] [--data FOLDER]

"losses", S1's figure: for each of ten targets, models with and without it (--targets of each), from a public and from
private starts; how well the target's loss tells them apart, as AUC. Training from a public start gives the same model
every time, so there one with the target and one without stand for all.
"refit" and "rebuild": one of two candidates was trained on. Train on both and compare, ten times each where the start
is private; or rebuild the record by RecoNN (5,000 shadow models) and take the nearer one. A coin is right in half.
S1 in words: a public start separates perfectly, private ones overlap nearly perfectly.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from s1_mnist import (
    PRIVATE_START,
    VICTIM,
    Game,
    Split,
    arguments,
    cohort,
    knowledge,
    mean_row,
    rate_row,
    recipe,
    split,
    write,
)
from sklearn.metrics import roc_auc_score
from torch import nn

import lostwax as lw
from lostwax.games import Attack, Records, Release

TARGETS = 10
PUBLIC = Game(copies=1)
PRIVATE = Game(trainer=replace(VICTIM, init=PRIVATE_START), copies=1)


def losses(net: nn.Module, release: Release, target: Records) -> NDArray[np.float64]:
    """(models,) of the one target."""
    logits = lw.access.Logits(target.x)(net, release).double().cpu()  # (models, 10); in float32 small losses would be 0
    found: NDArray[np.float64] = lw.losses.CrossEntropy()(logits, target.y.cpu().expand(len(release))).numpy()
    return found


def separability(game: Game, data: Split, models: int, seed: int) -> NDArray[np.float64]:
    """(targets,) AUC of the target's loss: 1 where it is smaller under every model that was trained on it."""
    net, repeat = knowledge(game, data).net, lw.learning.Repeats()
    just_known = data._replace(known=data.known[:-1], secrets=repeat(data.known[-1:], models, seed=0))
    without = game.trainer(net, cohort(just_known), seed=seed)
    areas = []
    for row in range(min(TARGETS, len(data.secrets))):
        target = data.secrets[row : row + 1]
        taken = data._replace(secrets=repeat(target, models, seed=0))
        with_it = game.trainer(net, cohort(taken), seed=seed + 1)  # from other private starts
        scores = [-losses(net, release, target) for release in (with_it, without)]
        areas.append(roc_auc_score([1] * models + [0] * models, np.concatenate(scores)))
    return np.array(areas)


def named_rightly(game: Game, attack: Attack, data: Split, seed: int) -> NDArray[np.bool_]:
    """(targets,) does the attack name the candidate that was trained on?"""
    threat = lw.Informed(data.known, candidates=2)
    facts, dealt = replace(knowledge(game, data), threat=threat), cohort(data)
    reconstruct = attack.prepare(facts, seed=seed)
    release = game.trainer(facts.net, dealt, seed=seed)
    guess = reconstruct(release, threat.hints(dealt, data.secrets, seed=seed))
    same: NDArray[np.bool_] = (guess.records.x == dealt.own.x).flatten(1).all(1).cpu().numpy()
    return same


def main() -> None:
    options = arguments(__doc__, ["losses", "refit", "rebuild"], shadows=5_000)
    data, seed = split(options), options.seed
    sizes = f"{len(data.known):,} known, {len(data.secrets):,} games"
    if "losses" in options.rows:
        for start, game, models in (("public", PUBLIC, 1), ("private", PRIVATE, options.targets)):
            areas = separability(game, data, models, seed)
            sides = f"{models:,} models trained on each, {models:,} not"
            quantity = f"AUC of the loss, {start} start ({len(data.known):,} known, {len(areas)} targets, {sides})"
            write(__file__, [mean_row(f"losses_{start}", quantity, areas)], options)
    if "refit" in options.rows:
        for start, game, repeats in (("public", PUBLIC, 1), ("private", PRIVATE, 10)):
            right = named_rightly(game, lw.attacks.Refit(repeats=repeats), data, seed)
            quantity = f"right candidate of two by refitting, {start} start ({sizes}, trained {repeats} x on each)"
            write(__file__, [rate_row(f"refit_{start}", quantity, right)], options)
    if "rebuild" in options.rows:
        attack = lw.attacks.NearestCandidate(recipe(PUBLIC, len(data.prior), options))
        quantity = f"right candidate of two by rebuilding, public start ({sizes}, {len(data.prior):,} prior)"
        write(__file__, [rate_row("rebuild_public", quantity, named_rightly(PUBLIC, attack, data, seed))], options)


if __name__ == "__main__":
    main()
