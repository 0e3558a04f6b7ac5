"""Which code made a result: its commit, and digests by which a later change of that code is noticed.

A result depends on its script, on what the script imports from its own folder, and on the modules of lostwax that the
run imported. Their sources are hashed without comments and docstrings, one digest per folder. Reading needs no git:
the files that are there now are hashed again. Modules that only show numbers do not count.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import lostwax

PACKAGE = "src/lostwax"
EARLIER, UNKNOWN = "earlier code", "unknown code"
ONLY_SHOW = ("__init__.py", "__main__.py", "progress.py", "cli", "reports")  # of the package


class SourceFolder(NamedTuple):
    """The files of one folder that a run used, and the digest of what they said."""

    folder: str  # from the root of the repository: papers, src/lostwax/attacks
    digest: str
    files: tuple[str, ...]


Code = tuple[SourceFolder, ...]


def code_of(script: Path) -> Code:
    """The code that this process has loaded to run the script."""
    folder, package = script.resolve().parent, Path(lostwax.__file__).resolve().parent
    real = {_resolved(file) for module in list(sys.modules.values()) if (file := _source_file(module))}
    loaded = {Path(file) for file in real if file.startswith((str(folder), str(package)))}
    files_of: dict[str, set[str]] = defaultdict(set)
    files_of[folder.name] = {
        str(path.relative_to(folder)) for path in loaded | {script.resolve()} if path.parent == folder
    }
    for path in loaded:
        if path.is_relative_to(package) and (inside := path.relative_to(package)).parts[0] not in ONLY_SHOW:
            room, *inner = inside.parts
            files_of[f"{PACKAGE}/{room}" if inner else PACKAGE].add("/".join(inner) or room)
    places = {name: _in_package(name) for name in files_of if name != folder.name} | {folder.name: folder}
    return tuple(
        SourceFolder(name, _digest(places[name], files), files)
        for name, files in sorted((name, tuple(sorted(files))) for name, files in files_of.items())
    )


def changed(code: Code, root: Path) -> list[str]:
    """The folders in which files of this code are no longer what they were; without sources, the installed package."""
    places = {part.folder: root / part.folder for part in code}
    if not (root / PACKAGE).is_dir():
        places = {name: _in_package(name) if name.startswith(PACKAGE) else place for name, place in places.items()}
    return [part.folder for part in code if _digest(places[part.folder], part.files) != part.digest]


def state(code: Code | None, root: Path) -> str:
    """How a result stands to the code of today: "" if it is made by it."""
    if code is None:
        return UNKNOWN
    return EARLIER if changed(code, root) else ""


def as_code(parts: Iterable[Sequence[object]]) -> Code:
    """What JSON keeps as lists."""
    return tuple(SourceFolder(str(folder), str(digest), tuple(files)) for folder, digest, files in parts)  # type: ignore[arg-type]


def commit_of(script: Path) -> str | None:
    """The commit that is checked out beside the script; None without git or outside a repository."""
    try:
        commit = _git(script.parent, "rev-parse", "--short=10", "HEAD")
        top = Path(_git(script.parent, "rev-parse", "--show-toplevel"))
        edited = _git(top, "status", "--porcelain", "--", "src", f"{script.parent.name}/*.py")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"uncommitted on {commit}" if edited else commit


def essence(source: str) -> str:
    """The source without comments, docstrings, blank lines and trailing blanks."""
    lines = source.splitlines()
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type != tokenize.NL]
    for token in [token for token in tokens if token.type == tokenize.COMMENT]:
        lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    tokens = [token for token in tokens if token.type != tokenize.COMMENT]
    begins = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for before, token, after in zip([None, *tokens], tokens, tokens[1:], strict=False):
        alone = (before is None or before.type in begins) and after.type == tokenize.NEWLINE
        if token.type == tokenize.STRING and alone:  # a statement that is only a string
            first, last = token.start[0] - 1, token.end[0] - 1
            lines[first : last + 1] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _in_package(folder: str) -> Path:
    return Path(lostwax.__file__).resolve().parent / Path(folder).relative_to(PACKAGE)


def _digest(folder: Path, files: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for file in files:
        path = folder / file
        digest.update(f"{file}\n{_hash(path, path.stat().st_mtime_ns) if path.is_file() else 'gone'}\n".encode())
    return digest.hexdigest()[:12]


@cache
def _hash(path: Path, _changed_at: int) -> str:
    return _hash_of(path.read_text(encoding="utf-8"))


@cache
def _hash_of(source: str) -> str:
    return hashlib.sha256(essence(source).encode()).hexdigest()


@cache
def _resolved(file: str) -> str:
    return os.path.realpath(file)


def _source_file(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None


def _git(folder: Path, *words: str) -> str:
    asked = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    return asked.stdout.strip()
