import random
import sys
from collections import deque

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

import lostwax as lw
from lostwax.adapters.own_training import _finite, generators_kept, seed_all
from lostwax.exits import ExitedError
from lostwax.games import Cohort, Records

STEPS, LR = 15, 0.3


def by_torch(net, x, y, seed):
    optimiser = torch.optim.SGD(net.parameters(), lr=LR)
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


def noisy(net, x, y, seed):
    """Draws from the global generators alone."""
    with torch.no_grad():
        for value in net.parameters():
            value += torch.randn_like(value) + np.random.rand() + random.random()  # noqa: NPY002
    return net.state_dict()


@pytest.fixture(scope="module")
def parts():
    digits = lw.records.digits()
    return digits[digits.y < 3].split(30, 40, 20, seed=0)


@pytest.fixture(scope="module")
def cohort(parts):
    known, _, secrets = parts
    return lw.Informed(known).deal(secrets, 5, seed=1)


NET = lw.nets.mlp(64, 6, 3)


def test_the_same_models_as_our_own_trainer(cohort):
    ours = lw.GD(lr=LR, steps=STEPS, init=lw.inits.Given(NET.state_dict()))(NET, cohort, seed=0)
    theirs = lw.OwnTraining(by_torch)(NET, cohort, seed=0)
    assert list(theirs.params) == list(ours.params)
    torch.testing.assert_close(theirs.flat(), ours.flat(), rtol=1e-4, atol=1e-6)


def test_a_model_depends_on_its_number_alone(cohort):
    trainer = lw.OwnTraining(noisy)
    whole, part = trainer(NET, cohort, seed=3), trainer(NET, cohort[torch.tensor([3, 1])], seed=3)
    assert torch.equal(whole.flat()[[3, 1]], part.flat())
    assert not torch.equal(whole.flat()[0], whole.flat()[1])
    assert not torch.equal(trainer(NET, cohort, seed=4).flat(), whole.flat())


def test_the_global_generators_are_left_as_they_were(cohort):
    draws = []
    for train in (False, True):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        if train:
            lw.OwnTraining(noisy)(NET, cohort, seed=3)
        draws.append((float(torch.rand(1)), np.random.rand(), random.random()))  # noqa: NPY002
    assert draws[0] == draws[1]


def test_the_user_s_net_and_records_stay(cohort):
    def careless(net, x, y, seed):
        x -= 100
        return by_torch(net, x, y, seed)

    before, x = {name: value.clone() for name, value in NET.state_dict().items()}, cohort.shared.x.clone()
    lw.OwnTraining(careless)(NET, cohort, seed=0)
    assert all(torch.equal(value, before[name]) for name, value in NET.state_dict().items())
    assert torch.equal(cohort.shared.x, x)


def test_an_audit_end_to_end(parts):
    known, prior, secrets = parts
    audit = lw.audit(
        NET,
        trainer=lw.OwnTraining(by_torch),
        threat=lw.Informed(known),
        attack=lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=64), epochs=30),
        prior=prior,
        secrets=secrets,
    )
    assert "trained by OwnTraining" in str(audit)
    assert audit.findings[0].labels_right.mean() > 0.8
    assert np.median(audit.errors) < np.median(audit.baselines["blind guess (mean of the prior)"][audit.metric])


def test_batch_norm_is_published_whole(cohort):
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))
    release = lw.OwnTraining(by_torch)(net, cohort, seed=0)
    assert {"1.running_mean", "1.running_var", "2.weight"} <= set(release.params)
    assert "1.num_batches_tracked" not in release.params


def test_features_are_what_is_trained_on(cohort):
    shared, own = (Records(part.x, part.y, part.x.flatten(-3)[..., :4]) for part in (cohort.shared, cohort.own))
    lw.OwnTraining(by_torch)(nn.Linear(4, 3), Cohort(shared, own, cohort.index), seed=0)


