"""The same models from a cluster, though workers are lost."""

import os
import random
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier

import lostwax as lw
from lostwax.games import Trainer
from lostwax.provenance import build
from lostwax.shadows import Checkpoints, Game, Local, Ray, Store
from lostwax.shadows.ray import _start
from shadows.game import CHUNK, fill, game, tree

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two workers on this machine, which cannot import this file."""
    Ray(workers=2)._connect(ray)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.shutdown()


def test_no_other_machine_can_reach_a_cluster_that_was_started_here():
    ray.get([ray.remote(lambda: None).remote() for _ in range(4)])  # workers listen too
    this = psutil.Process()
    listening = {
        (process.name(), connection.laddr.ip.removeprefix("::ffff:"))
        for process in (this, *this.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM
    }
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address for _, address in listening} == {"127.0.0.1"}


def test_a_cluster_that_others_could_reach_is_closed_again():
    class Reachable(SimpleNamespace):
        """A version of Ray that takes the address of the machine all the same."""

        closed = False

        def init(self, *_, **settings):
            assert settings["_node_ip_address"] == "127.0.0.1"

        def shutdown(self):
            self.closed = True

    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
    other = Reachable(
        _private=SimpleNamespace(ray_constants=constants),
        __version__="3.0",
        is_initialized=lambda: False,
        nodes=lambda: [{"NodeManagerAddress": "192.0.2.7"}],
    )
    with pytest.raises(ConnectionError, match=r"ports cannot be kept to 127\.0\.0\.1 with ray 3\.0.*ray start --head"):
        Ray()._connect(other)
    assert other.closed
    assert constants.ENABLE_RAY_CLUSTER


@dataclass(frozen=True)
class DiesOnce:
    """A trainer whose process is killed while it trains model 64 for the first time."""

    trainer: Trainer
    mark: str

    def __call__(self, net, cohort, *, seed):
        if CHUNK in cohort.index.tolist() and not os.path.exists(self.mark):  # noqa: PTH110
            open(self.mark, "w").close()  # noqa: PTH123
            os.kill(os.getpid(), signal.SIGKILL)
        return self.trainer(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.trainer.tile_size(net, cohort)


def own_function(net, x, y, seed):
    """A training function of a file that workers cannot import."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in torch.randperm(len(x)).split(8):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimiser.step()
    return net


@pytest.mark.slow
def test_an_own_training_function():
    digits = lw.records.digits()
    known, prior = digits.split(20, 30, seed=0)
    made = {"trainer": lw.OwnTraining(own_function), "threat": lw.Informed(known), "prior": prior, "models": 12}
    net = lw.nets.mlp(64, 4, 10)
    here, there = (lw.simulate(net, **made, engine=engine) for engine in (Local(), Ray(workers=2)))
    flat = [torch.cat([release.flat() for _, release in models]) for models in (here, there)]
    torch.testing.assert_close(*flat, rtol=1e-5, atol=1e-6)


def test_without_a_store():
    net, trainer, threat, pool, seed = game(tile=8)
    asked = {"trainer": trainer, "threat": threat, "prior": pool, "models": 20, "seed": seed}
    here, there = (list(lw.simulate(net, **asked, engine=engine)) for engine in (Local(8), Ray(workers=2)))
    assert [cohort.index.tolist() for cohort, _ in here] == [cohort.index.tolist() for cohort, _ in there]
    for (cohort, release), (other, again) in zip(here, there, strict=True):
        assert torch.equal(cohort.own.x, other.own.x)
        assert torch.equal(release.flat(), again.flat())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_byte(workers, tmp_path):
    fill(tmp_path / "here", 300)
    fill(tmp_path / "there", 300, Ray(workers=workers))
    assert tree(tmp_path / "here") == tree(tmp_path / "there")


def test_a_worker_that_is_killed_is_replaced(tmp_path):
    mark = tmp_path / "mark"
    fragile = game()._replace(trainer=DiesOnce(game().trainer, str(mark)))
    mark.touch()  # not here
    list(Store(tmp_path / "here").simulate(fragile, models=300, engine=Local()))
    mark.unlink()
    list(Store(tmp_path / "there").simulate(fragile, models=300, engine=Ray(workers=2)))
    assert mark.exists(), "no worker was killed"
    assert tree(tmp_path / "here") == tree(tmp_path / "there")


def same(audit, other):
    for ours, theirs in zip(audit.findings, other.findings, strict=True):
        assert torch.equal(ours.guess.records.x, theirs.guess.records.x)
        assert torch.equal(ours.guess.confidence, theirs.guess.confidence)


