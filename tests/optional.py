"""Packages that only some tests need: without one, these are skipped, and listed at the end."""

import re
from importlib.util import find_spec

import pytest

NAMES = [
    "catboost", "check_jsonschema", "gguf", "hatchling", "huggingface_hub", "ipykernel", "jax", "jax_privacy",
    "lightgbm", "lightning", "mkdocs", "mlflow", "nbclient", "nbformat", "onnx", "onnxruntime", "opacus", "ortools",
    "pandas", "peft", "playwright", "pyarrow", "pydantic_sarif", "ray", "skl2onnx", "skops", "statsmodels", "timm",
    "tokenizers", "torchvision", "transformers", "xgboost", "xmlschema",
]  # fmt: skip
ABSENT = frozenset(name for name in NAMES if find_spec(name) is None)


def _named(text):
    """The package that is not there, in what Python or lostwax says; None if it is another, which is a mistake."""
    name = re.search(r"No module named '(\w+)|needs (\w+): pip install", text)
    package = name and (name[1] or name[2])
    return package if package in ABSENT else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A module of tests that imports such a package is skipped."""
    report = yield
    if report.failed and (name := _named(str(report.longrepr))):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {name} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """And so is a test, or a fixture, that does; not one that expects the error."""
    report = yield
    if report.failed and call.excinfo.errisinstance(ModuleNotFoundError) and (name := _named(str(call.excinfo.value))):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {name} is not installed")
    return report
