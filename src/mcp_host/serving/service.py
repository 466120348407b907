"""What a server is to the code that serves it: what it says of itself, and how it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from mcp_host.protocol.eras import REQUIRED_CAPABILITY
from mcp_host.protocol.jsonrpc import METHOD_NOT_FOUND, Notification, Params, Response
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, MODERN_VERSIONS
from mcp_host.serving.errors import RequestError
from mcp_host.serving.remote_client import Notify, ReceivedRequest, RemoteClient
from mcp_host.serving.subscriptions import Subscription
from mcp_host.types import Implementation, JSONObject

Ask: TypeAlias = Callable[[str, Params], Awaitable[Params]]
"""Sends the client a request, and returns its result. Raises `ClientError`."""

Handler: TypeAlias = Callable[[ReceivedRequest, Ask], Awaitable[Params]]
"""Answers a request of the client. Raises `RequestError` to refuse."""

Prepare: TypeAlias = Callable[[], Awaitable[None]]


class Peer(NamedTuple):
    """The client of a session, outside of its requests."""

    ask: Ask
    notify: Notify


@dataclass(slots=True, kw_only=True, eq=False)
class Service(ABC):
    """A server, for any number of clients and transports at a time."""

    info: Implementation
    instructions: str | None
    versions: tuple[str, ...]
    """The revisions that it speaks, the preferred one first."""
    ttl: float
    """Seconds for which a client may keep the result of a list or a resource, since 2026-07-28."""
    resume_timeout: float
    """Seconds for which a function that has requested input waits for the retry, since 2026-07-28."""
    max_suspended: int
    """How many functions may wait so, on each connection or HTTP endpoint."""
    state_key: bytes | None = None
    """Authenticates the states of retries; None for a random one of each connection or HTTP endpoint."""
    subscriptions: list[Subscription] = field(default_factory=list)

    relays = False
    """Whether `find` also gets what a session keeps: the log level, and which resources the client has subscribed to."""

    pause = 0.0
    """Seconds in which a function may request more input for the same round, since 2026-07-28: where it asks for another process."""

    def begin(self, peer: Peer | None, principal: Hashable = None) -> Service:
        """The service of a session of *principal* with *peer*, or of its stateless requests: by default this one, which all share."""
        return self

    def end(self) -> None:  # noqa: B027  # most need not know
        """The session has ended."""

    async def aclose(self) -> None:  # noqa: B027  # most have opened nothing
        """Close what the service has opened, of all sessions. Called at the end of serving."""

    def prepare(self, client: RemoteClient) -> Prepare | None:
        """What has to be awaited before *info*, *instructions* and `capabilities` are right for *client*; None if nothing."""
        return None

    def notified(self, notification: Notification) -> None:  # noqa: B027  # most expect none
        """The client of a session has sent a notification of its own."""

    def unexpected(self, response: Response) -> None:  # noqa: B027  # most do not care
        """The client of a session has answered a request that is not open, such as a cancelled one."""

    @asynccontextmanager
    async def listening(self, uris: Sequence[str], client: RemoteClient) -> AsyncIterator[Set[str]]:
        """While a client listens (2026-07-28): the value is those of *uris* whose changes are announced."""
        yield {*uris}

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The revisions that begin with a handshake, the preferred one first."""
        return tuple(version for version in self.versions if version in LEGACY_VERSIONS)

    @property
    def modern_versions(self) -> tuple[str, ...]:
        """The stateless revisions."""
        return tuple(version for version in self.versions if version in MODERN_VERSIONS)

    @abstractmethod
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare."""

    def others(self) -> Params:
        """What else the client is told when it connects: members that no revision names, and ``_meta``."""
        return {}

    @abstractmethod
    def find(self, method: str, params: Params, client: RemoteClient) -> Params | Handler:
        """The result of a request, or the function that answers it.

        Raises:
            RequestError: There is no such method, or its parameters are malformed.
        """

    def input_schema(self, tool: str) -> JSONObject | None:
        """The schema of a tool's arguments, whose annotated parameters HTTP headers repeat; None if it is unknown."""
        return None

    def check(self, method: str) -> None:
        """Raise `RequestError` if *method* needs a capability that the server does not declare."""
        capability, *_ = REQUIRED_CAPABILITY.get(method, (None,))
        if capability is not None and capability not in self.capabilities():
            raise RequestError(METHOD_NOT_FOUND, f"{method} needs {capability}, which was not declared")

    # Notifications

    @contextmanager
    def subscribed(self, subscription: Subscription) -> Iterator[None]:
        """Announce changes to *subscription* as long as this is entered."""
        self.subscriptions.append(subscription)
        try:
            yield
        finally:
            self.subscriptions.remove(subscription)

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification to all clients that have chosen it."""
        for subscription in list(self.subscriptions):
            await subscription.event_loop.run(subscription.announce, method, params)
