import torch

import lostwax
from lostwax.provenance import fingerprint, machine, versions


def test_fingerprint_sees_bytes_shape_and_dtype():
    x = torch.arange(6.0)
    prints = {
        fingerprint(x),
        fingerprint(x.reshape(2, 3)),
        fingerprint(x.double()),
        fingerprint(x.bfloat16()),
        fingerprint(x + 1),
        fingerprint(x, x),
    }
    assert len(prints) == 6
    assert fingerprint(x) == fingerprint(x.clone())


def test_versions_and_machine():
    assert {"python", "torch"} <= set(versions())
    assert versions()["lostwax"] == lostwax.__version__
    assert "cores of" in machine()
