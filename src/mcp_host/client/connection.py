"""One open connection: its requests, seen through to their results whatever the revision."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from anyio import create_task_group, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.client.attempts import Attempt, never_came_up
from mcp_host.client.call import Call
from mcp_host.client.exchange import OnEvent
from mcp_host.client.joint import Joint
from mcp_host.client.link import Link
from mcp_host.client.notices import Notices
from mcp_host.client.opening import Opening
from mcp_host.client.registration import Registration
from mcp_host.client.rounds import Rounds
from mcp_host.client.server_errors import refined, server_error
from mcp_host.client.session import Session
from mcp_host.client.subscriptions import Subscriptions
from mcp_host.client.timeouts import CallTimeouts
from mcp_host.concurrency import Crew
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    ConnectTimeout,
    HeaderMismatch,
    HttpStatusError,
    McpError,
    NotAdvertised,
    RequestTimeout,
    SessionLost,
)
from mcp_host.handlers import HandlerScope
from mcp_host.limits import Limits
from mcp_host.protocol.eras import Complete, Outcome
from mcp_host.protocol.jsonrpc import Failure, Id, Notification, Params, Success
from mcp_host.protocol.pace import RETRY_DELAYS
from mcp_host.sampling.places import current_slot
from mcp_host.transports.base import Channel, Transport

LETTING_GO = 1.0  # seconds for cancelled callers to leave their streams before these are torn down


class Connection:
    """The live side of a client."""

    def __init__(
        self,
        name: str,
        registration: Registration,
        link: Link,
        tasks: TaskGroup,
        notify: OnEvent,
        attempt: Attempt,
    ) -> None:
        self.link = link
        self.useful = False
        """Whether the server has given the application anything that it asked for."""
        self._name = name
        self._registration = registration
        self._opening = Opening(name, link, registration, attempt)
        self._renewal = Joint(tasks.start_soon)
        self._subscriptions = Subscriptions(link, registration, notify, tasks, name)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        transport: Transport,
        registration: Registration,
        notices: Notices,
        attempt: Attempt,
        on_lost: Callable[[], None],
    ) -> AsyncIterator[Connection]:
        """Reach the server and begin; leave nothing behind at the end, however it comes.

        *on_lost* is called when the link is gone, whoever ended it.
        What runs the application's code is outside of the transport: a handler that
        will not end must not keep the server alive.
        """

        def notify(notification: Notification) -> None:
            registration.cache.heed(notification)
            notices.offer(notification)

        async def listen() -> None:
            await link.listen()
            if not link.alive:
                on_lost()

        limits = registration.limits
        async with (
            Crew.gathered() as application,
            transport.open(limits) as channel,
            create_task_group() as plumbing,
        ):
            if not channel.continuous:
                registration.cache.drop()
            link = Link(channel, application, plumbing, notify, limits, registration.counters)
            plumbing.start_soon(listen)
            if notices.wanted:
                application.start(notices.run)
            try:
                connection = cls(transport.name, registration, link, plumbing, notify, attempt)
                await connection._begin(channel)
                yield connection
            finally:
                link.close(ConnectionClosed("the client was closed"))
                with move_on_after(LETTING_GO, shield=True):
                    await link.idle()
                application.cancel()  # and with it the plumbing, which is inside

    async def _begin(self, channel: Channel) -> None:
        timeouts = self._opening.timeouts
        with timeouts.scope() as scope:
            try:
                self.link.begin(await self._opening.begin())
                await self._establish(timeouts)
                self.link.require()  # it may have ended over what it was asked to re-establish
            except ConnectionClosed as ended:
                raise never_came_up(ended) from ended.__cause__
        if scope.cancelled_caught:
            self._registration.forget()  # which may be why
            raise self._opening.timed_out(channel.last_words)

    @property
    def limits(self) -> Limits:
        return self._registration.limits

    @property
    def mirrors_parameters(self) -> bool:
        """Whether a tool's parameters may have to be repeated in HTTP headers."""
        session = self.link.session
        return self.link.stream_per_request and session is not None and session.era.mirrors_parameters

    # Requests

    def request(self, call: Call) -> Awaitable[Params]:
        """See one request through to its result, in a new session if the server has lost ours.

        A sampling handler that makes it lends its place in front of the model meanwhile.

        Raises:
            ServerError: The server answered with an error.
            NotAdvertised: The server does not offer this; it was not asked.
            CallerError: This revision has no such request.
        """
        slot = current_slot()
        if slot is None:
            return self._request(call)
        return slot.lend(partial(self._request, call), within=call.timeouts.scope)

    async def _request(self, call: Call) -> Params:
        if self._renewal.under_way:
            await self._renewed(call)
        session = self.link.require()
        if call.method in session.era.removed:
            raise CallerError(f"revision {session.era.version} has no {call.method}")
        if missing := session.era.missing(call.method, session.capabilities):
            raise NotAdvertised(f"{self._name} did not advertise {missing}, which {call.method} needs")
        if (fresh := self._registration.cache.find(call.method, call.params)) is not None:
            return fresh
        try:
            result = await self._ask(session, call)
        except SessionLost as lost:
            if session.epoch == self.link.require().epoch:
                self._renewal.begin(partial(self._renew, session.epoch + 1))
            await self._renewed(call)
            if lost.may_have_run:
                raise
            result = await self._ask(self.link.require(), call)
        self.useful = True
        return result

    async def tell(self, method: str, params: Params) -> None:
        """Send a notification, if the revision has it."""
        era = self.link.require().era
        if method not in era.removed:
            await self.link.tell(method, params, era.headers(method, params))

    async def subscribe(self, uri: str, timeouts: CallTimeouts) -> None:
        """Be told of changes of the resource at *uri*, now and after every loss."""
        if self.link.require().era.listens:
            await self._subscriptions.add(uri, timeouts)
        else:
            await self.request(Call(method="resources/subscribe", params={"uri": uri}, timeouts=timeouts))
            self._registration.subscriptions[uri] = None

    async def unsubscribe(self, uri: str, timeouts: CallTimeouts) -> None:
        """Be told no more."""
        if self.link.require().era.listens:
            await self._subscriptions.remove(uri, timeouts)
        else:
            self._registration.subscriptions.pop(uri, None)
            await self.request(Call(method="resources/unsubscribe", params={"uri": uri}, timeouts=timeouts))

    async def set_log_level(self, level: str, timeouts: CallTimeouts) -> None:
        """Be sent messages of this level and above: from here on, or with every request."""
        if not self.link.require().era.levels_ride:
            await self.request(Call(method="logging/setLevel", params={"level": level}, timeouts=timeouts))
        self._registration.log_level = level

    def forget(self, method: str) -> None:
        """Ask the server anew the next time, however fresh its last word on this is."""
        self._registration.cache.drop(method)

    def warn(self, text: str) -> None:
        """Something that the application should know of this server, though nothing failed."""
        self._registration.warn(f"{self._name}: {text}")

    # How a request is made

    async def _ask(self, session: Session, call: Call) -> Params:
        """Make the request, and make it again with what the server wants to know, until there is a result."""
        cache = self._registration.cache
        mark = cache.mark()
        reply = await self._send(session, call, call.params)
        outcome = session.era.read(call.method, reply.result)
        if isinstance(outcome, Complete):
            cache.keep(call.method, call.params, outcome, since=mark)
            return outcome.value
        try:
            return await self._go_on(session, call, outcome, reply.id)  # not kept: it depends on our answers
        except (ConnectionClosed, HeaderMismatch, RequestTimeout) as exc:
            exc.may_have_run = True  # its beginning has
            raise

    async def _go_on(self, session: Session, call: Call, outcome: Outcome, id: Id) -> Params:
        """Answer what the server wants, round after round."""
        rounds = Rounds(call, session.inputs, self.limits)
        while not isinstance(outcome, Complete):
            with self.link.while_open():
                answers = await rounds.answer(outcome, id)
            try:
                reply = await self._send(session, call, call.params | answers)
            except CallerError as exc:
                raise rounds.unwritable(outcome, answers, exc) from exc
            outcome, id = session.era.read(call.method, reply.result), reply.id
        return outcome.value

    async def _send(self, session: Session, call: Call, params: Params) -> Success:
        """One exchange; once more after each of `RETRY_DELAYS` if its stream breaks and that does no harm.

        "A broken response stream loses the in-flight request" (2026-07-28, changelog).
        """
        pauses = iter(RETRY_DELAYS)
        lost = False
        while True:
            try:
                return await self._exchange(session, call, params)
            except ConnectionClosed as broken:
                again = self._may_repeat(
                    session, call, broken
                )  # not what was never sent: the channel has tried it again
                broken.may_have_run |= lost
                if not again or (pause := next(pauses, None)) is None:
                    raise
            except RequestTimeout as late:
                late.may_have_run |= lost
                raise
            lost = True
            await self._pause(pause, call)

    def _may_repeat(self, session: Session, call: Call, broken: ConnectionClosed) -> bool:
        """Whether it was only the stream that broke, nothing can be had of it any more, and a second time does no harm."""
        stream_broke = broken.may_have_run and self.link.alive and self.link.stream_per_request
        return stream_broke and not session.era.resumes_streams and call.repeatable

    async def _pause(self, seconds: float, call: Call) -> None:
        with self.link.while_open(), call.timeouts.bound(call.method):
            await sleep(seconds)

    async def _exchange(self, session: Session, call: Call, params: Params) -> Success:
        era = session.era
        dressed = era.dress(params, self._registration.wanted_log_level)
        headers = {**era.headers(call.method, params), **call.headers} if self.link.stream_per_request else {}
        try:
            reply = await self.link.ask(call.method, dressed, headers, call.timeouts, call.on_report, call=call)
        except HttpStatusError as exc:
            self._registration.heed_refusal(exc)
            error = refined(call.method, params, exc)
            if error is exc:
                raise
            raise error from exc
        if isinstance(reply, Failure):
            raise server_error(call.method, params, reply)
        return reply

    # What outlives a session

    async def _renewed(self, call: Call) -> None:
        """Wait for the new session, if there is to be one, but no longer than the call may take."""
        await self._renewal.wait(call.timeouts, f"{call.method}: a new session with {self._name}")

    async def _renew(self, epoch: int) -> None:
        """Shake hands once more, and ask again for what the application had asked for."""
        # Calls of the last session may never end, so nothing here waits for them.
        timeouts = CallTimeouts.connecting(self.limits.connect_timeout, self.limits.input_timeout, self.link.now)
        with HandlerScope(), timeouts.scope() as scope:
            session = await self._opening.handshake.initialize(epoch, timeouts)
            self.link.begin(session)  # before the server hears so: what it asks then belongs to this session
            await self._opening.handshake.confirm(session)
            await self._establish(timeouts)
        if scope.cancelled_caught:
            raise ConnectTimeout(f"{self._name} did not take up a new session in time")

    async def _establish(self, timeouts: CallTimeouts) -> None:
        """What the application has asked for so far. The server asks for the roots by itself."""
        era = self.link.require().era
        if era.listens:
            await self._subscriptions.begin()
            return
        wanted: list[tuple[str, Params]] = [
            ("resources/subscribe", {"uri": uri}) for uri in self._registration.subscriptions
        ]
        if self._registration.log_level is not None:
            wanted.append(("logging/setLevel", {"level": self._registration.log_level}))
        for method, params in wanted:
            try:
                await self._ask(self.link.require(), Call(method=method, params=params, timeouts=timeouts))
            except McpError as exc:
                self.warn(f"{method} could not be re-established: {exc}")
