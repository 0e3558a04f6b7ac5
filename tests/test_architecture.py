"""Data runs down the page: a room imports only from rooms above it."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

import lostwax
from lostwax_dev import walks
from lostwax_dev.size import measure

SOURCE = Path(lostwax.__file__).parent

# from the top of docs/design.md to the bottom
ROOMS = [
    "fields",
    "provenance",
    "numerals",
    "grades",
    "cards",
    "exits",
    "released",
    "clock",
    "seeds",
    "philox",
    "games",
    "losses",
    "inits",
    "schedules",
    "files",
    "progress",
    "records",
    "nets",
    "trainers",
    "defences",
    "access",
    "shadows",
    "metrics",
    "learning",
    "attacks",
    "bounds",
    "adapters",
    "claims",
    "audits",
    "policies",
    "reports",
    "verbs",
    "workplaces",
    "recipes",
    "demo",
    "cli",
    "__main__",
]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The nodes of a file's syntax tree; each file is read once."""
    return list(ast.walk(ast.parse(path.read_text())))


def local_imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "lostwax":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {name.name for name in node.names}
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("lostwax.")}
    return {name for name in found if name in ROOMS}


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py" or path.parent != SOURCE]


SHOWS_ITSELF = {"audits/audit.py": {"reports"}}  # audit.plot: loaded when it is called


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_imports_only_from_rooms_above():
    homeless = {room_of(path) for path in FILES} - set(ROOMS)
    assert not homeless, f"{homeless} have no place in the order of rooms: add them here and to docs/design.md"
    for path in FILES:
        room = room_of(path)
        below = {other for other in local_imports(path) if ROOMS.index(other) > ROOMS.index(room)}
        below -= SHOWS_ITSELF.get(name_of(path), set())
        assert not below, f"{name_of(path)} imports {sorted(below)}, which stand below it"


@functools.cache
def importers():
    """For every module the files that import it, or from it."""
    modules = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in FILES}
    found = {name: set() for name in modules}
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for name in (node.module, *(f"{node.module}.{part.name}" for part in node.names)):
                    if name in found and modules[name] != path:
                        found[name].add(path)
    return {modules[name]: paths for name, paths in found.items()}


ALONE = {"__init__", "__main__", "kernel"}  # what Python asks for; what imports Triton
ALONE |= {"tensorflow_privacy"}  # named after the library that it reads, as users look for it
SMALL = 60  # lines


def test_a_file_is_one_idea():
    lines = {path: len(path.read_text().splitlines()) for path in FILES}
    assert [name_of(path) for path in FILES if lines[path] > 500] == []
    assert {path.stem for path in FILES} & {"utils", "helpers", "common", "misc"} == set()
    alone = []
    for path in FILES:
        exported = path.with_name("__init__.py") in importers()[path]  # an attack or a metric of its own
        if lines[path] < SMALL and not exported and path.stem not in ALONE and path.parent.name != "starters":
            alone += [name_of(path)] if len(importers()[path]) <= 1 else []
    assert alone == [], f"what only one file imports lives in that file, below {SMALL} lines"


def classes():
    for path in sorted(SOURCE.rglob("*.py")):
        for node in nodes(path)[0].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield path, node


def test_no_two_classes_have_one_name():
    names = [node.name for _, node in classes()]
    twice = {name for name in names if names.count(name) > 1}
    assert twice == {"Records"}  # lw.Records are data; lw.bounds.Records(k, of=n) is a goal, beside Record


VALUES = {
    "Records",
    "Audit",
    "Guess",
    "Note",
    "Stationary",
    "ExitedError",
    "Sampling",  # abstract: users inherit from it
    "BoostedModel",  # abstract: the readers' own
}  # what a function gets is checked


def test_nobody_is_asked_for_their_class():
    """A threat, trainer, attack, access or loss of a user's own must do: facts are asked for instead."""
    homes = {node.name: path for path, node in classes() if not any("Protocol" in ast.unparse(b) for b in node.bases)}
    asked = []
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                asked += [(path.name, name) for name in names & homes.keys() - VALUES if homes[name] != path]
    assert asked == []


PARTS = {"access", "attack", "by", "inside", "loss", "metric", "reconstruct", "start", "term", "threat", "trainer"}
FACTS = {"games/facts.py", "games/judges.py"}
IS_IT_ONE = {("attack", "prepare"), ("loss", "residual")}  # whether what a user passed is such a part at all


def test_no_part_is_asked_for_an_attribute_that_is_no_fact():
    """What an attack, a trainer, a threat, a metric may state is written in games/facts.py, and asked for there."""
    asked = []
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                part, name = ast.unparse(node.args[0]).split(".")[-1], node.args[1]
                if part in PARTS and isinstance(name, ast.Constant) and (part, name.value) not in IS_IT_ONE:
                    asked.append((str(path.relative_to(SOURCE)), ast.unparse(node)))
    assert [place for place in asked if place[0] not in FACTS] == []


def test_no_attack_imports_from_inside_another():
    room = SOURCE / "attacks"
    for path in room.rglob("*.py"):
        own = path.relative_to(room).parts[0].removesuffix(".py")
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lostwax.attacks."):
                parts = node.module.split(".")[2:]
                assert len(parts) == 1 or parts[0] == own, f"{path.name} imports {node.module}"


BUDGET = tomllib.loads((Path(__file__).parent.parent / "tools" / "size_budget.toml").read_text())
APART = {"lines", "files_of_a_walk", "functions_of_a_file", "pronouns"}  # numbers of rooms, files and walks


