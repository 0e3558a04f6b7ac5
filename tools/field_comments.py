"""What the source says in its own way, as the reference shows it: an extension of griffe."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """A field without a docstring is described by the comment on its line, or else by those right above it.

    A docstring's `docs/tables.md` becomes a link.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Link the pages that a docstring names; pages of the reference are in docs/reference/."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Read the comments of one class."""
        for field in cls.attributes.values():
            if field.is_alias or field.docstring is not None or field.lineno is None or field.endlineno is None:
                continue
            lines = list(field.lines_collection[field.filepath])
            text = comment(lines, field.lineno - 1, field.endlineno - 1)
            if text:
                field.docstring = griffe.Docstring(sentence(text), parent=field)


def comment(lines: list[str], first: int, last: int) -> str:
    """What is said beside the line `last`, or in the lines above `first`."""
    _, mark, beside = lines[last].partition("  # ")
    if mark:
        return beside.strip()
    above = []
    for line in reversed(lines[:first]):
        if not line.strip().startswith("# "):
            break
        above.insert(0, line.strip().removeprefix("# "))
    return " ".join(above)


def sentence(text: str) -> str:
    """With a capital, except before code and shapes, and a full stop."""
    text = text.removeprefix("... ")
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."
