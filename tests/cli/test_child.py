"""Commands that run user code are judged by what they report, not by how their process ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.warm import Command
from lostwax.files import is_leftover

RECIPE = """
import ctypes, os, sys, time
import torch
import lostwax as lw
x = torch.rand(80, 4, generator=torch.Generator().manual_seed(0))
known, prior, secrets = lw.Records(x, torch.arange(80) % 2).split(20, 20, 40, seed=0)
net = torch.nn.Linear(4, 2)
def train(net, x, y, seed):
    BODY
    return net
trainer = lw.OwnTraining(train)
threat = lw.Informed(known)
"""
LINE = 1 + RECIPE.splitlines().index("    BODY")
ATTACK = "attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), epochs=1)\n"


class Cold(subprocess.Popen):
    """The command in a Python of its own."""

    def __init__(self, folder, words):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "bufsize": 0}
        super().__init__([sys.executable, "-m", "lostwax", *words], cwd=folder, preexec_fn=self._interruptible, **pipes)

    @staticmethod
    def _interruptible():
        """Programs that a script starts in the background ignore Ctrl-C, and so would those that they start."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def line(self):
        return self.stdout.readline()


def begun(folder, body, more=ATTACK, words=(), command=Cold):
    (folder / "recipe.py").write_text(RECIPE.replace("BODY", body) + more)
    (folder / "policy.toml").write_text("max_ceiling = 0.5\n")  # without DP there is none: broken
    return command(folder, ["audit", "recipe.py", "--out", "audit", "--policy", "policy.toml", *words])


EITHER = pytest.mark.parametrize("command", [Command, pytest.param(Cold, marks=pytest.mark.slow)], ids=["warm", "cold"])


@EITHER
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(0)", "ended the program: sys.exit(0) in recipe.py, line "),
        pytest.param("sys.exit(1)", "ended the program: sys.exit(1) in recipe.py, line ", marks=pytest.mark.slow),
        ("os._exit(0)", "was ended by os._exit(0): no result."),
        pytest.param("os._exit(1)", "was ended by os._exit(1): no result.", marks=pytest.mark.slow),
        ("ctypes.string_at(0)", "was killed by SIGSEGV: no result."),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL: no result."),
    ],
)
def test_training_that_ends_the_process_is_an_error_of_code_2(tmp_path, body, words, command):
    process = begun(tmp_path, body, command=command)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert words in error
    assert out == ""
    shown = ("lostwax: reading recipe.py", "lostwax: recipe.py, ")  # progress
    crash = "SIGSEGV" in words  # Python prints where
    assert crash or len([line for line in error.splitlines() if not line.startswith(shown)]) == 1
    if crash or "line " in words:
        assert f"line {LINE}" in error
    assert not [path for path in tmp_path.glob("audit/*") if not is_leftover(path)]  # at most its lock


def test_a_child_that_ends_badly_after_its_verdict_changes_nothing(tmp_path):
    body = "torch.nn.init.constant_(net.weight, float(x[-1, 0]))"
    process = begun(tmp_path, body, ATTACK + "import atexit\natexit.register(os._exit, 0)\n")
    out, error = process.communicate(timeout=120)
    assert process.returncode == 1, error
    assert "policy policy.toml: broken" in out


@EITHER
def test_the_limit_holds_in_compiled_code(tmp_path, command):
    """No signal is noticed there: the process that supervises the audit ends it."""
    sooner = "from lostwax import clock\nclock.SLACK, clock.SLACK_SHARE = 0.5, 0.0\n"
    start = time.monotonic()
    process = begun(tmp_path, "sum(range(10**12))", sooner, words=("--max-minutes", "0.03"), command=command)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "max_minutes is over, and the recipe could not be interrupted" in error
    assert time.monotonic() - start < 60


@EITHER
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_to_the_parent_alone_end_both(tmp_path, number, code, command):
    process = begun(tmp_path, "print(os.getpid(), flush=True); time.sleep(100)", command=command)
    child = int(process.line())
    assert child != process.pid
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to see processes in")
@pytest.mark.parametrize("work", ["time.sleep(100)", "sum(range(10**12))"], ids=["asleep", "in compiled code"])
def test_a_parent_that_is_killed_takes_the_child_along(tmp_path, work):
    process = begun(tmp_path, f"print(os.getpid(), flush=True); {work}", command=Cold)
    child = int(process.line())
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while time.monotonic() < end and not gone(child):
        time.sleep(0.05)
    ended = gone(child)
    if not ended:
        os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)  # it waits for all who hold stdout, a pipe
    assert ended


def gone(process):
    """Has it ended, whether or not anybody has asked how?"""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_help_and_usage_pass_through(tmp_path):
    for words, code in ((["--help"], 0), (["recipe.py", "--out"], 2), ([], 2)):
        done = subprocess.run([sys.executable, "-m", "lostwax", "audit", *words], capture_output=True, cwd=tmp_path)
        assert done.returncode == code
