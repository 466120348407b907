"""The text of a file as data: JSON with comments, TOML and YAML, with the place of what is wrong."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mcp_host.concurrency.locked_file import LockedFile
from mcp_host.config.formats import json_text, toml_text, yaml_text
from mcp_host.config.formats.data import TOO_DEEP, Keys, is_deep
from mcp_host.errors import ConfigError

MAX_FILE = 32 * 1024 * 1024  # bytes: Claude Code keeps histories in the file that has the servers, too
BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
BOM_WARNING = "it begins with a byte order mark, at which other programs may fail"

_TOML_LINE = re.compile(r"^[^\S\n]*(\[.+\][^\S\n]*(#.*)?|[\w.\"-]+[^\S\n]*=.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Editor:
    """Changing the text of a format: what is not changed stays, character for character."""

    set_member: Callable[[str, Keys, object], str]
    remove_member: Callable[[str, Keys], str]


@dataclass(frozen=True, slots=True)
class Format:
    """What a file is written in. *parse* gives the data in its text, or the error. Without an *editor* it is only read."""

    title: str
    parse: Callable[[Path, str], object]
    editor: Editor | None = None


JSON = Format("JSON", json_text.parse, Editor(json_text.set_member, json_text.remove_member))
TOML = Format("TOML", toml_text.parse, Editor(toml_text.set_member, toml_text.remove_member))
YAML = Format("YAML", yaml_text.parse)
FORMATS = {".json": JSON, ".jsonc": JSON, ".toml": TOML, ".yaml": YAML, ".yml": YAML}


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
    data = format.parse(path, text)
    if isinstance(data, ConfigError):  # raised here, because what the parser raised has the whole text
        raise data
    if is_deep(data):
        raise ConfigError(TOO_DEEP, path=path)
    return Document(data, format, warnings)


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
    start = json_text.without_comments(text).lstrip()
    if start.startswith("{") or not start:
        return JSON
    return TOML if _TOML_LINE.search(text) else YAML
