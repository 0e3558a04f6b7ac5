"""The commands `demo`, `init`, `audit`, `report`, `simulate` and `words`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from lostwax import files
from lostwax.exits import exits_refused
from lostwax.fields import redacted
from lostwax.progress import progress
from lostwax.recipes import Recipe, start

if TYPE_CHECKING:
    from lostwax.games import Engine
    from lostwax.policies import Breach

# types of arguments, with the metavars that --help shows
RecipeFile = Positional[Annotated[Path, arg(metavar="RECIPE.py")]]
Folder = Annotated[Path, arg(metavar="FOLDER")]
OwnFolder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: audits/RECIPE)")]
ReportFolder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
WholeNumber = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Starter = Literal["sklearn", "torch", "head"]
GAME = ("trainer", "threat", "prior", "seed")  # what of a recipe shadow models are trained by


def demo(out: Folder = Path("demo")) -> None:
    """Audit a logistic regression and a neural net on the embedded digits.

    Args:
        out: The folder for the reports.
    """
    from lostwax.demo import run

    run(out)


def init(
    kind: Positional[Annotated[Starter, arg(metavar="sklearn|torch|head")]],
    out: Annotated[Path, arg(metavar="FILE")] = Path("recipe.py"),
) -> None:
    """Write an example recipe that runs as it is.

    Args:
        kind: For a fitted scikit-learn model, for training a torch net, or for a head on a frozen backbone.
        out: The file to write; an existing file is never replaced.
    """
    path = start(kind, out)
    print(f"Wrote {path}. It runs as it is:\n\n    lostwax audit {shlex.quote(str(path))}\n")
    print("Then replace the lines marked <- by your own model and data.")


@exits_refused("audit: the recipe or code it calls")
def audit(
    recipe: RecipeFile,
    out: OwnFolder = None,
    policy: File = None,
    max_minutes: Number = None,
    records: bool = True,
    engine: Literal["local", "ray"] = "local",
    address: Text = None,
    workers: WholeNumber = None,
    checkpoints: Folder | None = None,
    trust_pickles: bool = False,
) -> int:
    """Can training records be rebuilt? Runs a recipe and writes a report.

    Args:
        recipe: A Python file that defines a model and its data, or a net and how it is trained (lostwax init); or a
            folder of SACRO-ML (target.yaml).
        out: The folder for the report. An earlier report of this recipe in it is replaced, nothing else.
        policy: Limits that the audit must keep (TOML); if one is broken, the exit code is 1.
        max_minutes: Time limit for the whole audit, which keeps what is done then.
        records: Include original and rebuilt records in the report; they are personal data.
        engine: Where models are trained or refitted: on this machine, or on a Ray cluster.
        address: Address of the Ray cluster; by default one is started on this machine.
        workers: Number of Ray workers.
        checkpoints: A folder that keeps trained models: if stopped, run it again to continue.
        trust_pickles: Read the pickles of a folder of SACRO-ML, which can run any code.
    """
    _announce(recipe)
    trained_by = _engine("audit", engine, address, workers, checkpoints)
    from lostwax.audits.text import as_table
    from lostwax.policies import Policy
    from lostwax.reports import check_folder
    from lostwax.verbs import report as write

    out = Path("audits") / recipe.stem if out is None else out
    check_folder(out)  # fail before hours of work
    with files.locked("audit", out):
        earlier = _earlier_report(out, recipe.name, records=records)
        limits = None if policy is None else Policy.read(policy)
        read = Recipe.read(recipe, trust_pickles=trust_pickles)
        with progress(recipe.name):
            result = read.audit(max_minutes=max_minutes, engine=trained_by)
        result = replace(result, provenance={**result.provenance, "recipe": recipe.name})
        breaches = [] if limits is None else limits.breaches(result)
        verdict = "" if limits is None else f"\n\npolicy {policy}: {'broken' if breaches else 'kept'}"
        said = None if limits is None else [str(breach) for breach in breaches]
        failure, where = None, ""
        try:
            with progress("report"):
                page = write(result, out, records=records, policy=limits, **read.report)
            where = f"\n\nreport: {page}{' (replaces the earlier one)' if earlier else ''}"
        except OSError as error:  # a full disk loses no result: it is printed
            failure = error
    _print(f"{as_table(result, breaches=said)}{verdict}{where}")
    _show_breaches(breaches, policy)
    if failure is not None:
        raise failure
    return 1 if breaches else 0


def _show_breaches(breaches: Sequence[Breach], name: Path | str | None) -> None:
    for breach in breaches:
        with suppress(OSError):  # stderr is closed
            print(f"policy {name}: {breach}", file=sys.stderr)


def _earlier_report(out: Path, recipe: str, *, records: bool) -> bool:
    """Is there an earlier report of this recipe? An error if it is another's, or would get records that it has not."""
    from lostwax.reports.folder import NUMBERS, was_without_records

    if not (out / NUMBERS).is_file():
        return False
    try:
        before = json.loads((out / NUMBERS).read_bytes())
        subject, made_by = before["subject"], before["provenance"].get("recipe")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        subject, made_by = "an unknown subject", None
    if made_by != recipe:
        of = "made without a recipe" if made_by is None else f"made by {made_by}"
        raise FileExistsError(
            f"audit: {out} holds another report, an audit of {subject} {of}. Nothing was run. Name another folder with "
            f"--out, or delete {out} first."
        )
    if records and was_without_records(out):
        raise FileExistsError(
            f"audit: the report in {out} was written without records, and this one would put them there. Nothing was "
            "run. Add --no-records, or name another folder with --out."
        )
    return True


