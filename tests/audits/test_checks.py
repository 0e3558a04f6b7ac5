"""Bad input is met before any work, with the argument and the cure in the words."""

import pytest
import torch

import lostwax as lw
from audits.game import KNOWN, PRIOR, SECRETS, Reads, audited
from lostwax.games import Records


class Untouched(Reads):
    """An attack that must not be prepared."""

    def prepare(self, knowledge, *, seed):
        raise AssertionError("worked in vain")


def joined(*parts):
    return Records(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"prior": joined(PRIOR, KNOWN[4:7])},
            "prior: 3 of 503 records are also in threat.known (first: prior row 500 = threat.known row 4). "
            "A shadow model then holds one twice. prior.without(known) leaves them out.",
        ),
        (
            {"secrets": joined(SECRETS, KNOWN[9:10])},
            "secrets: 1 of 201 records are also in threat.known (first: secrets row 200 = threat.known row 9).",
        ),
        (
            {"secrets": joined(PRIOR[17:19], SECRETS)},
            "secrets: 2 of 202 records are also in prior (first: secrets row 0 = prior row 17).",
        ),
    ],
    ids=["prior-known", "secrets-known", "secrets-prior"],
)
def test_records_in_two_places_are_named(changes, words):
    (note,) = (note for note in map(str, audited(Reads(), **changes).notes) if "records are also in" in note)
    assert words in note
    assert f"note: {note}" in str(audited(Reads(), **changes))


def test_disjoint_parts_have_no_notes():
    clean = joined(SECRETS, PRIOR[:5], KNOWN[:5]).without(KNOWN, PRIOR)
    for audit in (audited(Reads()), audited(Reads(), secrets=clean)):
        assert not any("records are also in" in note for note in map(str, audit.notes))


def test_no_secret_is_a_secret():
    with pytest.raises(
        ValueError, match=r"has all 6 secrets already.*threat.known \(first: secrets row 0.*prior \(fir"
    ):
        audited(Untouched(), secrets=joined(KNOWN[:3], PRIOR[:3]))


@pytest.mark.parametrize("name", ["known", "secrets"])
@pytest.mark.parametrize(
    ("scale", "shift", "words"),
    [
        (255, 0, "have pixels in [0, 255], those of prior in [0, 1]"),
        (2, -1, "have pixels in [-1, 1], those of prior in [0, 1]"),
    ],
)
def test_images_in_another_range(name, scale, shift, words):
    part = {"known": KNOWN, "secrets": SECRETS}[name]
    strange = Records(part.x * scale + shift, part.y)
    change = {"threat": lw.Informed(strange)} if name == "known" else {"secrets": strange}
    with pytest.raises(ValueError, match="have different scales") as raised:
        audited(Untouched(), **change)
    assert words in str(raised.value)
    assert str(raised.value).endswith("Scale all to one range, best [0, 1].")


def test_a_prior_of_bytes_and_secrets_of_shares():
    bright, known = Records(PRIOR.x * 255, PRIOR.y), lw.Informed(Records(KNOWN.x * 255, KNOWN.y))
    with pytest.raises(ValueError, match=r"of secrets have pixels in \[0, 1\], those of prior in \[0, 255\]"):
        audited(Untouched(), prior=bright, threat=known)


def test_images_of_no_customary_range_are_let_be():
    known, prior, secrets = (Records(3 * part.x - 2, part.y) for part in (KNOWN, PRIOR, SECRETS))
    errors = audited(Reads(), threat=lw.Informed(known), prior=prior, secrets=secrets, games=5).findings[0].errors
    assert "structural similarity" not in errors


@pytest.mark.parametrize(
    ("net", "secrets", "words"),
    [
        (lw.nets.mlp(64, 5, 9), SECRETS, "threat.known and secrets .*on a net of 9 outputs expects labels from 0 to 8"),
        (lw.nets.mlp(63, 5, 10), SECRETS, r"cannot take records of shape \(1, 8, 8\)"),
        (
            lw.nets.mlp(64, 5, 10),
            Records(SECRETS.x, SECRETS.y + 5),
            "own.y: CrossEntropy.* are not, the first in row 0. Give the net",
        ),
        (lw.nets.mlp(64, 5, 10), Records(SECRETS.x / 0, SECRETS.y), "values are NaN or infinite"),
    ],
    ids=["outputs", "inputs", "labels of the secrets", "not a number"],
)
def test_a_net_that_does_not_fit_is_refused_before_shadows_are_trained(net, secrets, words):
    with pytest.raises(ValueError, match=words):
        audited(Untouched(), net=net, trainer=lw.GD(), secrets=secrets)


def test_a_label_in_the_last_row_of_the_prior_is_seen_too():
    y = PRIOR.y.clone()
    y[-1] = 10
    with pytest.raises(ValueError, match=r"threat.known and prior .*expects labels from 0 to 9, but 1 of"):
        audited(Untouched(), net=lw.nets.mlp(64, 5, 10), trainer=lw.GD(), prior=Records(PRIOR.x, y))


def test_fewer_records_than_shadows():
    with pytest.raises(
        ValueError, match=r"600 shadow models need as many records, and the prior holds 500. Ask for at"
    ):
        audited(lw.RecoNN(shadows=600))


def repeated(record, times):
    return Records(record.x[:1].repeat(times, *[1] * (record.x.ndim - 1)), record.y[torch.arange(times) % len(record)])


def test_a_prior_that_never_varies_is_refused():
    with pytest.raises(ValueError, match=r"the prior is one record, 1,200 times: nothing can be learnt from it"):
        audited(Untouched(), prior=repeated(PRIOR, 1_200))
    grey = Records(torch.full_like(PRIOR.x, 0.5), PRIOR.y)
    with pytest.raises(ValueError, match="the prior is one record, 500 times"):
        audited(Untouched(), prior=grey)
    nearly = Records(grey.x + 1e-5 * torch.rand(grey.x.shape), PRIOR.y)
    with pytest.raises(ValueError, match="the records of the prior hardly differ"):
        audited(Untouched(), prior=nearly)


def test_a_prior_of_copies_leaves_the_question_open():
    few = PRIOR[torch.arange(1_200) % 2]
    audit = audited(Reads(noise=10.0, blind=1.0), prior=few)
    assert "The prior's 1,200 records are copies of 2: too few to learn from." in audit.unanswered
    assert lw.Policy(max_rebuilt_share=0.99).breaches(audit)


def test_a_small_prior_and_one_with_some_twins_are_let_be():
    for prior in (PRIOR[:20], joined(PRIOR, PRIOR)):
        assert not any("copies" in why for why in audited(Reads(), prior=prior).unanswered)
