"""Every script of papers/ runs from end to end on stand-ins for its data: digits, enlarged, in files of their names."""

import json
import runpy
import shutil
import sys
from argparse import Namespace
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import models

import lostwax as lw
from lostwax.files import write_tensors
from lostwax.trainers.dpsgd import noise_for
from lostwax_dev.results import Row, read_rows, write_rows
from of_papers import paper_lib

SIZES = "--known 20 --shadows 30 --targets 6 --width 16 --epochs 2"
CIFAR_SIZES = "--known 8 --shadows 12 --targets 4 --epochs 1"
S4_SIZES = "--known 20 --shadows 40 --targets 6 --epochs 1 --masks 40"
WEAK_SIZES = "--games 12 --steps 2 --batch 4 --width 1 --reader 8 --layers 1 --copies 2"
# script -> what is asked for, and how many numbers come of it
RUNS = {
    "s1_table2": (f"{SIZES} --rows logits", 1 + 4),
    "s1_table3": (f"{SIZES} --rows public_0.01_0.0 private_0.01_0.0 --judges", 1 + 2 * (4 + 2)),
    "s1_table4": (f"{SIZES} --rows width_1", 1 + 4),
    "s1_figure5": (f"{SIZES} --shadows 150 --rows 100", 1 + 1 + 4 + 1 + 2 * 2),
    "s1_figure6": (f"{SIZES} --rows letters --members 2", 1 + 4),
    "s1_figure7": (f"{SIZES} --rows 0.2_momentum_512_private", 1 + 4),
    "s1_figure9": (f"{SIZES} --rows epsilon_100", 1 + 4 + 2),
    "s1_figure11": (f"{SIZES} --rows losses refit", 4),
    "s1_figure12": (f"{SIZES} --shadows 150 --rows 100", 1 + 4 + 3 * 4),
    "s1_figure13": (f"{SIZES} --shadows 50 --rows warm", 1 + 1 + 4),
    "s1_figure17": (f"{SIZES} --rows start_0 start_1", 1 + 2 * 4 + 2),
    "s1_figure18": (f"{SIZES} --rows known_10000 --attack kernel", 1 + 4),
    "s1_figure20_cause": ("--targets 2 --every 5 --products 4 --rows mnist_1000", 2 + 3 + 5),
    "s1_figure21": (SIZES, 1 + 4 + 2),
    "s1_figure22": (f"{SIZES} --rows relu", 4),
    "s1_recipe": (f"{SIZES} --rows best", 4),
    "s1_victims": ("--known 20 --test 30 --starts 2 --rows standardised_0.1", 2),
    "s2_pretrain": ("--steps 2 --batch 16 --rows 10", 1),
    "s2_table1": (f"{WEAK_SIZES} --games 99 --rows mnist_10 --tuning 1", 2 * (9 + 2)),
    "s2_features": (
        f"{WEAK_SIZES} --generator mlp --rows unseen_mnist_10_posterior unseen_mnist_10_oracle "
        "unseen_cifar_10_posterior --tuning 1 --marked",
        3 * (9 + 8 + 9),
    ),
    "s2_held": ("--sets 2 --pool 200 --games 20 --rows public_2 public_10 private_10", 4 + 4 + 4),
    "s2_celeba": (
        f"{WEAK_SIZES} --copies 1 --games 100 --people 20 --pictures 500 --rows celeba_10 celeba_40 --generator mlp",
        2 * (1 + 4 + 1 + 3 + 3) + 4,
    ),
    "s2_dp": (f"{WEAK_SIZES} --generator mlp --rows epsilon_50", 1 + 3 * 9 + 2),
    "s2_dp_last": ("--games 20 --pool 400 --public 80 --pixels 32 --rows mnist_10 cifar_40", 2 * (1 + 24)),
    "s3_attacks": (
        "--repetitions 20 --pool 40 --test 50 --epsilons 4 100 --rows clip_1 batches priors",
        2 * 5 + 5 + 2 * 5,
    ),
    "s3_gradient": ("--targets 4 --pool 400 --test 50 --iterations 3 --rows epsilon_100", 3 + 2 * 2 + 2 * 3),
    "s3_figure8": ("--targets 4 --pool 400 --test 50 --iterations 3 --rows epsilon_100", 2 + 3 + 3 * 2),
    "s3_model": (f"{SIZES} --rows epsilon_100", 1 + 4 + 2),
    "s4_table3": (f"{S4_SIZES} --rows relu_1", 1 + 1 + 5 * 2 + 3 + 2 * 2),
    "s4_figure1": (f"{S4_SIZES} --rows sigmoid_2", 1 + 1 + 2 + 3 + 4),
    "s4_figure3": (f"{S4_SIZES} --targets 60 --rows bad", 2 * (1 + 3 + 2) + 10 + 1 + 1),
    "s4_figure8": (f"{S4_SIZES} --rows relu_2", 4 + 2 * (4 + 2)),
    "s4_newton": (
        "--known 8 --shadows 20 --targets 4 --attacked 2 --bank 4 --products 3 --models 10 --rounds 2 --rows relu_1",
        1 + 2 * 5,
    ),
    "s4_starts": ("--known 20 --targets 2 --starts 2 --rows 0.2", 3),
    "newton_mnist": ("--known 20 --shadows 30 --targets 2 --rows no_prior tanh", 2 * 8),
    "newton_defences": ("--known 20 --prior 30 --targets 2 --test 30 --rows none noise_1e-3", 3 + 2 * 3),
    "newton_cifar": (
        "--known 12 --prior 12 --targets 2 --bank 10 --products 3 --directions 6 --coordinates 2",
        18,
    ),
    "whole_sets": ("--prior 300 --pool 100 --sets 0:1 --rows defence_none defence_start", 6 + 7),
    "kkt": ("--rows mnist_10 --steps 300 --iterations 3 --search 1 --runs 2", 6 * 5 + 5 + 2),
    "ensemble_relu": (f"{SIZES} --targets 2 --models 10 --rounds 2 --rows private_0.2_512", 8 + 1),
}
NO_DATA_RUNS = {  # the same for scripts that need no data
    "deep_sets": ("--sets 0:1 --rows cnn2_order cnn2_private_start", 2 * 7),
    "s1_partly_informed": (
        "--digits --unknown 1 3 --records 60 --shadows 300 --targets 4 --checked 16 --directions 40",
        2 + 2 * 4,
    ),
    "text": (
        "--rows gd lora order --vocabulary 40 --length 4 --known 12 --prior 12 --games 2 --directions 8 --starts 2",
        2 * 10 + 1 + 2,
    ),
    "text_gpt2": (
        "--rows gd --vocabulary 300 --length 5 --known 8 --width 32 --layers 1 --heads 2 --context 8 --games 1",
        10,
    ),
    "s3_table2": ("--samples 200", 3 * 2 * 6),
    "s3_fixed_epsilon": ("", 6 * 2 * 2),
}
CIFAR_RUNS = {
    "s1_table2": ("cifar10 --rows cifar_default_pixels", 1 + 4 + 2),
    "s1_table9": ("--rows adam_1k_100", 1 + 4 + 2),
    "s1_figure15": ("--rows epsilon_100_kernel", 1 + 1 + 4 + 2),
    "s1_figure20": ("--rows epochs_250", 1 + 4 + 2),
}
LINEAR_RUNS = {
    "s1_table2": ("cifar10 --rows cifar_convolutions", "cifar_convolutions"),
    "s1_figure20": ("--rows epochs_250", "epochs_250"),
    "s1_table9": ("--rows gd_1k_100_newton --coordinates 3 --bank 12", "gd_1k_100_newton"),
}
# what a set-up is changed to: victims of few steps, a small decoder, no term that needs weights
SMALLER = {
    "s1_mnist": [("steps=100", "steps=10")],
    "s1_cifar": [
        ("steps=100", "steps=3"),
        ("epochs=100", "epochs=3"),
        ("ConvDecoder()", "ConvDecoder(channels=(1, 1))"),
        ("looks: bool = True", "looks: bool = False"),
    ],
    "s1_figure20": [("steps=epochs", "steps=3")],
    "s1_figure20_cause": [("known=1_000, steps=500", "known=20, steps=20")],
    "s1_table9": [("steps=epochs", "steps=3"), ("epochs=epochs", "epochs=3")],
    "s1_figure9": [("STEPS = 1e-3, 1e-5, 100", "STEPS = 1e-3, 1e-5, 10")],
    "s2_data": [("SIDE = 32", "SIDE = 16"), ("IMAGENET = 224", "IMAGENET = 32")],
    "s2_celeba": [
        ("SIDE = 64", "SIDE = 16"),
        ("SETS = 8", "SETS = 1"),
        ("steps=100", "steps=2"),
        ("(WIDE, *ARCHITECTURES)", '("mobilenet_v2",)'),
    ],
    "s2_held": [("SPREAD, ITERATIONS = 1e-4, 20", "SPREAD, ITERATIONS = 1e-4, 1")],
    "s2_posterior": [("HEADS = 8_192", "HEADS = 300")],
    "s2_heads": [
        ("HEADS, JUDGED = 5_000, 2_000", "HEADS, JUDGED = 20, 100"),
        ("steps=26 + 3 * size // 5", "steps=2"),
    ],
    "s2_dp_last": [("TESTED = 10, 1_000", "TESTED = 10, 60")],
    "s2_pretrain": [('"DejaVuSans", "DejaVuSerif", "STIXGeneral"', '"DejaVuSansMono"'), ("FACES = 8", "FACES = 4")],
    "s3_fixed_epsilon": [
        ("(0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.99)", "(0.1, 0.5)"),
        ("SIZES = (2, 10, 100)", "SIZES = (2, 10)"),
        ("high / low > 1.0005", "high / low > 1.5"),
    ],
    "s3_attacks": [("steps: int = 100", "steps: int = 3"), ("steps=1_000, known=499", "steps=6, known=40")],
    "s4_cifar": [
        ("ConvDecoder()", "ConvDecoder(channels=(1, 1))"),
        ("STEPS = 40", "STEPS = 5"),
        ("3_072, 10, 10, 10, 10", "3_072, 4, 10"),
    ],
    "s4_table3": [("RowDecoder(sums=8)", "RowDecoder(sums=1, width=8)")],
    "newton_defences": [("lw.Newton(", "lw.Newton(coordinates=5, ")],
    "whole_sets": [
        ("size: int = 10", "size: int = 3"),
        ('"none": Game()', '"none": Game(given=True)'),
        ("VICTIM = lw.GD(lr=0.5, steps=30", "VICTIM = lw.GD(lr=0.5, steps=10"),
    ],
    "ensemble_relu": [("epochs=100", "epochs=10")],
    "kkt_attacks": [("WIDTH, START = 1_000,", "WIDTH, START = 60,"), ("TEMPLATES = 40", "TEMPLATES = 1")],
    "newton_mnist": [("bank=2_000, start=lw.Ensemble(members=2_048)", "bank=10, coordinates=5")],
}
# more than some seconds; of kkt, s2_table1, s2_dp, s3_attacks and whole_sets other tests below run a part
SLOW = (
    "deep_sets",
    "kkt",
    "newton_mnist",
    "s1_figure5",
    "s1_figure15",
    "s1_figure20",
    "s1_table3",
    "s2_celeba",
    "s2_dp",
    "s2_features",
    "s2_table1",
    "s3_attacks",
    "s3_fixed_epsilon",
    "s3_model",
    "s4_figure8",
    "s4_table3",
    "text",
    "whole_sets",
)
SET_UPS = (
    "kkt_attacks",
    "s1_mnist",
    "s1_printed",
    "s1_cifar",
    "s2_data",
    "s2_heads",
    "s2_marks",
    "s2_pictures",
    "s2_posterior",
    "s3_pictures",
    "s4_cifar",
)


