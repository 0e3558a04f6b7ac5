"""The commands that audit: from a recipe to a report and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from lostwax import files
from lostwax.cli.options import File, Folder, Number, RecipeFile, ReportFolder, Text, WholeNumber
from lostwax.exits import exits_refused
from lostwax.recipes import Recipe, start

Starter = Literal["sklearn", "torch", "head"]


def demo(out: Folder = Path("demo")) -> None:
    """Audit a logistic regression and a neural net on the embedded digits.

    Args:
        out: The folder for the reports.
    """
    from lostwax.demo import run

    _check_writable("demo", out)
    run(out)


def init(
    kind: Positional[Annotated[Starter, arg(metavar="sklearn|torch|head")]],
    out: Annotated[Path, arg(metavar="FILE")] = Path("recipe.py"),
) -> None:
    """Write a recipe to start from; it runs as it is.

    Args:
        kind: For a fitted scikit-learn model, a way of training a torch net, or a head on a frozen backbone.
        out: The file to write; one that exists stays as it is.
    """
    path = start(kind, out)
    print(f"{path} is written, and runs as it is:\n\n    lostwax audit {path} --out audit\n")
    print("Then put your own model and data in the lines marked <-.")


@exits_refused("audit: the recipe, or what it calls,")
def audit(
    recipe: RecipeFile,
    out: Folder,
    policy: File = None,
    max_minutes: Number = None,
    records: bool = True,
) -> int:
    """Can training records be rebuilt? Runs a recipe and writes a report.

    Args:
        recipe: A Python file that names a model and its data, or a net and how it is trained (lostwax init).
        out: The folder for the report; an earlier report in it is replaced, nothing else ever is.
        policy: Limits that the audit must keep (TOML); where it does not, the exit code is 1.
        max_minutes: Where the recipe names no attack, the limit for the whole audit.
        records: Put original and rebuilt records into the report; they are personal data.
    """
    from lostwax.policies import Policy
    from lostwax.reports import check_folder
    from lostwax.verbs import report as write

    check_folder(out)  # what can be refused is refused before hours of work
    _check_writable("audit", out)
    limits = None if policy is None else Policy.read(policy)
    result = Recipe.read(recipe).audit(max_minutes=max_minutes)
    breaches = [] if limits is None else limits.breaches(result)
    for breach in breaches:
        print(f"policy {policy}: {breach}", file=sys.stderr)
    verdict = "" if limits is None else f"\n\npolicy {policy}: {'broken' if breaches else 'kept'}"
    unheard = _print(f"{result}{verdict}")  # before anything is written: a full disk loses no result
    page = write(result, out, records=records)  # even if nobody listens: a closed pipe loses no report
    if unheard is not None:
        raise unheard
    print(f"\nreport: {page}", flush=True)
    return 1 if breaches else 0


def report(folder: ReportFolder, records: bool = True) -> None:
    """Write the report of an audit again, from its own files.

    Args:
        folder: Where `lostwax audit --out` left it.
        records: Keep original and rebuilt records; --no-records takes them out for good, to pass the folder on.
    """
    from lostwax.reports import read
    from lostwax.verbs import report as write

    print(write(read(folder), folder, records=records))


@exits_refused("simulate: the recipe, or what it calls,")
def simulate(
    recipe: RecipeFile,
    models: int,
    store: Annotated[str, arg(metavar="FOLDER|URL")],
    engine: Literal["local", "ray"] = "local",
    address: Text = None,
    workers: WholeNumber = None,
) -> None:
    """Train shadow models of a recipe into a store. Stopped? Run it again, it goes on.

    Args:
        recipe: A Python file that names a net and how it is trained (lostwax init torch).
        models: How many models the store shall hold.
        store: A folder, or any URL that fsspec knows.
        engine: Where they are trained: on this machine, or on a Ray cluster.
        address: The Ray cluster's; none starts one on this machine.
        workers: How many Ray workers at a time.
    """
    from lostwax import shadows
    from lostwax.verbs import simulate as train

    if engine != "ray" and (address is not None or workers is not None):
        raise ValueError("simulate: --address and --workers are for --engine ray. Add it, or leave them out.")
    said = Recipe.read(recipe)
    if not said.trains:
        raise ValueError(f"simulate: {recipe} is about one fitted model. Shadow models need a net and its trainer.")
    where = shadows.Ray(address=address, workers=workers) if engine == "ray" else shadows.Local()
    game = {name: said.arguments[name] for name in ("trainer", "threat", "prior", "seed") if name in said.arguments}
    train(said.subject, **game, models=models, store=store, engine=where)
    stored = shadows.Store(store).open(
        shadows.Game(said.subject, game["trainer"], game["threat"], game["prior"], game.get("seed", 0))
    )
    held = len(stored.present()) * stored.chunk
    asked = "" if held == models else f" ({models:,} were asked for; they are kept in chunks of {stored.chunk:,})"
    print(f"{store} holds {held:,} models of {recipe}{asked}.")


def _print(text: str) -> OSError | None:
    """Print now; the error of a pipe that is closed, or of a log on a full disk."""
    try:
        print(files.escaped(text).encode("utf-8", "backslashreplace").decode(), flush=True)
    except BrokenPipeError as error:
        return error
    except OSError as error:
        return files.failed(error, f"audit: the result could not be printed ({files.why(error)}). The report is there.")
    return None


def _check_writable(command: str, out: Path) -> None:
    """Make a file where the report will be, and take it away again."""
    out = files.named(command, out)
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        return  # refused by the command itself
    try:
        files.check_writable(nearest)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(
            f"{command}: --out {out} cannot be written to: in {nearest}: {why}. Name a folder of your own."
        ) from error
