"""A server object of the official Python SDK or of FastMCP, run in this very process.

Neither is imported here: a program that has such an object has imported what it takes.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self, TypeGuard

from anyio import CancelScope, EndOfStream, create_task_group, current_time, sleep_forever
from pydantic import TypeAdapter

from mcp_host.concurrency import bare
from mcp_host.transports.in_process import Inbox, InProcess, Outbox

SHUTDOWN_GRACE = 2.0  # seconds for a lifespan to end, after the client has hung up

PACKAGES = frozenset({"mcp", "fastmcp"})
LOWLEVEL = ("_mcp_server", "_lowlevel_server")  # where FastMCP (of either package) and MCPServer keep what they wrap


class SdkServer(Protocol):
    """A low-level ``Server`` of the official SDK (1.x or 2.x), ``MCPServer``, or ``FastMCP`` of either package."""

    @property
    def name(self) -> str: ...

    def run(self, *args: Any, **kwargs: Any) -> Any: ...


def is_sdk_server(candidate: object) -> TypeGuard[SdkServer]:
    """Whether *candidate* is a server object of the SDK or of FastMCP, by the module of its class."""
    modules = {cls.__module__.partition(".")[0] for cls in type(candidate).__mro__}
    return bool(modules & PACKAGES) and hasattr(_lowlevel(candidate), "create_initialization_options")


def in_process(server: SdkServer, *, grace: float = SHUTDOWN_GRACE) -> InProcess:
    """A transport to *server* in this very process. Each connection enters its lifespan, and leaves it.

    It speaks the eras that the object itself speaks: until version 1 of the SDK, only the handshake.
    When the client has hung up, it has *grace* seconds for its clean-up.
    """

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        try:
            await _serve(server, inbox, outbox, grace)
        except Exception as exc:
            raise bare(exc) from None

    return InProcess(serve, name=server.name)


def _lowlevel(server: object) -> Any:
    """What speaks the protocol: the server itself, or what it wraps."""
    return next((getattr(server, name) for name in LOWLEVEL if hasattr(server, name)), server)


async def _serve(server: SdkServer, inbox: Inbox, outbox: Outbox, grace: float) -> None:
    """Run *server* until its inbox ends. A client that leaves ends it first, and then there is time to clean up."""
    running = CancelScope(shield=True)

    async def run() -> None:
        with running:
            await _run(server, inbox, outbox)
        tasks.cancel_scope.cancel()

    async with create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            await sleep_forever()
        finally:
            running.deadline = current_time() + grace


async def _run(server: SdkServer, inbox: Inbox, outbox: Outbox) -> None:
    lowlevel = _lowlevel(server)
    codec = _Codec()
    manager = getattr(server, "_lifespan_manager", None)  # FastMCP's; what it holds must outlive the low-level server
    async with manager() if manager is not None else nullcontext():
        await lowlevel.run(
            _ReadStream(inbox, codec), _WriteStream(outbox, codec), lowlevel.create_initialization_options()
        )


class _Codec:
    """Between bytes and the SDK's own message objects, which are models or a union of them, by version."""

    def __init__(self) -> None:
        of_the_sdk: Any = import_module("mcp.types")
        self._messages: TypeAdapter[Any] = TypeAdapter(of_the_sdk.JSONRPCMessage)
        self._session_message = import_module("mcp.shared.message").SessionMessage

    def read(self, raw: bytes) -> Any:
        return self._session_message(self._messages.validate_json(raw))

    def write(self, message: Any) -> bytes:
        return self._messages.dump_json(message.message, by_alias=True, exclude_none=True)


class _Stream:
    """What both ends have in common for the SDK: they are entered and closed.

    The connection ends when `run` does, and not before: only then it is known what it has failed with.
    """

    def __init__(self, codec: _Codec) -> None:
        self._codec = codec

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


class _ReadStream(_Stream):
    """Where the server reads."""

    def __init__(self, inbox: Inbox, codec: _Codec) -> None:
        super().__init__(codec)
        self._inbox = inbox

    async def receive(self) -> Any:
        return self._codec.read(await self._inbox.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class _WriteStream(_Stream):
    """Where the server writes."""

    def __init__(self, outbox: Outbox, codec: _Codec) -> None:
        super().__init__(codec)
        self._outbox = outbox

    async def send(self, message: Any) -> None:
        await self._outbox.send(self._codec.write(message))
