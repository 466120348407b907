"""JSON-RPC on a server: it answers requests, sends its own, and knows which are in progress."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from anyio import CancelScope

from mcp_host.concurrency.backends import Job
from mcp_host.concurrency.synchronization import Event
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
    read_id,
)
from mcp_host.serving.errors import ClientError, RequestError

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RUNNING = 10_000  # requests of one connection or session at a time

Spawn: TypeAlias = Callable[[Job], CancelScope]
"""Runs a job, which raises nothing but cancellation, in a task that may outlive the current request. Returns its cancel scope."""

Send: TypeAlias = Callable[[Message, Id | None], None]
"""Sends a message, on the stream of the client's request with this id if there is one. Never waits."""

OnCancelled: TypeAlias = Callable[[Id], None]
"""Called when a request of the client was cancelled: it gets no response."""

OnUnexpected: TypeAlias = Callable[[Response], None]
"""Called with a response to no open request: to a cancelled one, most likely."""

AsyncAnswer: TypeAlias = Callable[[], Awaitable[Params]]
Answer: TypeAlias = Callable[[Request], Params | AsyncAnswer]
"""Answers a request: at once, or with a function to run in a task. Raises `RequestError` to refuse."""


class Future(Generic[T]):
    """A value that one task waits for."""

    def __init__(self) -> None:
        self._set = Event()
        self._value: T

    @property
    def done(self) -> bool:
        return self._set.is_set()

    def set(self, value: T) -> None:
        self._value = value
        self._set.set()

    async def wait(self) -> T:
        await self._set.wait()
        return self._value


class Dispatcher:
    """The requests of one connection, in both directions. *spawn* runs the answers, each in a task."""

    def __init__(
        self,
        spawn: Spawn,
        send: Send,
        answer: Answer,
        on_cancelled: OnCancelled = lambda id: None,
        on_unexpected: OnUnexpected = lambda response: None,
    ) -> None:
        self._spawn = spawn
        self._send = send
        self._answer = answer
        self._on_cancelled = on_cancelled
        self._on_unexpected = on_unexpected
        self._running: dict[Id, CancelScope] = {}
        self._pending: dict[Id, Future[Response]] = {}
        self._last_id = 0

    def receive(self, message: Incoming) -> None:
        """Take a message from the client. Returns at once."""
        match message:
            case Request():
                self._start(message)
            case Notification(method="notifications/cancelled", params=params):
                # "Receivers MAY ignore a cancellation of an unknown request", or of one that is answered already.
                if (id := read_id(params.get("requestId"))) in self._running:
                    self._running[id].cancel()
            case Success(id=id) | Failure(id=int() | str() as id):
                if id in self._pending:
                    self._pending[id].set(message)
                else:
                    self._on_unexpected(message)
            case Malformed(id=id, method=None, reason=reason) if id is not None:
                self.receive(Failure(id, INVALID_REQUEST, reason))
            case Malformed(id=id, reason=reason):
                self._send(Failure(id, PARSE_ERROR if id is None else INVALID_REQUEST, reason), None)

    def close(self) -> None:
        """Cancel every request of the client."""
        for scope in self._running.values():
            scope.cancel()

    def notify(self, method: str, params: Params, related: Id | None = None) -> None:
        """Send a notification. *related* is the client's request that it belongs to."""
        self._send(Notification(method, params), related)

    async def request(self, method: str, params: Params, related: Id | None = None) -> Params:
        """Send a request and return its result. If the caller is cancelled, so is the request.

        Raises:
            ClientError: The client answered with an error.
        """
        self._last_id += 1
        id, response = self._last_id, Future[Response]()
        self._send(Request(id, method, params), related)
        self._pending[id] = response
        try:
            answer = await response.wait()
        finally:
            del self._pending[id]
            if not response.done:
                self.notify("notifications/cancelled", {"requestId": id}, related)
        if isinstance(answer, Failure):
            raise ClientError(method, answer.code, answer.message, answer.data)
        return answer.result

    def _start(self, request: Request) -> None:
        if request.id in self._running:
            self._send(Failure(request.id, INVALID_REQUEST, "this request id is in use"), request.id)
            return
        if len(self._running) >= MAX_RUNNING:
            self._reply(Failure(request.id, INTERNAL_ERROR, f"{MAX_RUNNING:,} requests are under way already"))
            return
        try:
            answer = self._answer(request)
        except RequestError as exc:
            self._reply(Failure(request.id, exc.code, exc.message, exc.data))
            return
        if isinstance(answer, dict):
            self._reply(Success(request.id, answer))
            return
        self._running[request.id] = self._spawn(partial(self._run, request, answer))

    async def _run(self, request: Request, answer: AsyncAnswer) -> None:
        reply: Response
        try:
            reply = Success(request.id, await answer())
        except RequestError as exc:
            reply = Failure(request.id, exc.code, exc.message, exc.data)
        except McpError as exc:
            reply = Failure(request.id, INTERNAL_ERROR, str(exc))
        except Exception:
            logger.exception("answering %s failed", request.method)
            reply = Failure(request.id, INTERNAL_ERROR, "Internal error")
        except BaseException:  # cancelled
            del self._running[request.id]
            self._on_cancelled(request.id)
            raise
        if self._running.pop(request.id).cancel_called:  # "Receivers of cancellation SHOULD [...] not send a response"
            self._on_cancelled(request.id)
        else:
            self._reply(reply)

    def _reply(self, reply: Response) -> None:
        try:
            self._send(reply, reply.id)
        except McpError as exc:  # the result is not JSON
            self._send(Failure(reply.id, INTERNAL_ERROR, str(exc)), reply.id)
