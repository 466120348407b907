"""A host that keeps every rule, written without this package's client, and what it can do wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from anyio import create_memory_object_stream, create_task_group
from pydantic_core import from_json, to_json

from mcp_host.doctor import Doctor
from mcp_host.doctor.exchanges import DEFAULTS, PROGRESS_TOKEN, USES
from mcp_host.doctor.seen import Refused
from mcp_host.transports.in_process import Inbox, Outbox

Wire: TypeAlias = dict[str, Any]
Answer: TypeAlias = "Wire | Refused | None"
"""None: the host does not answer, and leaves its call."""

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
FULL: Wire = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
MOST_CALLS = 30

HELLO: Wire = {
    "role": "assistant",
    "content": {"type": "text", "text": "Hello."},
    "model": "m",
    "stopReason": "endTurn",
}
FILLED_IN: Wire = {
    "text": "abc",
    "email": "a@b.example",
    "uri": "https://a.example/",
    "date": "2026-11-22",
    "date-time": "2026-11-22T09:30:00Z",
    "number": 1.5,
    "integer": 2,
    "boolean": True,
    "choice": "red",
    "titled-choice": "r",
    "choices": ["red"],
    "titled-choices": ["g"],
}
INVALID = Refused(-32602, "no")
RIGHT: Mapping[str, Answer] = {
    "ping": {},
    "unknown-method": Refused(-32601, "no such method"),
    "roots": {"roots": [{"uri": "file:///home", "name": "home"}]},
    "tool-choice-required": {**HELLO, "content": USES["content"], "stopReason": "toolUse"},
    "form": {"action": "accept", "content": FILLED_IN},
    "form-without-mode": {"action": "accept", "content": {"name": "x"}},
    "form-defaults": {"action": "accept", "content": {name: each["default"] for name, each in DEFAULTS.items()}},
    "form-decline": {"action": "decline"},
    "form-cancel": {"action": "cancel"},
    "url": {"action": "accept"},
    "cancelled": None,
    "denied": Refused(-1, "User rejected sampling request"),
    "undeclared-roots": Refused(-32601, "no roots"),
    **dict.fromkeys(("unknown-content", "missing-result", "mixed-results", "orphan-result"), INVALID),
    **dict.fromkeys(("undeclared-tools", "undeclared-url", "undeclared-form"), INVALID),
}
"""What answers an exchange; where there is nothing, `HELLO` does."""


class Reports(NamedTuple):
    """A notification that goes with an exchange, before its answer or after it."""

    exchange: str
    params: Wire
    method: str = "notifications/progress"


def progress(value: object, token: object = PROGRESS_TOKEN, exchange: str = "sampling-progress") -> Reports:
    return Reports(exchange, {"progressToken": token, "progress": value})


@dataclass(kw_only=True)
class Host:
    """A host that calls the tool until the check-up is complete. Each field says what it does otherwise."""

    answers: Mapping[str, Callable[[Wire], Answer] | Answer] = field(default_factory=dict)
    """By exchange: another answer, or what makes it of the right one."""
    pings: Mapping[str, Answer] = field(default_factory=dict)
    """By exchange: the answer to the ping that follows it."""
    capabilities: Wire = field(default_factory=lambda: FULL)
    reports: Sequence[Reports] = (progress(1), progress(2))
    token: object = "t"
    initializes: bool = True
    named: bool = True
    same_ids: bool = False
    answers_cancelled: Answer = None
    """The answer to the request that was cancelled."""
    crosses: bool = False
    """Whether that is sent before the cancellation is read."""
    one_by_one: bool = False
    loses_state: str = ""
    """The exchange whose answer it sends without the state."""

    async def run(self, doctor: Doctor, revision: str) -> None:
        """Call the tool of *doctor* until it is complete, or `MOST_CALLS` times."""
        self._stateless, self._exchange, self._left, self._id = revision == MODERN, "", "", 0
        self._cancelled: object = None
        self._send, inbox = create_memory_object_stream[bytes](math.inf)
        outbox, self._receive = create_memory_object_stream[bytes](math.inf)
        async with create_task_group() as tasks:
            tasks.start_soon(self._serve, doctor, inbox, outbox)
            if not self._stateless:
                hello = {"clientInfo": {"name": "wrong", "version": "1"}, "capabilities": self.capabilities}
                await self._result("initialize", {"protocolVersion": revision, **hello})
                if self.initializes:
                    self._write(method="notifications/initialized")
            for _ in range(MOST_CALLS):
                result = await self._call()
                if result is not None and result["structuredContent"]["complete"]:
                    break
            self._send.close()
        for stream in (self._receive, inbox, outbox):
            stream.close()

    async def _serve(self, doctor: Doctor, inbox: Inbox, outbox: Outbox) -> None:
        await doctor.in_process().serve(inbox, outbox)

    async def _call(self) -> Wire | None:
        """The result of a call; None if it was left or refused."""
        params: Wire = {"name": "check_host", "arguments": {}, "_meta": self._meta()}
        while (result := await self._result("tools/call", params)) is not None:
            if result.get("resultType") != "input_required":
                return result
            requests = list(result["inputRequests"].items())
            answers = {key: self._answer(each["method"], each["params"]) for key, each in requests}
            if not all(isinstance(answer, dict) for answer in answers.values()):
                return None
            if self.one_by_one:
                answers = dict([*answers.items()][:1])
            params = params | {"inputResponses": answers, "requestState": result["requestState"]}
            if self.loses_state == self._exchange:
                del params["requestState"]
        return None

    def _meta(self) -> Wire:
        meta = {"progressToken": self.token}
        if self._stateless:
            meta |= {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": self.capabilities}
            if self.named:
                meta[f"{META}clientInfo"] = {"name": "wrong", "version": "1"}
        return meta

    async def _result(self, method: str, params: Wire) -> Wire | None:
        self._id += not (self.same_ids and "inputResponses" in params)
        self._write(id=self._id, method=method, params=params)
        while True:
            message = from_json(await self._receive.receive())
            match message:
                case {"id": self._id, "result": dict(result)}:
                    return result
                case {"id": self._id, "error": dict()}:
                    return None
                case {"method": "notifications/progress", "params": {"message": str(exchange)}}:
                    self._exchange = exchange
                case {"id": id, "method": str(asked)}:
                    if not self._respond(id, asked, message.get("params", {})):
                        self._write(method="notifications/cancelled", params={"requestId": self._id})
                        return None

    def _respond(self, id: object, method: str, params: Wire) -> bool:
        """Answer a request, unless that leaves the call."""
        first = method != "ping" or self._exchange == "ping"
        answer = self._answer(method, params) if first else self.pings.get(self._exchange, {})
        if self._exchange == "cancelled" and first:
            answer = self.answers_cancelled if self.crosses else None
            self._cancelled = None if self.crosses else id
        elif self._cancelled is not None and self._exchange != "cancelled":
            self._write_answer(self._cancelled, self.answers_cancelled)
            self._cancelled = None
        if answer is None and self._exchange != "cancelled":
            left, self._left = self._left == self._exchange, self._exchange
            return left
        for each in self.reports if first else ():
            if each.exchange == self._exchange:
                self._write(method=each.method, params=each.params)
        self._write_answer(id, answer)
        return True

    def _write_answer(self, id: object, answer: Answer) -> None:
        if isinstance(answer, Refused):
            self._write(id=id, error={"code": answer.code, "message": answer.message})
        elif answer is not None:
            self._write(id=id, result=answer)

    def _answer(self, method: str, params: Wire) -> Answer:
        right = RIGHT.get(self._exchange, HELLO)
        wrong = self.answers.get(self._exchange, right)
        return wrong(right if isinstance(right, dict) else HELLO) if callable(wrong) else wrong

    def _write(self, **message: object) -> None:
        self._send.send_nowait(to_json({"jsonrpc": "2.0", **message}))
