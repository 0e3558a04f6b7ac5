"""How large the house is: lines, files, functions, classes and habits of src/, `python -m lostwax_dev.size`.

tests/test_architecture.py holds these numbers to the budget in tools/size_budget.toml.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# names that say nothing about what is held
PRONOUNS = frozenset(
    ("one", "found", "own", "held", "told", "made", "given", "apart", "filled", "whole", "rest", "kept")
)


class Size(NamedTuple):
    """What is counted in a tree of Python files."""

    lines: dict[str, int]  # by room: the first folder or file below the package
    functions_of_files: dict[str, int]
    pronouns_of_rooms: dict[str, int]
    files: int
    functions: int
    classes: int
    own_isinstance: int  # isinstance with a class of the package
    attribute_probes: int  # getattr and hasattr
    assigned_names: int
    pronouns: int  # ... of them in PRONOUNS

    @property
    def all_lines(self) -> int:
        """Of all rooms."""
        return sum(self.lines.values())

    @property
    def pronoun_share(self) -> float:
        """Of assigned names."""
        return self.pronouns / max(1, self.assigned_names)


def measure(package: Path) -> Size:
    """Count what is below a package's folder."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    lines, pronouns, functions = Counter[str](), Counter[str](), Counter[str]()
    for path, tree in trees.items():
        place = path.relative_to(package)
        room = place.parts[0].removesuffix(".py")
        lines[room] += len(path.read_text().splitlines())
        pronouns[room] += sum(name in PRONOUNS for name in assigned(ast.walk(tree)))
        functions[str(place)] = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
    names = list(assigned(nodes))
    return Size(
        lines=dict(lines.most_common()),
        functions_of_files=dict(functions.most_common()),
        pronouns_of_rooms=dict(pronouns.most_common()),
        files=len(trees),
        functions=functions.total(),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        own_isinstance=sum(_calls(node, "isinstance") and bool(_names(node) & classes) for node in nodes),
        attribute_probes=sum(_calls(node, "getattr", "hasattr") for node in nodes),
        assigned_names=len(names),
        pronouns=sum(name in PRONOUNS for name in names),
    )


def assigned(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that is bound by an assignment, a loop, a comprehension or a `with`."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _calls(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _names(node: ast.AST) -> set[str]:
    """The names in the second argument of a call."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return set()
    return {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}


def main() -> None:
    """Print a table of the numbers; for each room, its lines and pronouns."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("src/lostwax")
    size = measure(root)
    print(f"{'lines':>22} {size.all_lines:7,}")
    for name in ("files", "functions", "classes", "own_isinstance", "attribute_probes"):
        print(f"{name.replace('_', ' '):>22} {getattr(size, name):7,}")
    print(f"{'pronouns':>22} {size.pronouns:7,}  ({100 * size.pronoun_share:.1f} % of assigned names)")
    file, functions = next(iter(size.functions_of_files.items()))
    print(f"{'functions in a file':>22} {functions:7,}  ({file})")
    for room, lines in size.lines.items():
        print(f"{room:>22} {lines:7,}  {size.pronouns_of_rooms[room] or '':>4}")


if __name__ == "__main__":
    main()
