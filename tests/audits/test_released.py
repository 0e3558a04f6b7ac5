import time
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import lostwax as lw
from lostwax.audits.released import _chosen, _Released
from lostwax.clock import Clock
from lostwax.games import Cohort
from lostwax.grades import Grade
from lostwax.learning.costs import Rate
from lostwax.trainers import GD, SGD

STEPS, LR = 20, 0.3


@pytest.fixture(scope="module")
def released():
    """A net that a plain torch loop trained from its own start, the start, and the training set."""
    digits = lw.records.digits()
    (table,) = digits[digits.y < 3].split(60, seed=0)
    torch.manual_seed(0)
    net = lw.nets.mlp(64, 6, 3)
    start = deepcopy(net.state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(table.x), table.y).backward()
        optimiser.step()
    return net, start, table


def trainer(start, **changes):
    return GD(**{"lr": LR, "momentum": 0.9, "steps": STEPS, "init": lw.inits.Given(start), **changes})


def test_records_are_rebuilt_from_this_very_net(released):
    net, start, table = released
    audit = lw.audit(net, table, trainer=trainer(start), games=1)
    assert audit.kind == "this model"
    assert audit.findings[0].rebuilt.all()
    assert audit.guess.certified.all()
    assert "1 of 60 games" in str(audit)
    assert any("reproduces the released weights to a relative error of" in note for note in map(str, audit.notes))
    assert audit.unanswered == ()
    arrays = lw.audit(net, (table.x.numpy(), table.y.numpy()), trainer=trainer(start), games=1)
    assert arrays.errors == pytest.approx(audit.errors)


def test_games_that_were_played_are_kept(small, tmp_path, monkeypatch):
    """An audit that was stopped in its second game plays the others; other settings play anew."""
    net, made, table = small
    settings = {"trainer": made, "attack": lw.Newton(bank=5), "games": 2}
    here, play, played = lw.audit(net, table, **settings), _Released._played, []

    def stopped(games, attack, game):
        if len(played) == 1:
            raise KeyboardInterrupt
        played.append(game)
        return play(games, attack, game)

    def counted(games, attack, game):
        played.append(game)
        return play(games, attack, game)

    settings["engine"] = lw.shadows.Checkpoints(tmp_path)
    monkeypatch.setattr(_Released, "_played", stopped)
    with pytest.raises(KeyboardInterrupt):
        lw.audit(net, table, **settings)
    monkeypatch.setattr(_Released, "_played", counted)
    for expected in (2, 2):  # one more is played, and none
        again = lw.audit(net, table, **settings)
        assert len(played) == expected == len(set(played))
        assert torch.equal(again.guess.records.x, here.guess.records.x)
        assert torch.equal(again.guess.confidence, here.guess.confidence)
        assert torch.equal(again.guess.certified, here.guess.certified)
    played.clear()
    edited = lw.Records(table.x.clone(), table.y)
    edited.x[0, 0] += 1e-6
    for data, shadows in ((table, 8), (table, 9), (edited, 9)):
        lw.audit(net, data, **{**settings, "attack": lw.KernelRidge(shadows=shadows)})
    assert len(played) == 6


@pytest.mark.parametrize("change", ["other data", "other trainer", "no weights"])
def test_a_net_that_was_not_made_so_is_refused(released, change):
    net, start, table = released
    if change == "other data":
        table = lw.Records(table.x.flip(0), table.y)
    if change == "no weights":
        torch.manual_seed(1)
        net = lw.nets.mlp(64, 6, 3)
    way = trainer(start, lr=0.1) if change == "other trainer" else trainer(start)
    with pytest.raises(
        ValueError, match=r"does not end at the weights of the net: it misses them by [0-9.]+ of what one record"
    ):
        lw.audit(net, table, trainer=way, games=1)


def test_what_cannot_be_trained_again(released):
    net, start, table = released
    with pytest.raises(ValueError, match="does not end near the weights of the net"):
        lw.audit(
            net,
            table,
            trainer=SGD(lr=0.1, batch_size=5, epochs=1, order_seed=None, init=lw.inits.Given(start)),
            games=1,
        )
    with pytest.raises(ValueError, match="initialisation is private"):
        lw.audit(net, table, trainer=GD(lr=0.1, steps=1, init=lw.inits.LeCunNormal(seed=None)), games=1)
    with pytest.raises(TypeError, match="threat does not apply to a torch net"):
        lw.audit(net, table, trainer=trainer(start), threat=lw.Informed(table))
    with pytest.raises(TypeError, match="expected class numbers or targets in y"):
        lw.audit(net, (table.x, ["a"] * 60), trainer=trainer(start))