def named(runs):
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in runs]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Digits as MNIST, as letters, and in three colours as CIFAR-10, a third of them to test; random nets."""
    folder = tmp_path_factory.mktemp("data")
    small = lw.records.digits()
    labels = {"labels": small.y.numpy(), "split": (np.arange(len(small)) % 3 == 0).astype(np.uint8)}
    for name, size in (("mnist", 28), ("cifar10", 32)):
        images = torch.nn.functional.interpolate(small.x, size=size, mode="bilinear")[:, 0].mul(255).byte().numpy()
        np.savez(folder / f"{name}.npz", images=images if size == 28 else np.stack([images] * 3, -1), **labels)
    with np.load(folder / "mnist.npz") as digits:  # EMNIST counts from 1
        np.savez(folder / "emnist_letters_part.npz", **{**digits, "labels": digits["labels"] + 1})
    vgg11 = paper_lib("victims").vgg11
    for name in ("vgg11", "vgg11_plain"):
        write_tensors(folder / f"{name}.safetensors", vgg11(size=16)[:-1].state_dict())
    write_tensors(folder / "lpips_alex.safetensors", random_lpips())
    torch.save(random_mobilenet().state_dict(), folder / "mobilenet_v2-random.pth")
    faces(folder / "celeba")
    return folder


def faces(folder):
    """Digits as CelebA's pictures, six or seven of each person."""
    (folder / "img_align_celeba").mkdir(parents=True)
    small = lw.records.digits()[:520]
    names = [f"{number:06d}.jpg" for number in range(1, len(small) + 1)]
    for name, pixels in zip(names, small.x[:, 0].mul(255).byte().numpy(), strict=True):
        Image.fromarray(pixels).resize((22, 27)).save(folder / "img_align_celeba" / name)
    people = [f"{name} {7 + number % 80}" for number, name in enumerate(names)]
    (folder / "identity_CelebA.txt").write_text("\n".join(people) + "\n")


