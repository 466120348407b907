"""A server object of the official Python SDK or of FastMCP, run in the same process.

Neither is imported here: a program that has such an object has imported its package.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any, Protocol, TypeGuard

from anyio import CancelScope, create_task_group, current_time, sleep_forever
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from pydantic import TypeAdapter

from mcp_host.concurrency.tasks import awaited, bare, reraise
from mcp_host.transports.in_process import Inbox, InProcess, Outbox

SHUTDOWN_GRACE = 2.0  # seconds for a lifespan to end, after the client has closed

PACKAGES = frozenset({"mcp", "fastmcp"})
LOWLEVEL = (
    "_mcp_server",
    "_lowlevel_server",
)  # where FastMCP (of either package) and MCPServer keep the server they wrap


class SdkServer(Protocol):
    """A low-level ``Server`` of the official SDK (1.x or 2.x), ``MCPServer``, or ``FastMCP`` of either package."""

    @property
    def name(self) -> str: ...

    def run(self, *args: Any, **kwargs: Any) -> Any: ...


def is_sdk_server(candidate: object) -> TypeGuard[SdkServer]:
    """Whether *candidate* is a server object of the SDK or of FastMCP, by the module of its class."""
    modules = {cls.__module__.partition(".")[0] for cls in type(candidate).__mro__}
    return bool(modules & PACKAGES) and hasattr(_lowlevel(candidate), "create_initialization_options")


def in_process(server: SdkServer) -> InProcess:
    """A transport to *server* in the same process. Each connection enters and leaves its lifespan.

    It speaks the eras of the server object: in version 1 of the SDK, only the handshake.
    When the client has closed, the server has `SHUTDOWN_GRACE` seconds for its clean-up.
    """

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        running = CancelScope(shield=True)

        async def run() -> None:
            with running:
                await awaited(_run(server, inbox, outbox), "it")
            tasks.cancel_scope.cancel()

        try:
            async with create_task_group() as tasks:
                tasks.start_soon(run)
                try:
                    await sleep_forever()
                finally:  # the client has closed, which ends the inbox, too
                    running.deadline = current_time() + SHUTDOWN_GRACE
        except Exception as exc:
            reraise(bare(exc))

    return InProcess(serve, name=server.name)


def _lowlevel(server: object) -> Any:
    """The server that speaks the protocol: *server* itself, or the one that it wraps."""
    return next((getattr(server, name) for name in LOWLEVEL if hasattr(server, name)), server)


async def _run(server: SdkServer, inbox: Inbox, outbox: Outbox) -> None:
    lowlevel = _lowlevel(server)
    manager = getattr(server, "_lifespan_manager", None)  # FastMCP's lifespan contains the low-level server's
    async with manager() if manager is not None else nullcontext():
        options = lowlevel.create_initialization_options()
        messages = _Messages(inbox, outbox)
        await lowlevel.run(messages, messages, options)


class _Messages(ObjectReceiveStream[Any], ObjectSendStream[Any]):
    """The messages of a connection in the SDK's own type: a model, or a union of models, by version."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        types: Any = import_module("mcp.types")
        self._adapter: TypeAdapter[Any] = TypeAdapter(types.JSONRPCMessage)
        self._session_message = import_module("mcp.shared.message").SessionMessage
        self._inbox = inbox
        self._outbox = outbox

    async def receive(self) -> Any:
        return self._session_message(self._adapter.validate_json(await self._inbox.receive()))

    async def send(self, item: Any) -> None:
        await self._outbox.send(self._adapter.dump_json(item.message, by_alias=True, exclude_none=True))

    async def aclose(self) -> None:
        """The server closes it, but the connection ends when `run` does: only then is its error known."""
