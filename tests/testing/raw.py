"""A client that checks nothing, to assert what a test server sends, message by message."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anyio import (
    Event,
    create_memory_object_stream,
    create_task_group,
    fail_after,
    sleep_forever,
    wait_all_tasks_blocked,
)
from pydantic_core import from_json, to_json

from mcp_host.proxy import Proxy
from mcp_host.testing import Server
from mcp_host.transports.in_process import Inbox, Outbox
from tests import spec

Wire = dict[str, Any]

INFO = {"name": "raw", "version": "0"}
EVERYTHING: Wire = {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}

MODERN = "2026-07-28"
IN_TIME = 25.0  # seconds for a connection, in which nothing waits for long

RESULTS = {
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "initialize": "InitializeResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
}


ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}


def meta(capabilities: Wire | None = None, *, version: str = MODERN) -> Wire:
    """The `_meta` of every request since 2026-07-28."""
    declared = EVERYTHING if capabilities is None else capabilities
    said = {"protocolVersion": version, "clientInfo": INFO, "clientCapabilities": declared}
    return {f"io.modelcontextprotocol/{key}": value for key, value in said.items()}


INITIALIZE: Wire = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {"tools": {}}}, "clientInfo": INFO}
INITIALIZED: Wire = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(id: object, method: str, params: Wire | None = None) -> Wire:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def call(id: object, name: str, **params: object) -> Wire:
    return request(id, "tools/call", {"name": name, **params})


def with_meta(body: Wire, capabilities: Wire | None = None, **more: object) -> Wire:
    """A request with a complete ``_meta``, and *more* in it."""
    return {**body, "params": {**body["params"], "_meta": meta(capabilities) | more}}


def retry(name: str, answers: object, state: object, **arguments: object) -> Wire:
    """The parameters of a call that is made again, with *answers*."""
    return {"name": name, "arguments": arguments, "inputResponses": answers, "requestState": state}


def text(said: str) -> Wire:
    """The result of a tool that returned a text."""
    return {"content": [{"type": "text", "text": said}]}


def failed(said: str) -> Wire:
    """The result of a tool that failed."""
    return text(said) | {"isError": True}


def answer(said: str) -> Wire:
    """The model's answer."""
    return {"role": "assistant", "content": {"type": "text", "text": said}, "model": "m"}


def use(id: str, name: str, **input: object) -> Wire:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def calls(*uses: Wire) -> Wire:
    """The model's answer that calls tools."""
    content = uses[0] if len(uses) == 1 else list(uses)
    return {"role": "assistant", "content": content, "model": "m", "stopReason": "toolUse"}


def waiting(server: Server) -> tuple[Event, Event]:
    """Give *server* a tool that waits until it is cancelled. The events are its begin and its end."""
    begun, ended = Event(), Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await sleep_forever()
        finally:
            ended.set()

    return begun, ended


def check(message: Wire, revision: str, asked: dict[object, str]) -> None:
    """Validate a message of the server against the official schema of its revision."""
    assert revision != MODERN or not {"method", "id"} <= message.keys(), "no server asks in this revision"
    if "MCP_SPEC_DIR" not in os.environ:
        return
    match message:
        case {"method": _, "id": _}:
            spec.assert_valid(revision, "ServerRequest", message)
        case {"result": {"resultType": "input_required"}}:
            spec.assert_valid(revision, "InputRequiredResult", message["result"])
        case {"error": {"code": code}} if code in ERRORS:
            spec.assert_valid(MODERN, ERRORS[code], message)  # also in answer to an older client, who learns by it
        case {"method": _}:
            spec.assert_valid(revision, "ServerNotification", message)
        case {"result": result, "id": id}:
            spec.assert_valid(revision, RESULTS.get(asked[id], "EmptyResult"), result)


@dataclass(frozen=True)
class Round:
    """The input requests of a tool by name, and the state for the retry."""

    requests: dict[str, Wire]
    state: str


