"""The text of a file as data: JSON with comments, TOML and YAML, with the place of what is wrong."""

from __future__ import annotations

import codecs
import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from mcp_host.concurrency.locked_file import LockedFile
from mcp_host.errors import ConfigError, escaped

if TYPE_CHECKING:
    from yaml import Node

Format: TypeAlias = Literal["json", "toml", "yaml"]

MAX_FILE = 32 * 1024 * 1024  # bytes: Claude Code keeps histories in the file that has the servers, too
MAX_YAML = 256 * 1024  # characters: PyYAML reads about 100,000 a second
MAX_DEPTH = 100  # objects and lists within each other
MAX_NODES = 100_000  # values of a YAML file: aliases may repeat one a million times
FORMATS: dict[str, Format] = {".json": "json", ".jsonc": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
BOM_WARNING = "it begins with a byte order mark, at which other programs may fail"
NEEDS_YAML = "reading YAML needs PyYAML: pip install 'mcp-host[yaml]'"
TOO_DEEP = "it nests too deeply"
TOO_LONG = "it has a number that is too long"

_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENTS = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_YAML_NAME = re.compile(r"\b(alias|tag handle) .*", re.DOTALL)
"""What a message of PyYAML repeats of the file: a password without quotes may begin with ``*`` or ``!``."""
_CONSTANTS = {"": None, "~": None, "null": None, "true": True, "false": False}


class Members(dict[str, object]):
    """The members of an object. *repeated* are the names that the file has more than once: the last value is taken."""

    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read. *data* is None if it is empty."""

    data: object
    format: Format
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file, and how it is written: in which *encoding*, and whether after a *bom*."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """Another *text*, as this one is written.

        Raises:
            UnicodeEncodeError: It has half of a surrogate pair.
        """
        return self.bom + text.encode(self.encoding)


def read_document(path: Path) -> Document:
    """Read a file. It blocks. Numbers of YAML stay text, as they are written.

    Raises:
        ConfigError: There is no such file, it cannot be read, or its syntax is wrong.
    """
    return parse_document(path, decode(path, _read(path)))


def parse_document(path: Path, content: Text) -> Document:
    """The data in the text of a file.

    Raises:
        ConfigError: Its syntax is wrong.
    """
    text, warnings = content.text, (BOM_WARNING,) if content.bom else ()
    format = format_of(path, text)
    if not text.strip():
        return Document(None, format, (*warnings, "it is empty"))
    parse = {"json": _parse_json, "toml": _parse_toml, "yaml": _parse_yaml}[format]
    result = parse(path, text)
    if isinstance(result, ConfigError):  # raised here, because what the parser raised has the whole text
        raise result
    if _is_deep(result.data):
        raise ConfigError(TOO_DEEP, path=path)
    return Document(result.data, format, warnings)


def repeated_names(data: object, place: str = "") -> list[str]:
    """The names that objects within *data* have more than once, with their place: ``env.TOKEN``."""
    if isinstance(data, list):
        return [name for index, item in enumerate(data) for name in repeated_names(item, f"{place}[{index}]")]
    if not isinstance(data, dict):
        return []
    dot = f"{place}." if place else ""
    here = [f"{dot}{name}" for name in data.repeated] if isinstance(data, Members) else []
    return here + [name for key, value in data.items() for name in repeated_names(value, f"{dot}{key}")]


def _is_deep(data: object) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Parsed:
    data: object


def _read(path: Path) -> bytes:
    reason = "there is no such file"
    try:
        content = LockedFile(path, max_size=MAX_FILE).read()
    except OSError as exc:
        content, reason = None, f"it cannot be read: {exc.strerror}"
    if content is None:
        raise ConfigError(reason, path=path)
    return content


def decode(path: Path, content: bytes) -> Text:
    """The text of a file.

    Raises:
        ConfigError: It is not UTF-8, nor UTF-16 with a byte order mark.
    """
    encoding, mark = "utf-8", b""
    for bom, name in BOMS.items():
        if content.startswith(bom):
            content, encoding, mark = content.removeprefix(bom), name, bom
    try:
        return Text(content.decode(encoding), encoding, mark)
    except UnicodeDecodeError as exc:
        line, start = content.count(b"\n", 0, exc.start) + 1, content.rfind(b"\n", 0, exc.start) + 1
        column = len(content[start : exc.start].decode(encoding, "replace")) + 1
    raise ConfigError(f"it is not {encoding.upper()}", path=path, line=line, column=column)


def format_of(path: Path, text: str) -> Format:
    """The format of a file: its name tells, or else its *text*."""
    return FORMATS.get(path.suffix.lower()) or _guess(text)


def _guess(text: str) -> Format:
    start = _COMMENTS.sub(r"\1", text).lstrip()
    if start.startswith("{") or not start:
        return "json"
    return "toml" if re.search(r"^\s*(\[.+\]\s*(#.*)?|[\w.\"-]+\s*=.*)$", text, re.MULTILINE) else "yaml"


def _parse_json(path: Path, text: str) -> _Parsed | ConfigError:
    """JSON, with comments and trailing commas. They become spaces, so that all else keeps its place."""
    last = next((found for found in _COMMENTS.finditer(text) if found.end() == len(text) and not found[1]), None)
    if last is not None and last[0].startswith("/*") and not last[0].endswith("*/"):
        line, column = text.count("\n", 0, last.start()) + 1, last.start() - text.rfind("\n", 0, last.start())
        return ConfigError("the comment is not closed", path=path, line=line, column=column)
    try:
        return _Parsed(json.loads(without_trailing_commas(without_comments(text)), object_pairs_hook=_members))
    except json.JSONDecodeError as exc:
        reason = exc.msg.removesuffix(" at").removesuffix(" starting")
        return ConfigError(reason, path=path, line=exc.lineno, column=exc.colno)
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)
    except ValueError:  # Python reads no integer of more than 4,300 digits
        return ConfigError(TOO_LONG, path=path)


def without_comments(text: str) -> str:
    """JSON with spaces in the place of its comments."""
    return _blanked(_COMMENTS, text)


def line_comments(text: str) -> list[tuple[int, int]]:
    """Where comments of JSON are that end with their line: from where to where."""
    return [found.span() for found in _COMMENTS.finditer(text) if found[0].startswith("//")]


def without_trailing_commas(text: str) -> str:
    """JSON that has no comments, with spaces in the place of its trailing commas."""
    return _blanked(_TRAILING_COMMAS, text)


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)


def _members(pairs: list[tuple[str, object]]) -> Members:
    members = Members(pairs)
    if len(members) < len(pairs):
        members.repeated = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return members


def _parse_toml(path: Path, text: str) -> _Parsed | ConfigError:
    try:
        return _Parsed(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        message = str(exc)
        place = _TOML_PLACE.search(message)
        message = escaped(_TOML_PLACE.sub("", message))
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)
    except ValueError:
        return ConfigError(TOO_LONG, path=path)
    if place is not None and place[1]:
        return ConfigError(message, path=path, line=int(place[1]), column=int(place[2]))
    return ConfigError(message, path=path, line=text.count("\n") + 1)


def _parse_yaml(path: Path, text: str) -> _Parsed | ConfigError:
    """YAML of the core schema: ``no`` and ``12:30`` are text. Only what is put in no quotes can be null or true."""
    try:
        import yaml
    except ImportError:
        return ConfigError(NEEDS_YAML, path=path)
    if len(text) > MAX_YAML:
        return ConfigError(f"it has more than {MAX_YAML} characters, too many for YAML", path=path)
    try:
        node: Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
        return _Parsed(None if node is None else _YamlValues().of(node))
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        problem = _YAML_NAME.sub(r"\1", exc.problem or "its syntax is wrong")
        return ConfigError(escaped(problem), path=path, line=line, column=column)
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        return ConfigError(exc.reason, path=path, line=line, column=exc.position - text.rfind("\n", 0, exc.position))
    except _TooManyNodes:
        return ConfigError(f"with its aliases it has more than {MAX_NODES} values", path=path)
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)


class _TooManyNodes(Exception):
    pass


class _YamlValues:
    """The values of nodes. Each alias is counted as what it repeats."""

    def __init__(self) -> None:
        self._nodes = 0

    def of(self, node: Node) -> object:
        import yaml

        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooManyNodes
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else _CONSTANTS.get(node.value.lower(), node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item) for item in node.value]
        pairs = [(self._name(key), self.of(value)) for key, value in node.value]
        merged = [value for key, value in pairs if key == "<<" and isinstance(value, dict)]
        members = _members([pair for pair in pairs if pair[0] != "<<" or not isinstance(pair[1], dict)])
        for value in merged:
            for name, member in value.items():
                members.setdefault(name, member)
        return members

    def _name(self, key: Node) -> str:
        """The name of a member, as it is written."""
        return key.value if isinstance(key.value, str) else str(self.of(key))
