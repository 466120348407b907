"""The MCP side of a cassette: a transport that records another one, or replays the recording.

A message of the server is replayed when the client has sent what came before it in the same request. Requests that
were in flight at the same time are independent of each other. On a shared connection, a message may belong to any of
several requests. It then comes with the first of them, because a replay may make them one after the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from anyio import Event, sleep_forever
from anyio.lowlevel import checkpoint
from pydantic_core import from_json, to_json

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    MessageTooLarge,
    ProtocolError,
    SessionLost,
    Unauthorized,
)
from mcp_host.limits import Limits
from mcp_host.protocol.eras import LISTEN, META, SUBSCRIPTION_ID
from mcp_host.protocol.jsonrpc import (
    Failure,
    Id,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    Success,
    decode,
    encode,
)
from mcp_host.testing.cassettes.file import Entry, how_to_record_again
from mcp_host.testing.cassettes.ids import PLACEHOLDER
from mcp_host.testing.cassettes.tape import Tape
from mcp_host.testing.errors import CassetteError
from mcp_host.transports.base import (
    AuthorizationContext,
    AuthorizedChannel,
    Channel,
    Headers,
    Receive,
    RequestHandle,
    Transport,
)
from mcp_host.types.base import JSONObject

CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
CLIENT_INFO = f"{META}clientInfo"

TRANSPORT_ERRORS: Sequence[type[McpError]] = (
    *(ConnectFailed, ConnectionClosed, HttpStatusError, MessageTooLarge, ProtocolError, SessionLost, Unauthorized),
)
ERRORS: Mapping[str, type[McpError]] = {cls.__name__: cls for cls in TRANSPORT_ERRORS}
"""What a transport raises, by name."""

STATUS_FIELDS = ("status", "message", "retry_after", "body", "code", "data", "rpc_message")

Placeholders: TypeAlias = dict[Id, str]


@dataclass(slots=True, eq=False)
class CassetteTransport:
    """Implements `transports.base.Transport`. *label* is its name in the file."""

    tape: Tape
    inner: Transport
    label: str
    _opened: int = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def restart(self) -> bool | None:
        return self.inner.restart

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[Channel]:
        """Replay the next recorded connection, or record one."""
        self._opened += 1
        connection = self.label if self._opened == 1 else f"{self.label} ({self._opened})"
        entries = [
            entry
            for entry in self.tape.unused()
            if connection in (entry.get("open"), entry.get("to"), entry.get("from"))
        ]
        if self.tape.replays and entries:
            opened, *rest = entries
            self.tape.use(opened)
            if "failed" in opened:
                raise read_error(opened["failed"])
            if "stream_per_request" not in opened:  # the client gave up before it was open
                await sleep_forever()
            yield ReplayChannel(self.tape, opened, rest)
            return
        if not self.tape.records:
            text = f"{self.tape.path} has no connection {connection!r}; {how_to_record_again(self.tape.path)}"
            raise self.tape.fail(CassetteError(text))
        entry: Entry = {"open": connection}
        self.tape.begin(entry)
        async with AsyncExitStack() as stack:
            try:
                channel = await stack.enter_async_context(self.inner.open(limits))
            except McpError as exc:
                entry["failed"] = write_error(exc)
                raise
            entry |= {"stream_per_request": channel.stream_per_request, "keeps_cache": channel.keeps_cache}
            yield RecordingChannel(self.tape, connection, channel)


class RecordingChannel:
    """Passes everything on to *channel* and back."""

    def __init__(self, tape: Tape, connection: str, channel: Channel) -> None:
        self.stream_per_request = channel.stream_per_request
        self.keeps_cache = channel.keeps_cache
        self.wait_until_started = channel.wait_until_started
        self._tape = tape
        self._connection = connection
        self._channel = channel
        self._ours: Placeholders = {}  # of the ids of our requests
        self._theirs: Placeholders = {}  # of the ids of the server's requests
        self._tokens: Placeholders = {}  # of the server's progress tokens
        self._places: dict[str, int] = {}  # on the tape, of each request
        self._in_flight: dict[str, None] = {}  # our requests, in order
        if (report_sent := getattr(channel, "report_sent", None)) is not None:  # over HTTP
            report_sent(tape.learn_sent)

    @property
    def other_output(self) -> str:
        return self._channel.other_output

    def authorization_context(self) -> AuthorizationContext | None:
        return self._channel.authorization_context() if isinstance(self._channel, AuthorizedChannel) else None

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        with self._tape.lock:
            name = self._ours[request.id] = self._tape.ids.new("request")
            self._places[name] = self._tape.begin(self._sent(request))
        if request.method != LISTEN:
            self._in_flight[name] = None
        try:
            await self._channel.request(request, headers, RecordingHandle(handle, partial(self._receive, origin=name)))
        except McpError as exc:
            self._record({"from": self._connection, "failed": write_error(exc), "during": [name]}, name)
            raise
        finally:
            self._in_flight.pop(name, None)

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        self._record_sent(message)
        await self._channel.send(message, headers)

    def send_now(self, message: Notification | Success | Failure) -> bool:
        entry = self._record_sent(message)
        sent = self._channel.send_now(message)
        if not sent:  # the caller will use `send`
            self._tape.drop(entry)
        return sent

    async def listen(self, receive: Receive) -> None:
        def record(message: Incoming) -> None:
            self._receive(message, origin=None)
            receive(message)

        try:
            await self._channel.listen(record)
        except ConnectionClosed as exc:
            self._record({"from": self._connection, "closed": write_error(exc)}, None)
            raise

    # What is recorded

    def _sent(self, message: Message) -> Entry:
        live = without_version(self._tape.ids.escaped(write_message(message)))
        params = live.get("params", {})
        match message:
            case Request(id=id):
                live["id"] = self._ours[id]
                if "progressToken" in (meta := params.get("_meta", {})):
                    meta["progressToken"] = self._ours[id]
            case Notification(method=method) if method == CANCELLED:
                params["requestId"] = renamed(params["requestId"], self._ours)
            case Notification(method=method) if method == PROGRESS:
                params["progressToken"] = renamed(params["progressToken"], self._tokens)
            case Success() | Failure():
                live["id"] = renamed(live["id"], self._theirs)
        return {"to": self._connection, "message": self._tape.ids.hide(live)}

    def _record_sent(self, message: Notification | Success | Failure) -> Entry:
        with self._tape.lock:
            entry = self._sent(message)
            self._record(entry, entry["message"].get("id") or next(subjects(entry["message"]), None))
        return entry

    def _record(self, entry: Entry, name: str | None) -> int:
        """Add *entry* beside the request *name*, and return its place."""
        return self._tape.record(entry, beside=self._places.get(name or ""))

    def _receive(self, message: Incoming, *, origin: str | None) -> None:
        with self._tape.lock:
            self._record_received(message, origin)

    def _record_received(self, message: Incoming, origin: str | None) -> None:
        entry: Entry = {"from": self._connection}
        owner = origin
        if isinstance(message, Malformed):
            id = renamed(message.id, self._ours)
            owner = id if isinstance(id, str) and id in self._places else origin
            fields = {"reason": message.reason, "id": id, "method": message.method, "oversize": message.oversize}
            entry["malformed"] = self._tape.ids.escaped(fields)
        else:
            live = self._tape.ids.escaped(write_message(message))
            self._rename_received(live)
            entry["message"] = self._tape.ids.hide(live)
            if isinstance(message, Success | Failure) and live["id"] in self._places:
                owner = live["id"]
                self._in_flight.pop(owner, None)
            elif isinstance(message, Notification):
                owner = owner or next((name for name in subjects(live) if name in self._places), None)
        during = list(self._in_flight) if owner is None else [owner]
        if during != [entry.get("message", {}).get("id")]:
            entry["during"] = during
        if self.stream_per_request and origin is None:
            entry["apart"] = True
        place = self._record(entry, during[0] if during else None)
        if isinstance(message, Request):
            self._places[entry["message"]["id"]] = place

    def _rename_received(self, live: JSONObject) -> None:
        """Put placeholders for the ids of requests into a message of the server."""
        if "method" not in live:
            live["id"] = renamed(live["id"], self._ours)
            return
        params = live["params"]
        meta = params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        if "id" in live:
            name = self._theirs[live["id"]] = self._tape.ids.new("server")
            live["id"] = name
            if isinstance(token := meta.get("progressToken"), str | int):
                meta["progressToken"] = self._tokens[token] = self._tape.ids.new("token")
            return
        for owner, key in ((params, "progressToken"), (meta, SUBSCRIPTION_ID)):
            if key in owner:
                owner[key] = renamed(owner[key], self._ours)
        if "requestId" in params:  # what the server cancels: its own request, or a subscription of ours
            params["requestId"] = renamed(params["requestId"], {**self._ours, **self._theirs})


@dataclass(slots=True)
class RecordingHandle:
    """Implements `transports.base.RequestHandle` over another one: what arrives on a request's stream is recorded."""

    inner: RequestHandle
    record: Receive

    def receive(self, message: Incoming) -> None:
        self.record(message)
        self.inner.receive(message)

    @property
    def stateless(self) -> bool:
        return self.inner.stateless

    @property
    def personal(self) -> bool:
        return self.inner.personal

    @property
    def done(self) -> bool:
        return self.inner.done

    @property
    def unsent(self) -> bool:
        return self.inner.unsent

    @unsent.setter
    def unsent(self, unsent: bool) -> None:
        self.inner.unsent = unsent

    def restart_idle(self) -> None:
        self.inner.restart_idle()

    async def deliver_progress(self) -> None:
        await self.inner.deliver_progress()

    async def wait(self) -> None:
        await self.inner.wait()

    def queued(self) -> AbstractContextManager[object]:
        return self.inner.queued()

    def bounded(self) -> AbstractContextManager[object]:
        return self.inner.bounded()

    def authorizing(self, *, sent: bool = False) -> AbstractContextManager[object]:
        return self.inner.authorizing(sent=sent)

    def fail(self, error: McpError) -> None:
        self.inner.fail(error)