class Raw:
    """One connection, message by message. With *lenient*, its messages are not validated against the schema.

    With a *meta*, requests are of revision 2026-07-28.
    """

    def __init__(self, inbox: Inbox, outbox: Outbox, *, lenient: bool) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._lenient = lenient
        self._last_id = 0
        self._asked: dict[object, str] = {}
        self._revision = "2025-11-25"
        self.meta: Wire = {}

    async def receive(self) -> Wire:
        message: Wire = from_json(await self._inbox.receive())
        if self._asked.get(message.get("id")) == "initialize" and "result" in message:
            self._revision = message["result"]["protocolVersion"]
        if not self._lenient:
            check(message, MODERN if self.meta else self._revision, self._asked)
        return message

    async def nothing_more(self) -> bool:
        """Whether the server sends nothing more by itself."""
        await wait_all_tasks_blocked()
        return self._inbox.statistics().current_buffer_used == 0

    async def send(self, message: object) -> None:
        await self.send_raw(to_json(message))

    async def send_raw(self, raw: bytes) -> None:
        await self._outbox.send(raw)

    async def request(self, method: str, params: Wire | None = None) -> int:
        """Send a request; return its id."""
        self._last_id += 1
        await self.request_as(self._last_id, method, params)
        return self._last_id

    async def request_as(self, id: int | str, method: str, params: Wire | None = None) -> None:
        """Send a request with this id, which may be in use."""
        self._asked[id] = method
        await self.send(request(id, method, self._with_meta(params or {})))

    def _with_meta(self, params: Wire) -> Wire:
        return {**params, "_meta": {**self.meta, **params.get("_meta", {})}} if self.meta else params

    async def _answer(self, method: str, params: Wire | None) -> Wire:
        """The response to a request, which is expected to be the next message."""
        id = await self.request(method, params)
        answer = await self.receive()
        assert answer["id"] == id, answer
        return answer

    async def result(self, method: str, params: Wire | None = None) -> Wire:
        answer = await self._answer(method, params)
        assert "result" in answer, answer
        result: Wire = answer["result"]
        return result

    async def error(self, method: str, params: Wire | None = None) -> Wire:
        answer = await self._answer(method, params)
        assert "error" in answer, answer
        error: Wire = answer["error"]
        return error

    async def call(self, name: str, **arguments: object) -> Wire:
        """The result of a tool that requests no input."""
        return await self.result("tools/call", {"name": name, "arguments": arguments})

    async def start(self, name: str, **arguments: object) -> int:
        """Call a tool without waiting; return the request's id."""
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def reply(self, request: Wire, result: object) -> None:
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def reply_error(self, request: Wire, code: int, message: str, data: object) -> None:
        error = {"code": code, "message": message, "data": data}
        await self.send({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def complete(self, method: str, params: Wire | None = None) -> Wire:
        """The result of a request in 2026-07-28, without the fields that all results there have."""
        result = await self.result(method, params)
        assert result.pop("resultType") == "complete", result
        del result["_meta"]["io.modelcontextprotocol/serverInfo"]
        if not result["_meta"]:
            del result["_meta"]
        return result

    async def round(
        self, name: str, answers: Wire | None = None, state: str | None = None, **arguments: object
    ) -> Round:
        """Call a tool, for the first time or with *answers*, and return its input requests."""
        first = {"name": name, "arguments": arguments}
        params = first if state is None else retry(name, answers or {}, state, **arguments)
        result = await self.result("tools/call", params)
        assert result["resultType"] == "input_required", result
        return Round(result["inputRequests"], result["requestState"])

    async def last_round(self, name: str, answers: Wire, state: str, **arguments: object) -> Wire:
        """Call a tool again with *answers*, and return its result."""
        return await self.complete("tools/call", retry(name, answers, state, **arguments))

    async def notify(self, method: str, params: Wire | None = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def close(self) -> None:
        """End the connection; returns when the server has ended it, too."""
        await self._outbox.aclose()
        async for _ in self._inbox:
            pass

    async def initialize(self, *, version: str = "2025-11-25", capabilities: Wire | None = None) -> Wire:
        declared = EVERYTHING if capabilities is None else capabilities
        result = await self.result("initialize", INITIALIZE | {"protocolVersion": version, "capabilities": declared})
        await self.send(INITIALIZED)
        return result


@asynccontextmanager
async def connect(server: Server | Proxy, *, lenient: bool = False) -> AsyncIterator[Raw]:
    """A connection before the handshake. It fails if it lasts longer than `IN_TIME`."""
    to_server, server_inbox = create_memory_object_stream[bytes](100)
    server_outbox, from_server = create_memory_object_stream[bytes](1000)

    async def serve() -> None:
        with server_inbox, server_outbox:
            await server.in_process().serve(server_inbox, server_outbox)

    with to_server, from_server, fail_after(IN_TIME):
        async with create_task_group() as tasks:
            tasks.start_soon(serve)
            try:
                yield Raw(from_server, to_server, lenient=lenient)
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def legacy(
    server: Server | Proxy, *, version: str = "2025-11-25", capabilities: Wire | None = None, lenient: bool = False
) -> AsyncIterator[Raw]:
    """A connection after the handshake."""
    async with connect(server, lenient=lenient) as raw:
        await raw.initialize(version=version, capabilities=capabilities)
        yield raw


@asynccontextmanager
async def modern(
    server: Server | Proxy, *, capabilities: Wire | None = None, lenient: bool = False
) -> AsyncIterator[Raw]:
    """A connection whose requests are of revision 2026-07-28."""
    async with connect(server, lenient=lenient) as raw:
        raw.meta = meta(capabilities)
        yield raw
