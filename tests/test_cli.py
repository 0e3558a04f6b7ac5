import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lostwax
from lostwax import bounds
from lostwax.cli import main
from lostwax.demo import run as run_demo


def fastest(*command):
    """Processor seconds of the best of three runs, and what it printed: what else the machine does is not at issue."""
    seconds = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        after = os.times()
        seconds.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return min(seconds), done.stdout


def test_help_answers_at_once():
    seconds, printed = fastest("-m", "lostwax", "--help")
    assert seconds < 1.5
    assert "demo" in printed


def test_light_modules_load_no_torch():
    code = (
        "import sys, lostwax, lostwax.fields, lostwax.verbs, lostwax.cli;"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'zarr', 'ray', 'tyro', 'scipy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lostwax {lostwax.__version__}\n"


SMALL = {"shadows": 300, "victims": 20, "epochs": 8, "inverted": 1}
BLIND, NEAREST = "blind guess (mean of the prior)", "nearest prior or known record"


@pytest.mark.parametrize(
    (
        "size",
        "worse",
    ),  # from 300 shadow models the decoder learns to beat a blind guess, and the best baseline from all
    [(SMALL, BLIND), pytest.param({}, NEAREST, marks=pytest.mark.slow)],
    ids=["small", "whole"],
)
def test_demo_prints_audits_and_leaves_reports(size, worse, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lostwax.demo.run", functools.partial(run_demo, **size))
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    text = capsys.readouterr().out
    assert "as released" in text
    assert "as converged" in text
    played = ("logistic_regression", "kernel_ridge", "reconn", "newton", "erased")
    assert all(f"  {tmp_path / 'demo' / name / 'report.html'}\n" in text for name in played)
    audits = {name: lostwax.reports.read(tmp_path / "demo" / name) for name in played}
    regression, decoder, newton = (float(np.median(audits[name].errors)) for name in played[1:4])
    assert audits["erased"].errors.max() < 1e-9
    baselines = {name: errors["mean squared error"].mean() for name, errors in audits["reconn"].baselines.items()}
    assert newton < 1e-9 < regression < baselines[NEAREST] < baselines[BLIND]
    assert regression < decoder < baselines[worse]
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {*played, "shadows", "rebuilt_digits.png"}


def test_input_errors_are_one_line_and_exit_2(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--out", str(tmp_path / "file" / "demo")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lostwax: ")
    assert "Traceback" not in error


def test_usage_errors_exit_2():
    assert main(["demo", "--outt", "x"]) == 2
    assert main(["bound", "--noise-multiplier", "much"]) == 2


def test_public_names_all_load():
    for name in lostwax.__all__:
        assert getattr(lostwax, name) is not None
    assert set(dir(lostwax)) == set(lostwax.__all__)
    assert not hasattr(lostwax, "audits_")
    assert Path(lostwax.__file__).with_name("py.typed").exists()


def test_bound_answers_and_prints_json(capsys):
    words = ["--noise-multiplier", "1.0", "--sample-rate", "0.01", "--steps", "100", "--baseline", "0.1"]
    assert main(["bound", *words]) == 0
    assert "certified" in capsys.readouterr().out
    assert main(["bound", *words, "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    exact = lostwax.bound(noise_multiplier=1.0, sample_rate=0.01, steps=100, baseline=0.1)
    assert (numbers["upper"], numbers["lower"]) == (exact.upper, exact.lower)


def strictly(text):
    """What is JSON, and no more: NaN and Infinity are not."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_json_has_words_for_what_is_no_number(capsys):
    assert main(["bound", "--noise-multiplier", "0.1", "--steps", "100", "--log-baseline", "-2000", "--json"]) == 0
    assert strictly(capsys.readouterr().out)["amplification"] == "inf"
    words = ["--max-success", "0.2", "--baseline", "0.1", "--sample-rate", "1e-3", "--steps", "10", "--json"]
    assert main(["calibrate", *words]) == 0
    plan = strictly(capsys.readouterr().out)
    assert (plan["noise_multiplier"], plan["epsilon"]) == (0, "inf")
    assert plan["ceiling"]["certified"] is True


def test_bound_answers_from_a_cold_start():
    words = ["--noise-multiplier", "1.0", "--sample-rate", "0.02", "--steps", "1000", "--baseline", "0.1"]
    code = (
        "import sys; from lostwax.cli import main; main(sys.argv[1:]);"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'dp_accounting', 'scipy.stats'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    seconds, printed = fastest("-c", code, "bound", *words)
    assert seconds < 1.5
    assert "certified" in printed


def test_calibrate_and_its_labels(capsys):
    words = ["--max-success", "0.3", "--baseline", "0.1", "--steps", "10"]
    assert main(["calibrate", *words]) == 0
    assert "add or remove" in capsys.readouterr().out
    assert main(["calibrate", *words, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["noise_multiplier"] == lostwax.calibrate(max_success=0.3, baseline=0.1, steps=10).noise_multiplier
    assert main(["calibrate", "--max-success", "0.01", "--log-baseline", "-2000"]) == 0
    assert "certified" in capsys.readouterr().out


LOOPS = {  # options, and the value they stand for
    "--sampling balls-in-bins --epochs 2": bounds.BallsInBins(2),
    "--sampling shuffled --epochs 2": bounds.Shuffled(2),
    "--sampling fixed --dataset-size 100 --batch-size 5": bounds.FixedSize(100, 5),
    "--sampling truncated --sample-rate 0.1 --dataset-size 100 --batch-size 20": bounds.TruncatedPoisson(0.1, 100, 20),
    "--sampling cyclic --epochs 2": bounds.Cyclic(2),
    "--sampling full": bounds.FullBatch(),
}


@pytest.mark.parametrize("options", LOOPS)
def test_every_sampling_has_its_options(options, capsys):
    words = f"bound --noise-multiplier 1 --steps 10 --baseline 0.1 {options}"
    assert main([*words.split(), "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    exact = lostwax.bound(noise_multiplier=1.0, steps=10, baseline=0.1, sampling=LOOPS[options])
    assert numbers["upper"] == exact.upper


AIMS = {  # options, and the goal they stand for
    "--baseline 0.1 --records 2": bounds.Records(2),
    "--baseline 0.1 --records 2 --of 3": bounds.Records(2, of=3),
    "--goal attribute --prior 0.7 0.3": bounds.Attribute([0.7, 0.3]),
    "--goal membership": bounds.Membership(),
    "--goal membership --fpr 0.01": bounds.Membership(0.01),
}


@pytest.mark.parametrize("options", AIMS)
def test_every_goal_has_its_options(options, capsys):
    assert main([*f"bound --noise-multiplier 3 --steps 2 {options}".split(), "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    known = {"baseline": 0.1} if AIMS[options].needs_baseline else {}
    exact = lostwax.bound(noise_multiplier=3.0, steps=2, goal=AIMS[options], **known)
    assert numbers["upper"] == exact.upper
    assert numbers["assumptions"] == list(exact.assumptions)
    assert main(f"calibrate --max-success 0.9 --steps 2 {options}".split()) == 0
    assert "assumes: Gaussian noise" in capsys.readouterr().out


def test_the_least_error_has_its_options(capsys):
    words = "bound --noise-multiplier 3 --goal mean-squared-error"
    for options, prior in {"--prior 1 2": [1, 2], "--prior 0.5 0.5 --values 0 7": {0: 0.5, 7: 0.5}}.items():
        assert main([*words.split(), *options.split(), "--json"]) == 0
        floor = lostwax.bound(noise_multiplier=3.0, goal=bounds.MeanSquaredError(prior))
        assert json.loads(capsys.readouterr().out)["error"] == floor.error
    assert main([*words.split(), "--prior", "1"]) == 0
    assert "mean squared error at least" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--goal attribute", "--goal attribute needs --prior"),
        ("--goal attribute --prior 0.5 0.5 --fpr 0.1", "does not use --fpr"),
        ("--goal membership --records 2", "does not use --records"),
        ("--goal mean-squared-error --prior 0.5 0.5 --values 1", "as many --values as --prior"),
        ("--goal membership --baseline 0.1", "Leave out baseline"),
        ("--baseline 0.1 --records 5 --of 3", "k <= n"),
    ],
)
def test_options_that_do_not_fit_the_goal(options, complaint, capsys):
    assert main(f"bound --noise-multiplier 1 {options}".split()) == 2
    assert complaint in capsys.readouterr().err


def test_calibrate_takes_the_same_options(capsys):
    words = "calibrate --max-success 0.5 --baseline 0.1 --steps 10 --sampling shuffled --epochs 2"
    assert main(words.split()) == 0
    assert "set to zero" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--sampling shuffled --sample-rate 0.1", "--sampling shuffled needs --epochs"),
        ("--sampling fixed --batch-size 3", "--sampling fixed needs --dataset-size"),
        ("--epochs 3", "--sampling poisson does not use --epochs"),
        ("--sampling balls-in-bins --epochs 3", "to be a multiple of epochs=3"),
        ("--sampling balls-in-bins --epochs 2 --sample-rate 0.3", "Leave out sample_rate"),
    ],
)
@pytest.mark.parametrize("command", ["bound --noise-multiplier 1", "calibrate --max-success 0.5"])
def test_options_that_do_not_fit_the_sampling(command, options, complaint, capsys):
    assert main([*command.split(), "--baseline", "0.1", "--steps", "10", *options.split()]) == 2
    assert complaint in capsys.readouterr().err


def test_bound_and_calibrate_of_the_last_weights(capsys):
    options = ["--steps", "1000", "--sampling", "full", "--baseline", "0.1"]
    law = ["--last-weights", "--lr", "1.0", "--smoothness", "1.0", "--convexity", "0.01"]
    main(["bound", "--noise-multiplier", "18.64", *options, *law])
    assert "success 0.29" in capsys.readouterr().out
    main(["calibrate", "--max-success", "0.3", *options, *law])
    assert "noise multiplier 18.63" in capsys.readouterr().out
