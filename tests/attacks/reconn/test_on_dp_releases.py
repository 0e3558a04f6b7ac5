"""RecoNN needs nothing new for victims of DP-SGD: its shadow models are trained by the same trainer."""

import pytest

import lostwax as lw


@pytest.mark.slow
def test_noise_takes_from_it_what_the_ceiling_says_it_must():
    known, prior, secrets = lw.records.digits().split(100, 1_200, 60, seed=0)
    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=256), epochs=25)
    errors, blind = {}, {}
    for epsilon in (5, 1e6):
        audit = lw.audit(
            lw.nets.mlp(64, 10, 10),
            trainer=lw.DPSGD.for_epsilon(epsilon, steps=30, lr=0.2, momentum=0.9, clip=1.0, publish_steps=False),
            threat=lw.Informed(known),
            attack=attack,
            prior=prior,
            secrets=secrets,
        )
        errors[epsilon] = audit.errors.mean()
        blind[epsilon] = audit.baselines["blind guess (mean of the prior)"][audit.metric].mean()
        assert audit.findings[0].rebuilt.mean() <= audit.ceiling.upper
    assert errors[5] > 0.9 * blind[5]
    assert errors[1e6] < 0.4 * blind[1e6]
