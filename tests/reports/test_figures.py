import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge

import lostwax as lw
from lostwax.games import Records
from lostwax.reports.figures import draw_rebuilt


def test_rebuilt_images_become_a_picture(tmp_path):
    digits = lw.records.digits()[:300]
    y = digits.y.double()
    audit = lw.audit(Ridge().fit(digits.x.flatten(1).numpy(), y.numpy()), Records(digits.x, y), games=4)
    path = draw_rebuilt(audit, tmp_path / "picture.png", [0, 1, 3])
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_tables_have_no_picture(tmp_path):
    X, y = load_iris(return_X_y=True)
    audit = lw.audit(Ridge().fit(X, y), (X, y), games=4)
    with pytest.raises(ValueError, match="expected records that are images"):
        draw_rebuilt(audit, tmp_path / "picture.png", [0])
