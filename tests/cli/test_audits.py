import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from full_disk import no_file_over
from lostwax import files
from lostwax.cli import main

TRAINED = """
import torch
import lostwax as lw
x = torch.rand(80, 4, generator=torch.Generator().manual_seed(0))
known, prior, secrets = lw.Records(x, torch.arange(80) % 2).split(20, 20, 40, seed=0)
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
trainer = lw.GD(lr=0.1, steps=3)
threat = lw.Informed(known)
attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=8), epochs=1)
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe in an otherwise empty folder, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(TRAINED)
    return tmp_path / "recipe.py"


def test_from_a_recipe_to_a_report_and_back(recipe, capsys):
    (recipe.parent / "lax.toml").write_text("max_rebuilt_share = 0.999\nmax_nearer_share = 0.999\n")
    assert main(["audit", "recipe.py", "--out", "audit", "--policy", "lax.toml"]) == 0
    out = capsys.readouterr().out
    assert "lostwax audit of Linear trained by GD" in out
    assert "report: audit/report.html" in out
    assert "policy lax.toml: kept" in out
    folder = recipe.parent / "audit"
    assert json.loads((folder / "audit.json").read_text())["attack"] == "RecoNN through Weights"
    (folder / "report.html").unlink()
    assert main(["report", "audit", "--no-records"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("audit/report.html\n", "")
    assert (folder / "report.html").exists()
    assert not (folder / "records.safetensors").exists()
    (recipe.parent / "strict.toml").write_text("max_rebuilt_share = 0.0\n")
    assert main(["report", "audit", "--no-records", "--policy", "strict.toml"]) == 1
    assert "policy strict.toml: max_rebuilt_share = 0: " in capsys.readouterr().err
    assert "max_<wbr>rebuilt_<wbr>share" in (folder / "report.html").read_text()
    assert main(["report", "audit", "--no-records"]) == 1  # by the policy that the report carries, as its page says
    assert "policy of audit: max_rebuilt_share = 0: " in capsys.readouterr().err


def test_a_broken_policy_is_the_exit_code(recipe, capsys):
    (recipe.parent / "strict.toml").write_text("max_rebuilt_share = 0.0\n")
    assert main(["audit", "recipe.py", "--out", "audit", "--policy", "strict.toml"]) == 1
    printed = capsys.readouterr()
    assert "policy strict.toml: broken" in printed.out
    assert "suggestion: do not release." in printed.out
    assert "policy strict.toml: max_rebuilt_share = 0: " in printed.err


def test_nothing_is_run_before_folder_and_policy_are_good(recipe, capsys):
    recipe.write_text("raise SystemExit('it ran')")
    mine = recipe.parent / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    assert main(["audit", "recipe.py", "--out", "mine"]) == 2
    assert main(["audit", "recipe.py", "--out", "recipe.py"]) == 2
    assert main(["audit", "recipe.py", "--out", "recipe.py/audit"]) == 2
    assert main(["audit", "recipe.py", "--out", "audit", "--policy", "absent.toml"]) == 2
    assert "it ran" not in capsys.readouterr().err
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]
    assert not (recipe.parent / "audit").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (TRAINED.replace("trainer", "trianer"), "Does trianer mean trainer?"),
        (TRAINED + "games = 1000", "audit: expected 1 <= games <= 40"),
        (TRAINED.replace("Linear(4, 2)", "Linear(5, 2)"), "cannot take records of shape (4,)"),
        (TRAINED.replace("torch.nn.Linear(4, 2)", "Net()") + "\n", "NameError: name 'Net' is not defined"),
        (TRAINED + 'attack = lw.RecoNN(device="gpu")', "device='gpu' cannot be used here"),
        (TRAINED + "attack = 'RecoNN'", "expected attack to be an attack, such as lw.RecoNN(), got str"),
        (TRAINED.replace("secrets", "private"), "but not secrets (records to rebuild"),
    ],
)
def test_mistakes_in_a_recipe_exit_2_without_a_traceback(recipe, capsys, text, words):
    recipe.write_text(text)
    assert main(["audit", "recipe.py", "--out", "audit"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("lostwax: ")
    assert words in error
    assert "Traceback" not in error


def test_an_error_in_the_user_s_own_net_is_shown_as_theirs(recipe, capsys):
    net = "class Net(torch.nn.Linear):\n    def forward(self, x):\n        return self.no_such_layer(x)\n"
    recipe.write_text(TRAINED.replace("net = torch.nn.Linear", f"{net}net = Net"))
    assert main(["audit", "recipe.py", "--out", "audit"]) == 2
    error = capsys.readouterr().err
    assert "in forward\n    return self.no_such_layer(x)" in error
    assert "no_such_layer" in error
    assert "lostwax/" not in error


def test_a_folder_that_only_looks_writable_is_refused_before_anything_is_run(recipe, capsys, monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError(2, "No such file or directory")

    recipe.write_text("raise SystemExit('it ran')")
    monkeypatch.setattr(files, "check_writable", refuse)
    assert main(["audit", "recipe.py", "--out", "audit"]) == 2
    assert main(["demo", "--out", "audit"]) == 2
    error = capsys.readouterr().err
    assert "report: folder=audit is not writable" in error
    assert "report: folder=audit/logistic_regression is not writable" in error
    assert "it ran" not in error


def test_a_full_disk_loses_no_result(recipe, capsys):
    """The table and the policy are printed even if nothing can be written; the files that are not there are named."""
    (recipe.parent / "strict.toml").write_text("max_rebuilt_share = 0.0\n")
    with no_file_over(1_000):
        assert main(["audit", "recipe.py", "--out", "audit", "--policy", "strict.toml"]) == 2
    printed = capsys.readouterr()
    assert "lostwax audit of Linear trained by GD" in printed.out
    assert "policy strict.toml: broken" in printed.out
    assert "report:" not in printed.out
    assert re.search(r"^lostwax: report: .*audit\.json could not be written", printed.err, re.MULTILINE)
    assert "Traceback" not in printed.err
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    assert not list((recipe.parent / "audit").rglob(".lostwax*"))


@pytest.mark.parametrize(
    "end",
    ["| true; echo ${PIPESTATUS[0]}", ">&-; echo $?", pytest.param("> /dev/full; echo $?", marks=pytest.mark.slow)],
)
def test_an_audit_is_judged_and_reported_wherever_it_prints_to(recipe, end):
    (recipe.parent / "strict.toml").write_text("max_rebuilt_share = 0.0\n")
    command = f"{sys.executable} -m lostwax audit recipe.py --out audit --policy strict.toml {end}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, "Traceback" in done.stderr) == ("1\n", False)
    assert "policy strict.toml: max_rebuilt_share = 0: " in done.stderr
    assert (recipe.parent / "audit" / "report.html").exists()


def test_a_terminal_of_few_characters_loses_no_audit(recipe, monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    assert b"lostwax audit of Linear trained by GD" in printed.getvalue()
    assert main(["report", "audit"]) == 0


def test_one_audit_at_a_time_has_a_folder(recipe, capsys):
    """The others are refused before they run anything."""
    recipe.write_text("raise SystemExit('it ran')")
    with ThreadPoolExecutor(1) as other, files.locked("test", recipe.parent / "audit"):
        assert other.submit(main, ["audit", "recipe.py", "--out", "audit"]).result() == 2
    error = capsys.readouterr().err
    assert "audit: audit is in use: another process writes a report there" in error
    assert "it ran" not in error


def test_no_kill_locks_the_folder(recipe):
    """What a kill leaves while it is tried whether the folder can be written to is no file of the user's."""
    out = recipe.parent / "audit"
    out.mkdir()
    left = out / (".lostwax-" + 32 * "0" + ".part")
    left.write_text("")
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    assert not left.exists()


