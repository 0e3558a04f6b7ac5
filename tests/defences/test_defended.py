"""A defended trainer is a trainer: everybody downstream sees what is published."""

import pytest
import torch

import lostwax as lw
from lostwax.defences import Defended, Quantised, Rounded, WeightNoise
from lostwax.inits import LeCunNormal

TRAINER = lw.GD(lr=0.2, momentum=0.9, steps=10, init=LeCunNormal(seed=None), tile=4)
NOISE = WeightNoise(0.1)


@pytest.fixture(scope="module")
def parts():
    return lw.records.digits().split(60, 40, 20, seed=0)


@pytest.fixture
def net():
    return lw.nets.mlp(64, 6, 10)


def test_it_trains_and_then_defends(net, parts):
    cohort = lw.Informed(parts[0]).deal(parts[2], 6, seed=0)
    released = Defended(TRAINER, by=Rounded())(net, cohort, seed=3)
    trained = TRAINER(net, cohort, seed=3)
    assert torch.equal(released.flat(), trained.flat().half().float())


@pytest.mark.parametrize("by", [Quantised(), NOISE], ids=repr)
def test_chunks_of_whole_tiles_change_no_byte(by, net, parts):
    def weights(chunk):
        trainer, threat, engine = Defended(TRAINER, by=by), lw.Informed(parts[0]), lw.shadows.Local(chunk)
        chunks = lw.simulate(net, trainer=trainer, threat=threat, prior=parts[1], models=12, seed=1, engine=engine)
        return torch.cat([release.flat() for _, release in chunks])

    assert torch.equal(weights(4), weights(12))


def test_defences_follow_each_other_in_order(net, parts):
    cohort = lw.Informed(parts[0]).deal(parts[2], 3, seed=0)
    once = Defended(TRAINER, by=Rounded())(net, cohort, seed=0)
    twice = Defended(Defended(TRAINER, by=Rounded()), by=Quantised(4))(net, cohort, seed=0)
    assert torch.equal(twice.flat(), Quantised(4)(once, range(3), seed=0).flat())
    assert all(len(value.unique()) <= 15 for value in twice[0].values())


def test_noise_on_noise_is_drawn_afresh(net, parts):
    """Draws that were the same would add up to twice the noise, not to the square root of twice."""
    cohort = lw.Informed(parts[0]).deal(parts[2], 20, seed=0)
    bare = TRAINER(net, cohort, seed=0).params["1.weight"]
    one = Defended(TRAINER, by=NOISE)
    first, second = (trainer(net, cohort, seed=0).params["1.weight"] for trainer in (one, Defended(one, by=NOISE)))
    pair = torch.stack([(first - bare).flatten(), (second - first).flatten()])
    assert abs(torch.corrcoef(pair)[0, 1]) < 4 / pair.shape[1] ** 0.5


def test_it_computes_as_many_models_at_a_time_as_its_trainer(net, parts):
    cohort = lw.Informed(parts[0]).deal(parts[2], 2, seed=0)
    assert Defended(TRAINER, by=NOISE).tile_size(net, cohort) == 4


def test_an_audit_plays_against_what_is_published_and_says_so(net, parts):
    """Who trains on both candidates and defends them alike is always right: rounding is no secret."""
    known, prior, secrets = parts
    trainer = Defended(Defended(lw.GD(lr=0.2, momentum=0.9, steps=10), by=Rounded()), by=Quantised())
    threat = lw.Informed(known, candidates=2)
    audit = lw.audit(net, trainer=trainer, threat=threat, attack=lw.attacks.Refit(), prior=prior, secrets=secrets)
    assert audit.findings[0].rebuilt.all()
    assert audit.subject == (
        "Sequential trained by GD, defended by Rounded(dtype=torch.float16), defended by Quantised(bits=8)"
    )


def test_shadow_models_are_defended_too(net, parts):
    """Or else a decoder would learn from models unlike the one it is shown."""
    known, prior, secrets = parts
    defended = []

    def by(release, numbers, *, seed):
        defended.extend((seed, number) for number in numbers)
        return Rounded()(release, numbers, seed=seed)

    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=16), epochs=1)
    trainer = Defended(lw.GD(lr=0.2, steps=5), by=by)
    lw.audit(net, trainer=trainer, threat=lw.Informed(known), attack=attack, prior=prior, secrets=secrets, games=4)
    assert len(defended) == len(set(defended)) == len(prior) + 4  # and the adversary shares no victim's draw
