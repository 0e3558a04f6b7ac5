"""The entry point of the command line."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lostwax.cli import audits, bounds, lists
from lostwax.cli import bounds as kappa

# Words of a command line that mean nothing, and what was probably meant.


Commands = Mapping[str, "Callable[..., Any] | Commands"]
HELP = {"-h", "--help"}


def misspelt(words: list[str], commands: Commands, path: str = "lostwax") -> str | None:
    """A sentence on the first word that is no command, option or choice of ours; None where all are."""
    if not words or words[0] in HELP or words[0].startswith("--tyro"):
        return None
    name, *rest = words
    if name not in commands:
        kind = "option" if name.startswith("-") else "command"
        return f"{path} has no {kind} {name}.{_perhaps(name, commands)} See {path} --help."
    command = commands[name]
    if isinstance(command, Mapping):
        return misspelt(rest, command, f"{path} {name}")
    options = set(_options(command))
    for word in rest:
        option = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and option not in options | HELP:
            return f"{path} {name} has no option {option}.{_perhaps(option, options)} See {path} {name} --help."
    for value, choices in _chosen(command, rest):
        if value not in choices:
            return f"{path} {name} knows no {value}.{_perhaps(value, choices)} It knows {', '.join(choices)}."
    return None


def _options(command: Callable[..., Any]) -> Iterable[str]:
    for name, parameter in inspect.signature(command).parameters.items():
        plain = name.replace("_", "-")
        yield f"--{plain}"
        if isinstance(parameter.default, bool):
            yield f"--no-{plain}"


def _chosen(command: Callable[..., Any], words: list[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The values that are one of several: by their option, or, where it needs no option's name, the first word."""
    choices = {name: get_args(hint) for name, hint in get_type_hints(command).items() if get_origin(hint) is Literal}
    first = next(iter(inspect.signature(command).parameters), "")
    if first in choices and words and not words[0].startswith("-"):
        yield words[0], choices[first]
    for word, following in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and name in choices and (equals or following):
            yield value if equals else following, choices[name]


def _perhaps(word: str, known: Iterable[str]) -> str:
    bare = {name.lstrip("-"): name for name in known}  # dashes are alike in all options, and would count
    alike = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1)
    return f" Did you mean {bare[alike[0]]}?" if alike else ""


# All commands by name.


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": audits.demo,
    "init": audits.init,
    "audit": audits.audit,
    "report": audits.report,
    "simulate": audits.simulate,
    "list": lists.show,
    "bound": bounds.bound,
    "calibrate": bounds.calibrate,
}
KAPPAS: dict[str, Callable[..., Any]] = {
    prior.__name__: prior for prior in (kappa.candidates, kappa.ball, kappa.gaussian, kappa.pixels, kappa.sample)
}


ABOUT = "How well can training records be rebuilt from a released model, and what protection is enough?"


RUN_RECIPES = ("audit", "simulate")  # commands that run user code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 fine, 1 a policy is broken, 2 usage or input error, 130 Ctrl-C, 141 a closed pipe.

    A command that runs user code is judged by what it reports from a child process, so that user code which ends its
    process cannot pass for a result; with `arguments`, from Python, it runs in this process.
    """
    if arguments is not None:
        return _run(arguments)
    words = sys.argv[1:]
    if words[:1] and words[0] in RUN_RECIPES:
        from lostwax.cli.child import judged

        return judged(lambda: _run(words))
    return _run(words)


def _run(words: list[str]) -> int:
    """Parse the words and run the command that they name, here."""
    import tyro

    from lostwax import __version__
    from lostwax.exits import ExitedError
    from lostwax.recipes import own_frames

    if words == ["--version"]:
        print(f"lostwax {__version__}")
        return 0
    if (slip := misspelt(words, {**COMMANDS, "kappa": KAPPAS})) is not None:
        return _refused(slip)
    app = tyro.extras.SubcommandApp()
    for name, command in COMMANDS.items():
        app.command(name=name)(command)
    baselines = tyro.extras.SubcommandApp()
    for name, command in KAPPAS.items():
        baselines.command(name=name)(command)
    app.command(baselines, name="kappa", help="Choose a baseline: the success of the best blind guess.")
    _show_progress()
    try:
        code = app.cli(prog="lostwax", description=ABOUT, args=words) or 0
        sys.stdout.flush()  # here, where a closed pipe is told
        return code
    except KeyboardInterrupt:
        print("lostwax: stopped.", file=sys.stderr)
        return 130  # as a shell expects it
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 141  # as a shell expects it; a gate that was not heard has not passed
    except Exception as error:
        if isinstance(error, ValueError | TypeError | OSError | ModuleNotFoundError | ExitedError):
            return _refused(str(error))
        if (shown := own_frames(error)) is not None:
            return _refused(f"an error in your own code.\n{shown}")
        raise  # a mistake of ours: the traceback helps to mend it


def _refused(why: str) -> int:
    print(f"lostwax: {why}", file=sys.stderr)
    return 2


def _show_progress() -> None:
    """What a long command is doing, on stderr; stdout is for results."""
    log = logging.getLogger("lostwax")
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
