"""The official schemas and examples, which the tests hold the package against.

They belong to the specification and are not copied here. The environment variable
MCP_SPEC_DIR names a folder with one `<revision>.json` for each revision, and the
newest revision's examples under `examples/<TypeName>/`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.protocols import Validator

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

needs_spec = pytest.mark.skipif(
    "MCP_SPEC_DIR" not in os.environ,
    reason="MCP_SPEC_DIR is not set; the schemas are in the public repository "
    "modelcontextprotocol/modelcontextprotocol, folder schema/",
)


def say_if_missing(terminalreporter: pytest.TerminalReporter) -> None:
    """One line at the end of a run without the schemas: `tests/client` then passes with less checked."""
    if "MCP_SPEC_DIR" not in os.environ:
        terminalreporter.write_line(
            "MCP_SPEC_DIR is not set: nothing that the client says was checked against the official schemas",
            yellow=True,
        )


@cache
def folder() -> Path:
    path = Path(os.environ["MCP_SPEC_DIR"])
    missing = [revision for revision in REVISIONS if not (path / f"{revision}.json").is_file()]
    assert not missing, f"MCP_SPEC_DIR is {path}, which has no schema of {', '.join(missing)}"
    return path


@cache
def schema(revision: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder() / f"{revision}.json").read_text(encoding="utf-8"))
    return loaded


def definitions(revision: str) -> dict[str, Any]:
    """Every named type of a revision; the keyword changed with the JSON Schema draft."""
    whole = schema(revision)
    found: dict[str, Any] = whole.get("$defs") or whole["definitions"]
    return found


@cache
def validator(revision: str, name: str) -> Validator:
    """Checks a value against one named type of one revision."""
    return validator_of(revision, definitions(revision)[name])


def validator_of(revision: str, part: dict[str, Any]) -> Validator:
    """Checks a value against any part of a revision's schema."""
    if "$defs" in schema(revision):
        return Draft202012Validator({"$defs": definitions(revision), "allOf": [part]})
    return Draft7Validator({"definitions": definitions(revision), "allOf": [part]})


def assert_valid(revision: str, name: str, value: Any) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in validator(revision, name).iter_errors(value)]
    assert not errors, f"not a {name} of {revision}: {errors}"


def example_names() -> list[str]:
    """`TypeName/file.json` for every example, and a failure, not an empty list, where there are none."""
    if "MCP_SPEC_DIR" not in os.environ:
        return []
    found = sorted(str(path.relative_to(folder() / "examples")) for path in (folder() / "examples").glob("*/*.json"))
    assert found, f"MCP_SPEC_DIR is {folder()}, which has no examples"
    return found


def example(name: str) -> object:
    return json.loads((folder() / "examples" / name).read_text(encoding="utf-8"))
