"""lostwax makes no network requests: a program that may not look up or reach any address audits and reports."""

import subprocess
import sys

PROGRAM = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise RuntimeError(f"the network was asked for: {event}")

sys.addaudithook(refuse)
import lostwax as lw
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge
X, y = load_iris(return_X_y=True)
audit = lw.audit(Ridge().fit(X, y), (X, y), games=5)
lw.report(audit, sys.argv[1])
lw.bound(noise_multiplier=1.0, sample_rate=0.1, steps=10, baseline=0.1)
print(audit.grade)
"""


def test_nothing_is_asked_of_the_network(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "audit")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "exact"), done.stderr
