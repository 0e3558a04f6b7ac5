"""Data runs down the page: a room imports only from rooms above it."""

import ast
from pathlib import Path

import pytest

import lostwax

SOURCE = Path(lostwax.__file__).parent

# from the top of docs/design.md to the bottom
ROOMS = [
    "fields",
    "provenance",
    "numerals",
    "grades",
    "exits",
    "deadlines",
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
    "audits",
    "policies",
    "reports",
    "verbs",
    "recipes",
    "demo",
    "cli",
]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def local_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "lostwax":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {name.name for name in node.names}
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("lostwax.")}
    return {name for name in found if name in ROOMS}


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py" or path.parent != SOURCE]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_only_from_rooms_above(path):
    room = room_of(path)
    assert room in ROOMS, f"{room} has no place in the order of rooms: add it here and to docs/design.md"
    below = {other for other in local_imports(path) if ROOMS.index(other) > ROOMS.index(room)}
    assert not below, f"{room} imports {sorted(below)}, which stand below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_is_one_thing(path):
    assert len(path.read_text().splitlines()) <= 500
    assert path.stem not in {"utils", "helpers", "common", "misc"}
