"""Files that were cut, flipped, edited or made to hurt: archives, audits, weights, tables, policies, recipes."""

import copy
import io
import json
import shutil
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

import lostwax as lw
from audits.game import Reads, audited
from fuzz.arrays import CLASSES, X, fitted
from fuzz.outcomes import MARK, NUMBER, Case
from lostwax.reports.folder import read as read_report

_SPACE = tempfile.TemporaryDirectory(prefix="lostwax-fuzz-")
FOLDER = Path(_SPACE.name)
NET = nn.Linear(3, 2)
JSON = ("3", "", "nan", "inf", "x" * 3000, "\ud800", 0, -1, 10**30, 10**400, 1e308, -1e308, 2.5, True, False, None, [])
JSON += ([[]], {}, {"a": 1}, float("nan"), float("inf"), [1] * 50, ["a"], 1e-320)
TEXT = (
    "=1+1",
    "",
    '"',
    "\n",
    ",",
    "nan",
    "inf",
    "1e999",
    "-",
    MARK,
    str(NUMBER),
    f"{NUMBER}x",
    "\0",
    "é",
    "9" * 400,
    "0x10",
    " ",
    "\r",
    "'",
    "#",
)
DECLARED = ((10**12,), (2**40, 8, 8), (10**6, 10**6), (2**62,), (-1, 8, 8), (0,), (3, -8, 8), (2**70,), ())


def cases(random):
    """A kind of file, and harm done to it."""
    kinds = (_npz, _npz_header, _audit, _audit, _audit, _report, _weights, _csv, _policy, _recipe)
    while True:
        yield kinds[random.integers(len(kinds))](random)


def written(name, content):
    path = FOLDER / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def harmed(random, content):
    """Some bytes of it flipped, cut out, doubled, or made of noise."""
    content, way = bytearray(content), random.integers(5)
    place = int(random.integers(max(1, len(content))))
    if way == 0:
        return bytes(content[:place])
    if way == 1:
        return bytes(content[:place] + random.bytes(int(random.integers(1, 40))) + content[place:])
    if way == 2:
        return bytes(content[:place] + content[place + int(random.integers(1, 200)) :])
    for _ in range(int(random.integers(1, 20)) if way == 3 else 1):
        content[int(random.integers(max(1, len(content))))] = int(random.integers(256))
    return bytes(content)


@cache
def images():
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), np.uint8)
    np.savez(buffer, images=pixels, labels=np.arange(6) % 3, split=np.arange(6) % 2)
    return buffer.getvalue()


def _npz(random):
    content, part = harmed(random, images()), ("all", "train", "test")[random.integers(3)]
    return Case(".npz", "records.npz, damaged", lambda: lw.records.npz(written("a.npz", content), part))


def _npz_header(random):
    """An array whose header declares another shape or dtype than what follows."""
    declared = DECLARED[random.integers(len(DECLARED))]
    kind = ("|u1", "<i8", "|O", "<U9", "<M8[D]", "<f16", "|V8")[random.integers(7)]
    array = ("images", "labels", "split", "shape", "n_chunks", "webp_000")[random.integers(6)]
    header = repr({"descr": kind, "fortran_order": False, "shape": declared}).encode().ljust(117) + b"\n"
    harm = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(images())) as whole, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for name in whole.namelist():
            if name != f"{array}.npy":
                new.writestr(name, whole.read(name))
        new.writestr(f"{array}.npy", harm)
        if array in ("shape", "n_chunks", "webp_000"):
            for missing in {"shape", "n_chunks", "webp_000"} - {array}:
                inner = io.BytesIO()
                np.save(inner, np.array([10**9, 8, 8] if missing == "shape" else 10**9))
                new.writestr(f"{missing}.npy", inner.getvalue())
    content = buffer.getvalue()
    return Case(
        ".npz", f"records.npz, {array} declares {kind} {declared}", lambda: lw.records.npz(written("b.npz", content))
    )


@cache
def audits():
    """What two audits write: of a way of training, and of a model."""
    procedure = audited(Reads(), games=12)
    model = lw.audit(fitted("classes"), (X, CLASSES), games=8)
    made = []
    for number, audit in enumerate((procedure, model)):
        path = lw.report(audit, FOLDER / f"report{number}")
        made.append((path.parent, json.loads((path.parent / "audit.json").read_text())))
    return made


def _audit(random):
    """One place of the JSON holds something else, or some bytes do."""
    _, plain = audits()[random.integers(2)]
    before = json.dumps(plain)
    if random.random() < 0.2:
        content, name = harmed(random, before.encode()), "damaged"
    else:
        edited = copy.deepcopy(plain)
        name = edit(random, edited)
        content = json.dumps(edited)

    def read():
        audit = lw.Audit.from_json(written("audit.json", content))
        return audit, repr(audit), lw.Policy(max_rebuilt_share=0.5, max_grade="not found").breaches(audit)

    return Case("audit.json", f"Audit.from_json, {name}", read, lambda read: _as_it_says(read[0], content))


