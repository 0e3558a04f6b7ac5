"""A process that dies at its n-th change to a folder, for every n: before it opens, renames, makes or deletes a file.

A write is two such moments: half of the bytes are on the disk, or all of them. Each death is in a process of its own,
forked from one in which everything is imported and prepared.
"""

import os
import sys
import traceback
from pathlib import Path

DEAD = 77  # the exit code of a process that was killed here
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def deaths(operation, folder):
    """How many changes the operation makes in the folder: it is run once, to its end."""
    tally = folder.parent / "tally"
    assert in_a_fork(lambda: _until(None, operation, folder, tally)) == 0
    return len(tally.read_text())


def dies(number, operation, folder):
    """Run the operation until its change of this number; it must not come to an end before."""
    assert in_a_fork(lambda: _until(number, operation, folder, None)) == DEAD


def in_a_fork(function):
    """The exit code of a process that does this; 1 where it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _until(number, operation, folder, tally):
    left, counting, write = number, True, os.write

    def change():
        nonlocal left, counting
        if left == 0:
            os._exit(DEAD)
        left = None if left is None else left - 1
        if tally is not None:
            counting = False
            with tally.open("a") as file:
                file.write(".")
            counting = True

    def inside(path):
        named = isinstance(path, str | bytes | os.PathLike)
        return named and str(Path(os.fsdecode(path)).absolute()).startswith(str(folder))

    def hook(event, arguments):
        if counting and (event in CHANGES or (event == "open" and arguments[2] & WRITING)) and inside(arguments[0]):
            change()

    def halved(descriptor, content):
        if descriptor <= 2 or os.lseek(descriptor, 0, os.SEEK_CUR):
            return write(descriptor, content)
        done = write(descriptor, content[: len(content) // 2 + 1])
        change()
        return done

    os.write = halved
    sys.addaudithook(hook)
    operation(folder)
