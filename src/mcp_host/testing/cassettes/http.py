"""The HTTP side of a cassette: transports for httpx and httpx2, and the bodies of what they carry.

Bodies are recorded as what they are: JSON, the events of a stream, lines of JSON, text, or base64.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from anyio import sleep
from anyio.lowlevel import checkpoint

from mcp_host.testing.cassettes.file import Entry, deeper
from mcp_host.testing.cassettes.tape import Tape
from mcp_host.testing.errors import CassetteError
from mcp_host.types.base import JSONObject, JSONValue

if TYPE_CHECKING:
    import httpx

Body = TypeVar("Body")

EVENTS = "text/event-stream"
FORM = "application/x-www-form-urlencoded"
FIELDS = frozenset({"event", "data", "id", "retry"})  # of an event
MAX_DEPTH = 200  # of JSON in a body; what is deeper is kept as text
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


def http_transport(tape: Tape, library: str, inner: httpx.AsyncBaseTransport | None) -> httpx.AsyncBaseTransport:
    """A transport for clients of *library*, ``httpx`` or ``httpx2``, which have the same interface.

    Raises:
        ImportError: The library is not installed.
    """
    module = import_module(library)
    made: httpx.AsyncBaseTransport = type("CassetteTransport", (_Transport, module.AsyncBaseTransport), {})(
        tape, module, inner
    )
    return made


class _Transport:
    def __init__(self, tape: Tape, module: Any, inner: httpx.AsyncBaseTransport | None) -> None:
        self._tape = tape
        self._module = module
        self._inner = inner
        if tape.records and inner is None:
            self._inner = module.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        live = self._describe(request, body)
        if self._tape.replays:
            candidates = [entry for entry in self._tape.unused() if "http" in entry]
            if (found := self._tape.find(candidates, "http", live)) is not None:
                return await self._replay(request, found)
            if not self._tape.records:
                return self._refused(self._tape.refuse(candidates, "http", live, f"{live['method']} {live['url']}"))
        return await self._record(request, {"http": self._tape.ids.hide(live)})

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    def _describe(self, request: httpx.Request, body: bytes) -> JSONObject:
        redaction = self._tape.redaction
        headers = redaction.headers(request.headers.multi_items())
        kind = headers.get("content-type", "")
        said = {"method": request.method, "url": redaction.url(str(request.url)), "headers": headers}
        return said | (_written(self._tape, body, kind) if body else {})

    def _refused(self, error: CassetteError) -> httpx.Response:
        """An answer that SDKs raise at once. An exception they would take for a broken connection, and try again."""
        said = {"type": "error", "error": {"type": "cassette_error", "message": str(error)}}
        made: httpx.Response = self._module.Response(400, headers={"x-should-retry": "false"}, json=said)
        return made

    async def _record(self, request: httpx.Request, entry: Entry) -> httpx.Response:
        assert self._inner is not None, "a cassette that records has one"
        self._tape.record(entry)
        entry["cancelled"] = True  # if nothing comes
        request.headers["accept-encoding"] = "identity"  # a body that can be read in the file
        try:
            response = await self._inner.handle_async_request(request)
        except self._module.TransportError as exc:
            del entry["cancelled"]
            entry["failed"] = {"error": type(exc).__name__, "message": str(exc)}
            raise
        del entry["cancelled"]
        headers = self._tape.redaction.headers(response.headers.multi_items())
        entry["response"] = {"status": response.status_code, "headers": headers}
        body = _body(_RecordedBody, self._module)(self._module, response.stream, entry, self._tape)
        made: httpx.Response = self._module.Response(
            response.status_code, headers=response.headers, stream=body, extensions=response.extensions
        )
        return made

    async def _replay(self, request: httpx.Request, entry: Entry) -> httpx.Response:
        await checkpoint()
        if "failed" in entry:
            raise self.error(entry["failed"], request)
        if "cancelled" in entry:
            await self.stall(request)
        response = self._tape.ids.reveal(entry["response"])
        assert isinstance(response, dict), "as it was"
        body = _body(_ReplayedBody, self._module)(self, request, response)
        made: httpx.Response = self._module.Response(response["status"], headers=response["headers"], stream=body)
        return made

    async def stall(self, request: httpx.Request) -> Never:
        """Send nothing more: the client cancelled the request here. If it does not again, its timeout ends it."""
        seconds = request.extensions.get("timeout", {}).get("read")
        await sleep(math.inf if seconds is None else seconds)
        raise self._module.ReadTimeout("in the recording, the client cancelled the request here", request=request)

    def error(self, failed: JSONObject, request: httpx.Request) -> Exception:
        """The error of the library's transports that has this name; of another version, the nearest."""
        kind = getattr(self._module, failed["error"], None)
        if not isinstance(kind, type) or not issubclass(kind, self._module.TransportError):
            kind = self._module.ReadError
        error: Exception = kind(failed["message"], request=request)
        return error


