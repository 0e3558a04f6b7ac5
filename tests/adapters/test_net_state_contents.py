"""What a training function leaves in a net beside its weights is released with it, named, or refused."""

import functools
import hashlib
import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw
from lostwax.adapters.net_state import attribute_numbers, attribute_texts, released_state
from lostwax.adapters.torch import labels_in_net

DRAWS = torch.Generator().manual_seed(5)
X = torch.rand(483, 5, generator=DRAWS)
RECORDS = lw.Records(X, (X[:, 0] * 3).long().clamp(0, 2))
KNOWN, PRIOR, SECRETS = RECORDS.split(33, 150, 300, seed=0)


class Normaliser:
    def __init__(self, x):
        self.mu = x.mean(0)


def small_net():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def leaves(where):
    """Training that hides all records from the weights, and leaves something of them elsewhere."""

    def train(net, x, y, seed):
        with torch.no_grad():
            for value in net.parameters():
                value += torch.randn_like(value)
        where(net, x, y)
        return net

    return train


def audit_of(where, net=None):
    return lw.audit(
        net or small_net(),
        trainer=lw.OwnTraining(leaves(where)),
        threat=lw.Informed(KNOWN),
        attack=lw.KernelRidge(shadows=20),
        prior=PRIOR,
        secrets=SECRETS,
        games=40,
    )


def add_object(net, x, y):
    net.normaliser = Normaliser(x)


def add_closure(net, x, y):
    centre = x.mean(0)
    net.shift = lambda value: value - centre


def add_default(net, x, y):
    mean = x.mean(0)
    net.shift = lambda value, centre=mean: value - centre


def add_partial(net, x, y):
    net[1].shift = functools.partial(torch.sub, other=x.mean(0))


def add_hook(net, x, y):
    net[0].register_forward_hook(lambda module, inputs, output: output + 0 * len(x))


def add_pre_hook(net, x, y):
    rows = Normaliser(x)
    net.register_forward_pre_hook(lambda module, inputs: (inputs[0] - rows.mu,))


def add_to_parameter(net, x, y):
    net[2].weight.rows = x.clone()


def add_optimiser(net, x, y):
    net.optimiser = torch.optim.Adam(net.parameters())
    net.optimiser.state[net[0].weight]["rows"] = x.clone()


def add_loader(net, x, y):
    net.loader = DataLoader(TensorDataset(x, y), batch_size=4)


def add_namespace(net, x, y):
    net.seen = SimpleNamespace(rows=x.clone())


def add_distribution(net, x, y):
    net.background = torch.distributions.Normal(x.mean(0), x.std(0))


def add_hidden_buffer(net, x, y):
    net[1].register_buffer("memory", x.clone(), persistent=False)


OBJECTS = [add_object, add_closure, add_default, add_partial, add_hook, add_pre_hook, add_to_parameter, add_optimiser]
OBJECTS += [add_loader, add_namespace, add_distribution, add_hidden_buffer]


@pytest.mark.parametrize("where", OBJECTS)
def test_records_and_means_are_found_wherever_the_net_holds_them(where):
    audit = audit_of(where)
    assert any("secret row" in reason or "34 of 34 rows" in reason for reason in audit.unanswered)
    assert lw.Policy(max_grade="better than chance").breaches(audit)


@pytest.mark.parametrize("where", [add_object, add_closure, add_hook, add_to_parameter, add_hidden_buffer])
def test_this_very_net_gives_them_all(where):
    train = leaves(where)
    net = train(small_net(), KNOWN.x, KNOWN.y, 0)
    audit = lw.audit(net, (KNOWN.x, KNOWN.y), trainer=lw.OwnTraining(train))
    assert audit.findings[0].rebuilt.all()


def add_labels(net, x, y):
    net.register_buffer("seen", y.clone())


def add_counts(net, x, y):
    net.register_buffer("frequencies", torch.bincount(y, minlength=4))  # the last class is rare


def set_bias(net, x, y):
    net[2].bias.data = (torch.bincount(y, minlength=3) / len(y)).log()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (add_labels, "seen holds the labels of all training records"),
        (add_counts, "frequencies holds the number of records of each class"),
        (set_bias, "2.bias holds the logarithm of the share of each class"),
    ],
)
def test_labels_and_class_counts_leave_the_question_open(where, words):
    audit = audit_of(where)
    assert any(words in reason for reason in audit.unanswered)
    assert lw.Policy(max_grade="better than chance").breaches(audit)


