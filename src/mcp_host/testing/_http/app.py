"""A test server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from secrets import token_urlsafe

from anyio import CancelScope, Event, create_task_group, move_on_after

from mcp_host.concurrency import OwnedContext, spawn
from mcp_host.protocol.eras import LISTEN
from mcp_host.protocol.headers import PROTOCOL_VERSION
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Failure,
    Id,
    Incoming,
    Malformed,
    Message,
    Notification,
    Params,
    Request,
    Response,
    Success,
    decode,
    encode,
)
from mcp_host.testing._http.asgi import (
    JSON,
    EventStream,
    HttpError,
    HttpExchange,
    HttpResponse,
    Receive,
    Scope,
    Send,
    split_event_id,
)
from mcp_host.testing._http.rules import METHODS, check_headers, check_request, check_version
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.dispatcher import Dispatcher
from mcp_host.testing._server.session import Session
from mcp_host.testing._server.stateless import Stateless, version_of
from mcp_host.testing._server.subscriptions import EventLoop
from mcp_host.testing.context import Call, RemoteClient
from mcp_host.testing.errors import RequestError


class HttpApp:
    """The ASGI application: one MCP endpoint at *path*, with sessions and stateless requests.

    With *json_response* a POST is answered in JSON. In a session, progress and the server's
    requests then use the GET stream; stateless requests have none.
    """

    def __init__(self, catalog: Catalog, *, json_response: bool, path: str) -> None:
        self._catalog = catalog
        self._json_response = json_response
        self._path = path
        self._sessions: dict[str, HttpSession] = {}
        self._stateless: StatelessHttp | None = None
        self._event_loop: EventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await self.aclose()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http" and (http := await HttpExchange.read(scope, receive, send)) is not None:
            try:
                response = await self._serve(http)
            except HttpError as exc:
                response = exc.response
            if response is not None:
                await http.respond(response)

    async def aclose(self) -> None:
        """End every session and request, from any task of any event loop. New ones may follow."""
        if self._event_loop is not None:
            await self._event_loop.run(self._end_all)

    async def drop_streams(self, farewell: bytes) -> None:
        """Send *farewell* on every open event stream and end the connection."""
        if self._event_loop is not None:
            await self._event_loop.run(self._drop_all, farewell)

    async def _drop_all(self, farewell: bytes) -> None:
        for session in self._sessions.values():
            session.drop(farewell)
        if self._stateless is not None:
            self._stateless.drop()

    async def _end_all(self) -> None:
        stateless, self._stateless = self._stateless, None
        if stateless is not None:
            await stateless.aclose()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.aclose()

    async def _serve(self, http: HttpExchange) -> HttpResponse | None:
        """Return the response, or None if an event stream has been sent."""
        if self._stateless is None:  # the first request, or the first after `aclose`
            self._event_loop = EventLoop()
            self._stateless = StatelessHttp(self._catalog, json_response=self._json_response)
        check_request(http, self._path, METHODS if self._catalog.handshake_versions else ("POST",))
        match http.method:
            case "POST":
                return await self._post(http, self._stateless)
            case "GET":
                session, last_event_id = self._find(http), http.headers.get("last-event-id")
                found = session.find(last_event_id) if last_event_id else (session.get_stream, session.get_stream.sent)
                await _send_events(http, *found, {})
                return None
        session = self._find(http)
        del self._sessions[session.id]
        await session.aclose()
        return HttpResponse(204)

    async def _post(self, http: HttpExchange, stateless: StatelessHttp) -> HttpResponse | None:
        messages = decode(http.body)
        initializes = _check_messages(messages)
        if stateless.takes(http, messages):
            return await stateless.post(http, messages)
        if initializes and "mcp-session-id" not in http.headers:
            return await self._initialize(http, messages)
        session, is_batch = self._find(http), isinstance(messages, list)
        if is_batch and not (session.client and session.client.writer.has_batches):
            raise HttpError(400, "this revision has no batches")
        pending = session.post(messages)
        return await self._answer(http, pending, {}, is_batch=is_batch) if pending.requests else HttpResponse(202)

    async def _initialize(self, http: HttpExchange, messages: Sequence[Incoming]) -> HttpResponse | None:
        session = HttpSession(self._catalog, json_response=self._json_response)
        await session.open()
        pending, headers = session.post(messages), {"mcp-session-id": session.id}
        if session.client is None:  # `initialize` is answered at once, here with an error
            await session.aclose()
            headers = {}
        else:
            self._sessions[session.id] = session
        return await self._answer(http, pending, headers, is_batch=isinstance(messages, list))

    async def _answer(
        self, http: HttpExchange, pending: PendingPost, headers: Mapping[str, str], *, is_batch: bool
    ) -> HttpResponse | None:
        if not self._json_response:
            await _send_events(http, pending.stream, 0, headers)
            return None
        await pending.done.wait()
        if not pending.responses:
            return HttpResponse(202)  # every request was cancelled
        body = b"[%s]" % b",".join(pending.responses) if is_batch else pending.responses[0]
        return HttpResponse(200, body, {"content-type": JSON, **headers})

    def _find(self, http: HttpExchange) -> HttpSession:
        id = http.headers.get("mcp-session-id")
        if id is None:
            raise HttpError(400, "the header Mcp-Session-Id is missing")
        if id not in self._sessions:
            raise HttpError(404, "there is no such session")
        session = self._sessions[id]
        client, version = session.client, http.headers.get("mcp-protocol-version")
        if client is not None and version not in (None, client.writer.version):
            raise HttpError(400, f"this session uses {client.writer.version}, not {version}")
        return session


def _check_messages(messages: Sequence[Incoming]) -> bool:
    """Whether they begin a session. Raises `HttpError` for what is wrong in any session."""
    for message in messages:
        if isinstance(message, Malformed) and (message.id is None or message.method is not None):
            raise HttpError(400, message.reason, PARSE_ERROR)
    initializes = any(isinstance(message, Request) and message.method == "initialize" for message in messages)
    if initializes and len(messages) > 1:
        raise HttpError(400, "initialize cannot be part of a batch")
    return initializes


async def _send_events(http: HttpExchange, stream: EventStream, position: int, headers: Mapping[str, str]) -> None:
    """Send events until the stream ends, the client disconnects, or another connection takes over."""
    await http.start_events(headers)
    async with http.while_connected():
        await stream.send_to(http.write, position)
    await http.end_events(stream.farewell)


RETAINED = 64  # streams that have ended and can still be resumed


class PendingPost:
    """The unanswered requests of one POST, and the stream for all messages that belong to them."""

    def __init__(self, key: int, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.stream = EventStream(str(key))
        self.responses: list[bytes] = []
        self.done = Event()
        self._pending = {request.id for request in requests}

    def settle(self, id: Id, response: bytes | None) -> None:
        """Take the response to one of the requests; None if it was cancelled."""
        if response is not None:
            self.responses.append(response)
        self._pending.discard(id)
        if not self._pending:
            self.close()

    def close(self) -> None:
        self.stream.end()
        self.done.set()


class HttpSession:
    """A session with its streams. With *json_response*, all but the responses is sent on the GET stream."""

    def __init__(self, catalog: Catalog, *, json_response: bool) -> None:
        self.id = token_urlsafe(16)  # "The session ID MUST only contain visible ASCII characters"
        self.get_stream = EventStream("get")
        self._catalog = catalog
        self._json_response = json_response
        self._owner = OwnedContext(self._running())
        self._session: Session
        self._posts: dict[Id, PendingPost] = {}
        self._ended: deque[EventStream] = deque(maxlen=RETAINED)
        self._post_count = 0

    @property
    def client(self) -> RemoteClient | None:
        return self._session.client

    async def open(self) -> None:
        """Begin the session, in a task that lasts until `aclose`."""
        self._session = await self._owner.enter()

    async def aclose(self) -> None:
        self._owner.cancel()
        await self._owner.leave()

    def post(self, messages: Sequence[Incoming]) -> PendingPost:
        """Take the messages of one POST.

        Raises:
            HttpError: The id of a request is in use.
        """
        requests = [message for message in messages if isinstance(message, Request)]
        if in_use := [request.id for request in requests if request.id in self._posts]:
            raise HttpError(400, f"the request id {in_use[0]} is in use")
        self._post_count += 1
        post = PendingPost(self._post_count, requests)
        if self.client is not None and self.client.writer.primes_streams and not self._json_response:
            post.stream.append(b"")
        self._posts |= dict.fromkeys((request.id for request in requests), post)
        for message in messages:
            self._session.receive(message)
        return post

    def find(self, event_id: str) -> tuple[EventStream, int]:
        """The stream of that event, and the position after it.

        Raises:
            HttpError: The event is unknown, or no longer kept.
        """
        key, position = split_event_id(event_id) or ("", 0)
        for stream in self._streams():
            if stream.key == key and position <= len(stream):
                return stream, position
        raise HttpError(400, "there is no such event")

    def drop(self, farewell: bytes) -> None:
        """End every connection, and none of the streams."""
        for stream in self._streams():
            stream.drop(farewell)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Session]:
        async with create_task_group() as tasks:
            session = Session(self._catalog, tasks, self._send, lambda id: self._settle(id, None))
            with self._catalog.broadcaster.reaching(session):
                try:
                    yield session
                finally:
                    tasks.cancel_scope.cancel()
                    for post in self._posts.values():
                        post.close()
                    self.get_stream.end()

    def _streams(self) -> list[EventStream]:
        return [self.get_stream, *{post.stream for post in self._posts.values()}, *self._ended]

    def _send(self, message: Message, related: Id | None) -> None:
        raw = encode(message)
        is_response = isinstance(message, Success | Failure)
        if related is None or related not in self._posts or (self._json_response and not is_response):
            self.get_stream.append(raw)
            return
        self._posts[related].stream.append(raw)
        if is_response:
            self._settle(related, raw)

    def _settle(self, id: Id, response: bytes | None) -> None:
        post = self._posts.pop(id)
        post.settle(id, response)
        if post.done.is_set():
            self._ended.append(post.stream)


STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The errors for which the specification names a status."""

