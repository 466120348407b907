"""The rounds of one call: a server asks for input inside a result, and the call is made again with the answers.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
"""

from __future__ import annotations

import logging
from typing import Any

from anyio import create_task_group, sleep

from mcp_host.concurrency import first
from mcp_host.errors import (
    CallerError,
    InputNotGiven,
    InputRefused,
    RoundsExceeded,
    excerpt,
    quoted,
)
from mcp_host.limits import Limits
from mcp_host.protocol.eras import InputRequest, InputRequired
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Id, Params, Success, encode
from mcp_host.sampling import OuterCall
from mcp_host.session.call import Call, enter_handler
from mcp_host.session.features import SessionFeatures
from mcp_host.session.inbound import FAILED

logger = logging.getLogger(__name__)

IDLE_PAUSE = 0.1  # seconds before a call that only a state comes with is made again; twice as long the next time
LONGEST_PAUSE = 10.0  # seconds, for who allows many of them


class InputRequiredLoop:
    """Counts what the server asks for within *call*, and answers it with the session's *inputs*."""

    def __init__(self, call: Call, inputs: SessionFeatures, limits: Limits) -> None:
        self._call = call
        self._inputs = inputs
        self._limits = limits
        self._idle = 0
        self._asked = 0

    async def answer(self, wanted: InputRequired, id: Id) -> Params:
        """What the next request carries besides its own params; *id* is that of the last one.

        Raises:
            RoundsExceeded: The server asks too much.
            InputNotGiven: A handler failed, or somebody or some rule refused.
            RequestTimeout: One of the call's clocks ran out meanwhile.
        """
        self._count(wanted)
        given: Params = {} if wanted.state is None else {"requestState": wanted.state}
        timeouts = self._call.timeouts
        if not wanted.requests:
            with timeouts.bound(self._call.method):
                await sleep(min(IDLE_PAUSE * 2.0 ** (self._idle - 1), LONGEST_PAUSE))
            return given
        timeouts.pause()
        try:
            with timeouts.bound(self._call.method, idle=True):
                given["inputResponses"] = await self._answer_all(wanted, id)
        finally:
            timeouts.resume()
        return given

    def _count(self, wanted: InputRequired) -> None:
        limits, count = self._limits, len(wanted.requests)
        self._idle = 0 if count else self._idle + 1
        self._asked += count
        if self._idle > limits.max_idle_rounds:
            raise self._exceeded(f"gave no result and asked for nothing {self._idle} times in a row", "max_idle_rounds")
        if count and self._call.nesting >= limits.max_nesting:
            raise self._exceeded(f"asked for input in {limits.max_nesting} handlers within each other", "max_nesting")
        if count > limits.max_inputs_per_round:
            raise self._exceeded(f"asked for {count} inputs at once", "max_inputs_per_round")
        if self._asked > limits.max_inputs:
            raise self._exceeded(f"asked for more than {limits.max_inputs} inputs", "max_inputs")

    def _exceeded(self, what: str, limit: str) -> RoundsExceeded:
        return RoundsExceeded(f"{self._call.method}: the server {what}", limit)

    async def _answer_all(self, wanted: InputRequired, id: Id) -> dict[str, Any]:
        """Every answer, in the order of the questions. The first that cannot be given ends the others."""
        call = self._call.outer(id, inferred=False)
        answers: dict[str, Any] = dict.fromkeys(wanted.requests)
        failures: list[InputNotGiven] = []

        async def answer(key: str, request: InputRequest) -> None:
            enter_handler(self._call.nesting)
            try:
                answers[key] = await self._answer(key, request, call)
            except InputNotGiven as exc:
                failures.append(exc)
                tasks.cancel_scope.cancel()

        try:
            async with create_task_group() as tasks:
                for key, request in wanted.requests.items():
                    tasks.start_soon(answer, key, request)
        except BaseExceptionGroup as group:  # only what no handler may keep to itself, like KeyboardInterrupt
            raise first(group) from None
        if failures:
            raise failures[0]
        return answers

    async def _answer(self, key: str, request: InputRequest, call: OuterCall) -> dict[str, Any]:
        try:
            return await self._inputs.answer(request.method, request.params, call)
        except InputRefused as exc:
            failed = exc.__cause__ if exc.code == INTERNAL_ERROR else None
            raise self._not_given(key, request, str(exc), failed) from (failed or exc)
        except Exception as exc:  # a bug of ours or of a handler
            logger.exception("answering %s failed", request.method)
            raise self._not_given(key, request, FAILED, exc) from exc

    def unwritable(self, wanted: InputRequired, given: Params, error: CallerError) -> InputNotGiven:
        """What *error* means, with which *given* could not be written for what was *wanted*.

        An answer is no JSON: all else has been sent before, or came from the server.
        """
        key = next(key for key, answer in given["inputResponses"].items() if not _is_json(answer))
        return self._not_given(key, wanted.requests[key], FAILED, error)

    def _not_given(self, key: str, request: InputRequest, why: str, cause: BaseException | None) -> InputNotGiven:
        asked = f"{quoted(request.method)} under {quoted(key)}"
        text = f"{self._call.method}: the server wants {asked}: {why}"
        while isinstance(cause, InputNotGiven):  # of a call that the handler made: what failed there is what matters
            cause = cause.__cause__
        if cause is not None:  # which is ours alone: this error goes to the caller, and nothing to the server
            text += f": {type(cause).__name__}" + (f": {excerpt(str(cause))}" if str(cause) else "")
        return InputNotGiven(text, key=key, method=request.method)


def _is_json(answer: Params) -> bool:
    try:
        encode(Success(0, answer))
    except CallerError:
        return False
    return True
