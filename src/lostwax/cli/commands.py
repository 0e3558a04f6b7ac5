"""All commands by name, and suggestions for misspelt ones."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lostwax.cli import audits, bounds, lists
from lostwax.verbs import audit

COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": audits.demo,
    "init": audits.init,
    "audit": audits.audit,
    "report": audits.report,
    "simulate": audits.simulate,
    "words": audits.words,
    "list": lists.show,
    "bound": bounds.bound,
    "calibrate": bounds.calibrate,
}
KAPPAS: dict[str, Callable[..., Any]] = {
    prior.__name__: prior for prior in (bounds.candidates, bounds.ball, bounds.gaussian, bounds.pixels, bounds.sample)
}
Commands = Mapping[str, "Callable[..., Any] | Commands"]
HELP = {"-h", "--help"}


def misspelt(words: list[str], commands: Commands, path: str = "lostwax") -> str | None:
    """An error message for the first unknown command, option or choice; None if all are known."""
    if not words or words[0] in HELP or words[0].startswith("--tyro"):
        return None
    name, *arguments = words
    if name not in commands:
        kind = "option" if name.startswith("-") else "command"
        return f"{path} has no {kind} {name}.{_perhaps(name, commands)} See {path} --help."
    command = commands[name]
    if isinstance(command, Mapping):
        return misspelt(arguments, command, f"{path} {name}")
    options = set(_options(command))
    for word in arguments:
        option = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and option not in options | HELP:
            cure = _in_recipe(command, option) or _perhaps(option, options)
            return f"{path} {name} has no option {option}.{cure} See {path} {name} --help."
    for value, choices in _chosen(command, arguments):
        if value not in choices:
            return f"{path} {name}: unknown {value}.{_perhaps(value, choices)} Expected {', '.join(choices)}."
    return None


def _in_recipe(command: Callable[..., Any], option: str) -> str:
    """Where an argument of `lw.audit` belongs that is no option."""
    name = option.removeprefix("--").replace("-", "_")
    is_argument = name in inspect.signature(audit).parameters and name not in ("model", "data")
    takes_recipe = "recipe" in inspect.signature(command).parameters
    return f" It is a name in the recipe: {name} = ..." if is_argument and takes_recipe else ""


def _arguments(command: Callable[..., Any]) -> dict[str, Any]:
    """The type of every argument by name; of a group of them, those in it."""
    hints = get_type_hints(command)
    groups = [get_type_hints(hint) for hint in hints.values() if is_dataclass(hint)]
    return {name: hint for part in (hints, *groups) for name, hint in part.items() if not is_dataclass(hint)}


def _options(command: Callable[..., Any]) -> Iterable[str]:
    for name, hint in _arguments(command).items():
        plain = name.replace("_", "-")
        yield f"--{plain}"
        if hint is bool:
            yield f"--no-{plain}"


def _chosen(command: Callable[..., Any], words: list[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """(value, choices) of every argument with a fixed set of choices, by option or as the first word."""
    choices = {name: get_args(hint) for name, hint in _arguments(command).items() if get_origin(hint) is Literal}
    first = next(iter(inspect.signature(command).parameters), "")
    if first in choices and words and not words[0].startswith("-"):
        yield words[0], choices[first]
    for word, following in pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and name in choices and (equals or following):
            yield value if equals else following, choices[name]


def _perhaps(word: str, known: Iterable[str]) -> str:
    bare = {name.lstrip("-"): name for name in known}  # compare without the dashes
    typed = word.lstrip("-")
    alike = difflib.get_close_matches(typed, list(bare), n=1) or [name for name in bare if name.startswith(f"{typed}-")]
    return f" Did you mean {bare[alike[0]]}?" if alike else ""