HEADERS = {"x-accel-buffering": "no"}  # "Servers SHOULD include" it, so that proxies do not buffer
KEEP_ALIVE = 15.0  # seconds; common proxies end a connection after 30 or 60 seconds of silence


class StatelessHttp:
    """The stateless requests of one endpoint. With *json_response* only the responses are sent."""

    def __init__(self, catalog: Catalog, *, json_response: bool) -> None:
        self._catalog = catalog
        self._stateless = Stateless(catalog, spawn)
        self._json_response = json_response
        self._pending: set[PendingRequest] = set()
        self._on_close = ExitStack()
        self._on_close.enter_context(catalog.broadcaster.reaching(self._stateless))

    def takes(self, http: HttpExchange, messages: Sequence[Incoming]) -> bool:
        """Whether a POST is stateless, and not part of a session."""
        header = http.headers.get(PROTOCOL_VERSION.lower())
        named = [version_of(message) for message in messages if isinstance(message, Request | Notification)]
        if header in self._catalog.modern_versions:
            named.append(header)
        return any(map(self._stateless.serves, [None, *named]))

    async def post(self, http: HttpExchange, messages: Sequence[Incoming]) -> HttpResponse | None:
        """Answer a POST: return the response, or None if an event stream has been sent."""
        match messages:
            case [Request() as request]:
                return await self._request(http, request)
            case [Notification()]:  # "Closing the SSE response stream is itself the cancellation signal"
                return HttpResponse(202)
        raise HttpError(400, "the body has to be a single request or notification")

    def drop(self) -> None:
        """Cut every open response, which cancels its request."""
        for pending in self._pending:
            pending.scope.cancel()

    async def aclose(self) -> None:
        """End all: the subscriptions with their results, the other requests without."""
        await self._stateless.end_subscriptions()
        for pending in self._pending:
            if not pending.is_subscription:
                pending.scope.cancel()
        await self._stateless.aclose()
        self._on_close.close()

    async def _request(self, http: HttpExchange, request: Request) -> HttpResponse | None:
        pending = PendingRequest(request, json_response=self._json_response and request.method != LISTEN)
        try:
            call = self._accept(http, request, pending)
        except RequestError as exc:
            return _json(Failure(request.id, exc.code, exc.message, exc.data), 400)
        self._pending.add(pending)
        try:
            async with http.while_connected() as tasks:
                pending.scope = tasks.cancel_scope
                Dispatcher(tasks, pending.send, lambda _: self._stateless.answer(call)).receive(request)
                with move_on_after(None if pending.json_response else KEEP_ALIVE):
                    await pending.begun.wait()  # the first message may decide the status
                if pending.response() is None:
                    pending.started = True
                    await http.start_events(HEADERS)
                    await pending.stream.send_to(http.write, 0, keep_alive=KEEP_ALIVE)
        finally:
            self._pending.discard(pending)
        if (response := pending.response()) is not None:
            return response
        if not pending.started:  # cut before it began
            await http.start_events(HEADERS)
        await http.end_events()
        return None

    def _accept(self, http: HttpExchange, request: Request, pending: PendingRequest) -> Call:
        version = version_of(request)
        # An older client sends no such header; `Stateless.accept` tells it the supported revisions.
        if request.method != "initialize" or version is not None:
            check_version(http.headers, version)
        call = self._stateless.accept(request, pending.notify)
        name = request.params.get("name") if request.method == "tools/call" else None
        tool = self._catalog.tools.get(name) if isinstance(name, str) else None
        check_headers(http.headers, request, tool.definition.input_schema if tool else None)
        return call