def random_mobilenet():
    """Its batch norms have seen some pictures: otherwise all features are about 0."""
    model = models.mobilenet_v2(weights=None).train()
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the mean of all batches seen, here of one
    with torch.no_grad():
        model(torch.rand(32, 3, 32, 32))
    return model


def random_lpips():
    """Tensors of the names and shapes of LPIPS's on AlexNet."""
    shapes = {0: (64, 3, 11), 3: (192, 64, 5), 6: (384, 192, 3), 8: (256, 384, 3), 10: (256, 256, 3)}
    tensors = {}
    for number, (layer, (width, before, side)) in enumerate(shapes.items()):
        tensors[f"features.{layer}.weight"] = 0.05 * torch.randn(width, before, side, side)
        tensors[f"features.{layer}.bias"] = torch.zeros(width)
        tensors[f"lin{number}.weight"] = torch.rand(width)
    return tensors


@pytest.fixture
def papers(root, tmp_path, monkeypatch):
    """A copy of the scripts, for results are written beside them, made smaller."""
    copy = shutil.copytree(
        root / "papers", tmp_path / "papers", ignore=shutil.ignore_patterns("results", "__pycache__")
    )
    for name, changes in SMALLER.items():
        setup = copy / f"{name}.py"
        for old, new in changes:
            assert old in setup.read_text()
            setup.write_text(setup.read_text().replace(old, new))
    monkeypatch.syspath_prepend(copy)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    precision = torch.get_float32_matmul_precision()
    yield copy
    torch.set_float32_matmul_precision(precision)
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").is_relative_to(copy):
            del sys.modules[name]


def run(script, words, monkeypatch, out="results"):
    """The sizes are small, so scripts of papers/ say where their rows go."""
    place = ["--out", str(script.parent / out), "--replace"] if script.parent.name == "papers" and out else []
    monkeypatch.setattr(sys, "argv", [script.name, *words.split(), *place])
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("name", named(RUNS))
def test_the_numbers_asked_for_are_written(name, papers, data, monkeypatch):
    words, count = RUNS[name]
    run(papers / f"{name}.py", f"{words} --data {data}", monkeypatch)
    check(read_rows(papers / "results" / f"{name}.json"), count)


@pytest.mark.parametrize("name", named(NO_DATA_RUNS))
def test_scripts_without_data_run(name, papers, monkeypatch):
    words, count = NO_DATA_RUNS[name]
    run(papers / f"{name}.py", words, monkeypatch)
    rows = read_rows(papers / "results" / f"{name}.json")
    check([replace(row, seed=0) for row in rows] if name.startswith("s3_") else rows, count)  # nothing is drawn there


def test_sets_that_a_stopped_run_left_count_as_failures(papers, data, tmp_path, monkeypatch):
    words = f"--prior 300 --pool 100 --rows defence_none --data {data} --keep {tmp_path / 'sets'}"
    run(papers / "whole_sets.py", f"{words} --sets 0:1", monkeypatch)
    run(papers / "whole_sets.py", f"{words} --sets 0:1 --merge", monkeypatch)
    before = {row.id: row for row in read_rows(papers / "results" / "whole_sets.json")}
    run(papers / "whole_sets.py", f"{words} --sets 0:4 --merge", monkeypatch)
    after = {row.id: row for row in read_rows(papers / "results" / "whole_sets.json")}
    assert before["defence_none"].value > 0
    assert after["defence_none"].value == before["defence_none"].value / 4
    assert after["defence_none.sets"].value == before["defence_none.sets"].value / 4
    assert after["defence_none.sets"].quantity.endswith("(3 sets not finished, counted as failures)")
    assert after["defence_none.seconds"].quantity.endswith("(1 finished sets)")
    assert {(row.command, row.code) for row in after.values()} == {(row.command, row.code) for row in before.values()}


