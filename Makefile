# Two commands: `make demo` and `make test`. Each sets up everything it needs; only python3 and make must be there.
# `make test EXTRAS=test` installs no boosting, Ray, pandas or notebooks: their tests are skipped, and listed at the end.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
STAMP := $(VENV)/.installed

# Tests start many processes, each of which would compile lostwax again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test guard coverage chromium test-slow test-gpu papers-quick fuzz check lowest dist docs notebooks results clean

demo: $(STAMP)
	$(BIN)/lostwax demo --out demo

FAST := -n 2 --dist worksteal -m "not slow and not gpu"

test: check chromium
	$(BIN)/pytest $(FAST)
	$(MAKE) guard GUARD=--quick

# The speed that README and docs claim, as ratios; it fails where one has halved. GUARD=--strict: where a fifth is lost.
guard: $(STAMP)
	$(BIN)/python -W ignore benchmarks/guard.py $(GUARD)

# The same tests; at least 90 % of lines and branches run. Measuring this takes a third more time.
coverage: $(STAMP) chromium
	$(BIN)/pytest $(FAST) --cov --cov-report=term:skip-covered --cov-fail-under=90

test-slow: $(STAMP)
	LOSTWAX_NEW_EXAMPLES=1 $(BIN)/pytest -m slow

test-gpu: $(STAMP)
	TRITON_INTERPRET=0 $(BIN)/pytest -m gpu

# Every script of papers/ at toy size, on the CPU.
papers-quick: $(STAMP)
	$(BIN)/pytest tests/papers

# Ten thousand hostile inputs, seeded: counts by kind of input and outcome; it fails where one is a bug.
fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -W ignore -m fuzz --cases 10000 --seed 0

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The lowest versions of direct dependencies that pyproject.toml allows, in an environment of their own (8 GB).
lowest:
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable ".[dev]"
	$(VENV)-lowest/bin/pytest $(FAST)

# What is published: a wheel and a source distribution in dist/.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/hatchling build

# Reports are tested in a real browser: fetched where that is allowed, otherwise those tests are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
	|| echo "No Chromium here: the tests of reports in a browser are skipped."

# The documentation as a site, in site/: open site/index.html. It needs no server and no network.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The outputs that the site shows are those that are stored in the notebooks.
notebooks: $(STAMP)
	$(BIN)/python tools/run_notebooks.py

# What is generated in README and docs/: lists of supported estimators and attacks, and README's sentences about the papers.
# It names results that earlier code made, and fails where README shows one as if it were of this version, or a number that
# is not that of its result (tools/readme_numbers.toml). The tables of results and papers are built by `make docs`.
results: $(STAMP)
	$(BIN)/python -m lostwax_dev.results
	$(BIN)/python -m lostwax_dev.coverage
	$(BIN)/python -m lostwax_dev.supported
	$(BIN)/python -m lostwax_dev.which_attack
	$(BIN)/python -m lostwax_dev.readme

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[$(EXTRAS)]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) $(VENV)-lowest demo dist .pytest_cache .mypy_cache .ruff_cache .coverage artefacts site
