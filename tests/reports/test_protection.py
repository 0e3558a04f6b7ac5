import math
from dataclasses import replace

import pytest

from lostwax.reports.html import protection


def test_every_plan_keeps_its_promise_and_grows_with_the_steps(audit_of):
    audit = audit_of("one_game")
    one = protection(audit)
    assert (one.steps, one.steps_known, one.baseline) == (1, False, 0.1)
    many = protection(replace(audit, provenance={**audit.provenance, "steps": 100}))
    assert (many.steps, many.steps_known) == (100, True)
    for (success, single), (_, hundred) in zip(one.plans, many.plans, strict=True):
        assert single.ceiling.upper <= success
        assert hundred.noise_multiplier == pytest.approx(math.sqrt(100) * single.noise_multiplier, rel=1e-6)


def test_candidates_bring_their_own_baseline(audit_of):
    found = protection(audit_of("candidates"))
    assert found.candidates
    assert found.baseline == 1 / 8