@pytest.mark.parametrize("name", ["a\ud800b", 300 * "a"], ids=["surrogate", "long"])
def test_a_name_that_no_folder_can_have(recipe, capsys, name):
    recipe.write_text("raise SystemExit('it ran')")
    assert main(["audit", "recipe.py", "--out", name]) == 2
    assert main(["demo", "--out", name]) == 2
    assert main(["init", "torch", "--out", name]) == 2
    error = capsys.readouterr().err
    assert error.count("Use a") == 3
    assert "it ran" not in error
    assert "Traceback" not in error


def test_init_on_a_full_disk_leaves_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with no_file_over(100):
        assert main(["init", "sklearn"]) == 2
    assert "init: recipe.py could not be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["init", "sklearn"]) == 0


def test_all_attacks_within_minutes(recipe, capsys):
    recipe.write_text(TRAINED.replace("attack = ", "_attack = ") + "games = 2\n")
    assert main(["audit", "recipe.py", "--out", "audit", "--max-minutes", "0.05"]) == 0
    out = capsys.readouterr().out
    assert out.count("ClosedForm is not applicable: ") == 1 == out.count("\nClosedForm ")


def test_a_demo_has_a_folder(recipe, capsys):
    before = recipe.read_text()
    assert main(["demo", "--out", "recipe.py"]) == 2
    assert "recipe.py is a file. Name another folder" in capsys.readouterr().err
    assert recipe.read_text() == before


def test_simulate_fills_a_store_and_goes_on(recipe, capsys):
    for models in ("8", "12"):
        assert main(["simulate", "recipe.py", "--models", models, "--store", "shadows"]) == 0
    assert (recipe.parent / "shadows").is_dir()
    printed = capsys.readouterr()
    held = re.findall(r"shadows holds (\d+) models of recipe.py", printed.out)
    assert held == re.findall(r"training (\d+) in chunks", printed.err) * 2  # 12 are asked for, and more are there
    assert "(12 requested; stored in chunks of " in printed.out
    assert main(["simulate", "recipe.py", "--models", "8", "--store", "s", "--workers", "2"]) == 2
    assert "--workers need --engine ray" in capsys.readouterr().err
    recipe.write_text("data = (1, 2)\nmodel = 3")
    assert main(["simulate", "recipe.py", "--models", "8", "--store", "s"]) == 2
    assert "audits a fitted model" in capsys.readouterr().err
    assert not (recipe.parent / "s").exists()


