"""What was trained is not trained again, and never taken for something else."""

import stat
from collections import deque
from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from torch import nn

import lostwax as lw
from killed import deaths, dies
from lostwax.games import Release, Trainer
from lostwax.shadows import Checkpoints, Game, Local
from lostwax.shadows.game import OtherBuild, task_spans
from shadows.game import CHUNK, game, tree

TRAINED = deque()  # the numbers of the models, as they are trained; what it holds is no part of the trainer

NET = game().net


@dataclass(frozen=True)
class Counted:
    """A trainer that notes what it trains."""

    trainer: Trainer

    def __call__(self, net, cohort, *, seed):
        TRAINED.extend(cohort.index.tolist())
        return self.trainer(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.trainer.tile_size(net, cohort)


@pytest.fixture(autouse=True)
def nothing_trained():
    TRAINED.clear()


def models_by(engine, models=150, **settings):
    _, trainer, threat, pool, seed = game(**settings)
    return list(engine(Game(NET, Counted(trainer), threat, pool, seed), models))


def flat(chunks):
    return torch.cat([release.flat() for _, release in chunks])


def test_the_models_are_those_without_checkpoints_and_are_trained_once(tmp_path):
    here = models_by(Local())
    for trained in ([*range(150)], []):
        TRAINED.clear()
        kept = models_by(Checkpoints(tmp_path))
        assert sorted(TRAINED) == trained
        assert torch.equal(flat(kept), flat(here))
        assert torch.cat([cohort.index for cohort, _ in kept]).tolist() == [*range(150)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_other_settings_and_other_versions_are_trained_anew(tmp_path, monkeypatch):
    models_by(Checkpoints(tmp_path), 10)
    models_by(Checkpoints(tmp_path), 10, lr=0.2)
    monkeypatch.setattr("lostwax.shadows.checkpoints.build", lambda: {"lostwax": "0.0.1"})
    models_by(Checkpoints(tmp_path), 10)
    assert len(TRAINED) == 30


def test_a_run_that_is_killed_at_any_moment_continues(tmp_path):
    def run(folder):
        models_by(Checkpoints(folder), 2 * CHUNK)

    run(tmp_path / "whole")
    (tmp_path / "counted").mkdir()
    moments = deaths(run, tmp_path / "counted")
    assert moments >= 4
    for moment in range(moments):
        folder = tmp_path / str(moment)
        folder.mkdir()
        dies(moment, run, folder)
        run(folder)
        assert tree(folder) == tree(tmp_path / "whole")


def test_damaged_and_exchanged_files_are_named(tmp_path):
    here = flat(models_by(Checkpoints(tmp_path), 2 * CHUNK))
    one, other = sorted(tmp_path.iterdir())
    whole = one.read_bytes()
    draws = torch.Generator().manual_seed(0)
    for place in torch.randint(len(whole), (40,), generator=draws).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        one.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{one.name} .*Delete it, and its models are trained again\.$"):
            models_by(Checkpoints(tmp_path), 2 * CHUNK)
    one.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match=rf"{one.name} is damaged \(its checksum is wrong\)"):
        models_by(Checkpoints(tmp_path), 2 * CHUNK)
    one.unlink()
    assert torch.equal(flat(models_by(Checkpoints(tmp_path), 2 * CHUNK)), here)


def test_parts_of_a_store_come_from_checkpoints_too(tmp_path):
    spans = [range(start, start + CHUNK) for start in range(0, 3 * CHUNK, CHUNK)]
    here = flat(Local().parts(game(), spans))
    for _ in range(2):
        assert torch.equal(flat(Checkpoints(tmp_path).parts(game(), iter(spans))), here)


def test_steps_that_are_published_are_recomputed(tmp_path):
    net, _, threat, pool, seed = game()
    trainer = lw.DPSGD(lr=0.1, steps=3, noise_multiplier=1.0, tile=4)
    ours = Game(net, trainer, threat, pool, seed)
    here, kept = (list(engine(ours, 6)) for engine in (Local(), Checkpoints(tmp_path)))
    ours, theirs = (
        torch.cat([step.gradient["1.weight"] for step in Release.together([part for _, part in parts]).steps()])
        for parts in (here, kept)
    )
    assert torch.equal(ours, theirs)


@dataclass(frozen=True)
class Mixed:
    """An engine with a worker of other versions."""

    def __call__(self, game, models):
        raise NotImplementedError

    def parts(self, game, spans):
        for cohort, release in Local().parts(game, spans):
            yield cohort, OtherBuild(release.params, made_with={"lostwax": "0.0.1"})


def test_models_of_other_versions_are_not_kept(tmp_path):
    with pytest.raises(ValueError, match="Checkpoints: a worker has other versions"):
        models_by(Checkpoints(tmp_path, Mixed()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("models", "tile"), [(1, 1), (3, 1), (10_000, 1), (100, 32), (10, 2_048)])
def test_tasks_are_whole_tiles_and_two_models_or_more(models, tile):
    spans = list(task_spans(game(tile=tile), models))
    assert [number for span in spans for number in span] == [*range(models)]
    assert all(len(span) % tile == 0 and len(span) >= 2 for span in spans[:-1])
    assert len(spans) <= 1_024


def test_an_audit_that_refits_a_model_continues(tmp_path):
    X, y = (part[:60] for part in load_wine(return_X_y=True))
    model = MLPClassifier((2,), max_iter=5, random_state=0).fit(X, y)
    here, kept, again = (
        lw.audit(model, (X, y), games=4, engine=engine)
        for engine in (None, Checkpoints(tmp_path), Checkpoints(tmp_path))
    )
    for audit in (kept, again):
        for ours, theirs in zip(here.findings, audit.findings, strict=True):
            assert torch.equal(ours.guess.records.x, theirs.guess.records.x)
    assert tree(tmp_path)


def test_an_audit_takes_its_engine_and_refuses_others(tmp_path):
    known, prior, secrets = lw.records.digits().split(20, 30, 4, seed=0)
    settings = {"trainer": lw.GD(lr=0.1, steps=3), "threat": lw.Informed(known), "prior": prior, "secrets": secrets}
    settings |= {"attack": lw.KernelRidge()}
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    here, kept, again = (
        lw.audit(net, engine=engine, **settings) for engine in (None, Checkpoints(tmp_path), Checkpoints(tmp_path))
    )
    for audit in (kept, again):
        for ours, theirs in zip(here.findings, audit.findings, strict=True):
            assert torch.equal(ours.guess.records.x, theirs.guess.records.x)
            assert torch.equal(ours.guess.confidence, theirs.guess.confidence)
    with pytest.raises(
        TypeError, match=r"audit: expected engine to be an engine, such as lw\.shadows\.Local\(\), got "
    ):
        lw.audit(net, engine=lw.RecoNN(), **settings)
