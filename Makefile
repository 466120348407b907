# Everything runs in a virtual environment inside the checkout; nothing has to be installed by hand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
FUZZ := .fuzz
SECONDS := 150

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs check interop conformance machines bench faults fuzz soak coverage lock clean

help:  ## what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY)  ## the virtual environment, with the locked development tools

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup  ## the main job: a server asks our model to answer with tools, over stdio and over HTTP
	@$(BIN)/mcp-host demo

test: setup  ## the tests
	@$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) --dist loadfile

lint: setup  ## formatting and lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup  ## strict types, for Linux and for Windows
	@$(BIN)/mypy
	@$(BIN)/mypy --platform win32 --package mcp_host

docs: setup  ## links, snippets and the reference
	@$(BIN)/python docs/check.py

check: lint types test docs  ## the gate, but for interop and conformance

interop: setup  ## against servers that others wrote (needs node and npm)
	@$(BIN)/python -m tests.interop.run

conformance: setup  ## the official conformance suite, by a stricter rule (needs node and npm)
	@$(BIN)/python -m tests.conformance.run

machines: setup  ## the first two commands in fresh Debian systems (needs root and debootstrap); MACHINES=trixie for one
	@$(BIN)/python -m tests.machines.run $(MACHINES)

bench: setup  ## what a client costs, beside its peers (needs node and npm); QUICK=1 for a look
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

faults: setup  ## every fault at every point: dead servers, cut networks, cancelled callers (some 20 minutes)
	@THOROUGH=1 $(BIN)/python -m pytest --quiet tests/faults tests/robustness

fuzz: $(FUZZ)/.ready  ## arbitrary bytes for whatever reads a server's, or as long as SECONDS=600 says
	@$(FUZZ)/bin/python -m fuzz.run --seconds $(SECONDS)

$(FUZZ)/.ready: fuzz/requirements.txt pyproject.toml
	@echo "setting up $(FUZZ) (once)"
	@$(PYTHON) -m venv $(FUZZ)
	@$(FUZZ)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement fuzz/requirements.txt
	@touch $@

soak: setup  ## 100,000 calls, 10,000 sampling round trips, 1,000 connections: nothing may grow (some 10 minutes)
	@$(BIN)/python -m tests.robustness.soak

coverage: setup  ## the tests, with branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest --quiet
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=100

lock: setup  ## requirements-dev.lock, anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --group dev --all-extras --no-emit-index-url --no-header --output-file requirements-dev.lock --upgrade pyproject.toml

clean:  ## remove what was made
	@rm -rf $(VENV) .interop .conformance .machines .bench build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
