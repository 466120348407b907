"""One open connection: its handshake, and a new one when the server has forgotten us."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import Event, create_task_group, fail_after, move_on_after
from anyio.abc import TaskGroup

from mcp_host.client.exchange import OnReport, Patience
from mcp_host.client.failures import server_error
from mcp_host.client.inputs import Inputs
from mcp_host.client.link import Link
from mcp_host.client.notices import Notices
from mcp_host.client.session import Session
from mcp_host.errors import (
    ConnectionClosed,
    ConnectTimeout,
    McpError,
    NotAdvertised,
    ProtocolError,
    ServerError,
    SessionLost,
    Unauthorized,
)
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Params
from mcp_host.protocol.negotiation import HANDSHAKE_VERSIONS, accept, counter_offer
from mcp_host.transports.base import Transport
from mcp_host.types import Implementation, InitializeResult
from mcp_host.types.base import Model

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=Model)

INITIALIZED_DEADLINE = 5.0  # seconds for a notification that nothing depends on
LETTING_GO = 1.0  # seconds for cancelled callers to leave their streams before these are torn down

MAX_WARNINGS = 100  # kept for the application; the log has them all


@dataclass
class Registration:
    """What the application registered. Outlives every connection, so that no reconnect can miss any of it."""

    client_info: Implementation
    inputs: Inputs
    limits: Limits
    warnings: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    advertise_tools: bool = True
    """Turned off for good by a server that stumbles over `sampling.tools`."""

    @property
    def advertises_tools(self) -> bool:
        return self.advertise_tools and self.inputs.offers_sampling_tools

    def give_up_tools(self, server: str) -> None:
        """This server is too strict for `sampling.tools`: never advertise it to it again."""
        self.advertise_tools = False
        self.warn(
            f"{server} failed the handshake that advertised sampling.tools and passed it without: plain sampling only"
        )

    def warn(self, text: str) -> None:
        """Something the application should know, though nothing failed."""
        logger.warning("%s", text)
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)


class Connection:
    """The live side of a client."""

    def __init__(self, name: str, registration: Registration, link: Link, tasks: TaskGroup) -> None:
        self.link = link
        self.log_level: str | None = None
        self.subscriptions: dict[str, None] = {}
        self._name = name
        self._registration = registration
        self._tasks = tasks
        self._renewal: Renewal | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, transport: Transport, registration: Registration, notices: Notices
    ) -> AsyncIterator[Connection]:
        """Reach the server and shake hands; leave everything behind at the end, in every case."""
        limits = registration.limits
        async with transport.open(limits) as channel, create_task_group() as tasks:
            link = Link(channel, tasks, notices, limits, registration.counters)
            tasks.start_soon(link.listen)
            if notices.wanted:
                tasks.start_soon(notices.run)
            try:
                connection = cls(transport.name, registration, link, tasks)
                link.begin(await connection._shake_hands(epoch=1))
                yield connection
            finally:
                link.close(ConnectionClosed("the client was closed"))
                with move_on_after(LETTING_GO, shield=True):
                    await link.idle()
                tasks.cancel_scope.cancel()

    # Requests

    @property
    def limits(self) -> Limits:
        return self._registration.limits

    def read_items(self, method: str, key: str, model: type[ModelT], page: Params) -> list[ModelT]:
        """The items of one page. One that is malformed is left out, and does not hide the others."""
        wire = page.get(key)
        if not isinstance(wire, list):
            raise ProtocolError(f"the result of {method} has no list {key!r}")
        items: list[ModelT] = []
        for position, item in enumerate(wire):
            try:
                items.append(model.from_wire(item))
            except ProtocolError as exc:
                self._registration.warn(f"{self._name}: left out of {method}, position {position}: {exc}")
        return items

    async def request(
        self, method: str, params: Params, patience: Patience, on_report: OnReport | None = None
    ) -> Params:
        """See one request through to its result, in a new session if the server has lost ours.

        Raises:
            ServerError: The server answered with an error.
            NotAdvertised: The server does not offer this; it was not asked.
        """
        if self._renewal is not None:
            await self._renewal.outcome()
        session = self.link.require()
        if missing := session.era.missing(method, session.capabilities):
            raise NotAdvertised(f"{self._name} did not advertise {missing}, which {method} needs")
        try:
            return await self._ask(session, method, params, patience, on_report)
        except SessionLost as lost:
            await self._renew(session)
            if lost.may_have_run:
                raise
        return await self._ask(self.link.require(), method, params, patience, on_report)

    async def tell(self, method: str, params: Params) -> None:
        """Send a notification."""
        await self.link.tell(method, params, self.link.require().era.headers(method))

    async def _ask(
        self, session: Session, method: str, params: Params, patience: Patience, on_report: OnReport | None = None
    ) -> Params:
        era = session.era
        reply = await self.link.ask(method, era.dress(method, params), era.headers(method), patience, on_report)
        if isinstance(reply, Failure):
            raise server_error(method, reply)
        return era.read(reply.result).value

    # The handshake

    async def _shake_hands(self, epoch: int) -> Session:
        """Initialize; once more without `sampling.tools` if the server answers that with an error."""
        try:
            return await self._initialize(epoch, tools=self._registration.advertise_tools)
        except ServerError as refusal:
            if isinstance(refusal, Unauthorized) or not self._registration.advertises_tools:
                raise
            try:
                session = await self._initialize(epoch, tools=False)
            except McpError:
                raise refusal from None  # then the tools were not the reason
            self._registration.give_up_tools(self._name)
            return session

    async def _initialize(self, epoch: int, *, tools: bool, version: str = HANDSHAKE_VERSIONS[0]) -> Session:
        registration = self._registration
        params = {
            "protocolVersion": version,
            "capabilities": registration.inputs.capabilities(sampling_tools=tools),
            "clientInfo": registration.client_info.to_wire(),
        }
        patience = Patience.of(registration.limits.connect_timeout, registration.limits.connect_timeout)
        reply = await self.link.ask("initialize", params, {}, patience)
        if isinstance(reply, Failure):
            if (other := counter_offer(reply)) and other != version:
                return await self._initialize(epoch, tools=tools, version=other)
            raise server_error("initialize", reply)
        result = InitializeResult.from_wire(reply.result)
        era = accept(result.protocol_version)
        await self._confirm(era.headers("notifications/initialized"))
        return Session(
            epoch=epoch,
            era=era,
            result=result,
            capabilities=reply.result["capabilities"],
            inputs=registration.inputs.session(era, result.server_info.name, sampling_tools=tools),
        )

    async def _confirm(self, headers: dict[str, str]) -> None:
        """Say that we are initialized. A server that fumbles this may still answer calls."""
        with move_on_after(INITIALIZED_DEADLINE):
            try:
                await self.link.tell("notifications/initialized", {}, headers)
            except McpError as exc:
                self._registration.warn(f"{self._name} did not take notifications/initialized: {exc}")

    # A lost session

    async def _renew(self, lost: Session) -> None:
        """Shake hands again, once for everyone who noticed that *lost* is lost."""
        if self.link.require().epoch != lost.epoch:
            return  # somebody has done it already
        if self._renewal is None:
            self._renewal = Renewal()
            self._tasks.start_soon(self._run_renewal, self._renewal, lost.epoch + 1)
        await self._renewal.outcome()

    async def _run_renewal(self, renewal: Renewal, epoch: int) -> None:
        """In a task of the connection's: it must not end because one of those who wait for it is cancelled."""
        try:
            with fail_after(self._registration.limits.connect_timeout):
                self.link.begin(await self._shake_hands(epoch))
                await self._re_establish()
        except McpError as exc:
            renewal.error = exc
        except TimeoutError:
            renewal.error = ConnectTimeout(f"{self._name} did not take up a new session in time")
        finally:
            self._renewal = None
            renewal.done.set()

    async def _re_establish(self) -> None:
        """What the application had asked of the old session. The server asks for the roots by itself."""
        session, limits = self.link.require(), self._registration.limits
        wanted = [("resources/subscribe", {"uri": uri}) for uri in self.subscriptions]
        if self.log_level is not None:
            wanted.append(("logging/setLevel", {"level": self.log_level}))
        for method, params in wanted:
            try:
                await self._ask(session, method, params, Patience.of(limits.timeout, limits.connect_timeout))
            except McpError as exc:
                self._registration.warn(f"{self._name}: {method} could not be re-established: {exc}")


class Renewal:
    """A handshake under way that several callers wait for."""

    def __init__(self) -> None:
        self.done = Event()
        self.error: McpError | None = None

    async def outcome(self) -> None:
        await self.done.wait()
        if self.error is not None:
            raise self.error