class ReplayChannel:
    """Answers from the *entries* of a recorded connection, whose first one was *opened*. No server is started."""

    other_output = ""

    def __init__(self, tape: Tape, opened: Entry, entries: list[Entry]) -> None:
        self.stream_per_request = opened["stream_per_request"] is True
        self.keeps_cache = opened["keeps_cache"] is True
        self._tape = tape
        self._left = entries
        self._owners = owners_of(entries)
        self._handles: dict[str, RequestHandle] = {}
        self._mismatch: CassetteError | None = None
        self._changed = Event()

    async def wait_until_started(self) -> None:
        await checkpoint()

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        name = self._take(request)["id"]
        self._handles[name] = handle
        self._changed.set()
        try:
            await handle.wait()
        finally:
            del self._handles[name]

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        await checkpoint()
        try:
            self._take(message)
        except CassetteError as exc:  # ends the connection: calls would wait for what the server sent after this
            self._mismatch = exc
            raise ConnectionClosed(str(exc)) from exc
        finally:
            self._changed.set()

    def send_now(self, message: Notification | Success | Failure) -> bool:
        return False

    async def listen(self, receive: Receive) -> None:
        while True:
            while self._mismatch is None and (entry := self._next()) is not None:
                self._left.remove(entry)
                self._tape.use(entry)
                self._deliver(entry, receive)
                await checkpoint()
            if self._mismatch is not None:
                raise ConnectionClosed(str(self._mismatch)) from self._mismatch
            await self._changed.wait()
            self._changed = Event()

    def _take(self, message: Message) -> JSONObject:
        """Take the recorded entry for a message that the client sends, and return its message.

        Raises:
            CassetteError: There is none.
        """
        with self._tape.lock:
            live = without_version(self._tape.ids.escaped(write_message(message)))
            method = live.get("method")
            candidates = [
                entry
                for entry in self._left
                if "to" in entry
                and entry["message"].get("method") == method
                and (method is not None or entry["message"]["id"] == live["id"])
            ]
            found = self._tape.find(candidates, "message", live)
            if found is not None:
                self._left.remove(found)
                taken: JSONObject = found["message"]
                return taken
            if method in (CANCELLED, PROGRESS):
                return live  # how often and when they are sent depends on timing
            match message:
                case Request():
                    what = f"the request {method}"
                case Notification():
                    what = f"the notification {method}"
                case _:
                    what = "our answer to a request of the server"
            raise self._tape.refuse(candidates, "message", live, what)

    def _next(self) -> Entry | None:
        """The first message or end from the server that is due: nothing before it in one of its requests is left."""
        blocked: set[str] = set()
        first = True
        for entry in self._left:
            if "to" in entry and entry["message"].get("method") == PROGRESS:
                continue  # servers do not wait for it
            owners = self._owners[id(entry)]
            if "from" in entry and (not blocked.issuperset(owners) if owners else first):
                return entry
            blocked.update(owners)
            first = False
        return None

    def _deliver(self, entry: Entry, receive: Receive) -> None:
        if "closed" in entry:
            raise read_error(entry["closed"])
        handle = next((self._handles.get(name) for name in self._owners[id(entry)]), None)
        if "failed" in entry:
            if handle is not None:
                handle.fail(read_error(entry["failed"]))
            return
        if self.stream_per_request and "apart" not in entry:
            if handle is None:
                return  # the client no longer reads the stream
            receive = handle.receive
        with self._tape.lock:
            revealed = self._tape.ids.reveal(entry.get("message") or entry["malformed"])
        assert isinstance(revealed, dict), "an object stays one"
        if "malformed" in entry:
            receive(Malformed(**revealed))
        else:
            for message in decode(to_json({"jsonrpc": "2.0", **revealed})):
                receive(message)


