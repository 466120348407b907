"""Requests that stand for themselves over Streamable HTTP: each POST is one, and its response carries all it causes."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import CancelScope, Event, move_on_after

from mcp_host.protocol.eras import LISTEN
from mcp_host.protocol.headers import PROTOCOL_VERSION
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Failure,
    Id,
    Incoming,
    Message,
    Notification,
    Params,
    Request,
    Response,
    Success,
    encode,
)
from mcp_host.testing._http import header_rules
from mcp_host.testing._http.asgi import Receive, Send, end_events, pour, start_events, while_connected
from mcp_host.testing._http.rules import JSON, HttpRequest, Reply, refuse
from mcp_host.testing._http.streams import EventStream
from mcp_host.testing._server.dispatcher import Dialogue, leave_open
from mcp_host.testing._server.stateless import Stateless, version_named
from mcp_host.testing._server.suspended import Turn
from mcp_host.testing.errors import RequestError

STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The errors that the specification gives a status."""

HEADERS = {"x-accel-buffering": "no"}  # "Servers SHOULD include" it: proxies are to hold nothing back
KEEP_ALIVE = 15.0  # seconds; common proxies end a connection after 30 or 60 seconds of silence


class StatelessHttp:
    """The requests of one endpoint. With *json_response* they are answered in JSON, and all else they cause is lost."""

    def __init__(self, stateless: Stateless, *, json_response: bool) -> None:
        self._stateless = stateless
        self._json_response = json_response
        self._exchanges: set[Exchange] = set()

    @property
    def alone(self) -> bool:
        """Whether there are no other requests: no sessions, hence neither GET nor DELETE."""
        return self._stateless.alone

    def takes(self, http: HttpRequest, messages: Sequence[Incoming]) -> bool:
        """Whether a POST is to be answered here, and not within a session."""
        header = http.headers.get(PROTOCOL_VERSION.lower())
        said = [version_named(message) for message in messages if isinstance(message, Request | Notification)]
        if header in self._stateless.versions:
            said.append(header)
        return any(map(self._stateless.serves, [None, *said]))

    async def post(self, http: HttpRequest, messages: Sequence[Incoming], receive: Receive, send: Send) -> Reply | None:
        """Answer a POST: with a reply to be sent, or by having sent one."""
        match messages:
            case [Request() as request]:
                return await self._request(http, request, receive, send)
            case [Notification()]:
                return Reply(202)  # "Closing the SSE response stream is itself the cancellation signal": there are none
        return refuse(400, "the body has to be a single request or notification")

    def drop(self) -> None:
        """Cut every response that is under way, which cancels its request."""
        for exchange in self._exchanges:
            exchange.scope.cancel()

    async def aclose(self) -> None:
        """End everything: the subscriptions with their results, the other requests without."""
        await self._stateless.end_subscriptions()
        for exchange in self._exchanges:
            if not exchange.is_subscription:
                exchange.scope.cancel()
        await self._stateless.aclose()

    async def _request(self, http: HttpRequest, request: Request, receive: Receive, send: Send) -> Reply | None:
        exchange = Exchange(request, answers_only=self._json_response and request.method != LISTEN)
        try:
            turn = self._admit(http, request, exchange)
        except RequestError as exc:
            return _reply(Failure(request.id, exc.code, exc.message, exc.data), 400)
        self._exchanges.add(exchange)
        try:
            return await self._answer(exchange, turn, receive, send)
        finally:
            self._exchanges.discard(exchange)

    def _admit(self, http: HttpRequest, request: Request, exchange: Exchange) -> Turn:
        version = version_named(request)
        # A client of an older revision has no such header, and is told the revisions there are: see `Stateless.admit`.
        if request.method != "initialize" or version is not None:
            _check(header_rules.version_problem(http.headers, version))
        turn = self._stateless.admit(request, exchange.tell)
        _check(header_rules.problem(http.headers, request, self._stateless.input_schema(request)))
        return turn

    async def _answer(self, exchange: Exchange, turn: Turn, receive: Receive, send: Send) -> Reply | None:
        async with while_connected(receive) as tasks:
            exchange.scope = tasks.cancel_scope
            dialogue = Dialogue(tasks, exchange.send, leave_open, lambda _: self._stateless.answer(turn), _ignore)
            dialogue.receive(turn.request)
            with move_on_after(None if exchange.answers_only else KEEP_ALIVE):
                await exchange.begun.wait()  # for the status to say what it can
            if exchange.reply() is None:
                await exchange.start(send)
                await pour(exchange.stream, 0, exchange.stream.take_over(), send, pause=KEEP_ALIVE)
        return await exchange.end(send)


class Exchange:
    """One request, and what its response is to carry."""

    def __init__(self, request: Request, *, answers_only: bool) -> None:
        self.stream = EventStream()
        self.begun = Event()
        """There is something to be sent."""
        self.is_subscription = request.method == LISTEN
        self.scope = CancelScope()
        self.answers_only = answers_only
        self._started = False
        self._response: Response | None = None

    def tell(self, method: str, params: Params) -> None:
        self.send(Notification(method, params), None)

    def send(self, message: Message, origin: Id | None) -> None:
        raw = encode(message)
        if isinstance(message, Success | Failure):
            self._response = message
        elif self.answers_only:
            return
        self.stream.append(raw)
        if self._response is not None:
            self.stream.end()
        self.begun.set()

    def reply(self) -> Reply | None:
        """The response, where it is no stream: answers in JSON, and errors with a status before anything was said."""
        if self._started or self._response is None or len(self.stream) > 1:
            return None
        status = STATUS.get(self._response.code, 200) if isinstance(self._response, Failure) else 200
        return _reply(self._response, status) if self.answers_only or status != 200 else None

    async def start(self, send: Send) -> None:
        """Begin the response as a stream of events."""
        self._started = True
        await start_events(send, HEADERS)

    async def end(self, send: Send) -> Reply | None:
        """What is to be sent at the end: the reply, or the end of the stream, even of one that was cut before it began."""
        if (reply := self.reply()) is not None:
            return reply
        if not self._started:
            await self.start(send)
        await end_events(send)
        return None


def _reply(response: Response, status: int) -> Reply:
    return Reply(status, encode(response), {"content-type": JSON})


def _check(problem: str | None) -> None:
    if problem is not None:
        raise RequestError(HEADER_MISMATCH, problem)


def _ignore(notification: Notification) -> None:
    """There are none."""