class _RecordedBody:
    """Passes on the body of a response as it comes, and writes it into *entry* when it ends."""

    def __init__(self, module: Any, stream: Any, entry: Entry, tape: Tape) -> None:
        self._module = module
        self._stream = stream
        self._entry = entry
        self._tape = tape
        self._pieces: list[bytes] = []
        self._iterator: AsyncIterator[bytes]
        self._end: JSONObject = {"closed": True}
        tape.unfinished.add(self._finish)

    # No generator: one that is not read to its end would be left behind.

    def __aiter__(self) -> Self:
        self._iterator = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        try:
            piece: bytes = await anext(self._iterator)
        except StopAsyncIteration:
            self._end = {}
            raise
        except self._module.TransportError as exc:
            self._end = {"failed": {"error": type(exc).__name__, "message": str(exc)}}
            raise
        except BaseException:
            self._end = {"cancelled": True}
            raise
        self._pieces.append(piece)
        return piece

    async def aclose(self) -> None:
        self._finish()
        await self._stream.aclose()

    def _finish(self) -> None:
        if self._finish not in self._tape.unfinished:
            return
        self._tape.unfinished.discard(self._finish)
        response = self._entry["response"]
        body = _written(self._tape, b"".join(self._pieces), response["headers"].get("content-type", ""))
        hidden = self._tape.ids.hide(body)
        assert isinstance(hidden, dict), "as it was"
        response |= hidden | self._end


class _ReplayedBody:
    """The body of a response, event by event; then its end as it was."""

    def __init__(self, transport: _Transport, request: httpx.Request, response: JSONObject) -> None:
        self._transport = transport
        self._request = request
        self._response = response
        self._pieces = iter(read_body(response))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        await checkpoint()
        for piece in self._pieces:
            return piece
        if "failed" in self._response:
            raise self._transport.error(self._response["failed"], self._request)
        if "cancelled" in self._response:
            await self._transport.stall(self._request)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await checkpoint()


@cache
def _body(cls: type[Body], module: Any) -> type[Body]:
    """*cls* as a stream of the library, which checks for its own class."""
    return type(cls.__name__, (cls, module.AsyncByteStream), {})


# Bodies


def _written(tape: Tape, body: bytes, content_type: str) -> JSONObject:
    written = tape.ids.escaped(write_body(body, content_type))
    if content_type.startswith(FORM) and "text" in written:
        written["text"] = tape.redaction.form(written["text"])
    return written


def write_body(body: bytes, content_type: str) -> JSONObject:
    """*body* as it reads best: ``json``, ``events``, ``lines``, ``text`` or ``base64``.

    Read again, it means the same. JSON may be spaced otherwise.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
    if kind == EVENTS:
        *blocks, rest = text.replace("\r\n", "\n").split("\n\n")
        events: list[JSONValue] = [_write_event(block) for block in blocks]
        return {"events": events} | ({"rest": rest} if rest else {})
    if kind in LINES:
        *lines, rest = text.split("\n")
        return {"lines": [_parsed(line) for line in lines]} | ({"rest": rest} if rest else {})
    value = _parsed(text)
    return {"text": text} if value is text else {"json": value}


def _write_event(block: str) -> JSONValue:
    """One event: an object if it has one line of ``data``, and no comment, else the text of it."""
    lines = [line.partition(":") for line in block.split("\n")]
    values = {name: value.removeprefix(" ") for name, _, value in lines}
    if "data" not in values or len(values) < len(lines) or not values.keys() <= FIELDS:
        return block
    return values | {"data": _parsed(values["data"])}


def _parsed(text: str) -> JSONValue:
    """The object or array that *text* is, or *text* itself."""
    try:
        value = json.loads(text)
        kept = isinstance(value, dict | list) and not deeper(value, MAX_DEPTH) and _compact(value).encode()
    except (ValueError, RecursionError):  # numbers that are none, or half a character, too
        return text
    return value if kept else text


def _compact(value: JSONValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_body(written: JSONObject) -> Sequence[bytes]:
    """The pieces of a body that `write_body` has written."""
    match written:
        case {"json": value}:
            pieces = [_compact(value)]
        case {"text": str(text)}:
            pieces = [text]
        case {"base64": str(encoded)}:
            return [b64decode(encoded, validate=True)]
        case {"events": list(events)}:
            pieces = [f"{_event(event)}\n\n" for event in events]
        case {"lines": list(lines)}:
            pieces = [f"{line if isinstance(line, str) else _compact(line)}\n" for line in lines]
        case _:
            pieces = []
    return [piece.encode() for piece in [*pieces, *([written["rest"]] if "rest" in written else [])]]


def _event(event: JSONValue) -> str:
    if not isinstance(event, dict):
        return str(event)
    return "\n".join(f"{name}: {value if isinstance(value, str) else _compact(value)}" for name, value in event.items())
