"""A test server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from mcp_host.concurrency import OwnedContext, spawn
from mcp_host.protocol.jsonrpc import PARSE_ERROR, Incoming, Malformed, Request, decode
from mcp_host.testing._http.asgi import (
    Gone,
    Receive,
    Scope,
    Send,
    end_events,
    pour,
    read,
    respond,
    start_events,
    while_connected,
)
from mcp_host.testing._http.rules import JSON, METHODS, HttpRequest, Reply, refusal, refuse
from mcp_host.testing._http.session import Exchange, HttpSession
from mcp_host.testing._http.stateless import StatelessHttp
from mcp_host.testing._http.streams import EventStream
from mcp_host.testing._server.broadcaster import Serve
from mcp_host.testing._server.event_loop import EventLoop
from mcp_host.testing._server.stateless import Stateless


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
    server's own requests then travel on the GET stream. Requests that stand for themselves
    (since 2026-07-28) have none of all this.
    """

    def __init__(self, converse: Serve, *, json_response: bool, path: str) -> None:
        self._converse = converse
        self._json_response = json_response
        self._path = path
        self._sessions: dict[str, tuple[HttpSession, OwnedContext[HttpSession]]] = {}
        self._stateless: StatelessHttp | None = None
        self._until_closed = ExitStack()
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
        if self._stateless is not None:
            self._stateless.drop()

    async def _end_all(self) -> None:
        stateless, self._stateless = self._stateless, None
        if stateless is not None:
            await stateless.aclose()
        self._until_closed.close()
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
            request = await read(scope, receive)
        except Gone:
            return
        stateless = self._begin()
        reply = refusal(request, self._path, ("POST",) if stateless.alone else METHODS)
        if reply is None and request.method == "POST":
            reply = await self._post(request, stateless, receive, send)
        elif reply is None:
            reply = await self._get_or_delete(request, receive, send)
        if reply is not None:
            await respond(send, reply)

    def _begin(self) -> StatelessHttp:
        """What serves the requests that stand for themselves; from the first request on, until `aclose`."""
        if self._stateless is None:
            self._event_loop = EventLoop()
            stateless = self._until_closed.enter_context(self._converse(lambda catalog: Stateless(catalog, spawn)))
            self._stateless = StatelessHttp(stateless, json_response=self._json_response)
        return self._stateless

    # POST

    async def _post(self, request: HttpRequest, stateless: StatelessHttp, receive: Receive, send: Send) -> Reply | None:
        post = Post.read(request.body)
        if problem := post.problem():
            return problem
        if stateless.takes(request, post.messages):
            return await stateless.post(request, post.messages, receive, send)
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
        held = OwnedContext(HttpSession.open(self._converse, answers_only=self._json_response))
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


async def _pour(stream: EventStream, position: int, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
    """Send events from *position* on, until the stream ends, the client goes, or another connection takes over."""
    await start_events(send, headers)
    turn = stream.take_over()
    async with while_connected(receive):
        await pour(stream, position, turn, send)
    await end_events(send, stream.farewell)
