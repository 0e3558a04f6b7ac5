"""Every class found in a room keeps the room's laws: one file adds one thing, and is tested for it here."""

import copy
import dataclasses
import functools
import gc
import importlib
import inspect
import math
import pickle
import sys
import sysconfig
import types
import typing
import weakref
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn
from torch.nn.parameter import is_lazy

import lostwax
from instances import INSTANCES, instances
from lostwax.access import Weights
from lostwax.adapters import OwnTraining
from lostwax.games import Cohort, Hints, Informed, Knowledge, Records, Release, Weak
from lostwax.games.protocols import refusal
from lostwax.shadows import Game, Local, Store
from lostwax.trainers import DPSGD, GD, Optimum
from of_papers import paper_lib
from rooms import modules

LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
OURS = tuple(str(Path(file).parent) for file in (lostwax.__file__, __file__))
RUNNERS = {"_pytest", "pluggy", "hypothesis"}
CACHED = type(functools.cache(len))


def found(room):
    """The public dataclasses defined in a room, to be tested."""
    for module in modules(room):
        for name, value in vars(module).items():
            ours = inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
            if ours and dataclasses.is_dataclass(value) and not inspect.isabstract(value):
                yield value


def params(room, call):
    classes = [kind for kind in found(room) if callable(getattr(kind, call, None))]
    assert classes, f"nothing found in {room}"
    return [pytest.param(one, id=f"{kind.__name__}-{n}") for kind in classes for n, one in enumerate(instances(kind))]


TRAINERS = [*params("trainers", "tile_size"), *params("defences", "tile_size")]
ATTACKS = params("attacks", "prepare")
METRICS = params("metrics", "__call__")
THREATS = params("games", "deal")


@pytest.mark.parametrize("value", TRAINERS + ATTACKS + METRICS + THREATS)
def test_is_a_frozen_value(value):
    assert type(value).__dataclass_params__.frozen
    field = next(iter(dataclasses.fields(value)), None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field.name if field else "anything", None)
    assert dataclasses.replace(value) is not value


@pytest.fixture(scope="module")
def parts():
    X, y = load_iris(return_X_y=True)
    x = torch.from_numpy((X - X.mean(0)) / X.std(0))
    return Records(x, torch.from_numpy(y)).split(20, 20, 20, seed=0)


def equal(one: Release, other: Release) -> bool:
    return all(torch.equal(one.params[name], other.params[name]) for name in one.params)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_trainer_is_deterministic_for_a_seed(trainer, parts):
    known, _, secrets = parts
    net, cohort = nn.Linear(4, 3), Informed(known).deal(secrets, 6, seed=1)
    before = [value.clone() for value in net.parameters()]
    assert equal(trainer(net, cohort, seed=7), trainer(net, cohort, seed=7))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True)), "the user's net was changed"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_model_does_not_see_the_secrets_of_others(trainer, parts):
    known, _, secrets = parts
    net, cohort = nn.Linear(4, 3), Informed(known).deal(secrets, 6, seed=1)
    strange = cohort.own.x.clone()
    strange[3:] = 100.0
    other = Cohort(cohort.shared, Records(strange, cohort.own.y), cohort.index)
    one, two = trainer(net, cohort, seed=7), trainer(net, other, seed=7)
    assert all(torch.equal(one.params[name][:3], two.params[name][:3]) for name in one.params)
    assert not torch.equal(one.flat()[3:], two.flat()[3:])