def report(
    folder: ReportFolder, policy: File = None, records: bool = True, format: Literal["page", "sarif", "junit"] = "page"
) -> int:
    """Write a report again from its own files, or print it in a format of CI systems.

    Args:
        folder: The folder of `lostwax audit --out`.
        policy: Limits that the audit must keep (TOML); by default, those of the report. If one is broken, the exit code
            is 1.
        records: Keep original and rebuilt records; --no-records deletes them, so that the folder can be shared.
        format: "sarif" (2.1.0) or "junit" (XML) print the result, without records, and leave the folder as it is.
    """
    from lostwax.policies import Policy
    from lostwax.reports import read
    from lostwax.reports.fields import policy_of, with_fields
    from lostwax.reports.folder import NUMBERS
    from lostwax.reports.formats import FORMATS
    from lostwax.verbs import report as write

    given_limits = None if policy is None else Policy.read(policy)
    with files.locked("report", folder) if folder.is_dir() else nullcontext():
        result = read(folder)
        limits = given_limits or policy_of(result)
        breaches = [] if limits is None else limits.breaches(result)
        if format == "page":
            text = str(write(result, folder, records=records, policy=given_limits))
        else:
            where = NUMBERS if folder.is_absolute() else (folder / NUMBERS).as_posix()
            text = FORMATS[format](with_fields(result, {}, given_limits, ()), where).rstrip("\n")
    _print(text)
    _show_breaches(breaches, policy or f"of {folder}")
    return 1 if breaches else 0


