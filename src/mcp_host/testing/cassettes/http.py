"""The HTTP side of a cassette: a transport for the clients of httpx and httpx2."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from anyio import sleep
from anyio.lowlevel import checkpoint

from mcp_host.testing.cassettes.bodies import read_body, write_body
from mcp_host.testing.cassettes.file import Entry
from mcp_host.testing.cassettes.tape import Tape
from mcp_host.types.base import JSONObject

if TYPE_CHECKING:
    import httpx

BodyT = TypeVar("BodyT")

FORM = "application/x-www-form-urlencoded"
BOUNDARY = re.compile(r'multipart/.*boundary="?([^";]+)')  # a random one in each run


def http_transport(tape: Tape, library: str, inner: Any) -> Any:
    """A transport for asynchronous and blocking clients of *library*, which is ``httpx`` or ``httpx2``: they are alike.

    Raises:
        ImportError: The library is not installed.
    """
    module = import_module(library)
    bases = (_Transport, module.AsyncBaseTransport, module.BaseTransport)
    return type("CassetteTransport", bases, {})(tape, module, inner)


class _Transport:
    """Records and replays. What waits is there twice, for asynchronous and for blocking clients; the rest is shared."""

    def __init__(self, tape: Tape, module: Any, inner: Any) -> None:
        self._tape = tape
        self._module = module
        self._async_inner = self._sync_inner = inner  # None: the library's own, made when it is needed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        live = self._describe(request, await request.aread())
        if (recorded := self._find(live)) is not None:
            await checkpoint()
            if "cancelled" in recorded:
                await self.stall(request)
            return self._replay(request, recorded)
        if not self._tape.records:
            return self._refuse(live)
        self._async_inner = self._async_inner or self._module.AsyncHTTPTransport()
        with self._recording(request, live) as entry:
            return self._record(await self._async_inner.handle_async_request(request), entry)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        live = self._describe(request, request.read())
        if (recorded := self._find(live)) is not None:
            if "cancelled" in recorded:
                self.stall_thread(request)
            return self._replay(request, recorded)
        if not self._tape.records:
            return self._refuse(live)
        self._sync_inner = self._sync_inner or self._module.HTTPTransport()
        with self._recording(request, live) as entry:
            return self._record(self._sync_inner.handle_request(request), entry)

    async def aclose(self) -> None:
        if self._async_inner is not None:
            await self._async_inner.aclose()

    def close(self) -> None:
        if self._sync_inner is not None:
            self._sync_inner.close()

    def _describe(self, request: httpx.Request, body: bytes) -> JSONObject:
        with self._tape.lock:
            redaction = self._tape.redaction
            headers = redaction.headers(request.headers.multi_items())
            kind = headers.get("content-type", "")
            if found := BOUNDARY.match(kind):
                body = body.replace(found[1].encode(), b"boundary")
                kind = headers["content-type"] = kind.replace(found[1], "boundary")
            described = {"method": request.method, "url": redaction.url(str(request.url)), "headers": headers}
            return described | (_written(self._tape, body, kind) if body else {})

    def _find(self, live: JSONObject) -> Entry | None:
        with self._tape.lock:
            return self._tape.find(self._candidates(), "http", live)

    def _candidates(self) -> list[Entry]:
        return [entry for entry in self._tape.unused() if "http" in entry]

    def _refuse(self, live: JSONObject) -> httpx.Response:
        """A response that SDKs raise at once. They would take an exception for a broken connection, and retry."""
        with self._tape.lock:
            error = self._tape.refuse(self._candidates(), "http", live, f"{live['method']} {live['url']}")
        body = {"type": "error", "error": {"type": "cassette_error", "message": str(error)}}
        response: httpx.Response = self._module.Response(400, headers={"x-should-retry": "false"}, json=body)
        return response

    @contextmanager
    def _recording(self, request: httpx.Request, live: JSONObject) -> Iterator[Entry]:
        """A new entry for a request. Its response is to come inside of the block."""
        with self._tape.lock:
            entry: Entry = {"http": self._tape.ids.hide(live), "cancelled": True}  # until a response or an error comes
            self._tape.record(entry)
        request.headers["accept-encoding"] = "identity"  # a body that can be read in the file
        try:
            yield entry
        except self._module.TransportError as exc:
            entry["failed"] = {"error": type(exc).__name__, "message": str(exc)}
            del entry["cancelled"]
            raise

    def _record(self, response: httpx.Response, entry: Entry) -> httpx.Response:
        with self._tape.lock:
            headers = self._tape.redaction.headers(response.headers.multi_items())
        entry["response"] = {"status": response.status_code, "headers": headers}
        del entry["cancelled"]
        body = _stream_class(_RecordedBody, self._module)(self._module, response.stream, entry, self._tape)
        passed_on: httpx.Response = self._module.Response(
            response.status_code, headers=response.headers, stream=body, extensions=response.extensions
        )
        return passed_on

    def _replay(self, request: httpx.Request, entry: Entry) -> httpx.Response:
        if "failed" in entry:
            raise self.error(entry["failed"], request)
        with self._tape.lock:
            recorded = self._tape.ids.reveal(entry["response"])
        assert isinstance(recorded, dict), "an object stays one"
        body = _stream_class(_ReplayedBody, self._module)(self, request, recorded)
        response: httpx.Response = self._module.Response(recorded["status"], headers=recorded["headers"], stream=body)
        return response

    async def stall(self, request: httpx.Request) -> Never:
        """Wait to be cancelled, as the request was in the recording. If it is not, its read timeout ends the wait."""
        seconds = self._read_timeout(request)
        await sleep(math.inf if seconds is None else seconds)
        raise self._timeout(request)

    def stall_thread(self, request: httpx.Request) -> Never:
        """As `stall`, in a thread. It cannot be cancelled, so the end of the cassette also ends the wait."""
        self._tape.ended.wait(self._read_timeout(request))
        raise self._timeout(request)

    def _read_timeout(self, request: httpx.Request) -> float | None:
        seconds: float | None = request.extensions.get("timeout", {}).get("read")
        return seconds

    def _timeout(self, request: httpx.Request) -> Exception:
        text = "in the recording, the client cancelled the request here"
        error: Exception = self._module.ReadTimeout(text, request=request)
        return error

    def error(self, failed: JSONObject, request: httpx.Request) -> Exception:
        """The recorded error, or a `ReadError` if this version of the library has no transport error of that name."""
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
        self._iterator: Any
        self._end: JSONObject = {"closed": True}
        tape.unfinished.add(self._finish)

    # Not generators: one that is not read to its end would stay open.

    def __aiter__(self) -> Self:
        self._iterator = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        with self._waiting():
            piece: bytes = await anext(self._iterator)
        self._pieces.append(piece)
        return piece

    def __iter__(self) -> Self:
        self._iterator = iter(self._stream)
        return self

    def __next__(self) -> bytes:
        with self._waiting():
            piece: bytes = next(self._iterator)
        self._pieces.append(piece)
        return piece

    async def aclose(self) -> None:
        self._finish()
        await self._stream.aclose()

    def close(self) -> None:
        self._finish()
        self._stream.close()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Note how the wait for the next piece ends. If it does not end, or by another exception, it was cancelled."""
        ends, self._end = self._end, {"cancelled": True}
        try:
            yield
        except (StopIteration, StopAsyncIteration):
            self._end = {}
            raise
        except self._module.TransportError as exc:
            self._end = {"failed": {"error": type(exc).__name__, "message": str(exc)}}
            raise
        self._end = ends

    def _finish(self) -> None:
        with self._tape.lock:
            if self._finish not in self._tape.unfinished:
                return
            self._tape.unfinished.discard(self._finish)
            response = self._entry["response"]
            body = _written(self._tape, b"".join(self._pieces), response["headers"].get("content-type", ""))
            hidden = self._tape.ids.hide(body)
            assert isinstance(hidden, dict), "an object stays one"
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
        if (piece := self._next()) is not None:
            return piece
        if "cancelled" in self._response:
            await self._transport.stall(self._request)
        raise StopAsyncIteration

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if (piece := self._next()) is not None:
            return piece
        if "cancelled" in self._response:
            self._transport.stall_thread(self._request)
        raise StopIteration

    def _next(self) -> bytes | None:
        piece = next(self._pieces, None)
        if piece is None and "failed" in self._response:
            raise self._transport.error(self._response["failed"], self._request)
        return piece

    async def aclose(self) -> None:
        await checkpoint()


@cache
def _stream_class(cls: type[BodyT], module: Any) -> type[BodyT]:
    """*cls* as a subclass of the library's streams, which its clients require."""
    return type(cls.__name__, (cls, module.AsyncByteStream, module.SyncByteStream), {})


def _written(tape: Tape, body: bytes, content_type: str) -> JSONObject:
    """*body* as JSON for the file. Random values and most secrets are replaced later."""
    written = tape.ids.escaped(write_body(body, content_type))
    if content_type.startswith(FORM) and "text" in written:
        written["text"] = tape.redaction.form(written["text"])
    return written
