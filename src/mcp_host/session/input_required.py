"""Multi-round calls: a result asks for input, and the client repeats the request with the answers.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, create_task_group, sleep

from mcp_host.concurrency.deadlines import Timeout
from mcp_host.concurrency.tasks import first
from mcp_host.errors import (
    CallerError,
    InputNotGiven,
    InputRefused,
    RoundsExceeded,
    UrlElicitationRequired,
    excerpt,
    quoted,
)
from mcp_host.handlers import HandlerScope, InputCount, in_context
from mcp_host.limits import Limits
from mcp_host.protocol.eras import InputRequest, InputRequired
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Params, Request, Success, encode
from mcp_host.session.call import Call
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.session import FAILED, Session

if TYPE_CHECKING:
    from mcp_host.server_requests import OuterCall

logger = logging.getLogger(__name__)

IDLE_PAUSE = 0.1  # seconds before a request is repeated that needs no input; doubles each time
LONGEST_PAUSE = 10.0  # seconds


@dataclass(slots=True)
class InputRequiredLoop:
    """Answers what the server requires within *call* with the handlers of *session*, within *limits*."""

    call: Call
    dispatcher: Dispatcher
    session: Session
    limits: Limits
    _idle_rounds: int = 0

    async def collect(self, required: InputRequired, response: Success) -> Params:
        """The additional params of the next request; *response* is the one that has the input requests.

        Raises:
            RoundsExceeded: The server asks too much.
            InputNotGiven: A handler failed, or a person or a rule refused.
            RequestTimeout: The call timed out meanwhile.
            ConnectionClosed: The connection ended meanwhile.
        """
        self._count([request.method for request in required.requests.values()])
        answers: Params = {} if required.state is None else {"requestState": required.state}
        call = self.call
        if not required.requests:
            with self.dispatcher.while_open(call):
                await sleep(min(IDLE_PAUSE * 2.0 ** (self._idle_rounds - 1), LONGEST_PAUSE))
            return answers
        call.timeouts.pause()
        try:
            with self.dispatcher.while_open(call, idle=True) as scope:
                answers["inputResponses"] = await self._collect_all(required.requests, response, scope)
        finally:
            call.timeouts.resume()
        return answers

    async def visit(self, required: UrlElicitationRequired) -> bool:
        """Ask the user to visit the URLs of an error, as if a result required that. Returns whether they have."""
        sent_ids, urls = self.call.sent_ids, required.elicitations
        assert sent_ids, "a relayed call notes them"
        requests = {str(n): InputRequest("elicitation/create", url.to_wire()) for n, url in enumerate(urls)}
        try:
            given = await self.collect(InputRequired(requests, None), Success(sent_ids[-1], {}))
        except (InputNotGiven, RoundsExceeded):  # the host gets the error
            return False
        return all(answer.get("action") == "accept" for answer in given["inputResponses"].values())

    def _count(self, methods: Sequence[str]) -> None:
        limits, inputs = self.limits, len(methods)
        counted = self.call.inputs = self.call.inputs or InputCount()
        self._idle_rounds = 0 if inputs else self._idle_rounds + 1
        if self._idle_rounds > limits.max_idle_rounds:
            what, limit = f"gave no result and asked for nothing {self._idle_rounds} times in a row", "max_idle_rounds"
        elif inputs and self.call.nesting >= limits.max_nesting:
            what, limit = f"asked for input in {limits.max_nesting} handlers within each other", "max_nesting"
        elif inputs > limits.max_inputs_per_round:
            what, limit = f"asked for {inputs} inputs at once", "max_inputs_per_round"
        elif (exceeded := counted.take(methods, limits, self.dispatcher.now())) is not None:
            asked = {"max_inputs": "inputs", "max_model_calls": "model calls"}[exceeded]
            what, limit = f"asked for more than {getattr(limits, exceeded)} {asked}", exceeded
        else:
            return
        raise RoundsExceeded(f"{self.call.method}: the server {what}", limit)

    async def _collect_all(
        self, requests: Mapping[str, InputRequest], response: Success, scope: CancelScope
    ) -> dict[str, Any]:
        """All answers, in the order of the *requests*. The first failure cancels the others."""
        outer = self.call.outer(response.id, inferred=False)
        if len(requests) == 1:  # needs no task, and its timeout no other cancel scope: see `TimeoutScope`
            [(key, request)] = requests.items()
            move_on_after = partial(self.dispatcher.alarm.move_on_after, within=scope)
            answer = self._answer_one(key, request, outer, response.size, move_on_after)
            return {key: await in_context(self.call.context.copy(), answer)}
        answers: dict[str, Any] = dict.fromkeys(requests)
        failure: BaseException | None = None

        async def collect_one(key: str, request: InputRequest) -> None:
            answers[key] = await self._answer_one(
                key, request, outer, response.size, self.dispatcher.alarm.move_on_after
            )

        try:
            async with create_task_group() as tasks:
                for key, request in requests.items():
                    tasks.start_soon(collect_one, key, request)
        except BaseExceptionGroup as group:
            failure = first(group)
        if failure is not None:
            raise failure
        return answers

    async def _answer_one(
        self, key: str, request: InputRequest, outer: OuterCall, size: float, move_on_after: Timeout
    ) -> dict[str, Any]:
        try:
            with HandlerScope(nesting=self.call.nesting + 1, inputs=self.call.inputs):
                return await self.session.answer(
                    request.method, request.params, outer, size=size, move_on_after=move_on_after, always_wait=True
                )
        except InputRefused as exc:
            cause = exc.__cause__ if exc.code == INTERNAL_ERROR else None
            raise self._not_given(key, request, str(exc), cause) from (cause or exc)
        except Exception as exc:  # a bug in the client or in a handler
            logger.exception("answering %s failed", request.method)
            raise self._not_given(key, request, FAILED, exc) from exc

    def check_answers(self, required: InputRequired, answers: Params, error: CallerError) -> None:
        """The next request could not be sent, for *error*: find out whether one of the *answers* is the reason.

        Raises:
            InputNotGiven: One of them cannot be encoded as a part of a request.
        """
        for key, answer in answers.get("inputResponses", {}).items():
            try:
                encode(Request(0, self.call.method, {"inputResponses": {key: answer}}))
            except CallerError:
                raise self._not_given(key, required.requests[key], FAILED, error) from error

    def _not_given(self, key: str, request: InputRequest, why: str, cause: BaseException | None) -> InputNotGiven:
        asked = f"{quoted(request.method)} under {quoted(key)}"
        text = f"{self.call.method}: the server asks for {asked}: {why}"
        while isinstance(cause, InputNotGiven):  # a handler's own call failed: its cause is the interesting one
            cause = cause.__cause__
        if cause is not None:  # shown to the caller, never to the server
            text += f": {type(cause).__name__}" + (f": {excerpt(str(cause))}" if str(cause) else "")
        return InputNotGiven(text, key=key, method=request.method)