def owners_of(entries: Sequence[Entry]) -> dict[int, list[str]]:
    """Which of our requests each entry belongs to, by the `id()` of the entry."""
    during: dict[str, list[str]] = {}  # by the id and the progress token of each request of the server
    owners: dict[int, list[str]] = {}
    for entry in entries:
        message = entry.get("message", {})
        name, is_request = message.get("id"), "method" in message
        if "from" in entry:
            named = entry.get("during") or ([] if is_request or name is None else [name])
            its = [owner for subject in named for owner in during.get(subject, [subject])]
            if is_request and name is not None:
                during[name] = its
                meta = message.get("params", {}).get("_meta")
                if isinstance(meta, dict) and isinstance(token := meta.get("progressToken"), str):
                    during[token] = its
        elif name is not None:
            its = [name] if is_request else during.get(name, [])
        else:
            its = [owner for subject in subjects(message) for owner in during.get(subject, [subject])]
        owners[id(entry)] = its
    return owners


# Messages as JSON


def write_message(message: Message) -> JSONObject:
    """*message* as on the wire, without the ``jsonrpc`` that all have."""
    live: JSONObject = from_json(encode(message))
    del live["jsonrpc"]
    return live


def without_version(live: JSONObject) -> JSONObject:
    """*live*, a message of ours, without the version of this package: other versions can replay it."""
    params = live.get("params", {})
    for owner, key in ((params, "clientInfo"), (params.get("_meta"), CLIENT_INFO)):
        if isinstance(owner, dict) and isinstance(info := owner.get(key), dict) and "version" in info:
            info["version"] = "*"
    return live