def test_games_of_text_that_are_kept_are_merged(papers, tmp_path, monkeypatch):
    script = runpy.run_path(str(papers / "text.py"))
    settings, measured = {**script["SIZES"], "games": 3}, script["measured_now"](str(papers / "text.py"))
    for number, right in ((0, 1.0), (2, 0.5)):
        game = script["Game"]("gd", number, settings, {"right": right, "exact": float(right == 1)}, measured)
        (tmp_path / f"gd.{number}.json").write_text(json.dumps(game._asdict()))
    run(papers / "text.py", f"--rows gd --games 3 --keep {tmp_path} --merge", monkeypatch)
    merged = {row.id: row for row in read_rows(papers / "results" / "text.json")}
    assert merged["gd"].value == 0.5
    assert merged["gd"].quantity.endswith("3 games) (1 games not finished, counted as failures)")
    assert merged["gd.exact"].value == pytest.approx(1 / 3)
    assert {row.command for row in merged.values()} == {"python papers/text.py --rows gd --games 3"}


@pytest.mark.slow
def test_parts_of_the_text_games_make_the_rows_of_all(papers, tmp_path, monkeypatch):
    words = "--rows gd --vocabulary 40 --length 3 --known 8 --prior 8 --games 3 --directions 6 --starts 2"
    kept = f"{words} --keep {tmp_path}"
    run(papers / "text.py", f"{kept} --played 2:3", monkeypatch)
    assert not (papers / "results" / "text.json").exists()  # parts side by side write no common file
    run(papers / "text.py", f"{kept} --merge", monkeypatch)
    part = {row.id: row for row in read_rows(papers / "results" / "text.json")}
    assert part["gd.exact"].quantity.endswith("(2 games not finished, counted as failures)")
    run(papers / "text.py", f"{kept} --played 0:2", monkeypatch)
    run(papers / "text.py", f"{kept} --merge", monkeypatch)
    merged = {row.id: row for row in read_rows(papers / "results" / "text.json")}
    run(papers / "text.py", words, monkeypatch)
    whole = {row.id: row for row in read_rows(papers / "results" / "text.json")}
    timeless = whole.keys() - {"gd.seconds", "gd.prepared"}
    assert {name: merged[name] for name in timeless} == {name: whole[name] for name in timeless}
    assert part["gd.exact"].value <= merged["gd.exact"].value


def test_attacks_by_kkt_conditions_run_in_parts_and_are_merged(papers, data, tmp_path, monkeypatch):
    words = f"--rows mnist_10 --steps 300 --iterations 3 --runs 2 --data {data} --keep {tmp_path / 'kept'}"
    words += f" --nets {tmp_path / 'nets'}"
    run(papers / "kkt.py", f"{words} --attacks kkt", monkeypatch)
    (net,) = (tmp_path / "nets").iterdir()
    made = net.stat().st_mtime_ns
    run(papers / "kkt.py", f"{words} --attacks null weights", monkeypatch)
    assert net.stat().st_mtime_ns == made  # the same net
    assert not (papers / "results" / "kkt.json").exists()
    run(papers / "kkt.py", f"{words} --merge", monkeypatch)
    rows = read_rows(papers / "results" / "kkt.json")
    check(rows, 3 * 5 + 2 + 2)
    assert "mnist_10.kkt.beats" in {row.id for row in rows}
    assert all("--iterations 3" in row.command for row in rows)
    assert (papers / "results" / "kkt.png").exists()


def test_a_wrong_guess_beside_a_duplicate_shows(papers):
    script = runpy.run_path(str(papers / "whole_sets.py"))
    own = lw.Records(torch.tensor([[0.0], [0.0], [1.0]]), torch.zeros(3, dtype=torch.long))
    guesses = torch.tensor([[0.0], [1.0], [3.0]])
    assert max(script["errors_of"](guesses, own)) == 0
    assert script["largest_matched"](guesses, own) == 4


def test_the_parts_of_figure_14_add_up(papers, data, monkeypatch):
    words = (
        "--repetitions 20 --pool 40 --test 50 --rows panels norms --settings epsilon_16_rate_0.99 clip_1.0_epsilon_1"
    )
    run(papers / "s3_attacks.py", f"{words} --parts 4 --part 0 3 --data {data}", monkeypatch)
    run(papers / "s3_attacks.py", "--sum", monkeypatch)
    rows = {row.id: row for row in read_rows(papers / "results" / "s3_attacks.json")}
    whole = "panels.epsilon_16_rate_0.99.10"
    parts = [rows[f"{whole}.part_{part}_of_4"].value for part in (0, 3)]
    assert rows[whole].value == pytest.approx(sum(parts) / 2)
    assert rows[whole].quantity.endswith("success (10 games)")
    assert 0 < rows["norms.clip_1.0_epsilon_1"].value <= 1
    check([row for row in rows.values() if row.id.startswith("panels")], 2 * (2 + 1 + 1))


def test_the_success_of_the_nearest_candidate_is_the_mean_over_all_priors(papers):
    success = runpy.run_path(str(papers / "s3_figure8.py"))["nearest_success"]
    others, size = 7, 4
    for nearer in range(others + 1):  # the first are nearer than the secret
        drawn = list(combinations(range(others), size - 1))
        expected = sum(min(some) >= nearer for some in drawn) / len(drawn)
        assert success([nearer], others, size)[0] == pytest.approx(expected)


def test_rows_measured_elsewhere_replace_those_of_their_ids(root, tmp_path, monkeypatch):
    here, elsewhere = (tmp_path / name / "papers" / "script.py" for name in ("here", "elsewhere"))
    for script, values in ((here, {"a": 1.0, "b": 2.0}), (elsewhere, {"a": 3.0, "a.kl": 4.0, "ab": 5.0})):
        script.parent.mkdir(parents=True)
        script.touch()
        write_rows(str(script), [Row(name, name, value, machine=script.parts[-3]) for name, value in values.items()])
    words = f"{tmp_path / 'elsewhere'} --root {tmp_path / 'here'} --only a"
    run(root / "tools" / "merge_results.py", words, monkeypatch)
    rows = {row.id: row for row in read_rows(here.parent / "results" / "script.json")}
    assert {name: row.value for name, row in rows.items()} == {"a": 3.0, "a.kl": 4.0, "b": 2.0}
    assert (rows["a"].machine, rows["b"].machine) == ("elsewhere", "here")  # where each was measured