def edit(random, plain):
    """Put something else into a random place; what it is called."""
    node, path = plain, "$"
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        if not len(keys):
            return f"{path} untouched"
        key = keys[random.integers(len(keys))]
        path += f".{key}"
        if not isinstance(node[key], dict | list) or random.random() < 0.25:
            break
        node = node[key]
    way = random.integers(5)
    if way == 4 and isinstance(node[key], list):
        node[key] = node[key][: random.integers(max(1, len(node[key])))]
        return f"{path} cut"
    if way == 0:
        del node[key]
        return f"{path} deleted"
    if way == 1 and isinstance(node[key], bool):
        node[key] = not node[key]
        return f"{path} turned"
    if way == 2 and isinstance(node[key], int | float):
        node[key] = node[key] * 1000 - 1
        return f"{path} changed"
    value = JSON[random.integers(len(JSON))]
    node[key] = value
    return f"{path} = {type(value).__name__} {str(value)[:20]!r}"


def _as_it_says(audit, content):
    """Whether an accepted audit says of itself what its file says."""
    try:
        stored = json.loads(content)["summary"]
    except (ValueError, KeyError, TypeError):
        return False
    found = audit.summary()
    return all(
        name in stored and np.isclose(float(stored[name].get("rebuilt", -1)), line["rebuilt"])
        for name, line in found.items()
    )


def _report(random):
    """The tensors beside an audit."""
    number = int(random.integers(2))
    source, _ = audits()[number]
    whole = (source / "records.safetensors").read_bytes()
    if random.random() < 0.5:
        content, name = harmed(random, whole), "damaged"
    else:
        tensors = {name: value.clone() for name, value in _read(whole).items()}
        part = sorted(tensors)[random.integers(len(tensors))]
        changes = {
            "cut": tensors[part][:-1],
            "0-d": torch.tensor(3.0),
            "flat": tensors[part].flatten(),
            "nan": torch.full_like(tensors[part].double(), torch.nan),
            "whole numbers": tensors[part].long(),
            "wider": torch.cat([tensors[part].double()] * 2, -1),
            "half": tensors[part].half(),
            "truth values": tensors[part] > 0,
            "gone": None,
            "8 bits": tensors[part].to(torch.float32).to(torch.float8_e4m3fn),
        }
        way = list(changes)[random.integers(len(changes))]
        tensors[part] = changes[way]
        content, name = save({key: value for key, value in tensors.items() if value is not None}), f"{part} {way}"

    def read():
        target = FOLDER / "copied"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        shutil.copy(source / "audit.json", target)
        (target / "records.safetensors").write_bytes(content)
        audit = read_report(target)
        return audit, repr(audit)

    return Case("records.safetensors", f"reports.read, {name}", read)


def _read(content):
    from safetensors.torch import load

    return load(content)


@cache
def weights():
    buffer = io.BytesIO()
    torch.save(NET.state_dict(), buffer)
    return save({name: value.detach() for name, value in NET.state_dict().items()}), buffer.getvalue()


def _weights(random):
    which = int(random.integers(2))
    content = harmed(random, weights()[which])
    kind = ("safetensors", "pt")[which]
    return Case(
        f"weights .{kind}",
        f"load_weights, .{kind}, damaged",
        lambda: lw.adapters.load_weights(NET, written("w", content)),
    )


def _csv(random):
    rows = [[f"{random.normal():.3f}" for _ in range(3)] + [str(random.integers(3))] for _ in range(8)]
    for _ in range(int(random.integers(1, 4))):
        rows[random.integers(8)][random.integers(4)] = TEXT[random.integers(len(TEXT))]
    if random.random() < 0.2:
        rows[random.integers(8)] = rows[0][: random.integers(4)]
    content = ("a,b,c,y\n" + "\n".join(",".join(row) for row in rows)).encode()
    if random.random() < 0.2:
        content = harmed(random, content)
    return Case("table .csv", "records.table, odd cells", lambda: lw.records.table(written("t.csv", content), "y"))


def _policy(random):
    names = ("max_rebuilt_share", "max_grade", "threshold", "max_tpr_at_1pct", "max_ceiling", "max_graed", "a b")
    values = (
        "0.05",
        '"not found"',
        "nan",
        "inf",
        "-1",
        "1",
        "true",
        "[]",
        "{}",
        "2020-01-01",
        '""',
        "1e999",
        "0x10",
        "'",
    )
    lines = [
        f"{names[random.integers(len(names))]} = {values[random.integers(len(values))]}"
        for _ in range(int(random.integers(0, 3)))
    ]
    content = "\n".join(lines).encode()
    if random.random() < 0.3:
        content = harmed(random, content + b"\nmax_rebuilt_share = 0.05")
    return Case("policy .toml", f"Policy.read, {lines}", lambda: lw.Policy.read(written("p.toml", content)))


def _recipe(random):
    """Recipes are programs: what is tried is a file that is none, or names the wrong things."""
    from lostwax.recipes import Recipe

    lines = [
        *("import lostwax as lw", "model = 3", "net = 3", "data = 3", "games = 'x'", "seed = None", "trainer = lw.GD"),
        *(
            "def threat(): pass",
            "prior = lw",
            "secrets = []",
            "1 / 0",
            "raise SystemExit(0)",
            "moddel = 3",
            "\tx",
            "((",
        ),
    ]
    chosen = "\n".join(lines[random.integers(len(lines))] for _ in range(int(random.integers(0, 6))))
    content = chosen.encode() if random.random() < 0.6 else harmed(random, chosen.encode() + b"\nmodel = 3\ndata = 4")
    return Case("recipe", f"Recipe.read, {chosen!r}", lambda: Recipe.read(written("recipe.py", content)).audit())