@pytest.mark.parametrize("trainer", params("trainers", "transcript"))
def test_the_transcript_tells_the_same_training(trainer, parts):
    known, _, secrets = parts
    net, cohort = nn.Linear(4, 3), Informed(known).deal(secrets, 3, seed=1)
    steps = list(trainer.transcript(net, cohort, seed=7))
    assert [step.number for step in steps] == list(range(len(steps)))
    assert set(steps[0].params) == set(steps[0].gradient) == set(trainer(net, cohort, seed=7).params)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_trained_models_can_be_stored(trainer, parts, tmp_path):
    known, prior, _ = parts
    net = nn.Linear(4, 3)
    games = [Game(net, trainer, Informed(known), prior, 0) for _ in range(2)]
    (_, stored), (_, again) = (next(Store(tmp_path).simulate(game, models=8, engine=Local())) for game in games)
    (_, trained), *_ = Local().parts(games[0], [range(Store(tmp_path).open(games[0]).chunk)])
    assert equal(stored, again)
    assert torch.equal(stored.flat(), trained.flat()[:8])
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("threat", THREATS)
def test_threat_deals_by_number_alone(threat, parts):
    known = getattr(threat, "known", Records(torch.empty(0, 4), torch.arange(0)))
    pool = Records(torch.rand(5, *known.x.shape[1:]), torch.arange(5))
    whole = threat.deal(pool, 12, seed=3)
    part = threat.deal(pool, 4, seed=3, start=6)
    assert torch.equal(whole.own.x[6:10], part.own.x)
    assert torch.equal(whole.index[6:10], part.index)
    assert torch.equal(whole.shared.x, known.x)


def test_knowledge_holds_neither_secret_nor_release():
    fields = [field.name for field in dataclasses.fields(Knowledge)]
    assert fields == ["net", "trainer", "threat", "access", "prior", "engine"]  # an engine holds an address or a folder
    assert {field.name for field in dataclasses.fields(Release)} == {"params", "steps"}


def shared_cache(thing):
    """Is it a cache of calls to a library's function? It holds what anybody in the process called it with.

    From torch.Tensor, the annotations of its methods lead to the caches of `typing`, and those to every class that is
    named in an annotation anywhere. The file of the code tells, which `functools.wraps` leaves as it is.
    """
    code = getattr(thing.__wrapped__, "__code__", None) if issubclass(type(thing), CACHED) else None
    return code is not None and code.co_filename.startswith(LIBRARIES) and not code.co_filename.startswith(OURS)


def reachable(thing):
    """Every object that can be reached from a thing without going through what the whole process shares.

    Attributes, also of classes, closures, defaults, bound objects, partial arguments, frames of generators, callbacks
    of weak references, tensors' bases; but not modules, caches of calls to libraries, nor what runs the tests.
    """
    modules = {id(vars(module)) for module in list(sys.modules.values()) if issubclass(type(module), types.ModuleType)}
    seen, ahead = {}, [thing]
    while ahead:
        one = ahead.pop()
        kind = type(one)
        if id(one) in seen or id(one) in modules or issubclass(kind, types.ModuleType):
            continue
        if str(kind.__module__).split(".")[0] in RUNNERS:
            continue
        seen[id(one)] = one
        ahead += [one.__wrapped__, vars(one)] if shared_cache(one) else gc.get_referents(one)
        if issubclass(kind, torch.Tensor):
            ahead += [one._base, one.grad_fn, one.grad]
        if issubclass(kind, types.GeneratorType) and one.gi_frame is not None:
            ahead += [one.gi_frame.f_locals]
        if kind.__weakrefoffset__ and not issubclass(kind, type):
            ahead += [reference.__callback__ for reference in weakref.getweakrefs(one)]
    return list(seen.values())


def leads_to(thing, secrets):
    """Whether a record among the secrets (n, d) can be reached from a thing: in a tensor, its storage, an array."""
    for one in reachable(thing):
        if issubclass(type(one), np.ndarray) and one.dtype.kind == "f":
            one = torch.from_numpy(one.copy())
        if not issubclass(type(one), torch.Tensor) or not one.is_floating_point() or one.is_meta or is_lazy(one):
            continue
        whole = torch.empty(0, dtype=one.dtype).set_(one.untyped_storage()).double()  # all that it is a view of
        if any(torch.isin(row.to(one.dtype).double(), whole).all() for row in secrets):  # in its rounding
            return True
    return False


@pytest.fixture
def unique(parts, request):
    """The records known, and secrets that no other test has: what is found of them was left by this test."""
    known, _, secrets = parts
    draw = torch.Generator().manual_seed(zlib.crc32(request.node.nodeid.encode()))
    return known, Records(secrets.x + 0.1 * torch.rand(secrets.x.shape, generator=draw), secrets.y)


