import pytest

from lostwax.records.datasets import optional


def test_a_package_broken_inside_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_inside.py").write_text("import a_module_that_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'a_module_that_is_nowhere'"):
        optional("broken_inside", "records.table", "tables")
