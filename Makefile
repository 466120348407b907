# Everything runs in a virtual environment inside the checkout, which each target fills with what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 2)")
SUITE := $(if $(COVERAGE),$(BIN)/coverage run,$(BIN)/python) -m pytest --quiet --numprocesses $(JOBS) --dist worksteal
LOWEST := .lowest
FUZZ := .fuzz
SECONDS := 150

# For the tests: BACKENDS=both runs each on both event loops, THOROUGH=1 takes all examples of the random ones,
# COVERAGE=1 measures which branches they take: in `test`, `machines` and `interop`, for `coverage` to report.
export BACKENDS THOROUGH COVERAGE

# The tests start hundreds of Pythons. Each would compile the package again, and each pytest the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs check interop conformance machines lowest bench faults fuzz mutants soak coverage lock clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(VENV)/dev  ## the virtual environment, with all of the locked development tools

# The environment is filled in steps, each with the packages of a file in requirements/: the library and the
# server of the demo, then what the tests need, then the SDKs of providers, then type checkers and linters.
$(VENV)/demo: requirements/demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up $(VENV), once: a virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV), once: the packages of $< (about 50 MB)"
	@$(PIP) --requirement $<
	@echo "setting up $(VENV), once: this package"
	@$(PIP) --quiet --no-deps --editable .
	@touch $@

$(VENV)/test: $(VENV)/demo
$(VENV)/interop: $(VENV)/test
$(VENV)/dev: $(VENV)/interop
$(VENV)/%: requirements/%.lock
	@echo "setting up $(VENV), once: the packages of $<"
	@$(PIP) --quiet --requirement $<
	@touch $@

demo: $(VENV)/demo  ## sampling with tools, over stdio and over HTTP, with a built-in model
	@$(BIN)/mcp-host demo

test: $(VENV)/test  ## the tests; BACKENDS=both runs each on asyncio and on trio
	@$(SUITE)

lint: setup  ## formatting and lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup  ## strict types, for Linux and for Windows; tests/typing by Pyright, too
	@$(BIN)/mypy
	@$(BIN)/basedpyright
	@$(BIN)/mypy --platform win32 --package mcp_host

docs: setup  ## links, snippets and the reference
	@$(BIN)/python docs/check.py

check: lint types test docs  ## lint, types, tests and docs

interop: $(VENV)/interop  ## tests with other projects' servers, clients and models' SDKs (needs node and npm)
	@$(BIN)/python -m tests.interop.run

conformance: $(VENV)/test  ## the official conformance suite, strict (needs node and npm)
	@$(BIN)/python -m tests.conformance.run

machines: $(VENV)/demo  ## make demo and make test in fresh Debian systems (needs root and debootstrap); MACHINES=trixie for one
	@$(BIN)/python -m tests.machines.run $(MACHINES)

bench: $(VENV)/test  ## CPU and memory, compared with other SDKs (needs node and npm); QUICK=1 for a short run
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

faults: $(VENV)/test  ## the tests on both event loops, with all examples, kills and cut networks (about an hour)
	@THOROUGH=1 BACKENDS=both $(SUITE)

fuzz: $(FUZZ)/.ready  ## arbitrary bytes for the code that reads a server's output; SECONDS=600 for ten minutes
	@$(FUZZ)/bin/python -m fuzz.run --seconds $(SECONDS)

$(FUZZ)/.ready: fuzz/requirements.txt pyproject.toml
	@echo "setting up $(FUZZ) (once)"
	@$(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement fuzz/requirements.txt
	@touch $@

mutants: $(VENV)/test  ## changes of the source that the tests should notice (about half an hour; it goes on where it was stopped)
	@$(BIN)/python -m mutants.run

soak: $(VENV)/test  ## thousands of calls and connections: memory must not grow (about 10 minutes)
	@$(BIN)/python -m tests.robustness.soak

lowest: $(LOWEST)/ready  ## a quarter of the tests, with the lowest versions that pyproject.toml allows
	@BACKENDS=asyncio $(LOWEST)/bin/python -m pytest --quiet --numprocesses 2 $(addprefix tests/,auth json_schema protocol security telemetry transports types)

$(LOWEST)/ready: pyproject.toml
	@echo "setting up $(LOWEST), once"
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --group test --editable '.[oauth,otel,testing]'
	@touch $@

coverage: $(VENV)/test  ## what the runs with COVERAGE=1 have measured: every branch is to be taken
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate

lock: setup  ## update requirements/ from pyproject.toml
	@$(PIP) --quiet uv
	@$(LOCK) --upgrade --all-extras --group dev --output-file requirements/dev.lock pyproject.toml
	@for group in test interop; do \
	    $(LOCK) --constraint requirements/dev.lock --all-extras --group $$group --output-file requirements/$$group.lock pyproject.toml; \
	done
	@$(LOCK) --constraint requirements/dev.lock --extra testing --output-file requirements/demo.lock pyproject.toml

clean:  ## remove all generated files
	@rm -rf $(VENV) .interop .conformance .machines .bench $(LOWEST) $(FUZZ) .mutants build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
