"""Arrays and tensors of every odd kind, as records, labels and weights."""

import datetime
from functools import cache

import numpy as np
import scipy.sparse
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

import lostwax as lw
from fuzz.outcomes import MARK, NUMBER, Case
from lostwax.games import Cohort

TRAINER = lw.GD(lr=0.1, steps=2, init=lw.inits.LeCunNormal())
QUICK = lw.WeakRecoNN(reader=lw.attacks.weak.SetReader(width=8, layers=1, heads=1), steps=2, minutes=0.05, batch_size=2)


def same(x):
    """The same numbers in another form: each must be understood, or refused in a sentence; never misread."""
    tensor, array = torch.from_numpy(x.copy()), x.copy()
    padded = np.zeros((len(x), 2, *x.shape[1:]), x.dtype)
    padded[:, 1] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    forms = {
        "tensor": tensor,
        "requires_grad": tensor.clone().requires_grad_() if tensor.is_floating_point() else tensor,
        "strided view": torch.from_numpy(padded)[:, 1],
        "reversed twice": array[::-1][::-1],
        "Fortran order": np.asfortranarray(array),
        "strided array": padded[:, 1],
        "read only": read_only,
        "list": array.tolist(),
        "tuple": tuple(array.tolist()),
        "objects": array.astype(object),
        "big endian": array.astype(array.dtype.newbyteorder(">")),
        "memoryview": memoryview(np.ascontiguousarray(array)),
        "parameter": nn.Parameter(tensor.clone()) if tensor.is_floating_point() else tensor,
    }
    if tensor.is_floating_point():
        forms["negative bit"] = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
        forms["long double"] = array.astype(np.longdouble)
        forms["sparse"] = tensor.to_sparse()
        if x.ndim == 2:
            forms["sparse rows"] = tensor.to_sparse_csr()
            forms["sparse matrix"] = scipy.sparse.csr_matrix(array)
            forms["matrix"] = np.matrix(array)
    return forms


