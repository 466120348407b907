"""Reading YAML. It is not written: what keeps comments there lays the rest of the file out anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_host.config.formats.data import TOO_DEEP, members_of
from mcp_host.errors import ConfigError, escaped

if TYPE_CHECKING:
    from yaml import Node

MAX_YAML = 256 * 1024  # characters: PyYAML reads about 100,000 a second
MAX_NODES = 100_000  # values of a YAML file: aliases may repeat one a million times
MAX_CHARACTERS = 4 * MAX_YAML  # of these values, likewise
TOO_LARGE = f"with its aliases it has more than {MAX_NODES} values, or than {MAX_CHARACTERS} characters"
NEEDS_YAML = "reading YAML needs PyYAML: pip install 'mcp-host[yaml]'"
UNKNOWN_TAG = "the tag is unknown: text that begins with ! must be in quotes"

_NAME = re.compile(r"\b(alias|tag handle) .*", re.DOTALL)
"""What a message of PyYAML repeats of the file: a password without quotes may begin with ``*`` or ``!``."""
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


def parse(path: Path, text: str) -> object:
    """The data in YAML of the core schema, or the error: ``no`` and ``12:30`` are text. Only what is put in no quotes can be null or true."""
    try:
        import yaml
    except ImportError:
        return ConfigError(NEEDS_YAML, path=path)
    if len(text) > MAX_YAML:
        return ConfigError(f"it has more than {MAX_YAML} characters, too many for YAML", path=path)
    try:
        node: Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
        return None if node is None else _Values().of(node)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        problem = _NAME.sub(r"\1", exc.problem or "its syntax is wrong")
        return ConfigError(escaped(problem), path=path, line=line, column=column)
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        return ConfigError(exc.reason, path=path, line=line, column=exc.position - text.rfind("\n", 0, exc.position))
    except _TooLarge:
        return ConfigError(TOO_LARGE, path=path)
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)


class _TooLarge(Exception):
    pass


class _Values:
    """The values of nodes. Each alias is counted as what it repeats."""

    def __init__(self) -> None:
        self._nodes = self._characters = 0

    def of(self, node: Node) -> object:
        import yaml

        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooLarge
        _check_tag(node)
        if isinstance(node, yaml.ScalarNode):
            text = self._counted(node.value)
            return text if node.style else _CONSTANTS.get(text.lower(), text)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item) for item in node.value]
        pairs = [(self._name(key), self.of(value)) for key, value in node.value]
        merged = [value for key, value in pairs if key == "<<" and isinstance(value, dict)]
        members = members_of([pair for pair in pairs if pair[0] != "<<" or not isinstance(pair[1], dict)])
        for value in merged:
            for name, member in value.items():
                members.setdefault(name, member)
        return members

    def _name(self, key: Node) -> str:
        """The name of a member, as it is written."""
        _check_tag(key)
        return self._counted(key.value) if isinstance(key.value, str) else str(self.of(key))

    def _counted(self, text: str) -> str:
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise _TooLarge
        return text


def _check_tag(node: Node) -> None:
    import yaml

    if node.tag not in _TAGS:  # it is not repeated, see `_NAME`
        raise yaml.MarkedYAMLError(problem=UNKNOWN_TAG, problem_mark=node.start_mark)