@pytest.fixture(scope="module")
def small():
    """A small net that was trained with weight decay, by the trainer that is returned, and its table."""
    X, y = load_iris(return_X_y=True)
    (table,) = lw.Records(torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)).split(76, seed=0)
    torch.manual_seed(0)
    net = nn.Linear(4, 3).double()
    made = GD(lr=0.5, momentum=0.9, steps=15, init=lw.inits.Given(deepcopy(net.state_dict())), weight_decay=1e-4)
    own = lw.Records(table.x[None, -1:], table.y[None, -1:])
    net.load_state_dict(made(net, Cohort(table[:-1], own, torch.zeros(1, dtype=torch.long)), seed=0)[0])
    return net, made, table


def audited(net, trainer, table, **changes):
    return lw.audit(net, table, trainer=trainer, attack=lw.Newton(bank=5), games=2, **changes)


def test_a_forgotten_weight_decay_is_refused(small):
    """A miss of 1e-3 of the way is small beside the way, and not beside what one of 76 records changes."""
    net, made, table = small
    assert audited(net, made, table).findings[0].rebuilt.all()
    with pytest.raises(ValueError, match="of what one record changes in the weights, and"):
        audited(net, replace(made, weight_decay=0.0), table)


def test_a_miss_that_hides_records_leaves_the_audit_undecided(small):
    """Too small to be refused, and a record is hidden by it: it is rebuilt where the trainer itself ends."""
    net, made, table = small
    audit = audited(net, replace(made, weight_decay=0.9e-4), table, threshold=1e-3)
    hidden = 2 - audit.findings[0].rebuilt.sum()
    assert hidden > 0
    (sentence,) = audit.unanswered
    assert sentence.startswith(f"{hidden} of 2 records are not rebuilt from the released weights, but are from")
    assert audited(net, made, table, threshold=1e-3).unanswered == ()


def test_the_released_weights_are_not_the_start(released):
    net, _, table = released
    with pytest.raises(ValueError, match="GD starts from the released weights themselves"):
        lw.audit(net, table, trainer=GD(lr=LR, momentum=0.9, steps=STEPS), games=1)


def test_training_that_diverges_is_refused(released):
    net, start, table = released
    with pytest.raises(ValueError, match="GD on this data diverges"):
        lw.audit(net, table, trainer=trainer(start, lr=1e30), games=1)