def test_a_small_run_leaves_the_tracked_rows_alone(papers, data, monkeypatch, capsys):
    tracked = papers / "results" / "s1_victims.json"
    (full,) = [Row("default.test", "accuracy (10,000 records, 5 starts)", 0.9, command="python papers/s1_victims.py")]
    write_rows(str(papers / "s1_victims.py"), [full])
    words = f"--known 20 --test 30 --starts 2 --rows default --data {data}"
    run(papers / "s1_victims.py", words, monkeypatch, out=None)
    assert "20 of 10,000 known" in capsys.readouterr().out
    assert read_rows(tracked) == [full]
    small = {row.id: row for row in read_rows(papers.parent / "artefacts" / "papers" / "results" / "s1_victims.json")}
    assert small["default.test"].scale == {"known": 20, "starts": 2}
    run(papers / "s1_victims.py", f"{words} --replace", monkeypatch, out=None)
    (replaced,) = [row for row in read_rows(tracked) if row.id == "default.test"]
    assert replaced.value == small["default.test"].value
    assert "--replace" not in replaced.command


def test_every_script_takes_where_its_rows_go(papers):
    for path in sorted(papers.glob("*.py")):
        if "write_rows(" in (source := path.read_text()):
            assert source.count("options=options") == source.count("write_rows("), path.name


def test_rows_of_a_smaller_run_are_not_merged_unless_asked(root, tmp_path, monkeypatch):
    here, elsewhere = (tmp_path / name / "papers" / "script.py" for name in ("here", "elsewhere"))
    for script, targets in ((here, 1_000), (elsewhere, 60)):
        script.parent.mkdir(parents=True)
        write_rows(str(script), [Row("a", f"error ({targets:,} targets)", targets / 1e3), Row("a.kl", "KL", 1.0)])
    words = f"{tmp_path / 'elsewhere'} --root {tmp_path / 'here'}"
    with pytest.raises(SystemExit, match=r"a: 60 for 1,000 targets; a\.kl: 60 for 1,000 targets.*--replace"):
        run(root / "tools" / "merge_results.py", words, monkeypatch)
    assert read_rows(here.parent / "results" / "script.json")[0].value == 1.0
    run(root / "tools" / "merge_results.py", f"{words} --replace", monkeypatch)
    assert read_rows(here.parent / "results" / "script.json")[0].value == 0.06


def test_a_game_that_two_tables_share_is_played_once(papers, data, monkeypatch):
    words = f"{SIZES} --data {data}"
    run(papers / "s1_table2.py", f"{words} --rows random_start", monkeypatch)
    run(papers / "s1_table3.py", f"{words} --rows private_0.2_0.9", monkeypatch)
    (_, *ours), (_, *theirs) = (read_rows(papers / "results" / f"s1_table{table}.json") for table in (3, 2))
    assert [row.id for row in ours] == [f"private_0.2_0.9{part}" for part in ("", ".median", ".beats", ".labels")]
    assert [(row.value, row.command) for row in ours] == [(row.value, row.command) for row in theirs]
    run(papers / "s1_table3.py", f"{words} --rows private_0.2_0.9 --epochs 1", monkeypatch)
    (_, *ours) = read_rows(papers / "results" / "s1_table3.json")
    assert all(row.command.endswith("--epochs 1") for row in ours)  # another decoder is another game


@pytest.mark.parametrize("attack", ["kernel", "printed"])
def test_another_attack_has_rows_of_its_own(attack, papers, data, monkeypatch):
    run(papers / "s1_table2.py", f"{SIZES} --rows default --attack {attack} --data {data}", monkeypatch)
    rows = read_rows(papers / "results" / "s1_table2.json")
    check(rows, 1 + 4)
    assert {row.id for row in rows[1:]} == {f"default.{attack}{part}" for part in ("", ".median", ".beats", ".labels")}


@pytest.mark.parametrize("name", named(CIFAR_RUNS))
def test_shadow_models_are_kept_and_taken_up_again(name, papers, data, tmp_path, monkeypatch):
    words, count = CIFAR_RUNS[name]
    words += f" {CIFAR_SIZES} --data {data} --store {tmp_path / 'store'}"
    run(papers / f"{name}.py", words, monkeypatch)
    rows = read_rows(papers / "results" / f"{name}.json")
    check(rows, count)
    (part,) = tmp_path.glob("store/*/000000_000012.safetensors")
    trained = part.stat().st_mtime_ns
    run(papers / f"{name}.py", words, monkeypatch)
    assert read_rows(papers / "results" / f"{name}.json") == rows
    assert part.stat().st_mtime_ns == trained


@pytest.mark.parametrize(
    "name", ["s1_table2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s1_figure20", "s1_table9"))]
)
def test_shadow_models_by_linear_response_have_rows_of_their_own(name, papers, data, monkeypatch):
    words, row = LINEAR_RUNS[name]
    sizes = "--known 40 --shadows 24 --targets 4 --engine linear --directions 6 --checked 8"
    run(papers / f"{name}.py", f"{words} {sizes} --data {data}", monkeypatch)
    rows = read_rows(papers / "results" / f"{name}.json")
    check(rows, 1 + 4 + 2 + 1)
    assert all(one.id.startswith(f"{row}.linear") for one in rows[1:])


def test_a_row_without_linear_response_asks_for_a_store(papers, data, monkeypatch, capsys):
    words = f"cifar10 --rows cifar_relu {CIFAR_SIZES} --engine linear --data {data}"
    run(papers / "s1_table2.py", words, monkeypatch)
    assert "Name a --store" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(papers / "s1_table2.py", f"cifar10 --data {data}", monkeypatch)
    assert "--store is required" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reconstructor_of_cifar10_is_tuned_to_another_set(papers, data, tmp_path, monkeypatch):
    words = (
        f"cifar10 --known 8 --shadows 12 --targets 4 --epochs 1 --rows 100 --data {data} --store {tmp_path / 'store'}"
    )
    run(papers / "s1_figure12.py", words, monkeypatch)
    rows = read_rows(papers / "results" / "s1_figure12.json")
    check(rows, 1 + 4 + 3 * 4)
    assert all(row.id.startswith("cifar_") for row in rows)


