"""Canaries in one run of the real size: planted by coins, scored by losses and steps."""

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.bounds import LastWeights
from lostwax.claims import check_dp_once, plant

DATA = lw.Records(torch.randn(60, 12, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3)


def dpsgd(noise, rate, steps, scale=1.0, silent=()):
    def train(net, x, y, seed):
        draws = torch.Generator().manual_seed(seed)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)

        def loss(params, record, label):
            out = torch.func.functional_call(net, params, (record.unsqueeze(0),))
            return nn.functional.cross_entropy(out, label.unsqueeze(0))

        for _ in range(steps):
            drawn = torch.rand(len(x), generator=draws) < rate
            params = {name: value.detach() for name, value in net.named_parameters()}
            each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(params, x[drawn], y[drawn])
            norms = torch.stack([value.flatten(1).square().sum(1) for value in each.values()]).sum(0).sqrt()
            for name, value in net.named_parameters():
                total = torch.einsum("b,b...->...", (1 / norms).clamp_max(1), each[name])
                added = (0 if name in silent else scale * noise) * torch.randn(value.shape, generator=draws)
                value.grad = (total + added) / (rate * len(x))
            optimiser.step()
        return net

    return train


def net(width=16):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, width), nn.Tanh(), nn.Linear(width, 3))


def test_coins_decide_and_the_order_tells_nothing():
    wide = lw.Records(torch.randn(60, 50), DATA.y)  # no two canaries are alike
    planted = plant(wide, 200, seed=3)
    assert 60 < planted.inside.sum() < 140
    assert len(planted.records) == 60 + planted.inside.sum()
    rows = {tuple(row.tolist()) for row in planted.records.x}
    assert [tuple(row.tolist()) in rows for row in planted.canaries.x] == planted.inside.tolist()
    assert not torch.equal(planted.records.x[:60], wide.x)
    again = plant(wide, 200, seed=3)
    assert torch.equal(planted.records.x, again.records.x)
    assert (plant(wide, 200, seed=4).inside != planted.inside).any()
    own = plant(DATA, DATA[:10], seed=0)
    assert torch.equal(own.canaries.x, DATA.x[:10])


RUN = {"noise_multiplier": 1.0, "sample_rate": 0.3, "steps": 12}


def test_a_true_claim_stands_and_a_false_one_falls():
    true = check_dp_once(net(), (DATA.x, DATA.y), dpsgd(1.0, 0.3, 12), canaries=80, **RUN)
    assert not true.refuted
    assert true.epsilon <= true.mechanism_epsilon <= true.claimed
    claim = {**RUN, "noise_multiplier": 4.0}
    false = check_dp_once(net(), (DATA.x, DATA.y), dpsgd(4.0, 0.3, 12, scale=0.02), canaries=150, **claim)
    assert false.refuted
    assert false.mechanism_epsilon > false.claimed
    assert false.scored == "steps"
    assert "The claim is false" in str(false)


def test_a_layer_without_noise_is_found():
    claim = {**RUN, "noise_multiplier": 4.0}
    train = dpsgd(4.0, 0.3, 12, silent=("2.weight", "2.bias"))
    result = check_dp_once(net(80), (DATA.x, DATA.y), train, canaries=60, **claim)
    assert result.refuted
    assert result.scored == "steps"
    assert not check_dp_once(net(80), (DATA.x, DATA.y), dpsgd(4.0, 0.3, 12), canaries=60, **claim).refuted


def test_own_scores_of_a_run_elsewhere():
    planted = plant(DATA, 300, seed=0)
    random = np.random.default_rng(0)
    telling = planted.inside + 0.05 * random.standard_normal(300)
    result = planted.check(telling, random.standard_normal(300), epsilon=1.0, delta=1e-5)
    assert result.refuted
    assert result.scored == "score 1"
    assert result.epsilon > 2
    assert result.mechanism_epsilon == 0  # no mechanism is claimed
    assert not planted.check(random.standard_normal(300), epsilon=1.0).refuted
    for wrong in ((), (telling[:5],), (telling * np.nan,)):
        with pytest.raises(ValueError, match="expected"):
            planted.check(*wrong, epsilon=1.0)
    with pytest.raises(ValueError, match="either noise_multiplier or epsilon"):
        planted.check(telling)


def test_the_last_weights_alone_are_scored_by_losses():
    head = nn.Sequential(lw.nets.ShortFeatures(1.0), nn.Linear(12, 3))
    released = LastWeights(lr=0.5, smoothness=1.0, convexity=0.0)
    claim = {"noise_multiplier": 8.0, "steps": 5, "released": released}
    result = check_dp_once(head, (DATA.x, DATA.y), dpsgd(8.0, 1.0, 5), canaries=50, **claim)
    assert result.scored == "losses"


def test_opacus_steps_are_read():
    opacus = pytest.importorskip("opacus")

    def train(net, x, y, seed):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=30)
        engine = opacus.PrivacyEngine()
        model, optimiser, loader = engine.make_private(
            module=net, optimizer=optimiser, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
        for xs, ys in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(xs), ys).backward()
            optimiser.step()
        return model

    result = check_dp_once(net(), (DATA.x, DATA.y), train, canaries=60, noise_multiplier=1.0, sample_rate=0.34, steps=3)
    assert not result.refuted