class Cheats:
    """What the test below must notice, each a way to hold records."""

    def __init__(self, records):
        self.in_a_closure = lambda: records
        self.in_a_default = lambda given=records: given
        self.in_a_partial = functools.partial(print, records)
        self.in_a_frame = (row for row in records.x)
        self.in_a_view = records.x[:0]
        self.bound = records.matches
        self.in_a_class = type("Keeper", (), {"records": records})()
        self.in_globals = types.FunctionType(compile("records", "a file", "eval"), {"records": records})
        self.in_a_wrapper = functools.wraps(nn.functional.relu)(lambda: records)  # by its __module__, of torch
        self.in_a_cache = functools.cache(lambda: records.x + 0)
        self.in_a_cache()
        self.in_a_cached_closure = functools.cache(self.in_a_wrapper)


CHEATS = Cheats(Records(torch.zeros(1, 4), torch.zeros(1).long()))


@pytest.mark.parametrize("way", vars(CHEATS))
def test_the_walk_finds_what_leads_to_a_record(way, unique):
    _, secrets = unique
    cheats = Cheats(secrets)
    assert leads_to(getattr(cheats, way), secrets.x)
    assert not leads_to(getattr(CHEATS, way), secrets.x)


@pytest.mark.parametrize("kind", [nn.Linear, nn.Module, nn.Parameter, torch.Tensor, Release])
def test_the_walk_finds_records_that_were_put_on_a_class(kind, unique, monkeypatch):
    _, secrets = unique
    things = [nn.Linear(4, 3), Release({"weight": torch.zeros(1, 1)})]
    assert not leads_to(things, secrets.x)
    monkeypatch.setattr(kind, "kept", secrets, raising=False)
    assert leads_to(things, secrets.x)


def test_the_walk_does_not_depend_on_what_else_lives_in_the_process(unique, request):
    """Other tests leave records in caches of libraries, and nets without weights."""
    _, secrets = unique
    net = nn.Sequential(nn.LazyLinear(3))
    parameters = inspect.signature(nn.Linear.forward)
    keeper = type("Keeper", (), {"kept": secrets})
    assert typing.List[keeper].__args__ == (keeper,)  # noqa: UP006
    assert not leads_to([nn.Linear(4, 3), net, typing.List[int], parameters, request], secrets.x)  # noqa: UP006
    net.kept = secrets
    assert leads_to(net, secrets.x)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_release_leads_to_no_secret(trainer, unique):
    """The cheat that is tried: go from a release, its steps and an iterator over them to whatever they refer to."""
    known, secrets = unique
    cohort = Informed(known).deal(secrets, 3, seed=1)
    targets = cohort.own.x.flatten(0, 1)
    release = trainer(nn.Linear(4, 3), cohort, seed=7)
    held = [release]
    if release.steps is not None:
        together = Release.together([release, release])
        telling = together.steps()
        held += [telling, next(telling), together, release.steps(), copy.deepcopy(release)]
    assert not leads_to(held, targets)
    assert held[0].steps is None or len(list(release.steps())) == len(list(together.steps()))


def test_sampled_records_do_not_tell_whether_the_secret_was(parts):
    known, _, secrets = parts
    release = DPSGD(steps=2, sample_rate=0.5)(nn.Linear(4, 3), Informed(known).deal(secrets, 3, seed=1), seed=7)
    for step in release.steps():
        assert step.sampled.shape == (3, len(known))
        assert step.sampled.untyped_storage().nbytes() == step.sampled.numel() * step.sampled.element_size()


def test_what_a_release_keeps_is_freed_with_it(parts):
    known, _, secrets = parts
    cohort = Informed(known).deal(secrets, 3, seed=1)
    alive = weakref.ref(cohort)
    release = DPSGD(steps=2)(nn.Linear(4, 3), cohort, seed=7)
    telling = release.steps()
    next(telling)
    del cohort
    assert alive() is not None
    with pytest.raises(TypeError, match="recomputes the steps from the training set"):
        pickle.dumps(release)
    del release, telling
    gc.collect()
    assert alive() is None