def check(rows, count):
    assert len(rows) == count
    assert all(np.isfinite(row.value) and row.seed == 0 for row in rows)
    assert all(row.low <= row.value <= row.high for row in rows if row.low is not None)


def test_a_plain_base_model_has_rows_of_its_own(papers, data, tmp_path, monkeypatch):
    words = f"--data {data} --models {tmp_path}"
    run(papers / "s2_pretrain.py", f"--plain --steps 2 --batch 16 --rows 10 {words}", monkeypatch)
    (row,) = read_rows(papers / "results" / "s2_pretrain.json")
    assert row.id == "plain_10.accuracy"
    run(papers / "s2_table1.py", f"{WEAK_SIZES} --rows plain_10 mnist_10 {words}", monkeypatch)
    rows = read_rows(papers / "results" / "s2_table1.json")
    assert {row.id.split(".")[0] for row in rows} == {"plain_10"}  # there is no other model in the folder


def test_unseen_digits_are_nobody_elses(papers, data):
    """Neither those that base models are judged on nor those of the other games."""
    script = runpy.run_path(str(papers / "s2_data.py"))
    digits = lw.records.mnist("train", root=data)
    judged, secrets = script["unseen"](digits)
    assert len(secrets) == len(digits) // 6
    assert torch.equal(torch.cat([judged.x, secrets.x]), digits.x)


def test_unseen_pictures_are_nobody_elses(papers, data, monkeypatch):
    """The last sixth of the training part is secret, and everything else is in the prior."""
    script = runpy.run_path(str(papers / "s2_data.py"))
    features = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 8))
    words = {"data": data, "device": "cpu", "imagenet": None}
    monkeypatch.setitem(script["unseen_cifar10"].__globals__, "imagenet_backbone", lambda options: features)
    made = script["unseen_cifar10"](Namespace(**words))
    train, test = (script["pictures"](lw.records.cifar10(part, root=data)) for part in ("train", "test"))
    last = len(train) - len(train) // 6
    assert torch.equal(made.secrets.x, train.x[last:])
    assert torch.equal(made.prior.x, torch.cat([train.x[:last], test.x]))
    assert torch.equal(made.prior.y, torch.cat([train.y[:last], test.y]))
    assert made.changes.mirror


def test_a_backbone_with_its_batch_norms_folded_in_is_the_same(papers, data):
    script = runpy.run_path(str(papers / "s2_data.py"))
    model = models.mobilenet_v2(weights=None)
    random = torch.Generator().manual_seed(0)
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            for numbers in (part.running_mean, part.running_var, part.weight.data, part.bias.data):
                numbers.copy_(0.5 + torch.rand(numbers.shape, generator=random))
    model.double().eval()
    x = torch.rand(3, 3, 32, 32, generator=random).double()
    with torch.no_grad():
        wanted = model(x)
        quick = script["folded"](model)
        torch.testing.assert_close(quick(x), wanted)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in quick.modules())


def test_copies_are_made_once_for_one_seed_and_one_set_of_records(papers):
    script = runpy.run_path(str(papers / "s2_heads.py"))
    backbone = torch.nn.Flatten()
    records = lw.records.digits()[:20].through(backbone)
    made = script["copies_of"](backbone, lw.learning.Affine(), 3)
    assert script["copies_of"](backbone, lw.learning.Affine(), 3) is made
    first = made(records, seed=1)
    plain = lw.attacks.weak.Augmented(backbone, lw.learning.Affine(), copies=3)
    assert script["same_records"](first, plain(records, seed=1))
    assert repr(made) == repr(plain)  # by which checkpoints recognise it
    assert made(records[torch.arange(20)], seed=1) is first
    other = made(records.through(torch.nn.Sequential(backbone, torch.nn.ReLU(), torch.nn.Softplus())), seed=1)
    assert not script["same_records"](other, first)
    assert script["same_records"](made(records, seed=2), plain(records, seed=2))


def test_the_oracle_releases_the_mean_features_of_each_class(papers):
    release = runpy.run_path(str(papers / "s2_features.py"))["MeanFeatures"]()
    prior = lw.records.digits().through(torch.nn.Flatten())
    own = lw.Weak(20).deal(prior, 3, seed=0).own
    given = release(torch.nn.Linear(64, 10), lw.Weak(20).deal(prior, 3, seed=0), seed=0).params["weight"]
    for model, label in ((0, 0), (1, 7), (2, 9)):
        mean = own.inputs[model][own.y[model] == label].mean(0)
        torch.testing.assert_close(given[model, label], mean)


def test_a_mark_adds_to_every_error_what_chance_lacks(papers):
    """By loops: the radius in which one of two random records of the class lies with probability 0.01."""
    script = runpy.run_path(str(papers / "s2_marks.py"))
    random = torch.Generator().manual_seed(0)
    prior = lw.Records(torch.rand(2_000, 1, 4, 4, generator=random), torch.arange(2_000) % 2)
    prior.x[..., 0, :] = 0.0  # always black
    guesses = lw.Records(torch.rand(3, 2, 1, 4, 4, generator=random), torch.tensor([0, 1]).expand(3, -1))
    guesses.x[..., 0, :] = 0.0

    def plain(release):
        return lw.games.Guess(guesses, torch.zeros(3, 2))

    marked = script["Marked"](plain, prior, torch.tensor([2, 2]), 0.2)(None).records
    for game in range(3):
        for label in range(2):
            far = (prior.x[prior.y == label] - guesses.x[game, label]).square().flatten(1).mean(1).sort().values
            radius = float(far[round((1 - 0.99**0.5) * len(far)) - 1])
            before, after = (part.x[game, label] - prior.x[label] for part in (guesses, marked))
            added = after.square().mean() - before.square().mean()
            assert float(added) == pytest.approx(0.2 - radius, abs=1e-5)
            assert torch.equal(after[:, 1:], before[:, 1:])