def own_loop(net, x, y, seed):
    """Shuffled mini-batches and momentum, by the seed."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    order = torch.Generator().manual_seed(seed)
    for _ in range(3):
        for batch in torch.randperm(len(x), generator=order).split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net


@pytest.fixture(scope="module")
def by_own_loop():
    X, y = load_iris(return_X_y=True)
    table = lw.Records(torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)).split(60, seed=0)[0]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    start = deepcopy(net.state_dict())
    return own_loop(net, table.x, table.y, 7), start, table


def test_records_are_rebuilt_through_an_own_loop(by_own_loop):
    net, start, table = by_own_loop
    trainer = lw.OwnTraining(own_loop, seed=7, init=lw.inits.Given(start))
    audit = lw.audit(net, table, trainer=trainer, games=3)
    assert audit.findings[0].rebuilt.all()
    assert audit.kind == "this model"
    assert any("deterministic given its seed" in note for note in map(str, audit.notes))


def test_an_own_loop_that_did_not_make_these_weights_is_refused(by_own_loop):
    net, start, table = by_own_loop
    with pytest.raises(ValueError, match=r"does not end at the weights of the net.*of what one record"):
        lw.audit(net, table, trainer=lw.OwnTraining(own_loop, seed=8, init=lw.inits.Given(start)), games=1)
    with pytest.raises(ValueError, match=r"Training may have to start from other weights than the released ones"):
        lw.audit(net, table, trainer=lw.OwnTraining(own_loop, seed=7), games=1)


@pytest.mark.parametrize("kind", [lw.SGD, lw.Adam, lw.AdamW], ids=lambda kind: kind.__name__)
def test_mini_batches_in_a_known_order_are_inverted(small, kind):
    net, _, table = small
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    made = kind(lr=0.05, batch_size=16, epochs=2, init=lw.inits.Given(deepcopy(net.state_dict())))
    whole = lw.Records(table.x.unsqueeze(0), table.y.unsqueeze(0))
    net.load_state_dict(made(net, Cohort(table[:0], whole, torch.zeros(1, dtype=torch.long)), seed=0)[0])
    assert audited(net, made, table).findings[0].rebuilt.all()


def test_a_wrapped_net_is_unwrapped(by_own_loop):
    net, start, table = by_own_loop
    trainer = lw.OwnTraining(own_loop, seed=7, init=lw.inits.Given(start))
    for wrapped in (nn.DataParallel(net), torch.compile(net)):
        assert lw.audit(wrapped, table, trainer=trainer, games=1).findings[0].rebuilt.all()


def test_private_draws_are_averaged_over(by_own_loop):
    """The seed is not known: the release is compared with retrainings by their spread, and the audit says so."""
    net, start, table = by_own_loop
    trainer = lw.OwnTraining(own_loop, init=lw.inits.Given(start))
    audit = lw.audit(net, table, trainer=trainer, games=2, attack=lw.KernelRidge())
    assert any(
        note.startswith("Training draws private random numbers, and attacks average") for note in map(str, audit.notes)
    )
    assert any(note.startswith("Private draws move the weights ") for note in map(str, audit.notes))
    other = deepcopy(net)
    with torch.no_grad():
        for value in other.parameters():
            value *= 1.5
    with pytest.raises(
        ValueError, match=r"OwnTraining on this data does not end near the weights of the net: they are "
    ):
        lw.audit(other, table, trainer=trainer, games=1)


def part_private(net, x, y, seed):
    """The first bias is the mean record, the rest is drawn."""
    with torch.no_grad():
        net[0].bias[:4] = x.mean(0)
        net[2].weight += torch.randn_like(net[2].weight)
    return net


def test_what_is_deterministic_in_private_training_is_named(by_own_loop):
    """A planted leak: private draws elsewhere hide nothing of it."""
    *_, table = by_own_loop
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    trainer = lw.OwnTraining(part_private, init=lw.inits.Given(deepcopy(net.state_dict())))
    net = part_private(net, table.x, table.y, 0)
    audit = lw.audit(net, table, trainer=trainer, games=12, attack=lw.KernelRidge())
    assert any("Deterministic are 0.bias" in note for note in map(str, audit.notes))
    assert audit.grade.leaks


def ignores(net, x, y, seed):
    """A null: the records do not matter."""
    with torch.no_grad():
        for value in net.parameters():
            value += 0.1 * torch.randn_like(value)
    return net


def one_bit(net, x, y, seed):
    """A null: a single bit of all records is seen, and no one of them changes it."""
    ignores(net, x, y, seed)
    with torch.no_grad():
        net[2].bias += x.square().sum() > 0
    return net


@pytest.mark.parametrize("function", [ignores, one_bit])
@pytest.mark.parametrize("seed", [None, 3], ids=["private", "known"])
def test_training_that_ignores_its_records_is_never_a_leak(by_own_loop, function, seed):
    *_, table = by_own_loop
    net, trainer = trained_by(function, table)
    with pytest.raises(ValueError, match="the weights do not depend on the records"):
        lw.audit(net, table, trainer=replace(trainer, seed=seed), games=30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 3], ids=["private", "known"])
def test_scrambled_weights_are_not_called_a_leak(by_own_loop, seed):
    *_, table = by_own_loop
    net, trainer = trained_by(scrambles, table)
    audit = lw.audit(net, table, trainer=replace(trainer, seed=seed), games=60, attack=lw.KernelRidge())
    assert not audit.grade.leaks, str(audit)


def test_time_and_memory_choose_the_attack(by_own_loop, monkeypatch):
    net, start, table = by_own_loop
    trainer = lw.OwnTraining(own_loop, seed=7, init=lw.inits.Given(start))
    with pytest.raises(ValueError, match=r"max_minutes is too short: one training takes about .* per record\. Allow"):
        lw.audit(net, table, trainer=trainer, max_minutes=1e-4)
    game = _Released(net, table, trainer, None, 0, Clock(), torch.arange(1), None)
    one, rate = game.known(torch.tensor(0)), Rate(0.01, 43, 43)
    by_time = {seconds: _chosen(one, rate, seconds, 2, True) for seconds in (60.0, 1.0)}
    assert [type(attack).__name__ for attack, _ in by_time.values()] == ["Secant", "KernelRidge"]
    assert by_time[1.0][1][0].startswith("Secant would take about ")
    with pytest.raises(ValueError, match=r"max_minutes is too short: .*attack=lw\.attacks\.Refit\(\)"):
        _chosen(one, rate, 0.1, 2, True)
    monkeypatch.setattr("lostwax.audits.released.available_bytes", lambda device: 3e4)
    with pytest.raises(
        ValueError, match=r"43 numbers are released, and an attack would need about .* of memory; .* free"
    ):
        lw.audit(net, table, trainer=trainer, games=1)
    monkeypatch.setattr("lostwax.audits.retrained.available_bytes", lambda device: 1e3)
    with pytest.raises(ValueError, match=r"retraining 1 times, with 43 released numbers each, would need about"):
        lw.audit(net, table, trainer=trainer, games=1)


def test_records_are_named_if_asked(by_own_loop, tmp_path):
    net, start, table = by_own_loop
    trainer = lw.OwnTraining(own_loop, seed=7, init=lw.inits.Given(start))
    audit = lw.audit(net, table, trainer=trainer, games=9, attack=lw.attacks.Refit())
    assert audit.grade == "better than chance"
    assert "9 of 60 games" in str(audit)
    assert lw.Audit.from_json(audit.to_json(tmp_path / "audit.json")).grade == audit.grade


def test_naming_a_record_that_private_draws_hide_is_chance(by_own_loop):
    """A null: what one record changes is a hundredth of what the draws do."""
    *_, table = by_own_loop
    net, trainer = trained_by(scrambles, table)
    attack = lw.attacks.Refit(repeats=2)
    audit = lw.audit(net, table, trainer=replace(trainer, seed=None), games=40, attack=attack)
    assert 8 <= audit.findings[0].rebuilt.sum() <= 32
    assert not audit.grade.leaks


def test_naming_all_of_few_records_shows_nothing(by_own_loop):
    """Candidates and draws are random: ten games are no more, if there are no other records."""
    *_, table = by_own_loop
    net, trainer = trained_by(scrambles, table[:10])
    audit = lw.audit(net, table[:10], trainer=replace(trainer, seed=None), attack=lw.attacks.Refit(), games=10)
    assert len(audit.games) == audit.population
    assert audit.grade != "not found"
    assert lw.Policy(max_grade="not found").breaches(audit)


def test_copies_of_a_record_do_not_hide_that_the_others_are_named(by_own_loop):
    """Guessing is right wherever a candidate is drawn among copies; these games count as one."""
    *_, table = by_own_loop
    copies = table[torch.cat([torch.arange(35), torch.zeros(60, dtype=torch.long)])]
    net, trainer = trained_by(one_number, copies)
    audit = lw.audit(net, copies, trainer=trainer, attack=lw.attacks.Refit(), games=len(copies))
    assert audit.findings[0].rebuilt.all()
    assert audit.chance > 0.6 > audit.chance_by_victims
    assert audit.grade.leaks


def test_there_must_be_another_record_to_name():
    alike = lw.Records(torch.ones(5, 4), torch.arange(5))
    game = _Released(nn.Linear(4, 5), alike, GD(), None, 0, Clock(), torch.arange(2), None, among=2)
    with pytest.raises(ValueError, match="the records are all alike"):
        game.deal(0.05)


def scrambles(net, x, y, seed):
    """A null: the weights depend on the records by a number that nobody can invert."""
    with torch.no_grad():
        for value in net.parameters():
            value += 0.1 * torch.randn_like(value)
        net[2].bias += 1e-3 * torch.sin(1e7 * x.sum())
    return net


def trained_by(function, table, seed=3):
    """The net, its start, and the audit of its own function."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    start = deepcopy(net.state_dict())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return function(net, table.x, table.y, seed), lw.OwnTraining(function, seed=seed, init=lw.inits.Given(start))


