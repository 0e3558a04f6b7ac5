"""The examples for libraries run, with small models made on the spot; they are short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import lostwax as lw

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


def resnet_18(head):
    """On a hundred small pictures; batch norm in training mode if all layers are trained."""
    models = pytest.importorskip("torchvision.models")

    def train(net, x, y, seed):
        net.train(not head)
        optimiser = torch.optim.SGD([value for value in net.parameters() if value.requires_grad], lr=0.01)
        for _ in range(2):
            for batch in torch.randperm(len(x)).split(50):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(x[batch].expand(-1, 3, -1, -1)), y[batch]).backward()
                optimiser.step()
        return net

    torch.manual_seed(0)
    net, digits = models.resnet18(num_classes=10).requires_grad_(not head), lw.records.digits()[:100]
    net.fc.requires_grad_(True)
    pictures = lw.Records(nn.functional.interpolate(digits.x.view(-1, 1, 8, 8), size=(16, 16)), digits.y)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(0)
    train(net, pictures.x, pictures.y, 0)
    return net, pictures, lw.OwnTraining(train, seed=0, init=lw.inits.Given(start))


@pytest.mark.slow
@pytest.mark.parametrize("head", [True, False], ids=["head", "all layers"])
def test_resnet_18_with_its_data(head):
    """Memory is stated where it is much."""
    net, pictures, trainer = resnet_18(head)
    audit = lw.audit(net, pictures, trainer=trainer, attack=lw.KernelRidge(shadows=20), games=1)
    assert audit.kind == "this model"
    assert any("of memory" in note for note in map(str, audit.notes)) is not head


@pytest.mark.slow
def test_resnet_18_without_a_named_attack():
    """To rebuild a record through 11 million numbers takes minutes, to tell it from another one seconds."""
    net, pictures, trainer = resnet_18(head=False)
    with pytest.raises(ValueError, match=r"max_minutes is too short: .*attack=lw\.attacks\.Refit\(\)"):
        lw.audit(net, pictures, trainer=trainer, max_minutes=0.5)
    audit = lw.audit(net, pictures, trainer=trainer, attack=lw.attacks.Refit(), games=4)
    assert audit.chance == 0.5
    assert audit.findings[0].rebuilt.all()