def test_knowledge_leads_to_no_secret(parts):
    """The cheat that is tried: known and prior records are slices of a tensor that holds the secrets too."""
    everything = Records(torch.rand(60, 4), torch.arange(60) % 3)
    known, prior, secrets = everything[:20], everything[20:40], everything[40:]
    assert leads_to(known, secrets.x)
    for trainer in (GD(steps=2), DPSGD(steps=2), Optimum()):
        knowledge = Knowledge(nn.Linear(4, 3), trainer, Informed(known), Weights(), prior)
        assert not leads_to(knowledge, secrets.x)
        assert torch.equal(knowledge.threat.known.x, known.x)


ORDER = torch.tensor([1, 2, 0])


def turned(params):
    return {name: value[ORDER] for name, value in params.items()}


def turned_step(step):
    return dataclasses.replace(step, params=turned(step.params), gradient=turned(step.gradient))


def own_steps(net, x, y, seed):
    net = net.double()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_is_deterministic_and_a_function_of_the_release(attack, parts):
    """The cheat that is tried: the same releases come in another order, without their numbers."""
    known, prior, secrets = parts
    net, threat = nn.Linear(4, 3), Informed(known, candidates=2)
    trainers = Optimum(), GD(lr=0.5, steps=5), DPSGD(lr=0.5, steps=5), OwnTraining(own_steps, seed=0)
    games = [Knowledge(net, trainer, threat, Weights(), prior) for trainer in trainers]
    games.append(Knowledge(net, trainers[1], Weak(size=3), Weights(), prior))
    words = [Records((100 * part.x).long() % 9, part.y) for part in parts]
    text = paper_lib("sentences").TextClassifier(9, 4, 3, width=8, layers=1)
    games.append(Knowledge(text, trainers[1], Informed(words[0]), Weights(), words[1]))
    knowledge = next(game for game in games if attack.objection(game) is None)
    trainer, threat, net = knowledge.trainer, knowledge.threat, knowledge.net
    secrets = words[2] if net is text else secrets
    cohort = threat.deal(secrets, len(ORDER), seed=0)
    release, hints = trainer(net, cohort, seed=0), threat.hints(cohort, secrets, seed=0)
    candidates = None if hints is None else hints.candidates
    one = attack.prepare(knowledge, seed=5)(release, Hints(candidates=candidates))
    again = attack.prepare(knowledge, seed=5)(release, Hints(candidates=candidates))
    assert torch.equal(one.records.x, again.records.x)
    steps = None if release.steps is None else lambda: map(turned_step, release.steps())
    turned_too = None if candidates is None else candidates[ORDER]
    same = attack.prepare(knowledge, seed=5)(Release(turned(release.params), steps), Hints(candidates=turned_too))
    torch.testing.assert_close(same.records.x, one.records.x[ORDER])
    assert one.records.x.shape[::2] == (len(ORDER), 4)  # of each game, k or fewer guesses
    assert one.confidence.shape == one.records.y.shape == one.records.x.shape[:2]
    assert 1 <= one.confidence.shape[1] <= cohort.secrets


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_objection_is_a_sentence(attack, parts):
    known, prior, _ = parts
    knowledge = Knowledge(nn.Linear(4, 3), Optimum(), Informed(known), Weights(), prior)
    odd = dataclasses.replace(knowledge, threat=object())
    sentence = refusal(attack, odd)
    assert sentence is None or (type(attack).__name__ in sentence and sentence.endswith("."))
    assert sentence is None or sentence.count("is not applicable") == 1


@pytest.mark.parametrize("metric", METRICS)
def test_metric_knows_a_perfect_guess(metric):
    truth = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    best, worse = metric(truth, truth), metric(truth + 0.1, truth)
    assert best.shape == (2,)
    assert (best < worse).all() if metric.better == "lower" else (best > worse).all()
    assert torch.equal(metric(truth, truth), best)