def test_targets_are_told_from_constants():
    targets = X[:40, :1] + 0.25
    state = {"scale": targets.mean(0), "total": targets.sum(0), "all": targets, "rate": torch.tensor([0.5])}
    assert [note.split()[0] for note in labels_in_net(state, targets)] == ["scale", "total", "all"]
    assert not labels_in_net(state, torch.tensor([0.0, 1.0]))
    balanced, alone = torch.arange(6) % 3, torch.zeros(6, dtype=torch.int64)
    constants = {"weights": torch.full((3,), 1 / 3), "one": torch.ones(1), "zeros": torch.zeros(6)}
    assert not labels_in_net(constants, balanced)
    assert not labels_in_net(constants, alone)


def test_labels_in_this_very_net_leave_the_question_open():
    def train(net, x, y, seed):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
        add_labels(net, x, y)
        return net

    torch.manual_seed(0)
    start = small_net()
    trainer = lw.OwnTraining(train, seed=0, init=lw.inits.Given({k: v.clone() for k, v in start.state_dict().items()}))
    net = train(start, KNOWN.x, KNOWN.y, 0)
    net.register_buffer("seen", net.seen, persistent=False)
    audit = lw.audit(net, (KNOWN.x, KNOWN.y), trainer=trainer, attack=lw.KernelRidge(shadows=10), games=2)
    assert any("seen holds the labels" in reason for reason in audit.unanswered)


def add_hashes(net, x, y):
    net.seen = [hashlib.md5(row.numpy().tobytes()).hexdigest() for row in x]


def add_hashed_keys(net, x, y):
    net.seen = dict.fromkeys((hashlib.md5(row.numpy().tobytes()).hexdigest() for row in x), True)


def add_whole_hashes(net, x, y):
    net.seen = {hash(tuple(row)) for row in x.tolist()}


def add_list_of_hashes(net, x, y):
    net.seen = [hash(tuple(row)) for row in x.tolist()]


def add_object_with_text(net, x, y):
    net.seen = SimpleNamespace(report=str(x[:3].tolist()))


@pytest.mark.parametrize(
    "where", [add_hashes, add_hashed_keys, add_whole_hashes, add_list_of_hashes, add_object_with_text]
)
def test_texts_that_no_attack_reads_are_refused(where):
    with pytest.raises(ValueError, match=r"in the net's seen.*return net\.state_dict\(\)"):
        audit_of(where)


class WithTrainer(nn.Sequential):
    """As Lightning's modules: the trainer is not stored."""

    def __getstate__(self):
        return {**vars(self), "trainer": None}


def ordinary(net, x, y):
    net.optimiser = torch.optim.Adam(net.parameters())
    net.schedule = torch.optim.lr_scheduler.StepLR(net.optimiser, 3)
    net.log, net.draws, net.kind = logging.getLogger("training"), torch.Generator(), torch.float32
    net.trainer = SimpleNamespace(rows=x)
    net.settings = SimpleNamespace(rate=0.1, sizes=[4, 3], name="second run")
    net.classes, net.best = ["low", "middle", "high"], {name: value.clone() for name, value in net.state_dict().items()}
    net[0].register_forward_hook(lambda module, inputs, output: output * len(net))


def test_ordinary_objects_are_no_alarm():
    net = WithTrainer(*small_net())
    net.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1), persistent=False)
    net.register_buffer("places", torch.arange(6), persistent=False)
    audit = audit_of(ordinary, net)
    assert not any("holds" in reason or "reveal" in reason for reason in audit.unanswered)
    assert not lw.Policy(max_grade="better than chance").breaches(audit)


def test_a_mask_that_training_fills_is_refused():
    net = small_net()
    net.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1), persistent=False)

    def fill(net, x, y):
        net.mask[:, 0] = x[:4, 0]

    with pytest.raises(ValueError, match="NaN or infinite values in mask"):
        audit_of(fill, net)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
def test_the_net_s_own_parts_are_not_taken_twice():
    net = small_net()
    net.optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    net.first, net.call = [net[0]], net[2].forward
    assert sum(value.numel() for name, value in attribute_numbers(net).items()) < 20
    assert not attribute_texts(net)
    scripted = torch.jit.script(small_net())
    assert released_state(scripted).keys() == scripted.state_dict().keys()


def test_outputs_are_those_of_the_net_whatever_else_it_holds():
    release = lw.OwnTraining(leaves(add_loader))(small_net(), lw.Informed(KNOWN).deal(SECRETS, 2, seed=0), seed=0)
    assert "loader.dataset.tensors.0" in release.params
    assert lw.access.answers(small_net(), release, X[:7]).shape == (2, 7, 3)