def other(x):
    """Other numbers, or none: most must be refused."""
    tensor = torch.from_numpy(x.copy())
    spoilt = x.astype(np.float64)
    spoilt.flat[x.size // 2] = np.nan
    endless = x.astype(np.float64)
    endless.flat[x.size // 2] = np.inf
    worded = x.astype(object)
    worded.flat[x.size // 2] = MARK
    numbered = x.astype(object)
    numbered.flat[x.size // 2] = str(NUMBER) + "x"
    ragged = [list(np.ravel(row)) for row in x]
    ragged[len(x) // 2] = ragged[len(x) // 2][:-1]
    large = x.astype(object)
    large.flat[0] = 10**400
    dated = x.astype(object)
    dated.flat[0] = datetime.date(2020, 1, 1)
    masked = np.ma.masked_array(x.copy(), mask=np.zeros(x.shape, bool))
    masked.mask.flat[0] = True
    structured = np.zeros(len(x), dtype=[("a", "f8"), ("b", "U9")])
    structured["b"] = MARK
    return {
        "nan": spoilt,
        "nan tensor": torch.from_numpy(spoilt),
        "infinite": endless,
        "a word among numbers": worded,
        "a number as text": numbered,
        "words": np.full(x.shape, MARK),
        "bytes": np.full(x.shape, MARK.encode()),
        "ragged": ragged,
        "huge integer": large,
        "unsigned": np.full(x.shape, 2**64 - 1, np.uint64),
        "unsigned tensor": torch.full(x.shape, 2**62, dtype=torch.uint64),
        "largest": torch.full(x.shape, 2**63 - 1),
        "smallest": torch.full(x.shape, -(2**63)),
        "date": dated,
        "dates": np.full(x.shape, np.datetime64("2020-01-01")),
        "masked": masked,
        "structured": structured,
        "complex": x.astype(complex),
        "complex tensor": tensor.to(torch.complex128),
        "meta": tensor.to("meta"),
        "scalar": np.float64(3.0),
        "0-d tensor": torch.tensor(3.0),
        "0-d array": np.array(3),
        "4 axes": x.reshape(*x.shape, *[1] * (4 - x.ndim)),
        "3 axes": tensor.reshape(len(x), 1, -1),
        "no rows": x[:0],
        "no columns": x.reshape(len(x), -1)[:, :0],
        "one row": x[:1],
        "half": tensor.half(),
        "bfloat16": tensor.bfloat16(),
        "float8": tensor.float().to(torch.float8_e4m3fn),
        "truth values": tensor > 0,
        "8 bits": tensor.to(torch.uint8),
        "quantised": torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "None": None,
        "text": MARK,
        "dict": {MARK: x},
        "generator": (row for row in x),
        "set": {MARK},
        "Nones": np.full(x.shape, None),
        "1e300": np.full(x.shape, 1e300),
        "1e-320": np.full(x.shape, 1e-320),
        "all the same": np.full(x.shape, NUMBER),
    }


def table(random):
    x = random.normal(size=(40, 3))
    return x, x @ np.array([1.0, -2.0, 0.5]) + 0.1 * random.normal(size=40), (x[:, 0] > 0).astype(np.int64)


X, TARGETS, CLASSES = table(np.random.default_rng(0))


@cache
def fitted(name):
    return {"regression": LinearRegression().fit(X, TARGETS), "classes": LogisticRegression().fit(X, CLASSES)}[name]


@cache
def trained():
    """A net as its trainer leaves it."""
    net, records = nn.Linear(3, 2).double(), lw.Records(torch.from_numpy(X), torch.from_numpy(CLASSES))
    release = TRAINER(
        net, Cohort(records[1:], lw.Records(records.x[:1][None], records.y[:1][None]), torch.arange(1)), seed=0
    )
    net.load_state_dict(release[0])
    return net


@cache
def reference(name, part):
    """What the audit finds with plain arrays."""
    return rebuilt(lw.audit(fitted(name), (X, TARGETS if name == "regression" else CLASSES), games=5))


def rebuilt(audit):
    return audit.summary()["as released"]["rebuilt"]


def cases(random):
    """A place for an array, and an array that may be anything."""
    makers = (of_a_model, of_records, of_a_procedure, of_a_simulation, of_a_table, of_sample_weights, of_a_net)
    while True:
        maker = makers[random.integers(len(makers))]
        misread, made = (False, same) if random.random() < 0.4 else (True, other)
        yield maker(random, made, misread)


def _one(random, forms):
    name = list(forms)[random.integers(len(forms))]
    return name, forms[name]


def of_a_model(random, made, anything):
    name = ("regression", "classes")[random.integers(2)]
    y = TARGETS if name == "regression" else CLASSES
    if random.random() < 0.5:
        form, x = _one(random, made(X))
        where = "X"
    else:
        x, (form, y) = X, _one(random, made(y))
        where = "y"
    return Case(
        "table of a model",
        f"lw.audit({name}, {where}={form})",
        lambda: rebuilt(lw.audit(fitted(name), (x, y), games=5)),
        lambda share: anything or share == reference(name, where),
    )


def of_sample_weights(random, made, anything):
    form, weight = _one(random, made(np.ones(len(X))))
    return Case(
        "sample weights",
        f"lw.audit(sample_weight={form})",
        lambda: rebuilt(lw.audit(fitted("regression"), (X, TARGETS), games=5, sample_weight=weight)),
        lambda share: anything or share == reference("regression", "X"),
    )


def of_records(random, made, anything):
    part = ("x", "y", "features")[random.integers(3)]
    parts = {"x": torch.from_numpy(X), "y": torch.from_numpy(CLASSES)}
    form, parts[part] = _one(random, made(CLASSES if part == "y" else X))

    def use():
        records = lw.Records(**parts)
        assert len(records.split(5, 5, seed=0)) == 2
        return records, records.matches(records), repr(records)

    return Case("Records", f"lw.Records({part}={form})", use)


def _game(random, made):
    """A small game in which one part of one set of records is odd."""
    sets = {name: [torch.from_numpy(X), torch.from_numpy(CLASSES)] for name in ("known", "prior", "secrets")}
    which, part = ("known", "prior", "secrets")[random.integers(3)], random.integers(2)
    form, odd = _one(random, made(CLASSES if part else X))
    sets[which][part] = odd
    return f"{which}.{'xy'[part]}={form}", sets


def of_a_procedure(random, made, anything):
    name, sets = _game(random, made)
    threat = random.random() < 0.5

    def run():
        known, prior, secrets = (lw.Records(*sets[name]) for name in ("known", "prior", "secrets"))
        secrets = lw.Records(
            (secrets.x.double() + 1).to(secrets.x) if secrets.x.is_floating_point() else secrets.x, secrets.y
        )
        torch.manual_seed(0)
        return lw.audit(
            nn.Linear(3, 2).double(),
            trainer=lw.GD(lr=0.1, steps=2),
            threat=lw.Informed(known) if threat else lw.Weak(size=2),
            prior=prior,
            secrets=secrets,
            games=4,
            attack=lw.KernelRidge() if threat else QUICK,
        )

    return Case("records of a procedure", f"lw.audit({'Informed' if threat else 'Weak'}, {name})", run)


def of_a_simulation(random, made, anything):
    name, sets = _game(random, made)
    threat = random.random() < 0.5

    def run():
        known, prior = lw.Records(*sets["known"]), lw.Records(*sets["prior"])
        torch.manual_seed(0)
        made = lw.simulate(
            nn.Linear(3, 2).double(),
            trainer=lw.GD(lr=0.1, steps=2),
            threat=lw.Informed(known) if threat else lw.Weak(size=2),
            prior=prior,
            models=3,
        )
        return [release.flat() for _, release in made]

    return Case("records of shadows", f"lw.simulate({'Informed' if threat else 'Weak'}, {name})", run)


def of_a_table(random, made, anything):
    if random.random() < 0.5:
        form, x = _one(random, made(X))
        y = CLASSES
    else:
        x, (form, y) = X, _one(random, made(CLASSES))
    right = torch.from_numpy(X)
    return Case(
        "records.table",
        f"records.table({form})",
        lambda: lw.records.table((x, y)),
        lambda records: anything or (torch.equal(records.x, right) and records.y.tolist() == CLASSES.tolist()),
    )


def of_a_net(random, made, anything):
    """A released net with its table, by (X, y) or as Records."""
    form, x = _one(random, made(X))
    wrapped = random.random() < 0.5

    def run():
        y = torch.from_numpy(CLASSES)
        return lw.audit(trained(), lw.Records(x, y) if wrapped else (x, y), trainer=TRAINER, games=2)

    return Case("table of a net", f"lw.audit(net, {'Records' if wrapped else 'X'}={form})", run)
