"""Several members, their draws, and how far they have come."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from attacks.reconn.game import ATTACK, KNOWN, NET, SECRETS, Leaks, errors, knowledge
from lostwax.attacks import reconn
from lostwax.attacks.reconn import LABEL_RIDGES
from lostwax.games import Informed
from lostwax.learning.decoders import MLPDecoder
from lostwax.learning.shadow_tables import shadow_tables
from lostwax.learning.training import Best
from lostwax.shadows import Checkpoints
from lostwax.shadows.checkpoints import KeptState

GAME = knowledge(Leaks())
THREE = replace(ATTACK, epochs=20, members=3)


@pytest.fixture(scope="module")
def three():
    return THREE.prepare(GAME, seed=0)


def test_a_member_is_the_same_in_any_company(three):
    one, two = (replace(THREE, members=members).prepare(GAME, seed=0).decoder.members for members in (1, 2))
    for alone, other in zip([*one, *two], [three.decoder.members[number] for number in (0, 0, 1)], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), other.parameters(), strict=True))
    first, second = (member[1].weight for member in two)
    assert not torch.equal(first, second)


def test_their_mean_is_nearer_than_they_are_on_average_and_is_what_is_reported(three):
    (error, _), _, _ = errors(three, Leaks())
    alone = [errors(three._replace(decoder=member), Leaks())[0][0].mean() for member in three.decoder.members]
    assert error.mean() < 0.95 * sum(alone) / 3
    assert three.validation_error == pytest.approx(float(error.mean()), rel=0.3)


def test_they_are_saved_as_one(three, tmp_path):
    release = Leaks()(NET, Informed(KNOWN).deal(SECRETS, 20, seed=0), seed=0)
    folder = three.save(tmp_path)
    assert torch.equal(THREE.load(folder, GAME)(release).records.x, three(release).records.x)
    with pytest.raises(ValueError, match="saved with members 3, but this is 1"):
        replace(THREE, members=1).load(folder, GAME)


def test_a_training_that_was_cut_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    """In the second member's third epoch; then nothing is trained again, but with another seed all is."""
    attack = replace(ATTACK, epochs=5, members=2, patience=4, decoder=MLPDecoder(width=8, dropout=0.2))
    _, shadows, unseen = shadow_tables(attack, GAME, seed=0)
    epochs, update = [], Best.update

    def learnt(seed=0, **settings):
        epochs.clear()
        return replace(attack, **settings).learn(
            replace(GAME, engine=Checkpoints(tmp_path)), shadows, unseen, seed=seed
        )

    def counted(best):
        epochs.append(best)
        if len(epochs) == stop:
            raise KeyboardInterrupt
        return update(best)

    def decoders(trained):
        return list(trained.decoder.state_dict().values())

    whole, stop = attack.learn(GAME, shadows, unseen, seed=0), 8
    monkeypatch.setattr(Best, "update", counted)
    monkeypatch.setattr(reconn, "SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        learnt()
    stop = None
    labels = len(LABEL_RIDGES)  # the head that reads labels is fitted anew
    for expected in (3, 0):
        again = learnt()
        assert len(epochs) == expected + labels
        assert all(map(torch.equal, decoders(whole), decoders(again)))
        assert again.validation_error == whole.validation_error
    for changed in ({"seed": 1}, {"lr": 1e-3}):
        learnt(**changed)
        assert len(epochs) == 10 + labels
    path = min(tmp_path.iterdir())
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=rf"Checkpoints: .*{path.name} .*Delete it, and it is computed again"):
            KeptState(path).read()


@pytest.mark.parametrize("patience", [None, 1])
def test_the_bar_runs_to_its_end(monkeypatch, patience):
    seen = []

    @contextmanager
    def watched(what, total):
        seen.append(-total)
        yield seen.append

    monkeypatch.setattr(reconn, "progress", watched)
    silent = Leaks(strength=0.0)  # nothing to learn: it gives up early where it may
    replace(ATTACK, epochs=12, members=2, patience=patience).prepare(knowledge(silent), seed=0)
    assert seen[0] == -24
    assert sum(seen) == 0
    assert (len(seen) - 1 < 24) == (patience == 1)
