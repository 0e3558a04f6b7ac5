"""Recipes: an audit as a Python file, with the arguments of `lw.audit`. Light to import: torch comes with a recipe."""

from __future__ import annotations

import difflib
import inspect
import runpy
import shlex
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lostwax import files
from lostwax.exits import is_own
from lostwax.recipes.targets import is_target, read_target
from lostwax.verbs import audit

if TYPE_CHECKING:
    from lostwax.audits import Audit

REQUIRED = {  # per kind of audit: the required names, and what they are
    "model": {"data": "the table that the model was fitted on: data = (X, y)"},
    "net": {
        "trainer": "how victims are trained: trainer = lw.GD(lr=0.2, steps=100)",
        "threat": "what the adversary knows: threat = lw.Informed(known)",
        "prior": "records that attacks learn from: prior = lw.Records(x, y)",
        "secrets": "records to rebuild, one per game: secrets = lw.Records(x, y)",
    },
}
OF_BOTH = ("attack", "access", "max_minutes", "games", "seed", "threshold", "engine")
OPTIONAL = {
    "model": ("before", "tokenizer", "trainer", "mechanism", "sample_weight", "attackers", *OF_BOTH),
    "net": ("metrics", *OF_BOTH),
}
REPORT = "report"  # the name for the fields of the report: report = {"title": "...", "owner": "..."}
ALIKE = 0.8  # difflib ratio above which a name counts as misspelt


@dataclass(frozen=True, eq=False)
class Recipe:
    """The model or net that a recipe file defines, and the other arguments of `lw.audit`."""

    path: Path
    subject: Any  # a fitted model, or a net to train
    arguments: Mapping[str, Any]
    report: Mapping[str, Any] = field(default_factory=dict)  # arguments of `lw.report`: title, model, owner, ...

    @classmethod
    def read(cls, path: str | Path, *, trust_pickles: bool = False) -> Recipe:
        """Run the file and take the names that `lw.audit` knows; others are ignored. Or a folder of SACRO-ML."""
        source = Path(path)
        if is_target(source):
            model, data = read_target(source, trust=trust_pickles)
            return cls(source, model, {"data": data})
        if not source.is_file():
            what = "is a folder" if source.is_dir() else "does not exist"
            raise FileNotFoundError(f"recipe: {source} {what}. `lostwax init` writes a recipe to start from.")
        if source.suffix in (".joblib", ".pkl", ".pickle"):
            raise ValueError(
                f"recipe: {source} is a model, and a recipe is a Python file that loads one. `lostwax init sklearn` "
                "writes a recipe to start from."
            )
        names = _run(source)
        kind = _kind(source, names)
        wanted = (*REQUIRED[kind], *OPTIONAL[kind], *(("prior",) if "before" in names and kind == "model" else ()))
        if question := _misspelt(names, [name for name in wanted if name not in names]):  # it would be ignored
            cure = "If not, choose a different name, or start it with an underscore."
            raise ValueError(f"recipe: {source}.{question} {cure}")
        for name in (kind, *wanted, REPORT):
            _check_is_value(source, name, names.get(name))
        missing = [f"{name} ({meaning})" for name, meaning in REQUIRED[kind].items() if name not in names]
        if missing:
            raise ValueError(f"recipe: {source} defines {kind}, but not {', nor '.join(missing)}.")
        arguments = {name: names[name] for name in wanted if name in names}
        return cls(source, names[kind], arguments, _report_fields(source, names.get(REPORT, {})))

    @property
    def trains(self) -> bool:
        """True for a way of training, False for a fitted model."""
        return "threat" in self.arguments

    def audit(self, **changes: Any) -> Audit:
        """Run `lw.audit`; settings that are given override the recipe's."""
        changes = {name: value for name, value in changes.items() if value is not None}
        if not isinstance(self.arguments.get("seed", 0), int):
            raise ValueError(
                f"recipe: {self.path}: expected seed to be one whole number: a report is about one audit. For several "
                "seeds, call lw.audit(..., seed=[0, 1, 2]) in Python."
            )
        result: Audit = audit(self.subject, **{**self.arguments, **changes})
        return result


def _run(path: Path) -> dict[str, Any]:
    """The names that the file defines. Modules beside it can be imported, also later by its functions."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: a recipe called torch.py must not hide torch
    try:
        return runpy.run_path(str(path), run_name="__recipe__")
    except (Exception, SystemExit) as error:
        shown = own_frames(error) or f"{type(error).__name__}: {error}"
        raise ValueError(f"recipe: {path} cannot be run.\n{shown}") from error


def _kind(path: Path, names: Mapping[str, Any]) -> str:
    kinds = [kind for kind in REQUIRED if kind in names]
    if len(kinds) == 1:
        return kinds[0]
    why = "both model and net" if kinds else "neither model nor net"
    raise ValueError(
        f"recipe: {path} defines {why}. Define model and data = (X, y) to audit a fitted model, or net and trainer to "
        f"audit a way of training.{_misspelt(names, REQUIRED) if not kinds else ''}"
    )


def _report_fields(path: Path, values: Any) -> dict[str, Any]:
    """The fields of the report, checked before hours of work."""
    from lostwax.reports.fields import NAMES, ReportFields, plain

    cure = f"Define report = {{...}} with some of {', '.join(NAMES)}."
    if not isinstance(values, Mapping):
        raise ValueError(f"recipe: {path}: report is a {type(values).__name__}. {cure}")
    for name in values:
        if name not in NAMES:
            raise ValueError(f"recipe: {path}: report has the key {name!r}, which is not a field of a report. {cure}")
    ReportFields(**plain(values))
    return dict(values)


def _misspelt(names: Mapping[str, Any], absent: Any) -> str:
    for name, value in names.items():
        alike = difflib.get_close_matches(name, list(absent), n=1, cutoff=ALIKE)
        is_definition = inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, ModuleType)
        if alike and not name.startswith("_") and not is_definition:
            return f" Does {name} mean {alike[0]}? Then rename it."
    return ""


def _check_is_value(path: Path, name: str, value: Any) -> None:
    if inspect.isclass(value):
        cure = f"Pass an instance: {value.__name__}(...)."
        raise ValueError(f"recipe: {path}: {name} is the class {value.__name__}. {cure}")
    if inspect.isfunction(value):
        wrap = f"Wrap it: lw.OwnTraining({value.__name__})."
        cure = wrap if name == "trainer" else "Call it, or give it another name."
        raise ValueError(f"recipe: {path}: {name} is the function {value.__name__}. {cure}")
    if isinstance(value, ModuleType):
        raise ValueError(f"recipe: {path}: {name} is the module {value.__name__}. Import it under another name.")


def own_frames(error: BaseException) -> str | None:
    """The traceback restricted to the user's own files; None if the error is not in them."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames and not isinstance(error, SyntaxError):
        return None
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()


STARTERS = {path.stem: path for path in sorted((Path(__file__).parent / "starters").glob("*.py"))}


def start(kind: str, out: Path) -> Path:
    """Write a working example recipe to a new file, which its comments name."""
    out = files.named("init", out)
    if not out.parent.is_dir():
        raise FileNotFoundError(f"init: the folder of {out} does not exist. Create it first.")
    text, name = STARTERS[kind].read_text(encoding="utf-8"), shlex.quote(out.as_posix())
    if name.isprintable() and not set('"\\') & set(name):  # what a docstring can hold as it is
        text = text.replace("recipe.py", name)
    try:
        return files.write(out, text, source="init", new=True)
    except FileExistsError:
        raise FileExistsError(f"init: {out} exists and was not changed. Name another file with --out.") from None
