"""`lostwax init`: a recipe that runs as it is, to be changed line by line into one's own."""

from __future__ import annotations

from pathlib import Path

STARTERS = {path.stem: path for path in sorted((Path(__file__).parent / "starters").glob("*.py"))}


def start(kind: str, out: Path) -> Path:
    """Write the recipe of that kind to a file that does not exist yet."""
    if not out.parent.is_dir():
        raise FileNotFoundError(f"init: the folder of {out} does not exist. Create it first.")
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(STARTERS[kind].read_text(encoding="utf-8"))
    except FileExistsError:
        raise FileExistsError(f"init: {out} exists, and stays as it is. Name another file by --out.") from None
    return out