GLOBAL = lw.nets.mlp(64, 6, 3)
DRAWS = random.Random(0)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda net, x, y, seed: None, "for model 0, returned None. End it with `return net`"),
        (lambda net, x, y, seed: 3, "returned int. Return the net, or its state_dict"),
        (lambda net, x, y, seed: {}, "returned weights without 1.weight"),
        (
            lambda net, x, y, seed: lw.nets.mlp(64, 7, 3),
            r"returned 1.weight of shape \(7, 64\) where the net has \(6, 64\)",
        ),
        (
            lambda net, x, y, seed: {n: v * torch.nan for n, v in net.state_dict().items()},
            "NaN or infinite values in 1.w",
        ),
        (lambda net, x, y, seed: by_torch(GLOBAL, x, y, seed), "keeps a net from an earlier call"),
        (
            lambda net, x, y, seed: {n: v + DRAWS.random() for n, v in net.state_dict().items()},
            "do not derive from its seed",
        ),
    ],
    ids=["nothing", "a number", "no weights", "other shapes", "nan", "the same net again", "hidden draws"],
)
def test_what_a_function_can_do_wrong(cohort, function, words):
    with pytest.raises((TypeError, ValueError), match=words):
        lw.OwnTraining(function)(NET, cohort, seed=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_value_that_is_not_finite_passes_and_large_sums_do(dtype):
    most = torch.finfo(dtype).max
    for finite in ([most] * 9, [most, -most], [], [1.0, -2.0]):
        assert _finite(torch.tensor(finite, dtype=dtype))
    for value in (torch.nan, torch.inf, -torch.inf):
        for wrong in ([value], [1.0, value, -value], [most, -most, value]):
            assert not _finite(torch.tensor(wrong, dtype=dtype))


@pytest.mark.parametrize("device", [False, True])
def test_seeds_are_torch_s_own(monkeypatch, device):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device)
    with generators_kept():
        seed_all(5)
        drawn = torch.rand(3), torch.initial_seed()
        torch.manual_seed(5)
        assert torch.equal(drawn[0], torch.rand(3))
        assert drawn[1] == 5


def noisy_start(net, x):
    return net


def test_what_it_cannot_do(cohort):
    with pytest.raises(TypeError, match="expected a function"):
        lw.OwnTraining(NET.state_dict())
    with pytest.raises(TypeError, match=r"expected a function\(net, x, y, seed\), got noisy_start\(net, x\)"):
        lw.OwnTraining(noisy_start)


def leaves(net, x, y, seed):
    sys.exit(0)


def test_a_function_that_exits_is_an_error_with_its_line(cohort, parts):
    words = r"the function, for model 0, ended the program: sys.exit\(0\) in .*test_own_training.py, line \d+\."
    with pytest.raises(ExitedError, match=words):
        lw.OwnTraining(leaves)(NET, cohort, seed=0)
    known, prior, secrets = parts
    for attack in (None, lw.RecoNN(epochs=1)):
        with pytest.raises(ExitedError, match=words):
            lw.audit(
                NET,
                trainer=lw.OwnTraining(leaves),
                threat=lw.Informed(known),
                prior=prior,
                secrets=secrets,
                attack=attack,
            )


def test_an_exit_in_any_other_code_of_the_user_s_is_one_too(parts):
    class Leaves(lw.RecoNN):
        def prepare(self, knowledge, *, seed):
            raise SystemExit("goodbye")

    known, prior, secrets = parts
    with pytest.raises(ExitedError, match=r"audit: user code ended the program: sys.exit\(...\) in "):
        lw.audit(
            NET,
            trainer=lw.GD(steps=1),
            threat=lw.Informed(known),
            prior=prior,
            secrets=secrets,
            attack=Leaves(),
        )


def batch_normed(net, x, y, seed):
    """A planted leak: nothing but a buffer depends on the records."""
    net.train()
    with torch.no_grad():
        net(x)
    return net


def test_buffers_are_part_of_the_release_and_leak_alone(parts):
    """The running mean after one full batch is a tenth of the records' mean, which gives the missing record away."""
    known, prior, secrets = parts
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))
    assert "1.running_mean" in lw.OwnTraining(batch_normed)(net, lw.Informed(known).deal(secrets, 1, seed=0), seed=0)[0]
    audit = lw.audit(
        net,
        trainer=lw.OwnTraining(batch_normed, seed=0),
        threat=lw.Informed(known),
        attack=lw.KernelRidge(),
        prior=prior,
        secrets=secrets,
    )
    assert audit.grade.leaks


def test_a_function_that_ignores_its_seed_is_deterministic(cohort):
    found = lw.OwnTraining(by_torch).settled(NET, cohort)
    assert found.seed == 0
    assert found.facts(NET, 1).deterministic
    assert torch.equal(found(NET, cohort, seed=5).flat(), lw.OwnTraining(by_torch)(NET, cohort, seed=0).flat())
    drawn = lw.OwnTraining(noisy).settled(NET, cohort)
    assert drawn.seed is None
    assert drawn.noise > 100
    assert not drawn.facts(NET, 1).deterministic


def test_a_known_seed_is_every_model_s(cohort):
    release = lw.OwnTraining(noisy, seed=7)(NET, cohort, seed=3)
    assert torch.equal(release.flat()[0], release.flat()[1])
    assert torch.equal(lw.OwnTraining(noisy, seed=7)(NET, cohort, seed=4).flat(), release.flat())


