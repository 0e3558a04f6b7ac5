"""A decoder taught from shadow models that were trained before."""

from dataclasses import replace

import pytest
import torch

from attacks.reconn.game import ATTACK, KNOWN, NET, PRIOR, Leaks, errors, knowledge
from lostwax.games import Informed, Records
from lostwax.learning.shadow_tables import ShadowTable, shadow_tables


def table(rows):
    """Models of the planted leak, one for each of these records of the prior."""
    own = PRIOR[rows.unsqueeze(1)]
    cohort = replace(Informed(KNOWN).deal(PRIOR, len(rows), seed=0), own=own)
    return ShadowTable(Leaks()(NET, cohort, seed=1).flat(), PRIOR[rows])


def test_a_planted_leak_is_found_in_models_trained_before():
    shadows, unseen = table(torch.arange(360)), table(torch.arange(360, 400))
    found = ATTACK.learn(knowledge(Leaks()), shadows, unseen, seed=0)
    (error, blind), guess, cohort = errors(found, Leaks())
    assert error.mean() < 0.1 * blind.mean()
    assert (guess.records.y == cohort.own.y).float().mean() > 0.95


def test_it_is_the_second_half_of_prepare():
    attack, game = replace(ATTACK, epochs=2), knowledge(Leaks())
    _, shadows, unseen = shadow_tables(attack, game, 0)
    whole, half = attack.prepare(game, seed=0), attack.learn(game, shadows, unseen, seed=0)
    assert all(map(torch.equal, whole.decoder.state_dict().values(), half.decoder.state_dict().values()))
    assert whole.validation_error == half.validation_error


def test_tables_that_will_not_do_are_refused():
    game, good = knowledge(Leaks()), table(torch.arange(10))
    with pytest.raises(ValueError, match="two held-out ones, got 10 and 1"):
        ATTACK.learn(game, good, table(torch.arange(1)), seed=0)
    with pytest.raises(ValueError, match="expected one record per model, got 9 for 10 models"):
        ATTACK.learn(game, good._replace(records=PRIOR[:9]), good, seed=0)
    with pytest.raises(ValueError, match="1 of 10 shadow models hold NaN"):
        ATTACK.learn(game, good, good._replace(seen=good.seen.index_fill(0, torch.tensor(3), torch.nan)), seed=0)
    with pytest.raises(ValueError, match=r"^KernelRidge: 10 of 10 shadow models hold NaN"):
        good._replace(seen=good.seen * torch.nan).checked("KernelRidge")
    whole = replace(game, prior=Records(PRIOR.x.long(), PRIOR.y))
    with pytest.raises(ValueError, match="floating-point"):
        ATTACK.learn(whole, good, good, seed=0)
