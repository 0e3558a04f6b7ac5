"""The entry point of the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from lostwax.cli import kappa
from lostwax.cli.bounds import bound, calibrate

ABOUT = "How well can training records be rebuilt from a released model, and what protection is enough?"


def demo(out: Path = Path("demo")) -> None:
    """Audit a logistic regression and a neural net on the embedded digits.

    Args:
        out: The folder for the pictures and the numbers.
    """
    from lostwax.demo import run

    run(out)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 fine, 2 usage or input error."""
    import tyro

    from lostwax import __version__

    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print(f"lostwax {__version__}")
        return 0
    app = tyro.extras.SubcommandApp()
    for command in (demo, bound, calibrate):
        app.command(command)
    baselines = tyro.extras.SubcommandApp()
    for prior in (kappa.candidates, kappa.ball, kappa.gaussian, kappa.pixels, kappa.sample):
        baselines.command(prior)
    app.command(baselines, name="kappa", help="Choose a baseline: the success of the best blind guess.")
    try:
        app.cli(prog="lostwax", description=ABOUT, args=words)
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        print(f"lostwax: {error}", file=sys.stderr)
        return 2
    return 0
