"""A server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from anyio import current_time, move_on_after

from mcp_host.concurrency.tasks import HandlerTasks, spawn_in_scope
from mcp_host.protocol.eras import LISTEN
from mcp_host.protocol.headers import PROTOCOL_VERSION
from mcp_host.protocol.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Failure,
    Incoming,
    Malformed,
    Notification,
    Request,
    decode,
)
from mcp_host.serving.dispatcher import Dispatcher
from mcp_host.serving.errors import RequestError
from mcp_host.serving.http.access import Access, ProtectedResource
from mcp_host.serving.http.asgi import HttpError, HttpExchange, HttpResponse, Principal, Receive, Scope, Send
from mcp_host.serving.http.event_stream import KEEP_ALIVE, EventStream
from mcp_host.serving.http.rules import METHODS, check_headers, check_request
from mcp_host.serving.http.session import HttpSession, Post
from mcp_host.serving.remote_client import ReceivedRequest
from mcp_host.serving.service import Service
from mcp_host.serving.stateless import Stateless, version_of
from mcp_host.serving.subscriptions import EventLoop

MAX_SESSIONS = 1000  # at a time: each may have a server process of its own
SESSION_IDLE = 3600.0  # seconds without a connection; most clients end their sessions, and a killed one cannot

SHUTTING_DOWN = "the server is shutting down"
STATELESS_HEADERS = {"x-accel-buffering": "no"}  # "Servers SHOULD include" it, so that proxies do not buffer


@dataclass(slots=True, eq=False)
class Endpoint:
    """The stateless requests of one principal: their service, and those that are under way."""

    service: Service
    stateless: Stateless
    posts: set[Post] = field(default_factory=set)
    used: float = 0.0

    def close(self) -> None:
        self.stateless.end()
        self.service.end()


class HttpApp:
    """The ASGI application: one MCP endpoint at *path*, with sessions and stateless requests.

    With *json_response* a POST is answered in JSON. In a session, progress and the server's
    requests then use the GET stream; stateless requests have none. The body of a POST is one message.

    *token*, *hosts* and *protected* are those of an `Access`. Each principal has sessions, calls and streams that no other reaches.
    There are at most *max_sessions*, and principals with stateless requests; what is not used for *idle* seconds ends when another begins.
    No principal has all sessions: those of the others take the places of its own, until it has as many as they.

    Raises:
        ValueError: *token* cannot be sent as a bearer token.
    """

    def __init__(
        self,
        service: Service,
        *,
        json_response: bool,
        path: str,
        token: str | None = None,
        hosts: Collection[str] | None = None,
        protected: ProtectedResource | None = None,
        max_sessions: int = MAX_SESSIONS,
        idle: float = SESSION_IDLE,
    ) -> None:
        self._service = service
        self._max_sessions = max_sessions
        self._idle = idle
        self._token = token
        self._access = Access(token, hosts, protected)
        self._json_response = json_response
        self._path = path
        self._methods = METHODS if service.handshake_versions else ("POST",)
        self._sessions: dict[str, HttpSession] = {}
        self._endpoints: dict[Principal, Endpoint] = {}
        self._event_loop: EventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await self.aclose()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            http = HttpExchange.of(scope, receive, send)
            del scope  # a response may take hours
            try:
                if (response := self._access.metadata(http)) is None:
                    http.principal = await check_request(http, self._path, self._access, self._methods)
                    if not await http.read_body():
                        return
                    self._event_loop = EventLoop()
                    response = await self._serve(http)
            except HttpError as exc:
                response = exc.response
            if response is not None:
                await http.respond(response)

    async def aclose(self) -> None:
        """End every session, and every request with an error, from any task of any event loop. New ones may follow."""
        await self._close(SHUTTING_DOWN)

    async def lose_sessions(self) -> None:
        """As `aclose`, without an answer."""
        await self._close(None)

    async def _close(self, reason: str | None) -> None:
        if self._event_loop is not None:
            await self._event_loop.run(self._end_all, reason)
            await self._service.aclose()

    async def drop_streams(self, retry: bytes) -> None:
        """Send the `retry` field on every open event stream of a session, and end all connections."""
        if self._event_loop is not None:
            await self._event_loop.run(self._drop_all, retry)

    def _end_all(self, reason: str | None) -> None:
        for endpoint in self._endpoints.values():
            endpoint.stateless.end()
            for post in endpoint.posts:
                if post.request.method == LISTEN:
                    continue
                if reason is None:
                    post.scope.cancel()
                else:
                    post.fail(reason)
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close(reason)

    def _drop_all(self, retry: bytes) -> None:
        for session in self._sessions.values():
            for stream in session.streams():
                stream.drop(retry)
        for endpoint in self._endpoints.values():
            for post in endpoint.posts:
                post.scope.cancel()

    async def _serve(self, http: HttpExchange) -> HttpResponse | None:
        """Return the response, or None if an event stream has been sent."""
        match http.method:
            case "POST":
                return await self._post(http)
            case "GET":
                session, last_event_id = self._find(http), http.headers.get("last-event-id")
                stream, position = session.get_stream, session.get_stream.sent
                if last_event_id:
                    stream, position = session.find(last_event_id)
                with session.connected():
                    await _send_events(http, stream, position, {})
                return None
        session = self._find(http)
        del self._sessions[session.id]
        session.close()
        return HttpResponse(204)

    async def _post(self, http: HttpExchange) -> HttpResponse | None:
        messages = decode(http.body)
        if isinstance(messages, list):
            raise HttpError(400, "the body has to be one message, not a batch")
        [message] = messages
        if isinstance(message, Malformed) and (message.id is None or message.method is not None):
            code = PARSE_ERROR if message.id is None else INVALID_REQUEST
            raise HttpError(400, message.reason, code, message.id)
        if self._is_stateless(http, message):
            return await self._post_stateless(http, message)
        if isinstance(message, Request) and message.method == "initialize" and "mcp-session-id" not in http.headers:
            session = self._new_session(http.principal)
        else:
            session = self._find(http)
        if (post := session.receive(message)) is None:
            return HttpResponse(202)
        headers: Mapping[str, str] = {}
        if session.client is None:  # `initialize` is answered at once, or has been, with an error
            self._sessions.pop(session.id, None)
            session.close()
        elif session.id not in self._sessions:
            self._sessions[session.id] = session
            headers = {"mcp-session-id": session.id}
        with session.connected():
            if not self._json_response:
                await _send_events(http, post.stream, 0, headers)
                self._forget_unbegun(session)
                return None
            async with http.while_connected():
                await post.stream.begun()
        self._forget_unbegun(session)
        return post.response(headers) or HttpResponse(202)  # without a response, it was cancelled

    def _new_session(self, principal: Principal) -> HttpSession:
        """Begin a session, after those have ended that are idle.

        If there are as many as there may be, it takes the place of one of the principal with the most, unless that has
        no more than *principal* has with this one.

        Raises:
            HttpError: There is no place.
        """
        before = current_time() - self._idle
        ended = [each for each in self._sessions.values() if each.idle_since <= before]
        if len(self._sessions) - len(ended) >= self._max_sessions:
            counts = Counter(each.principal for each in self._sessions.values())
            [(most, count)] = counts.most_common(1)
            if count <= counts[principal] + 1:
                raise HttpError(503, f"there are {self._max_sessions:,} sessions already", retry_after="60")
            theirs = [each for each in self._sessions.values() if each.principal == most]
            ended = [min(theirs, key=lambda each: each.idle_since)]
        for session in ended:
            del self._sessions[session.id]
            session.close()
        return HttpSession(self._service, principal, json_response=self._json_response)

    def _forget_unbegun(self, session: HttpSession) -> None:
        """End a session whose `initialize` has failed."""
        if session.client is None and self._sessions.pop(session.id, None) is not None:
            session.close()

    def _find(self, http: HttpExchange) -> HttpSession:
        id = http.headers.get("mcp-session-id")
        if id is None:
            raise HttpError(400, "the header Mcp-Session-Id is missing")
        session = self._sessions.get(id)
        if session is None or session.principal != http.principal:
            raise HttpError(404, "there is no such session")
        client, version = session.client, http.headers.get("mcp-protocol-version")
        if client is not None and version not in (None, client.version):
            raise HttpError(400, f"this session uses {client.version}, not {version}")
        return session

    def _is_stateless(self, http: HttpExchange, message: Incoming) -> bool:
        """As `Stateless.serves`, which a principal with sessions only does not need."""
        if not self._service.handshake_versions:
            return True
        modern = self._service.modern_versions
        return bool(modern) and (
            version_of(message) is not None or http.headers.get(PROTOCOL_VERSION.lower()) in modern
        )

    async def _post_stateless(self, http: HttpExchange, message: Incoming) -> HttpResponse | None:
        """Answer a POST that is no part of a session. Its response carries all its messages, and hanging up cancels it."""
        if isinstance(message, Notification):  # "Closing the SSE response stream is itself the cancellation signal"
            return HttpResponse(202)
        if not isinstance(message, Request):
            raise HttpError(400, "the body has to be a request or notification")
        post = Post(message, json_response=self._json_response and message.method != LISTEN)
        endpoint = self._endpoint(http.principal)
        try:
            call = _accept(http, post, endpoint)
        except RequestError as exc:
            return HttpResponse.json(Failure(message.id, exc.code, exc.message, exc.data), 400, {})
        response = None
        endpoint.posts.add(post)
        try:
            async with http.while_connected() as connected, HandlerTasks.open() as tasks:
                post.scope = connected.cancel_scope
                Dispatcher(tasks.start, post.send, lambda _: endpoint.stateless.answer(call)).receive(message)
                with move_on_after(None if post.json_response else KEEP_ALIVE):
                    await post.stream.begun()  # the first message may decide the status
                response = post.response({})
                if response is None:
                    await http.start_events(STATELESS_HEADERS)
                    await post.stream.send_to(http.write, 0)
        finally:
            endpoint.posts.discard(post)
            endpoint.used = current_time()
        if response is None:  # it may have been cut before it began
            await http.end_events(STATELESS_HEADERS)
        return response

    def _endpoint(self, principal: Principal) -> Endpoint:
        """That of *principal*. A new one begins after those have ended that are idle.

        Raises:
            HttpError: There are as many as there may be.
        """
        if principal not in self._endpoints:
            before = current_time() - self._idle
            for each in [each for each, kept in self._endpoints.items() if not kept.posts and kept.used <= before]:
                self._endpoints.pop(each).close()
            if len(self._endpoints) >= self._max_sessions:
                raise HttpError(503, f"there are {self._max_sessions:,} users already", retry_after="60")
            service = self._service.begin(None, principal)
            stateless = Stateless(service, spawn_in_scope, owner=repr((self._token, principal)))
            self._endpoints[principal] = Endpoint(service, stateless, used=current_time())
        return self._endpoints[principal]


def _accept(http: HttpExchange, post: Post, endpoint: Endpoint) -> ReceivedRequest:
    request, version = post.request, version_of(post.request)
    # An older client sends no such headers; `Stateless.accept` tells it the supported revisions.
    if request.method != "initialize" or version is not None:
        name = request.params.get("name") if request.method == "tools/call" else None
        schema = endpoint.service.input_schema(name) if isinstance(name, str) else None
        check_headers(http.headers, request, version, schema)
    return endpoint.stateless.accept(request, lambda method, params: post.send(Notification(method, params)))


async def _send_events(http: HttpExchange, stream: EventStream, position: int, headers: Mapping[str, str]) -> None:
    """Send events until the stream ends, the client disconnects, or another connection takes over."""
    await http.start_events(headers)
    await stream.send_to(http.write, position, http.disconnected)
    await http.end_events(headers, stream.retry)