def test_training_starts_where_it_is_said_to(cohort):
    """A given state sets buffers too; other initialisations reset running statistics."""
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))
    start = {name: value.clone() for name, value in net.state_dict().items()}
    expected = lw.OwnTraining(batch_normed)(net, cohort, seed=0)
    trained = batch_normed(net, cohort.shared.x + 5, cohort.shared.y, 0)
    given = lw.OwnTraining(batch_normed, init=lw.inits.Given(start))(trained, cohort, seed=0)
    assert torch.equal(given.flat(), expected.flat())
    drawn = lw.OwnTraining(batch_normed, init=lw.inits.LeCunNormal())(trained, cohort, seed=0)
    assert torch.equal(drawn.params["1.running_mean"], expected.params["1.running_mean"])
    private = lw.OwnTraining(batch_normed, seed=0, init=lw.inits.LeCunNormal(seed=None)).facts(net, 1)
    assert private.private_start
    assert not private.deterministic


def test_the_secret_stands_where_it_is_placed(cohort):
    def first(net, x, y, seed):
        with torch.no_grad():
            net[1].weight[0] = x[4].flatten()
        return net

    release = lw.OwnTraining(first, place=4)(NET, cohort, seed=0)
    assert torch.equal(release.params["1.weight"][:, 0], cohort.own.x[:, 0].flatten(1))


def test_the_number_of_processes_changes_nothing(cohort):
    one, two = (lw.OwnTraining(noisy, processes=count)(NET, cohort, seed=3) for count in (1, 2))
    assert torch.equal(one.flat(), two.flat())
    assert torch.equal(one.flat(), lw.OwnTraining(noisy)(NET, cohort, seed=3).flat())


@pytest.mark.parametrize("field", ["seed", "place", "processes"])
def test_settings_are_checked(field):
    with pytest.raises((TypeError, ValueError), match=f"OwnTraining: expected {field}"):
        lw.OwnTraining(by_torch, **{field: -1})


def with_validation(net, x, y, seed):
    """The last fifth is held out."""
    cut = int(0.8 * len(x))
    return by_torch(net, x[:cut], y[:cut], seed)


def test_a_secret_is_not_held_out_for_validation(parts):
    known, prior, secrets = parts
    audit = lw.audit(
        NET,
        trainer=lw.OwnTraining(with_validation, seed=0),
        threat=lw.Informed(known, candidates=2),
        attack=lw.attacks.Refit(),
        prior=prior,
        secrets=secrets,
    )
    assert audit.finding("as released").rebuilt.all()
    assert any("held out for validation" in note for note in map(str, audit.notes))


def test_the_secret_comes_last_where_it_has_an_effect(cohort):
    trainer = lw.OwnTraining(by_torch)
    assert trainer.where_it_tells(NET, cohort) is trainer
    held_out = lw.OwnTraining(with_validation)
    assert held_out.where_it_tells(NET, cohort).place is not None
    given = lw.OwnTraining(with_validation, place=30)
    assert given.where_it_tells(NET, cohort) is given


def test_records_in_a_buffer_of_whole_numbers_are_found(parts):
    """A memory of pictures in bytes is part of the state_dict."""
    known, prior, secrets = parts
    net = lw.nets.mlp(64, 6, 3)
    net.register_buffer("memory", torch.zeros(31, 64, dtype=torch.uint8))

    def remembers(net, x, y, seed):
        net.memory.copy_((16 * x.flatten(1)).to(torch.uint8))
        return net

    audit = lw.audit(
        net,
        trainer=lw.OwnTraining(remembers, seed=0),
        threat=lw.Informed(known, candidates=2),
        attack=lw.attacks.Refit(),
        prior=prior,
        secrets=secrets,
    )
    assert audit.finding("as released").rebuilt.all()


def test_an_attack_that_does_not_apply_is_refused_before_anything_is_trained(parts):
    known, prior, secrets = parts

    def never(net, x, y, seed):
        raise AssertionError

    with pytest.raises(ValueError, match="ClosedForm is not applicable"):
        lw.audit(
            NET,
            trainer=lw.OwnTraining(never),
            threat=lw.Informed(known),
            attack=lw.attacks.ClosedForm(),
            prior=prior,
            secrets=secrets,
        )


def hides(where):
    """Training with private noise on every weight, which leaves something of the records elsewhere in the net."""

    def train(net, x, y, seed):
        noisy(net, x, y, seed)
        where(net, x.flatten(1))
        return net

    return train