def test_an_audit_is_the_same_though_a_worker_is_killed(tmp_path):
    net, trainer, threat, prior, _ = game()
    mark = tmp_path / "mark"
    asked = {"trainer": DiesOnce(trainer, str(mark)), "threat": threat, "prior": prior, "attack": lw.KernelRidge()}
    asked["secrets"] = lw.records.digits().split(20, 150, 6, seed=0)[2]
    mark.touch()  # not here
    here = lw.audit(net, **asked)
    mark.unlink()
    there = lw.audit(net, **asked, engine=Checkpoints(tmp_path / "kept", Ray(workers=2)))
    assert mark.exists(), "no worker was killed"
    same(here, there)


def test_a_model_is_refitted_on_the_cluster():
    X, y = (part[:60] for part in load_wine(return_X_y=True))
    model = MLPClassifier((2,), max_iter=5, random_state=0).fit(X, y)
    same(*(lw.audit(model, (X, y), games=4, engine=engine) for engine in (None, Ray(workers=2))))


def test_numbers_are_computed_by_workers_and_again_where_one_is_lost(tmp_path):
    mark = tmp_path / "mark"

    def compute(number):
        if number == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": torch.tensor(number**2), "process": torch.tensor(os.getpid())}

    computed = dict(Ray(workers=2).each(compute, range(5)))
    assert mark.exists(), "no worker was killed"
    assert {number: int(each["square"]) for number, each in computed.items()} == {n: n**2 for n in range(5)}
    assert os.getpid() not in {int(each["process"]) for each in computed.values()}


def test_the_games_of_a_released_net_are_played_by_workers_and_kept(tmp_path, monkeypatch):
    (table,) = lw.records.digits().split(10, seed=0)
    net = lw.nets.mlp(64, 4, 10)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(5):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(table.x), table.y).backward()
        optimiser.step()
    trainer = lw.GD(lr=0.2, steps=5, init=lw.inits.Given(start))

    def audit(engine=None):
        return lw.audit(net, table, trainer=trainer, attack=lw.Newton(bank=20), games=3, engine=engine)

    here = audit()

    def refuse(*_, **__):
        raise AssertionError("not here")

    monkeypatch.setattr("lostwax.audits.released.prepared", refuse)  # in this process
    cluster = Checkpoints(tmp_path, Ray(workers=2))
    same(here, audit(cluster))
    assert len(tree(tmp_path)) == 3
    monkeypatch.setattr(Ray, "_connect", refuse)
    same(here, audit(cluster))


def training():
    """The processes of clusters of this process that train."""
    return [child for child in psutil.Process().children(recursive=True) if child.name().startswith("ray::_train")]


@dataclass(frozen=True)
class Slow(DiesOnce):
    """A trainer that takes a second."""

    def __call__(self, net, cohort, *, seed):
        time.sleep(1)
        return self.trainer(net, cohort, seed=seed)


@pytest.mark.slow
def test_chunks_come_though_a_worker_is_killed_every_2_to_4_seconds():
    stop, killed, draws = threading.Event(), [], random.Random(0)

    def kill():
        while not stop.wait(draws.uniform(2, 4)):
            for child in draws.sample(training(), min(1, len(training()))):
                child.kill()
                killed.append(child.pid)

    slow = game()._replace(trainer=Slow(game().trainer, ""))
    spans = [range(start, start + CHUNK) for start in range(0, 8 * CHUNK, CHUNK)]
    threading.Thread(target=kill, daemon=True).start()
    try:
        firsts = [int(cohort.index[0]) for cohort, _ in Ray(workers=2).parts(slow, spans)]
    finally:
        stop.set()
    assert sorted(firsts) == [span.start for span in spans]
    assert killed


@dataclass(frozen=True)
class AlwaysDies(DiesOnce):
    """A trainer whose process is killed whenever it trains model 64."""

    def __call__(self, net, cohort, *, seed):
        if CHUNK in cohort.index.tolist():
            os.kill(os.getpid(), signal.SIGKILL)
        return self.trainer(net, cohort, seed=seed)


def test_models_that_end_their_worker_do_not_keep_the_others_from_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr("lostwax.shadows.ray.RETRIES", 1)
    fatal = game()._replace(trainer=AlwaysDies(game().trainer, ""))
    with pytest.raises(
        RuntimeError, match=r"Ray: models 64 to 127 failed after 1 retries.*already in a store are kept"
    ):
        list(Store(tmp_path).simulate(fatal, models=300, engine=Ray(workers=2)))
    assert Store(tmp_path).open(fatal).present() == {0, 2, 3, 4}


@dataclass(frozen=True)
class SlowStart(DiesOnce):
    """A trainer that takes seconds for models 0 to 63."""

    def __call__(self, net, cohort, *, seed):
        time.sleep(3 if 0 in cohort.index.tolist() else 0)
        return self.trainer(net, cohort, seed=seed)


def test_a_slow_chunk_does_not_delay_the_others():
    slow = game()._replace(trainer=SlowStart(game().trainer, ""))
    spans = [range(start, start + CHUNK) for start in range(0, 6 * CHUNK, CHUNK)]
    firsts = [int(cohort.index[0]) for cohort, _ in Ray(workers=2).parts(slow, spans)]
    assert sorted(firsts) == [span.start for span in spans]
    assert firsts[-1] == 0