def test_a_contrast_puts_every_guess_as_far_from_chance(papers):
    """By loops: a guess lies on the line through the mean of its class where one of 100 records is within the reach."""
    script = runpy.run_path(str(papers / "s2_marks.py"))
    random = torch.Generator().manual_seed(0)
    prior = lw.Records(torch.randn(2_000, 1, 4, 4, generator=random).tanh(), torch.arange(2_000) % 2)
    guesses = lw.Records(0.5 * torch.randn(3, 2, 1, 4, 4, generator=random), torch.tensor([0, 1]).expand(3, -1))

    def plain(release):
        return lw.games.Guess(guesses, torch.zeros(3, 2))

    scale = script["on_one_scale"](plain, prior, torch.tensor([1, 1]), 0.3)
    assert isinstance(scale, script["Contrasted"])
    drawn = scale(None).records
    for game in range(3):
        for label in range(2):
            ours = prior.x[prior.y == label]
            far = (ours - drawn.x[game, label]).square().flatten(1).mean(1).sort().values
            assert float(far[9]) == pytest.approx(0.3, abs=2e-3)  # the tenth of 1,000
            away, before = drawn.x[game, label] - ours.mean(0), guesses.x[game, label] - ours.mean(0)
            inside = drawn.x[game, label].abs() < 0.999  # where it is not cut to the range of pixels
            ratio = (away / before)[inside]
            assert float(ratio.max() - ratio.min()) < 1e-3
    prior.x[..., 0, :] = -1.0
    assert isinstance(script["on_one_scale"](plain, prior, torch.tensor([1, 1]), 0.3), script["Marked"])


def test_estimated_features_are_the_conditional_mean(papers):
    """Of all features jointly, given the weights, by the formula for normal vectors."""
    script = runpy.run_path(str(papers / "s2_posterior.py"))
    random, (classes, width), noise = torch.Generator().manual_seed(0), (3, 4), 0.3
    a = torch.randn(classes, classes, generator=random).double()
    a = a - a.mean(0)
    means, weight = (torch.randn(classes, width, generator=random).double() for _ in range(2))
    roots = torch.randn(width, width, generator=random).double()
    variances, vectors = torch.linalg.eigh(roots @ roots.mT)
    release = lw.games.Release({"weight": weight[None], "bias": torch.zeros(1, classes).double()})
    inputs = script["summary"](release).shape[1]
    slopes = torch.cat([torch.zeros(inputs, classes**2).double(), a.view(1, -1)])
    known = script["Regression"](torch.zeros(inputs).double(), torch.ones(inputs).double(), slopes)
    zero, one = torch.zeros(width).double(), torch.ones(width).double()
    density = torch.zeros(classes, width, 256).double()
    low, farthest = -1e3 * one, zero  # no shift
    given = known, means, variances, vectors, torch.tensor(noise), low, one, density, farthest
    found = script["Estimate"](*given)(release)[0]
    spread = torch.kron(torch.eye(classes).double(), roots @ roots.mT)  # of the records, one after the other
    seen = torch.kron(a, torch.eye(width).double())
    gain = spread @ seen.mT @ torch.linalg.inv(seen @ spread @ seen.mT + noise * torch.eye(len(seen)).double())
    wanted = means + (gain @ (weight - a @ means).flatten()).view(classes, width)
    torch.testing.assert_close(found, wanted)


def test_a_set_that_explains_a_head_is_found_near_a_guess(papers):
    """As many records as classes do not follow from the weights: the answer is another set with the same head."""
    script = runpy.run_path(str(papers / "s2_held.py"))
    random = torch.Generator().manual_seed(0)
    trainer = lw.GD(lr=0.5, weight_decay=0.01, steps=20, dtype=torch.float64, init=lw.inits.Normal(0.1, seed=0))
    net, y = torch.nn.Linear(8, 3), torch.arange(3)
    start = trainer.init(net, [0], seed=0)["weight"][0].double()

    def train(sets):
        own, nothing = lw.Records(sets, y.expand(len(sets), -1)), lw.Records(sets[0, :0], y[:0])
        cohort = lw.games.Cohort(nothing, own, torch.arange(len(sets)))
        params = trainer(net, cohort, seed=0).params
        return torch.cat([params["weight"], params["bias"].unsqueeze(2)], 2)

    truth, error = torch.randn(2, 3, 8, generator=random, dtype=torch.float64)
    (released,) = train(truth[None])
    guess = truth + 0.1 * error
    found = script["nearest_explaining"](guess, released, start, train, iterations=20)
    assert found.residual < 1e-12
    torch.testing.assert_close(train(found.features[None])[0], released, rtol=0, atol=1e-10)
    assert 1e-3 < (found.features - truth).norm() < (guess - truth).norm()
    assert (found.features - guess).norm() <= (truth - guess).norm()


def test_features_behind_a_relu_tell_their_common_shift(papers):
    """The part of ten records that a head does not hold."""
    script = runpy.run_path(str(papers / "s2_posterior.py"))
    torch.manual_seed(0)
    relu = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 48), torch.nn.ReLU())
    prior, secrets = lw.records.digits().through(relu).split(1_000, 700, seed=0)
    trainer = lw.GD(lr=0.1, steps=32, init=lw.inits.Normal(1e-4, seed=None))
    net, threat = torch.nn.Linear(48, 10), lw.Weak(10)
    estimate = script["Estimate"].of(lw.games.Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=1)
    cohort = threat.deal(secrets, 50, seed=0)
    release = trainer(net, cohort, seed=0)
    left = script["left_over"](estimate, release, cohort.own).mean()
    unshifted = estimate._replace(reach=torch.zeros_like(estimate.reach))
    assert left < script["left_over"](unshifted, release, cohort.own).mean() < 0.3