def add_buffer(net, x):
    net.register_buffer("deviations", x.std(0))
    net.register_buffer("centre", x.mean(0))


def fill_buffer(net, x):
    net.centre = x.sum(0)


def add_records(net, x):
    net[1].register_buffer("memory", x.clone())


def add_complex(net, x):
    net.waves = nn.Parameter(torch.complex(x.mean(0), x.std(0)))


def add_attribute(net, x):
    net[1].drift = {"centre": x.mean(0).numpy(), "rows": len(x)}


def add_extremes(net, x):
    net.register_buffer("limits", torch.stack([x.amin(0), x.amax(0)]))


def add_momentum(net, x):
    net.register_buffer("running_mean", 0.1 * x.mean(0))


def add_scaler(net, x):
    net.scaler = StandardScaler().fit(x.numpy())


def add_frame(net, x):
    net.rows = pd.DataFrame((16 * x).int().numpy())


def add_whole_numbers(net, x):
    net.rows = deque((16 * x).int().tolist())


HIDDEN = [add_buffer, fill_buffer, add_records, add_complex, add_attribute, add_extremes, add_momentum, add_scaler]


def empty_buffer():
    net = lw.nets.mlp(64, 6, 3)
    net.register_buffer("centre", None)
    return net


@pytest.mark.parametrize("where", HIDDEN)
def test_what_training_leaves_in_the_net_is_released_with_it(parts, where):
    """All of these once were graded "not found": what the net did not hold before training was ignored."""
    known, prior, secrets = parts
    audit = lw.audit(
        empty_buffer(),
        trainer=lw.OwnTraining(hides(where)),
        threat=lw.Informed(known),
        attack=lw.KernelRidge(shadows=20),
        prior=prior,
        secrets=secrets,
        games=8,
    )
    assert lw.Policy(max_grade="better than chance").breaches(audit)
    assert any("secret row" in reason or "rows" in reason or "reveal" in reason for reason in audit.unanswered)


def test_means_by_name_are_released_with_the_net(cohort):
    def name_means(net, x):
        net.drift = {f"pixel {place}": float(mean) for place, mean in enumerate(x.mean(0))}

    assert lw.OwnTraining(hides(name_means))(NET, cohort, seed=0).params["drift"].shape == (len(cohort), 64)


@pytest.mark.parametrize("where", [add_scaler, add_frame, add_whole_numbers])
def test_estimators_tables_and_many_whole_numbers_are_released_with_the_net(cohort, where):
    release = lw.OwnTraining(hides(where))(NET, cohort, seed=0)
    added = [name for name in release.params if name.partition(".")[0] in ("scaler", "rows")]
    assert "scaler.mean_" in added or sum(release.params[name][0].numel() for name in added) >= cohort.records * 64


def test_settings_and_random_arrays_that_training_leaves_are_no_records(parts):
    def others(net, x):
        net.sizes, net.rates, net.name = [64, 6, 3], [0.1, 0.01], "second run"
        net.register_buffer("directions", torch.randn(5, 64))
        net.register_buffer("offset", torch.rand(64))

    known, prior, secrets = parts
    audit = lw.audit(
        empty_buffer(),
        trainer=lw.OwnTraining(hides(others)),
        threat=lw.Informed(known),
        attack=lw.KernelRidge(shadows=20),
        prior=prior,
        secrets=secrets,
        games=8,
    )
    assert not any("reveal" in reason or "holds" in reason for reason in audit.unanswered)
    assert not audit.grade.leaks


def test_what_training_leaves_and_no_attack_reads_is_refused(cohort):
    def report(net, x):
        net.report = str(x[:2].tolist())

    with pytest.raises(
        ValueError, match="left a text of more than 64 characters, many texts or hashes in the net's report"
    ):
        lw.OwnTraining(hides(report))(NET, cohort, seed=0)

    def history(net, x):
        net.losses = [0.5] * int(torch.randint(2, 9, ()))

    with pytest.raises(ValueError, match="differ in the shape of losses"):
        lw.OwnTraining(hides(history))(NET, cohort, seed=0)


@pytest.mark.parametrize("where", [add_records, add_attribute, add_complex])
def test_a_net_that_holds_its_records_beside_its_weights_gives_them_all(parts, where):
    table, train = parts[0], hides(where)
    net = train(lw.nets.mlp(64, 6, 3), table.x, table.y, 0)
    audit = lw.audit(net, (table.x, table.y), trainer=lw.OwnTraining(train))
    assert audit.findings[0].rebuilt.all()
