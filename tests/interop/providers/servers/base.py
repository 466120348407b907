"""What the local servers of all APIs share: uvicorn in a thread, the script, what was heard, and refusals."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, assert_never

from tests.asgi import serving
from tests.interop.providers.scripted import Broken, Failed, Said, Stalled, Turn

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """A request. The names of *headers* are in lower case."""

    path: str
    """With the query, if there is one."""
    headers: dict[str, str]
    body: JSON


class Refusal(Exception):
    """What the API answers to a request that breaks one of its rules."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ModelServer(ABC):
    """A local HTTP server that speaks the API of a provider, and refuses what its published description refuses.

    A test tells it what the model says (`say`), points the provider's SDK to `url`, and reads what it heard.
    It runs in a thread, so it serves asyncio and trio alike, and many tests one after the other.
    """

    key: ClassVar[str] = "sk-local-0123456789abcdef"
    """The API key that it takes."""

    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    def __init__(self) -> None:
        self.url = ""
        """The base URL, without a slash at its end."""
        self.say()

    def say(self, *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> None:
        """Forget what was; from here on, answer one request with each of *turns*, or with what *decide* says to it."""
        self._turns = list(turns)
        self._decide = decide
        self._random = random.Random(13)
        self.heard: list[Heard] = []
        """The requests, also those that were refused."""
        self.refusals: list[str] = []
        """Why requests were refused, apart from `Failed`: a test whose adapter was refused fails with these."""
        self.unfinished = threading.Event()
        """A client went away before the end of its answer."""
        self.stalled = threading.Event()
        """A `Stalled` stream has sent its last event."""
        self.sent = 0
        """The bytes of the last answer."""
        self.keeps_connections = True

    @property
    def last(self) -> JSON:
        """The body of the last request."""
        return self.heard[-1].body

    # What a server of an API writes.

    @abstractmethod
    def check(self, heard: Heard) -> None:
        """Hold a request against the rules of the API.

        Raises:
            Refusal: It breaks one.
        """

    @abstractmethod
    def wants_stream(self, heard: Heard) -> bool:
        """Whether the client asked for a stream of events."""

    @abstractmethod
    def reply(self, said: Said, heard: Heard) -> JSON:
        """The answer as one JSON object."""

    @abstractmethod
    def events(self, said: Said, heard: Heard) -> Iterator[bytes]:
        """The answer as a stream, an event at a time, as it is on the wire."""

    @abstractmethod
    def error(self, status: int, message: str) -> JSON:
        """The API's JSON of an error."""

    # What they may use.

    def sign(self, *parts: str) -> str:
        """A signature over *parts* that only this server can make."""
        return hmac.new(self.key.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()

    def pieces(self, text: str, longest: int = 12) -> Iterator[str]:
        """*text* in pieces of varying lengths; none if it is empty. The same for each run of a test."""
        while text:
            length = self._random.randint(1, longest)
            yield text[:length]
            text = text[length:]

    # What runs.

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve in a thread of its own."""
        with serving(self._serve) as self.url:
            yield self

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """The ASGI application."""
        raw = b""
        message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            raw += message.get("body", b"")
        query = scope["query_string"].decode()
        path = scope["path"] + (f"?{query}" if query else "")
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        try:
            answer = self._answer(scope["method"], Heard(path, headers, {}), raw)
        except Refusal as refusal:
            self.refusals.append(refusal.message)
            answer = self._failure(refusal.status, refusal.message)
        except Exception as exc:  # a defect of the test's server must not look like a broken connection
            self.refusals.append(f"the server of the test failed: {exc!r}")
            answer = self._failure(500, repr(exc))

        self.sent = sum(map(len, answer.parts))
        headers_sent = answer.headers if self.keeps_connections else [*answer.headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers_sent})
        for part in answer.parts:
            cut = self._random.randint(0, len(part))  # a TCP segment ends anywhere, in a character of UTF-8, too
            for piece in filter(None, (part[:cut], part[cut:])):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if answer.then == "end":
            await send({"type": "http.response.body", "body": b""})
        elif answer.then == "stall":
            self.stalled.set()
            assert (await receive())["type"] == "http.disconnect"
            self.unfinished.set()
        # else uvicorn cuts the connection: the application ends before its response

    def _answer(self, method: str, heard: Heard, raw: bytes) -> Answer:
        self.heard.append(heard)
        if method != "POST":
            raise Refusal(f"{method} is not allowed", status=405)
        try:
            body = json.loads(raw)
        except ValueError as exc:
            raise Refusal(f"the body is not JSON: {exc}") from exc
        if not isinstance(body, dict):
            raise Refusal("the body is not a JSON object")
        self.heard[-1] = heard = Heard(heard.path, heard.headers, body)
        self.check(heard)
        if self._decide is not None:
            turn = self._decide(heard)
        elif self._turns:
            turn = self._turns.pop(0)
        else:
            raise Refusal("the script of the test has no more turns", status=500)
        match turn:
            case Failed(status=status):
                return self._failure(status, "scripted", turn)
            case Said():
                return self._said(turn, heard)
            case Broken(said=said, events=events, error=error):
                whole = self._said(said, heard)
                rest = b"".join(whole.parts[events:])[: turn.more_bytes]
                parts = [*whole.parts[:events], rest, error]
                return replace(whole, parts=parts, then="end" if error or turn.is_closed else "cut")
            case Stalled(said=said, events=events):
                whole = self._said(said, heard)
                return replace(whole, parts=whole.parts[:events], then="stall")
        assert_never(turn)

    def _said(self, said: Said, heard: Heard) -> Answer:
        if self.wants_stream(heard):
            return Answer(200, [_content_type(self.stream_type)], list(self.events(said, heard)))
        return Answer(200, [_content_type("application/json")], [json.dumps(self.reply(said, heard)).encode()])

    def _failure(self, status: int, message: str, failed: Failed | None = None) -> Answer:
        failed = failed or Failed(status=status)
        headers = [_content_type(failed.kind)]
        if failed.retry_after is not None:
            headers.append((b"retry-after", failed.retry_after.encode()))
        if failed.location is not None:
            headers.append((b"location", failed.location.encode()))
        body = json.dumps(self.error(status, message)) if failed.body is None else failed.body
        return Answer(status, headers, [body.encode()])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server sends; *parts* are events of a stream, or one whole body."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[bytes]
    then: Literal["end", "cut", "stall"] = "end"


def _content_type(value: str) -> tuple[bytes, bytes]:
    return b"content-type", value.encode()


def sse(data: JSON, event: str | None = None) -> bytes:
    """One server-sent event."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def only(value: JSON, allowed: Sequence[str], where: str) -> None:
    """Refuse fields that the API does not have.

    Raises:
        Refusal: *value* has another one.
    """
    for name in value:
        if name not in allowed:
            raise Refusal(f"{where}{name}: Extra inputs are not permitted")
