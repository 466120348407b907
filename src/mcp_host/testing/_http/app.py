"""A test server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_host.protocol.jsonrpc import PARSE_ERROR, Malformed, Request, decode
from mcp_host.testing._http.asgi import HttpExchange, Receive, Scope, Send
from mcp_host.testing._http.rules import JSON, METHODS, HttpRequest, HttpResponse, error_response, refusal
from mcp_host.testing._http.session import HttpSession, PendingPost
from mcp_host.testing._http.stateless import StatelessHttp
from mcp_host.testing._http.streams import EventStream
from mcp_host.testing._server.broadcaster import EventLoop
from mcp_host.testing._server.catalog import Catalog


class Post:
    """The messages of one POST."""

    def __init__(self, body: bytes) -> None:
        self.messages = decode(body)
        self.is_batch = isinstance(self.messages, list)
        self.requests = [message for message in self.messages if isinstance(message, Request)]
        self.initializes = any(request.method == "initialize" for request in self.requests)

    def refusal(self) -> HttpResponse | None:
        """The error response to a POST that is wrong in any session."""
        for message in self.messages:
            if isinstance(message, Malformed) and (message.id is None or message.method is not None):
                return error_response(400, message.reason, PARSE_ERROR)
        if self.initializes and len(self.messages) > 1:
            return error_response(400, "initialize cannot be part of a batch")
        return None

    def refusal_in(self, session: HttpSession) -> HttpResponse | None:
        """The error response to a POST that is wrong in this *session*."""
        if self.is_batch and not (session.client and session.client.writer.has_batches):
            return error_response(400, "this revision has no batches")
        if in_use := [request.id for request in self.requests if session.in_use(request.id)]:
            return error_response(400, f"the request id {in_use[0]} is in use")
        return None


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
            response = await self._serve(http)
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
        methods = METHODS if self._catalog.handshake_versions else ("POST",)
        if response := refusal(http.request, self._path, methods):
            return response
        match http.request.method:
            case "POST":
                return await self._post(http, self._stateless)
            case "DELETE":
                return await self._delete(http.request)
        return await self._get(http)

    async def _post(self, http: HttpExchange, stateless: StatelessHttp) -> HttpResponse | None:
        post = Post(http.request.body)
        if response := post.refusal():
            return response
        if stateless.takes(http.request, post.messages):
            return await stateless.post(http, post.messages)
        if post.initializes and "mcp-session-id" not in http.request.headers:
            return await self._initialize(http, post)
        session = self._find(http.request)
        if isinstance(session, HttpResponse):
            return session
        if response := post.refusal_in(session):
            return response
        for message in post.messages:
            if not isinstance(message, Request):
                session.receive(message)
        if not post.requests:
            return HttpResponse(202)
        return await self._answer(http, post, session.post(post.requests), {})

    async def _initialize(self, http: HttpExchange, post: Post) -> HttpResponse | None:
        session = HttpSession(self._catalog, json_response=self._json_response)
        await session.open()
        pending = session.post(post.requests)  # answered at once
        if session.client is None:  # with an error
            await session.aclose()
            return await self._answer(http, post, pending, {})
        self._sessions[session.id] = session
        return await self._answer(http, post, pending, {"mcp-session-id": session.id})

    async def _answer(
        self, http: HttpExchange, post: Post, pending: PendingPost, headers: Mapping[str, str]
    ) -> HttpResponse | None:
        if not self._json_response:
            await _send_events(http, pending.stream, 0, headers)
            return None
        await pending.done.wait()
        if not pending.responses:
            return HttpResponse(202)  # every request was cancelled
        body = b"[%s]" % b",".join(pending.responses) if post.is_batch else pending.responses[0]
        return HttpResponse(200, body, {"content-type": JSON, **headers})

    async def _get(self, http: HttpExchange) -> HttpResponse | None:
        session = self._find(http.request)
        if isinstance(session, HttpResponse):
            return session
        found: tuple[EventStream, int] | None = session.get_stream, session.get_stream.sent
        if last_event_id := http.request.headers.get("last-event-id"):
            found = session.find(last_event_id)
        if found is None:
            return error_response(400, "there is no such event")
        await _send_events(http, *found, {})
        return None

    async def _delete(self, request: HttpRequest) -> HttpResponse:
        session = self._find(request)
        if isinstance(session, HttpResponse):
            return session
        del self._sessions[session.id]
        await session.aclose()
        return HttpResponse(204)

    def _find(self, request: HttpRequest) -> HttpSession | HttpResponse:
        id = request.headers.get("mcp-session-id")
        if id is None:
            return error_response(400, "the header Mcp-Session-Id is missing")
        if id not in self._sessions:
            return error_response(404, "there is no such session")
        session = self._sessions[id]
        client, version = session.client, request.headers.get("mcp-protocol-version")
        if client is not None and version not in (None, client.writer.version):
            return error_response(400, f"this session uses {client.writer.version}, not {version}")
        return session


async def _send_events(http: HttpExchange, stream: EventStream, position: int, headers: Mapping[str, str]) -> None:
    """Send events until the stream ends, the client disconnects, or another connection takes over."""
    await http.start_events(headers)
    async with http.while_connected():
        await stream.send_to(http.write, position)
    await http.end_events(stream.farewell)
