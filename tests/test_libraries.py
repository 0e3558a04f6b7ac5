"""The examples for libraries run, with small models made on the spot; they are short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples" / "libraries").glob("*.py"))
NEEDS = {"hf_trainer": "transformers", "lightning_fit": "lightning", "peft_lora": "peft", "timm_head": "timm"}
MOST = 20  # lines of code, imports not counted


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_examples_are_short(example):
    tree = ast.parse(example.read_text())
    text = example.read_text().splitlines()
    skipped = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)][:-1]
    left_out = {line for node in skipped for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    code = [line for number, line in enumerate(text, 1) if line.strip() and number not in left_out]
    assert len(code) <= MOST, f"{len(code)} lines"


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_examples_run(example, tmp_path):
    pytest.importorskip(NEEDS.get(example.stem, "torchvision"))
    done = subprocess.run([sys.executable, example], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "rebuilt:" in done.stdout
