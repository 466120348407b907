"""A test server over Streamable HTTP, as a plain ASGI application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcp_host.protocol.jsonrpc import PARSE_ERROR, Incoming, Malformed, Request, decode
from mcp_host.testing._http.asgi import JSON, HttpError, HttpExchange, HttpResponse, Receive, Scope, Send
from mcp_host.testing._http.rules import METHODS, check_request
from mcp_host.testing._http.session import HttpSession, PendingPost
from mcp_host.testing._http.stateless import StatelessHttp
from mcp_host.testing._http.streams import EventStream
from mcp_host.testing._server.broadcaster import EventLoop
from mcp_host.testing._server.catalog import Catalog


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
