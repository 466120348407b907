"""Fuzz one target, in this very process: what libFuzzer wants on its command line comes after the name."""

import sys

import atheris  # type: ignore[import-untyped]  # it is there only in the virtual environment of `make fuzz`

with atheris.instrument_imports(include=["mcp_host"]):
    from fuzz.targets import TARGETS

name, *options = sys.argv[1:]
atheris.Setup([sys.argv[0], *options], TARGETS[name].run)
atheris.Fuzz()
