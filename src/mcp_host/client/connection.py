"""One open connection: its requests, and a new session when the server has forgotten ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CancelScope, Event, create_task_group, fail_after, move_on_after
from anyio.abc import TaskGroup

from mcp_host.client.exchange import OnReport, Patience
from mcp_host.client.handshake import Handshake
from mcp_host.client.link import Link
from mcp_host.client.notices import Notices
from mcp_host.client.registration import Registration
from mcp_host.client.server_errors import server_error
from mcp_host.client.session import Session
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    McpError,
    NotAdvertised,
    ProtocolError,
    RequestTimeout,
    SessionLost,
)
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Params
from mcp_host.transports.base import Channel, Transport, quoting
from mcp_host.types.base import Model

ModelT = TypeVar("ModelT", bound=Model)

LETTING_GO = 1.0  # seconds for cancelled callers to leave their streams before these are torn down


class Connection:
    """The live side of a client."""

    def __init__(self, name: str, registration: Registration, link: Link, tasks: TaskGroup) -> None:
        self.link = link
        self.log_level: str | None = None
        self.subscriptions: dict[str, None] = {}  # a set that keeps its order
        self._name = name
        self._registration = registration
        self._handshake = Handshake(name, link, registration)
        self._tasks = tasks
        self._renewal: Renewal | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, transport: Transport, registration: Registration, notices: Notices
    ) -> AsyncIterator[Connection]:
        """Reach the server and shake hands; leave nothing behind at the end, however it comes.

        What runs the application's code has a task group of its own, outside of the
        transport: a handler that will not end must not keep the server alive.
        """
        limits = registration.limits
        async with (
            create_task_group() as application,
            transport.open(limits) as channel,
            create_task_group() as plumbing,
        ):
            link = Link(channel, application, plumbing, notices, limits, registration.counters)
            plumbing.start_soon(link.listen)
            if notices.wanted:
                application.start_soon(notices.run)
            try:
                connection = cls(transport.name, registration, link, plumbing)
                await connection._begin(channel)
                yield connection
            finally:
                link.close(ConnectionClosed("the client was closed"))
                with move_on_after(LETTING_GO, shield=True):
                    await link.idle()
                application.cancel_scope.cancel()  # and with it the plumbing, which is inside

    async def _begin(self, channel: Channel) -> None:
        with move_on_after(self.limits.connect_timeout) as scope:
            try:
                self.link.begin(await self._handshake.shake(epoch=1))
            except ConnectionClosed as ended:
                raise ConnectFailed(
                    str(ended), may_have_run=ended.may_have_run, exit_code=ended.exit_code, stderr=ended.stderr
                ) from ended
        if scope.cancelled_caught:
            seconds = f"{self.limits.connect_timeout:g} s"
            words = quoting(channel.last_words)
            raise ConnectTimeout(f"{self._name} did not finish the handshake within {seconds}{words}")

    @property
    def limits(self) -> Limits:
        return self._registration.limits

    # Requests

    async def request(
        self, method: str, params: Params, patience: Patience, on_report: OnReport | None = None
    ) -> Params:
        """See one request through to its result, in a new session if the server has lost ours.

        Raises:
            ServerError: The server answered with an error.
            NotAdvertised: The server does not offer this; it was not asked.
        """
        if self._renewal is not None:
            await self._renewed(self._renewal, method, patience)
        session = self.link.require()
        if missing := session.era.missing(method, session.capabilities):
            raise NotAdvertised(f"{self._name} did not advertise {missing}, which {method} needs")
        try:
            return await self._ask(session, method, params, patience, on_report)
        except SessionLost as lost:
            await self._renewed(self._renew(session), method, patience)
            if lost.may_have_run:
                raise
        return await self._ask(self.link.require(), method, params, patience, on_report)

    async def tell(self, method: str, params: Params) -> None:
        """Send a notification."""
        await self.link.tell(method, params, self.link.require().era.headers(method))

    def warn(self, text: str) -> None:
        """Something that the application should know of this server, though nothing failed."""
        self._registration.warn(f"{self._name}: {text}")

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
                self.warn(f"left out of {method}, position {position}: {exc}")
        return items

    async def _ask(
        self, session: Session, method: str, params: Params, patience: Patience, on_report: OnReport | None = None
    ) -> Params:
        era = session.era
        reply = await self.link.ask(method, era.dress(method, params), era.headers(method), patience, on_report)
        if isinstance(reply, Failure):
            raise server_error(method, params, reply)
        return era.read(reply.result).value

    # A lost session

    def _renew(self, lost: Session) -> Renewal | None:
        """Shake hands again, once for everyone who noticed that *lost* is lost; None if that is done already."""
        if self._renewal is None and self.link.require().epoch == lost.epoch:
            self._renewal = Renewal()
            self._tasks.start_soon(self._run_renewal, self._renewal, lost.epoch + 1)
        return self._renewal

    async def _renewed(self, renewal: Renewal | None, method: str, patience: Patience) -> None:
        """Wait for the new session, but no longer than the call may take."""
        if renewal is None:
            return
        with CancelScope(deadline=patience.end) as scope:
            await renewal.done.wait()
        if scope.cancelled_caught:
            raise RequestTimeout(f"{method}: no new session with {self._name} within the call's total timeout")
        if renewal.error is not None:
            raise renewal.error.with_traceback(None)  # the same for everyone who waited

    async def _run_renewal(self, renewal: Renewal, epoch: int) -> None:
        """In a task of the connection's: it must not end because one of those who wait for it is cancelled."""
        try:
            with fail_after(self.limits.connect_timeout):
                self.link.begin(await self._handshake.shake(epoch))
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
        session = self.link.require()
        wanted: list[tuple[str, Params]] = [("resources/subscribe", {"uri": uri}) for uri in self.subscriptions]
        if self.log_level is not None:
            wanted.append(("logging/setLevel", {"level": self.log_level}))
        for method, params in wanted:
            try:
                await self._ask(session, method, params, Patience.of(self.limits.timeout, self.limits.connect_timeout))
            except McpError as exc:
                self.warn(f"{method} could not be re-established: {exc}")


class Renewal:
    """A handshake under way that several callers wait for."""

    def __init__(self) -> None:
        self.done = Event()
        self.error: McpError | None = None