class PendingRequest:
    """One request, and the messages to send in its response."""

    def __init__(self, request: Request, *, json_response: bool) -> None:
        self.stream = EventStream()
        self.begun = Event()
        """There is a message to send."""
        self.is_subscription = request.method == LISTEN
        self.scope = CancelScope()
        self.json_response = json_response
        self.started = False
        """Whether an event stream has begun, so that there is no other response."""
        self._answer: Response | None = None

    def notify(self, method: str, params: Params) -> None:
        self.send(Notification(method, params), None)

    def send(self, message: Message, related: Id | None) -> None:
        raw = encode(message)
        if isinstance(message, Success | Failure):
            self._answer = message
        elif self.json_response:
            return
        self.stream.append(raw)
        if self._answer is not None:
            self.stream.end()
        self.begun.set()

    def response(self) -> HttpResponse | None:
        """The response if it is no event stream: JSON, or an error before any other message that has a status."""
        if self.started or self._answer is None or len(self.stream) > 1:
            return None
        status = STATUS.get(self._answer.code, 200) if isinstance(self._answer, Failure) else 200
        return _json(self._answer, status) if self.json_response or status != 200 else None


def _json(response: Response, status: int) -> HttpResponse:
    return HttpResponse(status, encode(response), {"content-type": JSON})
