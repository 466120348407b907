"""A server that sends exactly what a test needs, and records all that it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from mcp_host.limits import Limits
from mcp_host.protocol.eras import ACKNOWLEDGED, DISCOVER
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND
from mcp_host.transports.base import Channel
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from mcp_host.types.base import given

Wire: TypeAlias = dict[str, Any]  # one message, decoded and otherwise untouched
Script: TypeAlias = "Callable[[ScriptedPeer], Awaitable[None]]"

VERSION = "2025-11-25"
STATELESS = "2026-07-28"


class ScriptedPeer:
    """A transport to a server that follows a script. It checks nothing, so it can break any rule.

    >>> async def script(peer: ScriptedPeer) -> None:
    ...     await peer.answer_initialize(capabilities={"tools": {}})
    ...     call = await peer.receive("tools/call")
    ...     await peer.reply(call, {"content": []})
    >>> peer = ScriptedPeer(script)
    >>> async with Client(peer) as client:
    ...     await client.call_tool("anything")
    >>> assert [message["method"] for message in peer.received][-1] == "tools/call"

    The script runs once for every connection. When it returns, the connection stays open and
    the peer is silent; call `aclose` to end it. An exception in the script ends the
    connection, too, and is named in the client's `ConnectionClosed`.
    """

    restart: bool = False
    """Never: the script runs once for every connection that the test makes."""

    def __init__(self, script: Script, *, name: str = "the scripted peer") -> None:
        self.received: list[Wire] = []
        """Every message from the client so far, in order, over all connections."""
        self.name: str = name
        """The server's name, in the handshake and in errors."""
        self.identity: str = name
        """As of an in-process transport."""
        self._script = script
        self._last_id = 0
        self._inbox: Inbox
        self._outbox: Outbox

    def named(self, name: str) -> InProcess:
        """This peer, under the name that the host gave it."""
        return InProcess(self._serve, name=name)

    def open(self, limits: Limits) -> AbstractAsyncContextManager[Channel]:
        """Open a connection, and start the script."""
        return InProcess(self._serve, name=self.name).open(limits)

    # Receiving

    async def receive(self, method: str | None = None) -> Wire:
        """Wait for the client's next message; with *method*, for the next of that method, recording those before it."""
        while True:
            message: Wire = from_json(await self._inbox.receive())
            self.received.append(message)
            if method is None or message.get("method") == method:
                return message

    async def answer_initialize(
        self,
        *,
        capabilities: Mapping[str, Any] | None = None,
        version: str = VERSION,
        instructions: str | None = None,
    ) -> Wire:
        """Answer the client's ``initialize``, and wait for ``notifications/initialized``.

        A ``server/discover`` before it is answered with an error, as servers of these revisions do.

        Returns:
            The ``initialize`` request.
        """
        request = await self.receive()
        while request.get("method") != "initialize":
            if request.get("method") == DISCOVER:
                await self.reply_error(request, METHOD_NOT_FOUND, "Method not found")
            request = await self.receive()
        result: Wire = {
            "protocolVersion": version,
            "capabilities": dict(capabilities or {}),
            "serverInfo": {"name": self.name, "version": "0"},
        }
        await self.reply(request, result | given(instructions=instructions))
        await self.receive("notifications/initialized")
        return request

    async def answer_discover(
        self,
        *,
        capabilities: Mapping[str, Any] | None = None,
        versions: Sequence[str] = (STATELESS,),
        instructions: str | None = None,
    ) -> Wire:
        """Answer the client's ``server/discover``, as stateless servers do (since 2026-07-28).

        Returns:
            The ``server/discover`` request.
        """
        if isinstance(versions, str):
            raise TypeError(f"versions has to be a list of texts, such as {[versions]!r}, not one text")
        request = await self.receive(DISCOVER)
        result: Wire = {
            "resultType": "complete",
            "supportedVersions": list(versions),
            "capabilities": dict(capabilities or {}),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "0"}},
        }
        await self.reply(request, result | given(instructions=instructions))
        return request

    # Sending

    async def reply(self, request: Wire, result: Mapping[str, Any]) -> None:
        """Answer *request* with a result."""
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def reply_error(self, request: Wire, code: int, message: str, data: object = None) -> None:
        """Answer *request* with an error."""
        error = {"code": code, "message": message} | given(data=data)
        await self.send({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Wire:
        """Send a request and wait for its response, recording other messages meanwhile."""
        self._last_id += 1
        id = f"peer-{self._last_id}"
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        while True:
            message = await self.receive()
            if message.get("id") == id and "method" not in message:
                return message

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def acknowledge(self, listen: Wire, notifications: Mapping[str, Any] | None = None) -> None:
        """Acknowledge a ``subscriptions/listen``: all that it requests, or *notifications*."""
        granted = listen["params"]["notifications"] if notifications is None else notifications
        await self.notify_subscription(listen, ACKNOWLEDGED, {"notifications": granted})

    async def notify_subscription(self, listen: Wire, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification that belongs to the subscription *listen*."""
        meta = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
        await self.notify(method, {**(params or {}), "_meta": meta})

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send this message as it is. Nothing is added or checked."""
        await self.send_raw(to_json(message))

    async def send_raw(self, raw: bytes) -> None:
        """Send these bytes as one message: they need not be JSON.

        Raises:
            TypeError: They are no bytes.
        """
        if not isinstance(raw, bytes):
            raise TypeError(f"send_raw takes bytes, not {type(raw).__name__}; send() takes a message")
        await self._outbox.send(raw)

    async def aclose(self) -> None:
        """End the connection."""
        await self._outbox.aclose()

    # One connection

    async def _serve(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox, self._outbox = inbox, outbox
        await self._script(self)
        while True:
            await self.receive()  # until the client disconnects