@pytest.fixture(scope="module")
def size():
    return measure(SOURCE)


def test_the_house_keeps_to_its_budget(size):
    over = {room: lines for room, lines in size.lines.items() if lines > BUDGET["lines"].get(room, 0)}
    assert not over, "more lines than tools/size_budget.toml allows: what did the change make unnecessary?"
    counted = {name: getattr(size, name) for name in BUDGET if name not in APART}
    assert {name: number for name, number in counted.items() if number > BUDGET[name]} == {}


@pytest.mark.skipif("functions_of_a_file" not in BUDGET, reason="no budget yet")
def test_a_file_has_few_functions(size):
    files = size.functions_of_files
    assert {file: number for file, number in files.items() if number > BUDGET["functions_of_a_file"]} == {}


@pytest.mark.skipif("pronouns" not in BUDGET, reason="no budget yet")
def test_names_say_what_is_held(size):
    """No new `one`, `found` or `held`: a room that is not in the budget has none."""
    rooms = size.pronouns_of_rooms
    assert {room: number for room, number in rooms.items() if number > BUDGET["pronouns"].get(room, 0)} == {}


@pytest.mark.parametrize("name", walks.WALKS)
def test_an_audit_goes_through_few_files(name):
    files = walks.walked(walks.WALKS[name]()).files
    assert len(files) <= BUDGET["files_of_a_walk"][name], sorted(files)


ASKS_TEXT = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "replace"}
ASKS_TEXT |= {"compile", "match", "search", "fullmatch", "findall", "sub", "find", "index", "count"}
MAY_READ_PROSE = {
    "audits/saved.py": "files up to 0.3.0 hold sentences where today's hold values",
    "adapters/lightgbm.py": "the format of LightGBM's files",
    "cli/child.py": "the format of faulthandler",
    "provenance.py": "/proc/cpuinfo",
    "reports/charts.py": "SVG",
    "fields.py": "the words of one type hint, joined",
    "games/protocols.py": "an attack of a user may name itself in its objection",
}


def words_in(node):
    """The literal text of an expression."""
    return " ".join(
        part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def prose_asked(tree):
    """Where a program looks for words in a text: a pattern, a start, an end or a part of two words or more."""
    for node in tree:
        asked = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKS_TEXT:
            asked = node.args[0] if node.args else None
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            asked = node.left if isinstance(node.left, ast.Constant | ast.JoinedStr) else None
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):  # a repr: "Weights()"
            asked = next((side for side in (node.left, *node.comparators) if words_in(side).endswith("()")), None)
            if asked is not None:
                yield node
                continue
        if asked is not None and re.search(r"[A-Za-z]{2,}\W* \W*[a-z]{2,}", words_in(asked)):
            yield node


def test_nothing_looks_into_our_own_sentences():
    """A sentence is made from values, once: what is needed later is kept as a value (docs/design.md)."""
    looks = [(name_of(path), node) for path in FILES for node in prose_asked(nodes(path))]
    assert [(name, ast.unparse(node)) for name, node in looks if name not in MAY_READ_PROSE] == []


def test_such_a_look_is_found():
    texts = ["note.startswith('Fit it on')", "'every row' in audit.threat", "re.compile('holds the (.*)')"]
    texts += ["access == 'Weights()'", "why.removeprefix(f'{name} is not applicable: ')"]
    for text in texts:
        assert list(prose_asked(ast.walk(ast.parse(text)))), text
    for text in ("name.startswith('max_')", "'label_error' in numbers", "text.split(' ')", "kind == 'this model'"):
        assert not list(prose_asked(ast.walk(ast.parse(text)))), text


TESTS = Path(__file__).parent
MIRRORED = (
    "access",
    "bounds",
    "claims",
    "defences",
    "games",
    "losses",
    "metrics",
    "nets",
    "philox",
    "recipes",
    "records",
)
OF_THE_REPOSITORY = {"benchmarks", "fuzz", "papers", "release", "tools"}  # folders of tests, not of rooms
OF_ALL_ROOMS = {
    "architecture",
    "cli",
    "contracts",
    "crash",
    "docs",
    "kills",
    "libraries",
    "notebooks",
    "offline",
    "site",
}
OF_ALL_ROOMS |= {"third_party", "third_party_exact"}
OF_A_WHOLE_ROOM = {"bounds": {"brute_force", "stress"}}


def test_every_folder_and_file_of_tests_belongs_to_a_room():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - OF_THE_REPOSITORY <= set(ROOMS)
    assert {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} - OF_ALL_ROOMS <= set(ROOMS)


@pytest.mark.parametrize("room", MIRRORED)
def test_tests_mirror_src(room):
    """tests/room/test_file.py tests room/file.py; so do all tests in tests/room/file/, where one file is not enough.

    A room that is one file has a folder of tests; a test of a whole room bears the room's name, or is listed.
    """
    strays = set()
    for path in (TESTS / room).rglob("test_*.py"):
        place = path.relative_to(TESTS)
        name = path.stem.removeprefix("test_")
        of_folder = any((SOURCE / parent).with_suffix(".py").is_file() for parent in place.parents if parent.name)
        of_file = (SOURCE / place.parent / f"{name}.py").is_file() or name == place.parent.name
        if not of_folder and not of_file and name not in OF_A_WHOLE_ROOM.get(room, ()):
            strays.add(str(place))
    assert not strays