@exits_refused("simulate: the recipe or code it calls")
def simulate(
    recipe: RecipeFile,
    models: int,
    store: Annotated[str, arg(metavar="FOLDER|URL")],
    engine: Literal["local", "ray"] = "local",
    address: Text = None,
    workers: WholeNumber = None,
    part: Annotated[str, arg(metavar="I/N")] = "1/1",
) -> None:
    """Train shadow models of a recipe into a store. If stopped, run it again to continue.

    Args:
        recipe: A Python file that defines a net and how it is trained (lostwax init torch).
        models: How many models the store should hold.
        store: A folder or fsspec URL.
        engine: Where to train: on this machine, or on a Ray cluster.
        address: Address of the Ray cluster; by default one is started on this machine.
        workers: Number of Ray workers.
        part: Train every n-th chunk only, from the i-th: for N processes or array tasks that share a store.
    """
    share, _, parts = part.partition("/")
    if not (share.isdecimal() and parts.isdecimal()):
        raise ValueError(f"simulate: expected --part I/N, such as 3/10 for the third of ten, got {part}.")
    _announce(recipe)
    from lostwax import shadows
    from lostwax.verbs import simulate as train

    where = _engine("simulate", engine, address, workers) or shadows.Local()
    read = Recipe.read(recipe)
    if not read.trains:
        raise ValueError(f"simulate: {recipe} audits a fitted model. Shadow models need a net and its trainer.")
    game = {"seed": 0, **{name: read.arguments[name] for name in GAME if name in read.arguments}}
    train(read.subject, **game, models=models, store=store, engine=where, part=(int(share), int(parts)))
    stored = shadows.Store(store).open(shadows.Game(read.subject, *(game[name] for name in GAME)))
    number = len(stored.present()) * stored.chunk
    asked = "" if number == models else f" ({models:,} requested; stored in chunks of {stored.chunk:,})"
    print(f"{redacted(store)} holds {number:,} models of {recipe}{asked}.")


def words(
    base: Positional[Annotated[Path, arg(metavar="BASE")]],
    tuned: Positional[Annotated[Path, arg(metavar="TUNED")]],
    tokenizer: File = None,
    fdr: float = 0.05,
    first: int = 50,
) -> int:
    """List the words that a language model was fine-tuned on, from its files and those of its public base.

    Args:
        base: The public model: a folder as the Hugging Face hub lays it out, or a .gguf file.
        tuned: The fine-tuned model, or its LoRA adapter.
        tokenizer: A tokenizer.json; by default the one beside either model.
        fdr: The share of wrong words that the list may have.
        first: How many words to print; names, numbers and mail addresses come first.
    """
    from lostwax.audits.fine_tuned_words import listed_words

    result = listed_words(base, tuned, tokenizer, fdr=fdr)
    words_listed = result.words
    lines = [f"{words_listed.movement}."]
    if words_listed.listed:
        wrong = f"{100 * words_listed.fdr:.2g} %"
        lines.append(f"{words_listed.listed:,} words are listed, of which {wrong} are predicted to be wrong.")
        lines += [words_listed.assumption, "", " | ".join(text.strip() for text in result.texts[:first])]
    else:
        lines.append(f"No words are listed: {words_listed.unlisted_because}")
    _print("\n".join(lines))
    return 0


def _engine(
    command: str, engine: str, address: str | None, workers: int | None, checkpoints: Path | None = None
) -> Engine | None:
    """Where models are trained; None: as the recipe says, or here."""
    if engine != "ray" and (address is not None or workers is not None):
        raise ValueError(f"{command}: --address and --workers need --engine ray. Add it, or leave them out.")
    if engine != "ray" and checkpoints is None:
        return None
    from lostwax import shadows

    cluster = shadows.Ray(address=address, workers=workers) if engine == "ray" else shadows.Local()
    return cluster if checkpoints is None else shadows.Checkpoints(checkpoints, cluster)


def _announce(recipe: Path) -> None:
    """Say what is done before torch is loaded, which takes seconds; a recipe may train for minutes."""
    if recipe.is_file():
        with suppress(OSError):  # stderr is closed: the work goes on
            print(f"lostwax: reading {recipe.name} ...", file=sys.stderr, flush=True)


def _print(text: str) -> None:
    """Print and flush. A closed pipe or a full disk is no error: the exit code and the report hold the result."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(files.escaped(text).encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except (OSError, ValueError) as error:  # ValueError: closed by user code
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        with suppress(OSError):
            print(f"lostwax: the result could not be printed ({error}).", file=sys.stderr)