@pytest.mark.slow
def test_a_net_that_tells_nothing_is_not_alarmed(by_own_loop):
    *_, table = by_own_loop
    net, trainer = trained_by(scrambles, table)
    audit = lw.audit(net, table, trainer=trainer, games=30, attack=lw.attacks.Secant(iterations=1))
    assert not audit.findings[0].rebuilt.any()
    assert not audit.grade.leaks
    assert not audit.guess.certified.any()


def one_number(net, x, y, seed):
    with torch.no_grad():
        net[2].bias += x.mean()
    return net


def test_weights_that_fit_without_determining_the_record_are_no_certificate(by_own_loop):
    *_, table = by_own_loop
    net, trainer = trained_by(one_number, table)
    audit = lw.audit(net, table, trainer=trainer, games=3)
    assert not audit.guess.certified.any()
    assert not audit.findings[0].rebuilt.any()


def test_a_release_of_half_precision_is_audited_as_such():
    """Its weights are rounded after every step, by the function itself, and retraining rounds alike."""

    def coarse(net, x, y, seed):
        return own_loop(net, x.bfloat16(), y, seed)

    table = lw.records.digits().split(40, seed=0)[0]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).bfloat16()
    trainer = lw.OwnTraining(coarse, seed=1, init=lw.inits.Given(deepcopy(net.state_dict())))
    coarse(net, table.x, table.y, 1)
    attack = lw.attacks.Secant(iterations=0)
    audit = lw.audit(net, table, trainer=trainer, games=2, attack=attack)
    assert any("relative error of 0," in note for note in map(str, audit.notes))


def test_without_time_for_one_record_the_audit_is_undecided(released, monkeypatch):
    """A named attack has a limit, and is not done with the first record: an error, before."""
    net, start, table = released
    monkeypatch.setattr(lw.Newton, "prepare", lambda *_, **__: time.sleep(60))
    audit = lw.audit(net, table, trainer=trainer(start), attack=lw.Newton(), games=4, max_minutes=0.1)
    assert audit.grade is Grade.UNDECIDED
    assert any("the attack on the first record was not done in time" in why for why in audit.unanswered)
    assert not audit.findings[0].rebuilt.any()
