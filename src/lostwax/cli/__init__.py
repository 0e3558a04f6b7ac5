"""The command line, with the same names as the Python API. Light to import: torch is loaded only when needed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

ABOUT = (
    "How well can training records be rebuilt from a released model, and what protection is enough? Start with "
    "`lostwax demo`, or with a recipe for your model: `lostwax init sklearn`, then `lostwax audit recipe.py`."
)
RUN_RECIPES = ("audit", "simulate")  # commands that run user code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Exit codes: 0 success, 1 policy broken, 2 bad usage or input, 130 Ctrl-C, 141 closed pipe.

    Commands that run user code run in a child process, so that user code which exits cannot pass for a result; with
    `arguments`, from Python, they run in this process.
    """
    if arguments is not None:
        return _run(arguments)
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # stdin, stdout or stderr is closed: a pipe would get
        pass  # its number, and what libraries print
    os.close(descriptor)
    words = sys.argv[1:]
    if words[:1] and words[0] in RUN_RECIPES:
        from lostwax.cli.child import judged

        return judged(lambda: _run(words))
    return _run(words)


def _run(words: list[str]) -> int:
    """Parse the words and run the command in this process."""
    from lostwax import __version__

    if words == ["--version"]:
        print(f"lostwax {__version__}")
        return 0
    from tyro.extras import SubcommandApp

    from lostwax.cli import audits, bounds, lists
    from lostwax.exits import ExitedError
    from lostwax.recipes import own_frames

    app = SubcommandApp()
    commands: dict[str, Callable[..., object]] = {
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
    for name, command in commands.items():
        app.command(name=name)(command)
    log = logging.getLogger("lostwax")  # progress to stderr; stdout is for results
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    try:
        code = app.cli(prog="lostwax", description=ABOUT, args=words) or 0
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()  # here, to catch a closed pipe
        return code
    except SystemExit as stop:  # of help, or of a wrong option: commands refuse those of user code
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        print("lostwax: stopped.", file=sys.stderr)
        return 130  # the shell's convention
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return 141  # the shell's convention; not 0, because the result was not read
    except Exception as error:
        if isinstance(error, ValueError | TypeError | OSError | ModuleNotFoundError | ExitedError):
            return _refused(str(error))
        if (shown := own_frames(error)) is not None:
            return _refused(f"an error in your own code.\n{shown}")
        raise  # a bug in lostwax: keep the traceback


def _refused(why: str) -> int:
    from lostwax.fields import redacted

    print(f"lostwax: {redacted(why)}", file=sys.stderr)
    return 2
