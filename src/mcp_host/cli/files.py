"""Writing the images, audio and resources of a result to files. The names that a server gives them are not trusted."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from mimetypes import MimeTypes
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from mcp_host.cli.output import UsageError, print_error, writing
from mcp_host.errors import ProtocolError, excerpt, quoted
from mcp_host.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextResourceContents
from mcp_host.types.content import ReceivedContent

STDOUT = "-"
MAX_NAME = 60  # characters: file systems take 255 bytes
NOTHING = "the result has no image, audio or resource to write"

EXTENSIONS = {
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "image/webp": ".webp",
    "text/markdown": ".md",
}
"""Those that Python does not know in all versions."""

_UNSAFE = re.compile(r"[^\w.-]+")
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # on Windows, with any extension


class Part(NamedTuple):
    """A part of a result that is a file by its nature."""

    name: str
    """For it in a folder."""
    mime_type: str | None
    read: Callable[[], bytes]
    """Its bytes. Raises `ProtocolError` if they are not base64."""


def parts_of(blocks: Iterable[ReceivedContent]) -> Iterator[Part]:
    """The images, audio and embedded resources among *blocks*."""
    for block in blocks:
        match block:
            case ImageContent(data=data) | AudioContent(data=data):
                name = block.type + extension(block.mime_type)
                yield Part(name, block.mime_type, partial(_decoded, data, name))
            case EmbeddedResource(resource=resource):
                kind = resource.mime_type or ("text/plain" if isinstance(resource, TextResourceContents) else None)
                yield Part(file_name(resource.uri, kind), kind, partial(bytes_of, resource))
            case _:
                pass  # text, links, and what this version does not know


def bytes_of(resource: TextResourceContents | BlobResourceContents) -> bytes:
    """The contents of a resource.

    Raises:
        ProtocolError: They are not base64.
    """
    if isinstance(resource, TextResourceContents):
        return resource.text.encode(errors="backslashreplace")
    return _decoded(resource.blob, resource.uri)


def _decoded(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as exc:
        raise ProtocolError(f"the contents of {quoted(name)} are not base64: {exc}") from exc


def extension(mime_type: str | None) -> str:
    """The extension for files of this type, with its dot."""
    kind = (mime_type or "").partition(";")[0].strip().lower()
    # Python's own table, and not the one of the machine, so that names are the same everywhere.
    return EXTENSIONS.get(kind) or MimeTypes().guess_extension(kind, strict=False) or ".bin"


def file_name(uri: str, mime_type: str | None) -> str:
    """A name in a folder for the resource at *uri*: the last part of its path. It is never hidden, and never that of a device."""
    try:
        path = unquote(urlsplit(uri).path)
    except ValueError:  # such as half an IPv6 address
        path = ""
    last = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    name = _UNSAFE.sub("-", last)[-MAX_NAME:].strip("-.") or "resource"
    if "." not in name:
        name += extension(mime_type)
    return f"resource-{name}" if _DEVICE.fullmatch(name) else name


def write_parts(parts: Sequence[Part], output: str) -> None:
    """Write *parts* to *output*, and say on stderr what is written where.

    A folder gets all of them, and keeps the files that it has: it exists already, or *output* ends with a slash. A file gets the
    first part, which takes the place of what was in it; others get names with numbers. "-" is stdout, for one part.

    Raises:
        UsageError: There is no part for a file, stdout cannot take them, or a file cannot be written.
        ProtocolError: One is not base64. The others are written.
    """
    folder = Path(output) if output.endswith(("/", "\\")) or Path(output).is_dir() else None
    if not parts and folder is None:
        raise UsageError(NOTHING)
    if output == STDOUT:
        if len(parts) > 1:
            raise UsageError(f"the result has {len(parts)} images, audio and resources: write them to a folder")
        write_to_stdout(parts[0].read(), parts[0].mime_type, quoted(parts[0].name))
        return
    if not parts:
        print_error(NOTHING)
    try:
        _write_files(parts, Path(output), folder)
    except OSError as exc:
        raise UsageError(f"cannot write the contents: {exc}") from exc


def _write_files(parts: Sequence[Part], file: Path, folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(exist_ok=True)
    problem: ProtocolError | None = None
    numbers: defaultdict[Path, Iterator[int]] = defaultdict(partial(count, 2))
    for index, part in enumerate(parts):
        try:
            data = part.read()
        except ProtocolError as exc:
            problem = problem or exc
            continue
        path = file if folder is None else folder / part.name
        if folder is None and not index:
            verb = "replaced" if path.exists() else "wrote"
            path.write_bytes(data)
        else:
            verb, path = "wrote", _write_new(path, data, numbers[path])
        print_error(f"{verb} {path} ({len(data):,} bytes)")
    if problem is not None:
        raise problem


def _write_new(wanted: Path, data: bytes, numbers: Iterator[int]) -> Path:
    """Write *data* to a file that does not exist yet, also if it is a link; with a number in its name if there is one already."""
    path = wanted
    while True:
        try:
            with open(path, "xb") as file:
                file.write(data)
        except FileExistsError:
            path = wanted.with_name(f"{wanted.stem}-{next(numbers)}{wanted.suffix}")
        else:
            return path


def write_to_stdout(data: bytes, mime_type: str | None, subject: str) -> None:
    """Write *data* to stdout, byte for byte.

    Raises:
        UsageError: That is a terminal, or cannot be written.
    """
    if sys.stdout.isatty():
        about = f"{excerpt(mime_type or 'binary')}, {len(data):,} bytes"
        raise UsageError(f"{subject} is no text ({about}): use --output FILE, or a pipe")
    with writing(sys.stdout):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