def test_ctrl_c_is_no_traceback(recipe, capsys):
    recipe.write_text("raise KeyboardInterrupt")
    assert main(["audit", "recipe.py", "--out", "audit"]) == 130
    assert capsys.readouterr().err == "lostwax: reading recipe.py ...\nlostwax: stopped.\n"


def test_a_closed_pipe_is_no_error_message():
    command = f"{sys.executable} -m lostwax list bounds | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_report_has_a_folder_of_its_own(recipe, capsys):
    """Without --out it is named for the recipe, and a second run of the recipe says that it replaces the first."""
    assert main(["audit", "recipe.py"]) == 0
    assert capsys.readouterr().out.endswith("report: audits/recipe/report.html\n")
    assert main(["audit", "recipe.py"]) == 0
    assert capsys.readouterr().out.endswith("report: audits/recipe/report.html (replaces the earlier one)\n")
    kept = json.loads((recipe.parent / "audits" / "recipe" / "audit.json").read_text())
    assert kept["provenance"]["recipe"] == "recipe.py"


def test_no_other_report_is_overwritten(recipe, capsys):
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    before = (recipe.parent / "audit" / "audit.json").read_bytes()
    (recipe.parent / "other.py").write_text("raise SystemExit('it ran')")
    assert main(["audit", "other.py", "--out", "audit"]) == 2
    error = capsys.readouterr().err
    assert "audit holds another report, an audit of Linear trained by GD made by recipe.py. Nothing was run." in error
    assert "it ran" not in error
    plain = json.loads(before)
    del plain["provenance"]["recipe"]  # as lw.report writes it
    (recipe.parent / "audit" / "audit.json").write_text(json.dumps(plain, indent=1))
    assert main(["audit", "recipe.py", "--out", "audit"]) == 2
    assert "made without a recipe" in capsys.readouterr().err


def test_no_records_are_put_back(recipe, capsys):
    """A folder whose records were taken out may have been given away."""
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    assert main(["report", "audit", "--no-records"]) == 0
    assert main(["audit", "recipe.py", "--out", "audit"]) == 2
    assert "was written without records, and this one would put them there" in capsys.readouterr().err
    assert main(["audit", "recipe.py", "--out", "audit", "--no-records"]) == 0
    held = {path.name for path in (recipe.parent / "audit").rglob("*")}
    assert not held & {"records.safetensors", "rebuilt.png"}


def test_records_of_an_earlier_report_do_not_stay_behind(recipe):
    assert main(["audit", "recipe.py", "--out", "audit"]) == 0
    assert (recipe.parent / "audit" / "records.safetensors").exists()
    recipe.write_text(TRAINED + "games = 5\n")
    assert main(["audit", "recipe.py", "--out", "audit", "--no-records"]) == 0
    assert not (recipe.parent / "audit" / "records.safetensors").exists()


def test_a_recipe_has_one_seed(recipe, capsys):
    recipe.write_text(TRAINED + "seed = [0, 1]\n")
    assert main(["audit", "recipe.py"]) == 2
    assert "a report is about one audit" in capsys.readouterr().err


def test_a_recipe_may_name_several_attacks(recipe, capsys):
    recipe.write_text(TRAINED + "attack = [lw.KernelRidge(), attack]\n")
    assert main(["audit", "recipe.py"]) == 0
    assert "the best of 2" in capsys.readouterr().out


def test_init_writes_its_own_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "sklearn", "--out", "my wines.py"]) == 0
    assert "lostwax audit 'my wines.py'\n" in capsys.readouterr().out
    text = (tmp_path / "my wines.py").read_text()
    assert "    lostwax audit 'my wines.py'\n" in text
    assert "recipe.py" not in text
    assert main(["init", "torch", "--out", 'a"""b.py']) == 0
    compile((tmp_path / 'a"""b.py').read_text(), "recipe", "exec")


def test_init_writes_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "sklearn"]) == 0
    assert "lostwax audit recipe.py\n" in capsys.readouterr().out
    text = (tmp_path / "recipe.py").read_text()
    assert main(["init", "torch"]) == 2
    assert (tmp_path / "recipe.py").read_text() == text


@pytest.mark.parametrize("command", ["", "audit", "init", "report", "simulate", "list", "bound", "calibrate", "kappa"])
def test_help_reads_no_torch(command):
    code = (
        "import sys; from lostwax.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'sklearn', 'zarr', 'ray', 'jinja2'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, *command.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: lostwax" in done.stdout
