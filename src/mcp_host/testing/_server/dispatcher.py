"""JSON-RPC as a server speaks it: answers what it is asked, asks back, and knows what is under way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from anyio import CancelScope, Event
from anyio.abc import TaskGroup

from mcp_host.errors import McpError
from mcp_host.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
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
)
from mcp_host.testing.errors import ClientError, RequestError

logger = logging.getLogger(__name__)

Send: TypeAlias = Callable[[Message, Id | None], None]
"""Takes a message for the client, and the client's request that it belongs to, if any. Never waits."""

GivenUp: TypeAlias = Callable[[Id], None]
"""Hears that a request of the client's was cancelled and will have no response."""

Later: TypeAlias = Callable[[], Awaitable[Params]]
Answer: TypeAlias = Callable[[Request], Params | Later]
"""Answers a request, at once or by something to be run in a task. Raises `RequestError` to refuse."""

Hear: TypeAlias = Callable[[Notification], None]


class Dialogue:
    """One conversation's requests, in both directions."""

    def __init__(self, tasks: TaskGroup, send: Send, given_up: GivenUp, answer: Answer, hear: Hear) -> None:
        self._tasks = tasks
        self._send = send
        self._given_up = given_up
        self._answer = answer
        self._hear = hear
        self._running: dict[Id, CancelScope] = {}
        self._asked: dict[Id, _Question] = {}
        self._last_id = 0
        self._idle = Event()
        self._idle.set()

    def receive(self, message: Incoming) -> None:
        """Take what the client said. Returns at once."""
        match message:
            case Request():
                self._take(message)
            case Notification(method="notifications/cancelled", params=params):
                self._cancel(params.get("requestId"))
            case Notification():
                self._hear(message)
            case Success() | Failure():
                self._settle(message)
            case _:
                self._refuse(message)

    def tell(self, method: str, params: Params, origin: Id | None = None) -> None:
        """Send a notification, on account of the client's request *origin*."""
        self._send(Notification(method, params), origin)

    async def ask(self, method: str, params: Params, origin: Id | None = None) -> Params:
        """Ask the client, and wait for its answer. Whoever gives up waiting cancels the request.

        Raises:
            ClientError: It answered with an error.
        """
        self._last_id += 1
        id, question = self._last_id, _Question()
        self._send(Request(id, method, params), origin)
        self._asked[id] = question
        try:
            await question.settled.wait()
        finally:
            del self._asked[id]
            if not question.settled.is_set():
                self.tell("notifications/cancelled", {"requestId": id}, origin)
        if isinstance(question.answer, Failure):
            raise ClientError(method, question.answer.code, question.answer.message, question.answer.data)
        return question.answer.result

    async def idle(self) -> None:
        """Wait until no request of the client is under way."""
        await self._idle.wait()

    def _refuse(self, broken: Malformed) -> None:
        """Say that it is broken to whoever waits: the client for a response, or one of us for the client's."""
        if broken.id is not None and broken.method is None:
            self._settle(Failure(broken.id, INVALID_REQUEST, broken.reason))
            return
        code = PARSE_ERROR if broken.id is None else INVALID_REQUEST
        self._send(Failure(broken.id, code, broken.reason), None)

    def _take(self, request: Request) -> None:
        if request.id in self._running:
            self._send(Failure(request.id, INVALID_REQUEST, "this request id is in use"), request.id)
            return
        try:
            answer = self._answer(request)
        except RequestError as exc:
            self._reply(Failure(request.id, exc.code, exc.message, exc.data))
            return
        if isinstance(answer, dict):
            self._reply(Success(request.id, answer))
            return
        if not self._running:
            self._idle = Event()
        self._running[request.id] = CancelScope()
        self._tasks.start_soon(self._run, request, answer)

    async def _run(self, request: Request, answer: Later) -> None:
        scope = self._running[request.id]
        try:
            with scope:
                reply = await self._outcome(request, answer)
        finally:
            del self._running[request.id]
            if not self._running:
                self._idle.set()
        if scope.cancel_called:  # "Receivers of cancellation SHOULD [...] not send a response"
            self._given_up(request.id)
        else:
            self._reply(reply)

    async def _outcome(self, request: Request, answer: Later) -> Response:
        try:
            return Success(request.id, await answer())
        except RequestError as exc:
            return Failure(request.id, exc.code, exc.message, exc.data)
        except McpError as exc:
            return Failure(request.id, INTERNAL_ERROR, str(exc))
        except Exception:
            logger.exception("answering %s failed", request.method)
            return Failure(request.id, INTERNAL_ERROR, "Internal error")

    def _reply(self, reply: Response) -> None:
        try:
            self._send(reply, reply.id)
        except McpError as exc:  # a result that JSON cannot say
            self._send(Failure(reply.id, INTERNAL_ERROR, str(exc)), reply.id)

    def _cancel(self, id: Any) -> None:
        """ "Receivers MAY ignore a cancellation of an unknown request", or of one that is answered already."""
        if isinstance(id, int | str) and (scope := self._running.get(id)):
            scope.cancel()

    def _settle(self, response: Response) -> None:
        question = None if response.id is None else self._asked.get(response.id)
        if question is not None:
            question.answer = response
            question.settled.set()


def leave_open(id: Id) -> None:
    """The `GivenUp` of a pipe, on which no request has anything of its own to close."""


class _Question:
    """What we asked, and the answer once it is there."""

    def __init__(self) -> None:
        self.settled = Event()
        self.answer: Response
