"""`lostwax init`: a recipe that runs as it is, to be changed line by line into one's own."""

from __future__ import annotations

from pathlib import Path

from lostwax import files

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