def test_a_training_set_of_faces_is_of_one_person_and_others(papers):
    people = torch.arange(400) % 61 + 5  # six or seven pictures of each
    threat = runpy.run_path(str(papers / "s2_celeba.py"))["OnePerson"](40)
    rows = threat.rows(people, 50, seed=3)  # (models, N), positives last
    assert all(len(set(some)) == 40 for some in rows.tolist())
    assert bool((people[rows[:, 36:]] == people[rows[:, 36:37]]).all())
    assert bool((people[rows[:, :36]] != people[rows[:, 36:37]]).all())
    assert torch.equal(threat.rows(people, 7, seed=3, start=20), rows[20:27])
    pool = lw.Records(torch.arange(400.0).unsqueeze(1), people)
    cohort = threat.deal(pool, 50, seed=3)
    assert torch.equal(cohort.own.x[..., 0].long(), rows)
    assert cohort.own.y.sum(1).tolist() == [4] * 50
    learnt, held = threat.hold_out(pool, 0.05, seed=3)
    assert len(learnt) + len(held) == 400
    assert not set(learnt.y.tolist()) & set(held.y.tolist())
    with pytest.raises(ValueError, match="Add more people"):
        threat.deal(pool[:30], 2, seed=3)


def test_people_are_left_out_with_all_their_pictures(papers):
    people = np.arange(400) % 61
    kept = runpy.run_path(str(papers / "s2_celeba.py"))["some_people"](people, 100, 0)
    assert len(set(kept)) == len(kept)
    assert 94 <= np.isin(people, kept).sum() <= 100  # nobody has more than seven


def test_faces_that_are_not_there_are_named(papers, tmp_path):
    named = runpy.run_path(str(papers / "s2_celeba.py"))["named_pictures"]
    with pytest.raises(FileNotFoundError, match=r"no img_align_celeba and no identity_CelebA.*--faces"):
        named(tmp_path)
    (tmp_path / "img_align_celeba").mkdir()
    (tmp_path / "identity_CelebA.txt").write_text("000001.jpg 2880 1\n")
    with pytest.raises(ValueError, match="a picture and a person"):
        named(tmp_path)


def test_a_base_model_is_judged_on_nobodys_secrets(papers, data, tmp_path, monkeypatch):
    """The secrets of S2's games are MNIST's test digits: the script never reads them."""
    asked, mnist = [], lw.records.mnist

    def watched(part, **fields):
        asked.append(part)
        return mnist(part, **fields)

    monkeypatch.setattr(lw.records, "mnist", watched)
    run(papers / "s2_pretrain.py", f"--steps 2 --batch 16 --rows 10 --data {data} --models {tmp_path}", monkeypatch)
    assert asked == ["train"]


def test_a_reconstructor_is_trained_once(papers, data, tmp_path, monkeypatch):
    words = f"{WEAK_SIZES} --data {data} --trained {tmp_path}"
    run(papers / "s2_table1.py", f"{words} --rows mnist_10", monkeypatch)
    monkeypatch.delattr(lw.WeakRecoNN, "prepare")
    run(papers / "s2_dp.py", f"{words} --rows epsilon_50", monkeypatch)
    assert "epsilon_50" in [row.id for row in read_rows(papers / "results" / "s2_dp.json")]


def test_the_noise_written_down_is_the_accountants(papers):
    script = runpy.run_path(str(papers / "s2_dp.py"))
    at = script["EPSILONS"].index(50)
    for game, steps in {"mnist_10": 32, "mnist_40": 50, "cifar_10": 48, "cifar_40": 78}.items():
        size = script["UNPROTECTED"][game].size
        noise = noise_for(50, script["delta"](size), steps=steps, sample_rate=script["sample_rate"](size))
        assert script["NOISE"][game][at] == pytest.approx(noise, rel=1e-3)


@pytest.mark.slow
def test_a_protected_game_other_than_ten_digits_has_rows_of_its_own(papers, data, monkeypatch):
    words = f"--game mnist_40 {WEAK_SIZES} --generator mlp --rows epsilon_50 --data {data}"
    run(papers / "s2_dp.py", words, monkeypatch)
    rows = read_rows(papers / "results" / "s2_dp.json")
    check(rows, 1 + 3 * 9 + 2)
    assert all(row.id.startswith("mnist_40_") for row in rows)
    assert {row.paper for row in rows if row.id.startswith("mnist_40_safe")} == {6.0}


def test_the_largest_epsilon_that_is_safe_is_read_off_between_points(papers):
    script = runpy.run_path(str(papers / "s2_dp.py"))
    point, safe = script["Point"], script["largest_safe"]
    assert safe([point(40, 0.02), point(10, 0.01)]) == pytest.approx(20)  # half-way, in log epsilon
    assert safe([point(10, 0.01), point(40, 0.015)]) == 40
    assert safe([point(10, 0.02), point(40, 0.01)]) == 0
    rates = {"epsilon_5": 0.01, "epsilon_5_chance": 0.03, "epsilon_20": 0.2, "clip": 8}
    rows = [Row(name, "", rate) for name, rate in rates.items()]
    assert script["measured"](rows) == [(5, 0.03), (20, 0.2)]  # of two reconstructors the better


def test_storage_is_held_against_errors_over_enough_initialisations(papers):
    storage = runpy.run_path(str(papers / "s4_figure1.py"))["storage"]
    rows = [Row(f"relu_{run}.{part}", "", run / 10) for run in range(1, 9) for part in ("reconn", "stored")]
    (found,) = storage(rows, seed=0)
    assert found.value == pytest.approx(1)
    assert storage(rows[:-1], seed=0) == []  # seven that have both


def test_every_script_is_tried(root):
    scripts = {path.stem for path in (root / "papers").glob("*.py")} - {*SET_UPS}  # which others import
    assert scripts == {*RUNS, *NO_DATA_RUNS, *CIFAR_RUNS}, "name a new script in RUNS"
