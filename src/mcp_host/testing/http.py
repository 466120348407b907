"""A test server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from anyio import CancelScope, create_task_group

from mcp_host.concurrency import Held
from mcp_host.protocol.jsonrpc import PARSE_ERROR, Incoming, Malformed, Request, decode
from mcp_host.testing.event_loop import EventLoop
from mcp_host.testing.http_rules import EVENTS, JSON, HttpRequest, Reply, refusal, refuse
from mcp_host.testing.http_session import Exchange, HttpSession
from mcp_host.testing.session import Converse
from mcp_host.testing.streams import EventStream

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gone(Exception):
    """The client went away while it was still sending."""


@dataclass(frozen=True, slots=True)
class Post:
    """What one POST carries."""

    messages: Sequence[Incoming]
    is_batch: bool

    @classmethod
    def read(cls, body: bytes) -> Self:
        messages = decode(body)
        return cls(messages, isinstance(messages, list))

    @property
    def requests(self) -> list[Request]:
        return [message for message in self.messages if isinstance(message, Request)]

    @property
    def others(self) -> list[Incoming]:
        """Notifications and responses, good or bad: what is not answered."""
        return [message for message in self.messages if not isinstance(message, Request)]

    @property
    def initializes(self) -> bool:
        return any(request.method == "initialize" for request in self.requests)

    def problem(self) -> Reply | None:
        """Why this is refused in any session."""
        for message in self.messages:
            if isinstance(message, Malformed) and (message.id is None or message.method is not None):
                return refuse(400, message.reason, PARSE_ERROR)
        if self.initializes and len(self.messages) > 1:
            return refuse(400, "initialize cannot be part of a batch")
        return None

    def problem_in(self, session: HttpSession) -> Reply | None:
        """Why this is refused in *session*."""
        client = session.session.client
        if self.is_batch and not (client and client.dialect.has_batches):
            return refuse(400, "this revision has no batches")
        if in_use := [request.id for request in self.requests if session.in_use(request.id)]:
            return refuse(400, f"the request id {in_use[0]} is in use")
        return None


class HttpApp:
    """The ASGI application: one MCP endpoint at *path*, with sessions, resumable streams and the GET stream.

    With *json_response* a POST is answered by its responses as JSON; progress and the
    server's own requests then travel on the GET stream.
    """

    def __init__(self, converse: Converse, *, json_response: bool, path: str) -> None:
        self._converse = converse
        self._json_response = json_response
        self._path = path
        self._sessions: dict[str, tuple[HttpSession, Held[HttpSession]]] = {}
        self._event_loop: EventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "http":
                await self._serve(scope, receive, send)

    async def aclose(self) -> None:
        """End every session, from any task of any event loop. The application can go on with new ones."""
        if self._event_loop is not None:
            await self._event_loop.run(self._end_all)

    async def drop_streams(self, farewell: bytes) -> None:
        """Cut every connection that waits for events, after saying *farewell* on it."""
        if self._event_loop is not None:
            await self._event_loop.run(self._drop_all, farewell)

    async def _drop_all(self, farewell: bytes) -> None:
        for session, _ in self._sessions.values():
            session.drop(farewell)

    async def _end_all(self) -> None:
        held = [held for _, held in self._sessions.values()]
        self._sessions.clear()
        for one in held:
            one.cancel()
        for one in held:
            await one.leave()

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = await _read(scope, receive)
        except Gone:
            return
        reply = refusal(request, self._path)
        if reply is None and request.method == "POST":
            reply = await self._post(request, receive, send)
        elif reply is None:
            reply = await self._get_or_delete(request, receive, send)
        if reply is not None:
            await _respond(send, reply)

    # POST

    async def _post(self, request: HttpRequest, receive: Receive, send: Send) -> Reply | None:
        post = Post.read(request.body)
        if problem := post.problem():
            return problem
        if post.initializes and "mcp-session-id" not in request.headers:
            return await self._initialize(post, receive, send)
        found = self._find(request)
        if isinstance(found, Reply):
            return found
        if problem := post.problem_in(found):
            return problem
        for message in post.others:
            found.session.receive(message)
        if not post.requests:
            return Reply(202)
        return await self._answer(found.begin(post.requests), post, {}, receive, send)

    async def _initialize(self, post: Post, receive: Receive, send: Send) -> Reply | None:
        if self._event_loop is None:
            self._event_loop = EventLoop()
        held = Held(HttpSession.open(self._converse, answers_only=self._json_response))
        session = await held.enter()
        exchange = session.begin(post.requests)  # answered at once
        if session.session.client is None:  # and with an error
            await held.leave()
            return await self._answer(exchange, post, {}, receive, send)
        self._sessions[session.id] = session, held
        return await self._answer(exchange, post, {"mcp-session-id": session.id}, receive, send)

    async def _answer(
        self, exchange: Exchange, post: Post, headers: Mapping[str, str], receive: Receive, send: Send
    ) -> Reply | None:
        if not self._json_response:
            await _pour(exchange.stream, 0, headers, receive, send)
            return None
        await exchange.done.wait()
        if not exchange.responses:
            return Reply(202)  # cancelled: nobody waits for a response
        body = b"[%s]" % b",".join(exchange.responses) if post.is_batch else exchange.responses[0]
        return Reply(200, body, {"content-type": JSON, **headers})

    # GET and DELETE

    async def _get_or_delete(self, request: HttpRequest, receive: Receive, send: Send) -> Reply | None:
        found = self._find(request)
        if isinstance(found, Reply):
            return found
        if request.method == "DELETE":
            _, held = self._sessions.pop(found.id)
            held.cancel()
            await held.leave()
            return Reply(204)
        place: tuple[EventStream, int] | None = found.standalone, found.standalone.sent
        if last_event_id := request.headers.get("last-event-id"):
            place = found.find(last_event_id)
        if place is None:
            return refuse(400, "there is no such event")
        await _pour(*place, {}, receive, send)
        return None

    def _find(self, request: HttpRequest) -> HttpSession | Reply:
        id = request.headers.get("mcp-session-id")
        if id is None:
            return refuse(400, "the header Mcp-Session-Id is missing")
        if id not in self._sessions:
            return refuse(404, "there is no such session")
        session, _ = self._sessions[id]
        client, version = session.session.client, request.headers.get("mcp-protocol-version")
        if client is not None and version not in (None, client.dialect.version):
            return refuse(400, f"this session speaks {client.dialect.version}, not {version}")
        return session


async def _read(scope: Scope, receive: Receive) -> HttpRequest:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    parts: list[bytes] = []
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Gone
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    return HttpRequest(scope["method"], path, headers, b"".join(parts))


async def _respond(send: Send, reply: Reply) -> None:
    headers = {**reply.headers, "content-length": str(len(reply.body))}
    await send({"type": "http.response.start", "status": reply.status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": reply.body})


async def _pour(stream: EventStream, position: int, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
    """Send events from *position* on, until the stream ends, the client goes, or another connection takes over."""
    start = {"content-type": EVENTS, "cache-control": "no-cache", **headers}
    await send({"type": "http.response.start", "status": 200, "headers": _encoded(start)})
    turn = stream.take_over()
    async with create_task_group() as tasks:
        tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
        while events := await stream.read(position, turn):
            position = len(stream)
            await send({"type": "http.response.body", "body": events, "more_body": True})
        tasks.cancel_scope.cancel()
    await send({"type": "http.response.body", "body": stream.farewell})


async def _until_gone(receive: Receive, scope: CancelScope) -> None:
    await receive()  # the body has been read, so nothing is left to be received but the end
    scope.cancel()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