def test_models_without_a_store_come_in_order_and_few_wait(monkeypatch):
    monkeypatch.setattr("lostwax.shadows.ray.MAX_WAITING", 2)
    net, trainer, threat, pool, seed = game()
    chunks = Ray(workers=2)(Game(net, SlowStart(trainer, ""), threat, pool, seed), 6 * CHUNK)
    numbers = [number for cohort, _ in chunks for number in cohort.index.tolist()]
    assert numbers == list(range(6 * CHUNK))


@dataclass(frozen=True)
class Alone(DiesOnce):
    """A trainer that fails if another trains at the same time."""

    def __call__(self, net, cohort, *, seed):
        open(self.mark, "x").close()  # noqa: PTH123
        time.sleep(0.3)
        release = self.trainer(net, cohort, seed=seed)
        os.remove(self.mark)  # noqa: PTH107
        return release


def test_one_worker_trains_one_chunk_at_a_time(tmp_path):
    alone = game()._replace(trainer=Alone(game().trainer, str(tmp_path / "mark")))
    spans = [range(start, start + CHUNK) for start in range(0, 4 * CHUNK, CHUNK)]
    assert len(list(Ray(workers=1).parts(alone, spans))) == 4


@pytest.fixture
def other_build(tmp_path):
    """A cluster whose workers import an edited copy of lostwax, which trains other models."""
    shutil.copytree(Path(lw.__file__).parent, tmp_path / "copy" / "lostwax", ignore=shutil.ignore_patterns("*.pyc"))
    edited = tmp_path / "copy" / "lostwax" / "inits.py"
    source = edited.read_text()
    edited.write_text(source.replace("/ math.sqrt(_fans(shape)[0])", "/ math.sqrt(_fans(shape)[0] + 1)"))
    assert edited.read_text() != source
    ray.shutdown()
    _start(ray, num_cpus=2, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(edited.parents[1])}})
    yield
    ray.shutdown()
    Ray(workers=2)._connect(ray)


def test_workers_with_other_code_are_refused_or_noted_in_the_store(tmp_path, other_build, capsys):
    fill(tmp_path / "here", 128)
    here = tree(tmp_path / "here")
    with pytest.raises(
        RuntimeError, match=r"code: the worker has [0-9a-f]{16}, this run has .*Ray\(allow_mixed=True\)"
    ):
        fill(tmp_path / "there", 128, Ray(workers=2))
    assert not list((tmp_path / "there").glob("*/weights/*.0"))
    fill(tmp_path / "there", 128, Ray(workers=2, allow_mixed=True))
    there = tree(tmp_path / "there")
    assert {name for name in here if there[name] != here[name]} == {
        name for name in here if name.endswith(("0.0", "1.0"))
    }
    process = torch.tensor(os.getpid())
    computed = dict(Ray(workers=2, allow_mixed=True).each(lambda _: {"process": torch.tensor(os.getpid())}, range(2)))
    assert [each["process"] for each in computed.values()] == [process, process]  # not by the workers
    ours, theirs = Store(tmp_path / "there").open(game()).builds()
    assert ours == build()
    assert theirs == {**build(), "code": theirs["code"]} != ours
    capsys.readouterr()
    fill(tmp_path / "there", 128)
    assert f"other versions: code: store has {theirs['code']}, this run has {ours['code']}." in capsys.readouterr().err


def test_workers_that_do_not_state_their_versions_are_refused():
    with pytest.raises(RuntimeError, match=r"lostwax: the worker has not stated, this run has"):
        Ray()._checked({"weight": torch.zeros(1)})  # as up to 0.2.0


@dataclass(frozen=True)
class Refuses:
    """A trainer that finds fault with its data."""

    def __call__(self, net, cohort, *, seed):
        raise ValueError("Refuses: expected other data.")

    def tile_size(self, net, cohort):
        return 8


def test_an_error_is_the_one_that_would_have_been_raised_here():
    with pytest.raises(ValueError, match=r"^Refuses: expected other data\.$"):
        list(Ray(workers=2).parts(game()._replace(trainer=Refuses()), [range(8)]))


def test_no_cluster_at_the_address_is_said_at_once():
    class NotConnected:
        is_initialized = staticmethod(lambda: False)

    with pytest.raises(ConnectionError, match=r"Ray: no cluster at ray://127\.0\.0\.1:1 .*refused.*ray start --head"):
        Ray("ray://127.0.0.1:1")._connect(NotConnected)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="Ray: expected workers >= 1, or None, got 0"):
        Ray(workers=0)
    net, trainer, threat, pool, seed = game()
    with pytest.raises(ValueError, match="Ray: expected models >= 1, got 0"):
        Ray()(Game(net, trainer, threat, pool, seed), 0)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"ray is not installed.*lostwax\[cluster\]"):
        Ray()
