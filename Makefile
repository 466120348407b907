# Everything runs in a virtual environment inside the checkout; nothing has to be installed by hand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 2)")
FUZZ := .fuzz
SECONDS := 150

# The tests start hundreds of Pythons. Each would compile the package again, and each pytest the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs check interop conformance machines bench faults fuzz soak coverage lock clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY)  ## the virtual environment, with the locked development tools

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup  ## sampling with tools, over stdio and over HTTP, with a built-in model
	@$(BIN)/mcp-host demo

test: setup  ## the tests
	@$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) --dist loadfile

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

interop: setup  ## tests with other projects' servers and clients (needs node and npm)
	@$(BIN)/python -m tests.interop.run

conformance: setup  ## the official conformance suite, strict (needs node and npm)
	@$(BIN)/python -m tests.conformance.run

machines: setup  ## make demo and make test in fresh Debian systems (needs root and debootstrap); MACHINES=trixie for one
	@$(BIN)/python -m tests.machines.run $(MACHINES)

bench: setup  ## CPU and memory, compared with other SDKs (needs node and npm); QUICK=1 for a short run
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

faults: setup  ## dead servers, cut networks and cancelled callers at every point (about 20 minutes)
	@THOROUGH=1 $(BIN)/python -m pytest --quiet tests/faults tests/robustness tests/providers

fuzz: $(FUZZ)/.ready  ## arbitrary bytes for the code that reads a server's output; SECONDS=600 for ten minutes
	@$(FUZZ)/bin/python -m fuzz.run --seconds $(SECONDS)

$(FUZZ)/.ready: fuzz/requirements.txt pyproject.toml
	@echo "setting up $(FUZZ) (once)"
	@$(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement fuzz/requirements.txt
	@touch $@

soak: setup  ## thousands of calls and connections: memory must not grow (about 10 minutes)
	@$(BIN)/python -m tests.robustness.soak

coverage: setup  ## the tests, with branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest --quiet
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100

lock: setup  ## update requirements-dev.lock from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --group dev --all-extras --no-emit-index-url --no-header --output-file requirements-dev.lock --upgrade pyproject.toml

clean:  ## remove all generated files
	@rm -rf $(VENV) .interop .conformance .machines .bench build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
