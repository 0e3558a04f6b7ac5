"""Progress in a real terminal, in a pipe and in a notebook's kernel."""

import os
import re
import select
import subprocess
import sys
import time

import pytest

from lostwax import progress
from lostwax.progress import Stage, clock_time, counted

WORK = """
import time
from lostwax.progress import progress
with progress("audit"):
    with progress("victims", 40) as advance:
        for _ in range(40):
            time.sleep(0.05)
            advance(1)
print("the result")
"""
AUDIT = """
import warnings
warnings.simplefilter("ignore")
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
import lostwax as lw
X, y = make_classification(800, 20, random_state=0)
model = RandomForestClassifier(200, random_state=0).fit(X, y)
print(lw.audit(model, (X, y)).grade)
"""
pty = pytest.importorskip("pty")  # not on Windows


def in_terminal(code, columns=60):
    """(seconds, text) of every piece that a terminal of this width is sent."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    start, pieces = time.monotonic(), []
    others = {"COLUMNS", "LINES"}  # which would count for more than the terminal itself
    own = {name: value for name, value in os.environ.items() if name not in others}
    ran = subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=own)
    os.close(theirs)
    while True:
        select.select([ours], [], [])
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            break
        pieces.append((time.monotonic() - start, piece.decode()))
    os.close(ours)
    assert ran.wait() == 0
    return pieces


def test_a_terminal_moves_at_once_and_is_left_clean():
    pieces = in_terminal(WORK)
    text = "".join(piece for _, piece in pieces)
    counts = [int(count) for count in re.findall(r"victims (\d+) of 40, about \d+ s left", text)]
    assert len(set(counts)) >= 4
    assert counts == sorted(counts)
    assert "\x1b[2K" in text.rpartition("victims")[2]  # the last lines are erased ...
    assert "\x1b[?25h" in text.rpartition("victims")[2]  # ... and the cursor is back
    assert text.endswith("the result\r\n")


def test_lines_are_no_wider_than_the_terminal():
    text = "".join(piece for _, piece in in_terminal(WORK.replace("victims", "victims " + 100 * "x"), columns=40))
    lines = re.split(r"\r\n|\r", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text))
    assert max(map(len, lines)) <= 40


def test_an_audit_of_trees_counts_them_in_a_terminal():
    text = "".join(piece for _, piece in in_terminal(AUDIT, columns=100))
    assert re.search(r"audit, \d+ s", text)
    assert re.search(r"paths: trees \d+ of 200, about \d+ s left", text)
    assert text.endswith("exact\r\n")


def test_a_pipe_gets_a_line_within_two_seconds_and_then_now_and_then():
    code = WORK.replace("import time", "import time, lostwax.progress as p; p.LINES = p._Lines.pace = (0.3, 0.5)", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert 3 <= len(lines) <= 6
    assert all(re.fullmatch(r"lostwax: audit, \d s > victims \d+ of 40, about \d s left", line) for line in lines)
    assert done.stdout == "the result\n"
    assert progress.LINES[0] < 2
    assert progress.LINES[1] == 10


def test_short_work_prints_nothing():
    done = subprocess.run([sys.executable, "-c", WORK.replace("0.05", "0")], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_a_notebook_updates_one_output():
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WORK)])
    updates = []

    class Listening(client.NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] == "update_display_data":
                updates.append(msg["content"]["data"]["text/plain"])
            return super().process_message(msg, cell, cell_index)

    Listening(book, kernel_name="python3", timeout=60).execute()
    shown = [one for one in book.cells[0].outputs if one.output_type == "display_data"]
    assert len(shown) == 1
    assert len(updates) >= 3
    assert re.fullmatch(r"lostwax: audit, \d s > victims \d+ of 40, about \d s left", updates[1])
    assert re.fullmatch(r"lostwax: audit took \d s", shown[0]["data"]["text/plain"])


def test_a_stage_estimates_what_is_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stage = Stage("games", 10)
    now[0] = 108.0
    assert str(stage) == "games 0 of 10, 8 s"
    stage.advance(2)
    assert str(stage) == "games 2 of 10, about 32 s left"
    now[0] = 120.0  # the estimate does not grow while the next one is computed
    assert str(stage) == "games 2 of 10, about 20 s left"
    assert str(Stage("ceiling", None)) == "ceiling, 0 s"
    assert [clock_time(seconds) for seconds in (12.4, 200, 7_500)] == ["12 s", "3 min 20 s", "2 h 5 min"]


def test_an_error_ends_all_stages():
    def fail():
        for _ in counted(range(3), "inside", 3):
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"), progress.progress("outside"):
        fail()
    assert progress._stages == []
    assert list(counted("abc", "letters", 3)) == ["a", "b", "c"]
