"""What the server asks of us in requests of its own: each answered at most once, and none into the next session."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mcp_host.concurrency import HandlerTasks
from mcp_host.protocol.jsonrpc import (
    CALL_ENDED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Failure,
    Notification,
    Params,
    Request,
    Success,
)
from mcp_host.sampling import OuterCall
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.session.answers import InboundRequest, InboundRequests
from mcp_host.session.negotiated import Session
from mcp_host.session.pending import PendingRequest
from mcp_host.session.sender import BackgroundSender

if TYPE_CHECKING:
    from mcp_host.session.dispatcher import Dispatcher


class RequestHandler:
    """Takes the server's requests, and has each answered by one of the *application*'s jobs."""

    def __init__(
        self, dispatcher: Dispatcher, application: HandlerTasks, answers: InboundRequests, sender: BackgroundSender
    ) -> None:
        self._dispatcher = dispatcher
        self._application = application
        self._answers = answers
        self._sender = sender

    def take(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        """Answer *request*, or say or count why not; *origin* is the call on whose stream it came."""
        key = (session.epoch, request.id)
        if not session.era.server_requests:
            self._dispatcher.counters["requests that no server may send"] += 1
        elif request.method == "ping":
            self._reply(Success(request.id, {}), session)
        elif key in self._answers or self._answers.answered(key, origin):
            self._repeated(request, session)
        elif request.method not in session.era.server_requests:
            self._reply(Failure(request.id, METHOD_NOT_FOUND, "this client knows no such method"), session)
        elif not self._dispatcher.alive or self._answers.full():
            self._dispatcher.counters["dropped requests"] += 1  # a flood that does not even wait for its answers
        else:
            self._begin(request, session, origin)

    def _begin(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        waiting = (
            [origin]
            if origin is not None
            else [each for each in self._dispatcher.pending.values() if not each.answered]
        )
        outer = waiting[0] if len(waiting) == 1 else None
        # Over HTTP a call's own stream names it; what comes on another "SHOULD be unrelated" to any call.
        # A pipe names none: a question is of the only call that the server can be working on.
        named = origin is not None or not (
            self._dispatcher.stream_per_request or self._dispatcher.serves_abandoned_calls
        )
        made = outer.call if outer is not None and named else None
        call = None if made is None else made.outer(waiting[0].request.id, inferred=origin is None)
        context = None if made is None else made.context
        answer = InboundRequest((session.epoch, request.id), origin, waiting)
        self._answers.begin(answer)
        answer.scope = self._application.start(partial(self._answer, answer, request, session, call), context)

    def _repeated(self, request: Request, session: Session) -> None:
        """The same id again: over HTTP a replay after resumption, elsewhere a mistake of the server's."""
        self._dispatcher.counters["repeated requests"] += 1
        if not self._dispatcher.stream_per_request:
            self._reply(Failure(request.id, INVALID_REQUEST, "this id is in use by a request under way"), session)

    async def _answer(self, answer: InboundRequest, request: Request, session: Session, call: OuterCall | None) -> None:
        try:
            reply = await answer.find(request, session, call, self._reporter(answer, request, session))
        except BaseException:  # cancelled: it is not wanted any more, or nobody waits for what it was asked for
            self._answers.end(answer)
            if self._is_wanted(answer, session):
                self._reply(Failure(request.id, CALL_ENDED, "the call that this belonged to has ended"), session)
            raise
        self._answers.end(answer)
        if not self._is_wanted(answer, session):
            return
        if answer.scope.cancel_called:  # it was found all the same, but nothing can be awaited here any more
            self._reply(reply, session)
        elif not self._sender.at_once(reply):
            await self._sender.now(reply, session.era.headers(request.method, {}))

    def _reporter(self, answer: InboundRequest, request: Request, session: Session) -> ProgressReporter | None:
        """How a handler tells the server of its progress, if the server has given a token for that."""
        meta = request.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if not isinstance(token, str | int) or isinstance(token, bool):
            return None

        async def send(params: Params) -> None:
            report = Notification("notifications/progress", params)
            may_be_sent = not answer.ended and self._dispatcher.alive and self._is_wanted(answer, session)
            if may_be_sent and not self._sender.at_once(report):
                await self._sender.now(report, session.era.headers(report.method, params))

        return ProgressReporter(token, send)

    def _is_wanted(self, answer: InboundRequest, session: Session) -> bool:
        current = self._dispatcher.session
        return not answer.unwanted and current is not None and current.epoch == session.epoch

    def _reply(self, reply: Success | Failure, session: Session) -> None:
        if self._dispatcher.alive:
            self._sender.soon(reply, session.era.headers("", {}))