PARTS = {
    "AnnealedSearch",  # of Newton
    "Annealing",  # of Newton
    "EmbeddingSpace",  # of Newton
    "ProductSearch",  # of Newton
    "RangedProblem",  # of Newton
    "SetSearch",  # of Newton
    "InBins",
    "InTurns",
    "Independent",
    "IndependentUpTo",
    "WithoutReplacement",  # of a trainer or an attack, not one of their own
    *("Batches", "Architecture", "FusedMLP", "FusedCNN", "MLPTangent", "Ghost", "PerRecord"),
    *("PublishedSteps", "Terms"),
    *("ErrorBars", "TrainingMap", "Problem", "Inverter", "Polisher", "WholeSets", "SetProblem", "MatrixFree"),
    *("BaseTrajectory", "SetPolisher", "AnswerCheck", "Mixed", "GameSearch", "AnnealedSearch"),
    *("Annealing", "ProductSearch", "SetSearch", "RangedProblem", "EmbeddingSpace"),
    *("AssumedSets", "RatedMap", "Repeated", "RangedProducts", "ProductSets", "ProductPolisher"),
    *("Equations", "Grid", "CodedTree", "SentenceResponse", "TokenSearch"),
    *("Section", "Crowd", "WordList", "BoostedTable", "Knapsacks"),
    "TunedWords",  # of two files, without a game that others could play
}


@pytest.mark.parametrize("room", ["trainers", "defences", "attacks", "metrics", "losses"])
def test_whatever_is_found_is_tested(room):
    for kind in found(room):
        if kind.__name__ in PARTS:
            continue
        assert kind in INSTANCES, f"{kind.__name__} has no entry in tests/instances.py"


MECHANISM = {"noise_multiplier": 1.3, "sample_rate": 0.1, "steps": 20}
LOG = math.log(0.1)
CEILINGS = {  # every bound on a success, at a baseline of 0.1
    "bound": lambda b: b.bound(**MECHANISM, baseline=0.1),
    "from_dp": lambda b: b.from_dp(LOG, 1.0, 1e-5),
}
SAMPLINGS = {
    "Poisson": lambda b: b.Poisson(0.1),
    "BallsInBins": lambda b: b.BallsInBins(2),
    "Shuffled": lambda b: b.Shuffled(2),
    "FixedSize": lambda b: b.FixedSize(100, 10),
    "TruncatedPoisson": lambda b: b.TruncatedPoisson(0.1, 100, 25),
    "Cyclic": lambda b: b.Cyclic(2),
    "FullBatch": lambda b: b.FullBatch(),
    "Correlated": lambda b: b.Correlated(1.5),
    "Allocation": lambda b: b.Allocation(2),
    "CorrelatedBins": lambda b: b.Correlated.in_bins([1.0, 0.5], 20, 10),
}
CEILINGS |= {
    name: lambda b, make=make: b.bound(noise_multiplier=1.3, steps=20, baseline=0.1, sampling=make(b))
    for name, make in SAMPLINGS.items()
}
GOALS = {
    "Record": lambda b: b.bound(**MECHANISM, baseline=0.1, goal=b.Record()),
    "Records": lambda b: b.bound(**MECHANISM, baseline=0.1, goal=b.Records(1, of=1)),
    "Attribute": lambda b: b.bound(**MECHANISM, goal=b.Attribute([0.1] * 10)),
    "Membership": lambda b: b.bound(**MECHANISM, goal=b.Membership(0.1)),
}
CEILINGS |= GOALS | {
    "LastWeights": lambda b: b.bound(**MECHANISM, baseline=0.1, released=b.LastWeights(0.1, 1.0, 0.1)),
}
NUMBERS = {
    "Floor",
    "Goal",
    "MeanSquaredError",
    "Sampling",
    "calibrate",
    "Ceiling",
    "Plan",
}


def test_every_bound_is_in_the_table_above():
    others = {name for name in lostwax.bounds.__all__ if "kappa" in name}
    assert set(lostwax.bounds.__all__) == set(CEILINGS) | NUMBERS | others


@pytest.mark.parametrize("name", CEILINGS)
def test_bound_is_a_frozen_interval_between_blind_and_certain(name):
    one, two = (CEILINGS[name](lostwax.bounds) for _ in range(2))
    assert one == two
    assert LOG - 1e-12 <= one.log_lower <= one.log_upper <= 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.log_upper = 0.0


def test_public_names_say_where_they_live():
    for name, home in lostwax._HOME.items():
        assert hasattr(importlib.import_module(home), name)
