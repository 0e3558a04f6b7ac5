"""What does not fit into memory is left out, with the numbers, and nothing is allocated to find that out."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.audits import choice
from lostwax.audits.choice import available_bytes
from lostwax.games import Knowledge, Records
from lostwax.learning.costs import Rate, predicted
from lostwax.trainers import GD

X = torch.rand(120, 4, generator=torch.Generator().manual_seed(0))
KNOWN, PRIOR, SECRETS = Records(X, torch.arange(120) % 3).split(40, 40, 40, seed=0)


def knowledge(net=None):
    return Knowledge(net or nn.Linear(4, 3), GD(lr=0.5, steps=20), lw.Informed(KNOWN), Weights(), PRIOR)


def test_the_cost_of_a_decoder_too_large_for_this_machine_is_computed(monkeypatch):
    """Ten million numbers of a model, read by a decoder of ten thousand million parameters: 40 GB, and 200 to train."""
    largest = 0
    plain = torch.nn.Linear.__init__

    def watched(self, inputs, outputs, *more, **named):
        nonlocal largest
        plain(self, inputs, outputs, *more, **named)
        if self.weight.device.type != "meta":
            largest = max(largest, self.weight.numel())

    monkeypatch.setattr(torch.nn.Linear, "__init__", watched)
    attack, told = lw.RecoNN(), knowledge()
    seconds = predicted(attack, told, 10, Rate(0.01, 10_000_000, 10_000_000)).seconds
    needed = predicted(attack, told, 10, Rate(0.01, 10_000_000, 10_000_000)).bytes
    assert largest < 5_000_000
    assert seconds > 100 * predicted(attack, told, 10, Rate(0.01, 10_000, 10_000)).seconds
    assert 1.9e11 < needed < 3e11


@pytest.mark.parametrize(
    "attack",
    [lw.RecoNN(), lw.KernelRidge(), lw.Ensemble(), lw.Newton(), lw.attacks.NearestCandidate(lw.Newton())],
    ids=lambda attack: type(attack).__name__,
)
def test_needs_grow_with_the_model(attack):
    small, large = (
        predicted(attack, knowledge(), 10, Rate(0.01, features, features)).bytes for features in (1_000, 1_000_000)
    )
    assert 0 < 100 * small < large


def test_an_attack_that_nobody_counted_is_tried():
    assert predicted(object(), knowledge(), 10, Rate(0.01, 1_000, 1_000)).bytes == 0


def test_decoders_are_counted_right():
    for decoder in (lw.decoders.MLPDecoder(width=8), lw.decoders.MLPDecoder(depth=0), lw.decoders.RowDecoder()):
        attack, told = lw.RecoNN(decoder=decoder), knowledge()
        trained = attack.prepare(told, seed=0) if decoder.__class__ is lw.decoders.RowDecoder else None
        if trained is None:
            built = decoder.build(15, (4,))
            assert attack.decoder_parameters(told, 15) == sum(one.numel() for one in built.parameters())
        else:
            assert attack.decoder_parameters(told, 15) > 0


@pytest.mark.parametrize("minutes", [None, 1], ids=["no limit", "a limit"])
def test_one_attack_that_does_not_fit_ends_no_audit(monkeypatch, minutes):
    """RecoNN's decoder and its moments take about 20 MB, ClosedForm nothing."""
    room = (lw.ClosedForm(), lw.RecoNN(epochs=1))
    monkeypatch.setattr(choice, "all_attacks", lambda knowledge: room)
    monkeypatch.setattr(choice, "available_bytes", lambda device: 1e7)
    audit = lw.audit(
        nn.Linear(4, 3),
        trainer=lw.Optimum(),
        threat=lw.Informed(KNOWN),
        prior=PRIOR,
        secrets=SECRETS,
        games=4,
        max_minutes=minutes,
    )
    assert [finding.name for finding in audit.findings] == ["ClosedForm"]
    assert audit.unanswered == ("RecoNN would need about 0.02 GB of memory, and 0.01 GB were free.",)


def test_victims_that_do_not_fit_are_refused_with_the_number(monkeypatch):
    monkeypatch.setattr(choice, "available_bytes", lambda device: 2_000.0)
    with pytest.raises(ValueError, match=r"40 victims of 15 parameters would need .* Use fewer games: at most 16 fit"):
        lw.audit(nn.Linear(4, 3), trainer=GD(), threat=lw.Informed(KNOWN), prior=PRIOR, secrets=SECRETS)


def test_what_there_is(tmp_path, monkeypatch):
    here = available_bytes(torch.device("cpu"))
    assert 1e7 < here < 1e15
    monkeypatch.setattr(choice, "GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.current").write_text("1500000\n")
    assert available_bytes(torch.device("cpu")) == 500_000
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert available_bytes(torch.device("cpu")) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(torch.device("cpu")) > 1e7
    monkeypatch.setattr(choice, "SYSTEM", tmp_path / "absent")
    assert available_bytes(torch.device("cpu")) > 1e7
