"""Add rows that were measured elsewhere to the results files: `python tools/merge_results.py FOLDER [--only ID ...]`.

Under FOLDER, every `results/<script>.json` beside scripts of papers/ is read; a row replaces the one with its id here,
unless it is at a smaller scale; `--replace` takes it all the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lostwax_dev.results import read_rows, smaller, write_rows

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Merge what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="ID", help="rows whose id is this or begins with it and a dot")
    parser.add_argument("--replace", action="store_true", help="replace rows by those of a smaller run, too")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    options = parser.parse_args()
    for path in sorted(options.folder.rglob("papers/results/*.json")):
        rows = [
            row
            for row in read_rows(path)
            if not options.only or any(f"{row.id}.".startswith(f"{name}.") for name in options.only)
        ]
        short = [] if options.replace else smaller(rows, options.root / "papers" / "results" / path.name)
        if short:
            raise SystemExit(
                f"{path}: smaller than the rows here ({'; '.join(short)}). Name others by --only, or --replace."
            )
        if rows:
            write_rows(str(options.root / "papers" / f"{path.stem}.py"), rows, keep_others=True)
            print(f"{path}: {len(rows)} rows")


if __name__ == "__main__":
    main()
