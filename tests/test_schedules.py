"""Schedules against torch's."""

import pytest
import torch
from torch.optim import lr_scheduler

from lostwax.schedules import Constant, Cosine, Linear, StepDecay

STEPS = 12


def rates_of_torch(make):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, rates = make(optimiser), []
    for _ in range(STEPS):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def warm_then_cosine(optimiser):
    warm = lr_scheduler.LinearLR(optimiser, start_factor=1 / 5, total_iters=4)
    cosine = lr_scheduler.CosineAnnealingLR(optimiser, STEPS - 4, eta_min=0.1)
    return lr_scheduler.SequentialLR(optimiser, [warm, cosine], milestones=[4])


@pytest.mark.parametrize(
    ("schedule", "counterpart"),
    [
        (Constant(), lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
        (Cosine(), lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS)),
        (Cosine(floor=0.2), lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS, eta_min=0.2)),
        (Cosine(warmup=4, floor=0.1), warm_then_cosine),
        (StepDecay(every=5, factor=0.3), lambda o: lr_scheduler.StepLR(o, 5, gamma=0.3)),
        (Linear(), lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, STEPS)),
        (Linear(start=0.5, end=0.25), lambda o: lr_scheduler.LinearLR(o, 0.5, 0.25, STEPS)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
def test_the_rate_at_every_step_is_torchs(schedule, counterpart):
    ours = [schedule(step, STEPS) for step in range(STEPS)]
    assert ours == pytest.approx(rates_of_torch(counterpart), abs=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cosine(warmup=-1), "Cosine: expected warmup >= 0, got -1."),
        (lambda: Cosine(floor=2.0), "Cosine: expected floor in"),
        (lambda: StepDecay(every=0), "StepDecay: expected every >= 1, got 0."),
        (lambda: StepDecay(every=1, factor=0.0), "StepDecay: expected factor > 0"),
        (lambda: Linear(start=-1.0), "Linear: expected start >= 0, got -1.0."),
    ],
)
def test_fields_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
