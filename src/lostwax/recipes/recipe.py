"""Reading a recipe: its names are the arguments of `lw.audit`."""

from __future__ import annotations

import difflib
import inspect
import runpy
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lostwax import files
from lostwax.exits import is_own
from lostwax.verbs import audit

if TYPE_CHECKING:
    from lostwax.audits import Audit


# An error in the user's own code, as the user should see it: their files and lines, nobody else's.


def own_frames(error: BaseException) -> str | None:
    """The frames of the user's own files and the error itself; None where the user's code has no part in it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames and not isinstance(error, SyntaxError):
        return None
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()


NEEDED = {  # by the name of what is audited: the names that must stand beside it, and what they are
    "model": {"data": "the table that the model was fitted on: data = (X, y)"},
    "net": {
        "trainer": "how victims are trained: trainer = lw.GD(lr=0.2, steps=100)",
        "threat": "what the adversary knows: threat = lw.Informed(known)",
        "prior": "records that the adversary learns from: prior = lw.Records(x, y)",
        "secrets": "records that it never sees, one a game: secrets = lw.Records(x, y)",
    },
}
SETTINGS = ("games", "seed", "threshold")
OPTIONAL = {
    "model": ("trainer", "attack", "sample_weight", *SETTINGS),
    "net": ("attack", "access", "metrics", "max_minutes", *SETTINGS),
}
ALIKE = 0.8  # difflib's ratio above which a name is taken for a slip of the pen


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a recipe file says: the model or net, and the arguments of `lw.audit` that go with it."""

    path: Path
    subject: Any  # a fitted model, or the net of a way of training
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> Recipe:
        """Run the file, and take the names of a recipe from it; all others are its own affair."""
        source = Path(path)
        if not source.is_file():
            what = "is a folder" if source.is_dir() else "does not exist"
            raise FileNotFoundError(f"recipe: {source} {what}. `lostwax init` writes a recipe to start from.")
        names = _run(source)
        kind = _kind(source, names)
        wanted = (*NEEDED[kind], *OPTIONAL[kind])
        _check_spelling(source, names, (kind, *wanted))
        for name in (kind, *wanted):
            _check_is_value(source, name, names.get(name))
        missing = [f"{name} ({meaning})" for name, meaning in NEEDED[kind].items() if name not in names]
        if missing:
            raise ValueError(f"recipe: {source} defines {kind}, but not {', nor '.join(missing)}.")
        return cls(source, names[kind], {name: names[name] for name in wanted if name in names})

    @property
    def trains(self) -> bool:
        """Is it a recipe of a way of training, rather than of one fitted model?"""
        return "threat" in self.arguments

    def audit(self, *, max_minutes: float | None = None) -> Audit:
        """What `lw.audit` makes of it; `max_minutes` stands above the recipe's own."""
        changes = {} if max_minutes is None else {"max_minutes": max_minutes}
        return audit(self.subject, **{**self.arguments, **changes})


def _run(path: Path) -> dict[str, Any]:
    """The names that the file defines. Modules beside it can be imported, also later, by the functions it defines."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: a recipe called torch.py must not hide torch
    try:
        return runpy.run_path(str(path), run_name="__recipe__")
    except (Exception, SystemExit) as error:
        shown = own_frames(error) or f"{type(error).__name__}: {error}"
        raise ValueError(f"recipe: {path} cannot be run.\n{shown}") from error


def _kind(path: Path, names: Mapping[str, Any]) -> str:
    found = [kind for kind in NEEDED if kind in names]
    if len(found) == 1:
        return found[0]
    why = "both model and net" if found else "neither model nor net"
    raise ValueError(
        f"recipe: {path} defines {why}. Call it model where it is fitted and data = (X, y) is what it was fitted on; "
        f"call it net where a way of training is audited.{_slip(names, NEEDED) if not found else ''}"
    )


def _check_spelling(path: Path, names: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    """A slip in an optional name would go unnoticed, and change what is audited."""
    slip = _slip(names, [name for name in wanted if name not in names])
    if slip:
        raise ValueError(f"recipe: {path}.{slip} If not, give it a name less alike, or start it with an underscore.")


def _slip(names: Mapping[str, Any], absent: Any) -> str:
    for name, value in names.items():
        alike = difflib.get_close_matches(name, list(absent), n=1, cutoff=ALIKE)
        if alike and not name.startswith("_") and not _is_definition(value):
            return f" Does {name} mean {alike[0]}? Then call it so."
    return ""


def _check_is_value(path: Path, name: str, value: Any) -> None:
    if inspect.isclass(value):
        raise ValueError(f"recipe: {path}: {name} is the class {value.__name__}. Make one: {value.__name__}(...).")
    if inspect.isfunction(value):
        cure = (
            f"Wrap it: lw.OwnTraining({value.__name__})." if name == "trainer" else "Call it, or give it another name."
        )
        raise ValueError(f"recipe: {path}: {name} is the function {value.__name__}. {cure}")
    if isinstance(value, ModuleType):
        raise ValueError(f"recipe: {path}: {name} is the module {value.__name__}. Import it under another name.")


def _is_definition(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, ModuleType)


# `lostwax init`: a recipe that runs as it is, to be changed line by line into one's own.


STARTERS = {path.stem: path for path in sorted((Path(__file__).parent / "starters").glob("*.py"))}


def start(kind: str, out: Path) -> Path:
    """Write the recipe of that kind to a file that does not exist yet."""
    out = files.named("init", out)
    if not out.parent.is_dir():
        raise FileNotFoundError(f"init: the folder of {out} does not exist. Create it first.")
    try:
        return files.write(out, STARTERS[kind].read_text(encoding="utf-8"), source="init", new=True)
    except FileExistsError:
        raise FileExistsError(f"init: {out} exists, and stays as it is. Name another file by --out.") from None