def subjects(message: JSONObject) -> Iterator[str]:
    """The placeholders of the requests that a notification is about."""
    params = message.get("params", {})
    meta = params.get("_meta")
    for owner, key in ((params, "progressToken"), (params, "requestId"), (meta, SUBSCRIPTION_ID)):
        if isinstance(owner, dict) and isinstance(name := owner.get(key), str) and PLACEHOLDER.fullmatch(name):
            yield name


def renamed(id: object, names: Placeholders) -> object:
    """The placeholder of *id*, or *id* itself. Some servers return 3 as "3"."""
    if not isinstance(id, str | int):
        return id
    return names.get(id) or (names.get(int(id)) if isinstance(id, str) and id.isdecimal() else None) or id


def write_error(error: McpError) -> JSONObject:
    """*error*, which a transport raised, as JSON."""
    kind = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ERRORS), ProtocolError.__name__)
    if isinstance(error, HttpStatusError):
        fields = {name: getattr(error, name) for name in STATUS_FIELDS}
        return {"error": kind, **{name: value for name, value in fields.items() if value not in (None, "")}}
    if isinstance(error, ConnectionClosed):
        return {"error": kind, "message": str(error), "may_have_run": error.may_have_run}
    return {"error": kind, "message": str(error)}


def read_error(written: JSONObject) -> McpError:
    """The error that `write_error` has written."""
    fields = dict(written)
    kind = ERRORS[fields.pop("error")]
    if issubclass(kind, HttpStatusError):
        return kind(fields.pop("status"), fields.pop("message"), **fields)
    return kind(fields.pop("message"), **fields)
