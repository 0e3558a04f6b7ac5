"""The command line as it is run from a shell, forked from a server in which all is imported: it starts at once."""

import os
import signal
import sys
import time

from lostwax.cli import main
from shadows.warm import children


class Command:
    """A running `lostwax ...` in a folder, with as much of the interface of Popen as tests need."""

    def __init__(self, folder, words):
        self.printed = [folder / name for name in ("stdout", "stderr")]
        for path in self.printed:
            path.write_text("")
        self.process = children().Process(target=_run, args=(folder, words, self.printed))
        self.process.start()
        self.pid, self.kill = self.process.pid, self.process.kill

    def communicate(self, timeout):
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"still running after {timeout} s"
        return tuple(path.read_text() for path in self.printed)

    @property
    def returncode(self):
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def line(self):
        """The first line that it prints."""
        while not (text := self.printed[0].read_text()).endswith("\n"):
            assert self.process.is_alive(), self.printed[1].read_text()
            time.sleep(0.02)
        return text


def _run(folder, words, printed):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the server ignores Ctrl-C
    for descriptor, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    os.chdir(folder)
    sys.argv = ["lostwax", *words]
    sys.exit(main())
