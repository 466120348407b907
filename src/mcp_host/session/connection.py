"""One open connection: its requests, seen through to their results whatever the revision."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from anyio import create_task_group, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency import HandlerTasks, SingleFlight
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
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.eras import Complete, Outcome
from mcp_host.protocol.jsonrpc import Failure, Id, Notification, Params, Success
from mcp_host.sampling.slots import current_slot
from mcp_host.session.attempts import Attempt, never_came_up
from mcp_host.session.call import Call, CallTimeouts, refined, server_error
from mcp_host.session.config import ClientConfig, Session
from mcp_host.session.connect import Connector
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.input_required import InputRequiredLoop
from mcp_host.session.notifications import NotificationQueue
from mcp_host.session.pending import OnEvent
from mcp_host.session.subscriptions import Subscriptions
from mcp_host.transports.base import Channel, Transport

CANCEL_GRACE = 1.0  # seconds for cancelled callers to leave their streams before these are torn down


class Connection:
    """The live side of a client."""

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        dispatcher: Dispatcher,
        tasks: TaskGroup,
        notify: OnEvent,
        attempt: Attempt,
    ) -> None:
        self.dispatcher = dispatcher
        self.useful = False
        """Whether the server has given the application anything that it asked for."""
        self._name = name
        self._config = config
        self._opening = Connector(name, dispatcher, config, attempt)
        self._renewal = SingleFlight(tasks.start_soon)
        self._subscriptions = Subscriptions(dispatcher, config, notify, tasks, name)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        transport: Transport,
        config: ClientConfig,
        notifications: NotificationQueue,
        attempt: Attempt,
        on_lost: Callable[[], None],
    ) -> AsyncIterator[Connection]:
        """Reach the server and begin; leave nothing behind at the end, however it comes.

        *on_lost* is called when the link is gone, whoever ended it.
        What runs the application's code is outside of the transport: a handler that
        will not end must not keep the server alive.
        """

        def notify(notification: Notification) -> None:
            config.cache.heed(notification)
            notifications.offer(notification)

        async def listen() -> None:
            await dispatcher.listen()
            if not dispatcher.alive:
                on_lost()

        limits = config.limits
        async with (
            HandlerTasks.gathered() as application,
            transport.open(limits) as channel,
            create_task_group() as plumbing,
        ):
            if not channel.continuous:
                config.cache.drop()
            dispatcher = Dispatcher(channel, application, plumbing, notify, limits, config.counters)
            plumbing.start_soon(listen)
            if notifications.wanted:
                application.start(notifications.run)
            try:
                connection = cls(transport.name, config, dispatcher, plumbing, notify, attempt)
                await connection._begin(channel)
                yield connection
            finally:
                dispatcher.close(ConnectionClosed("the client was closed"))
                with move_on_after(CANCEL_GRACE, shield=True):
                    await dispatcher.idle()
                application.cancel()  # and with it the plumbing, which is inside

    async def _begin(self, channel: Channel) -> None:
        timeouts = self._opening.timeouts
        with timeouts.scope() as scope:
            try:
                self.dispatcher.begin(await self._opening.begin())
                await self._establish(timeouts)
                self.dispatcher.require()  # it may have ended over what it was asked to re-establish
            except ConnectionClosed as ended:
                raise never_came_up(ended) from ended.__cause__
        if scope.cancelled_caught:
            self._config.forget()  # which may be why
            raise self._opening.timed_out(channel.last_words)

    @property
    def limits(self) -> Limits:
        return self._config.limits

    @property
    def mirrors_parameters(self) -> bool:
        """Whether a tool's parameters may have to be repeated in HTTP headers."""
        session = self.dispatcher.session
        return self.dispatcher.stream_per_request and session is not None and session.era.mirrors_parameters

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
        if self._renewal.running:
            await self._renewed(call)
        session = self.dispatcher.require()
        if call.method in session.era.removed:
            raise CallerError(f"revision {session.era.version} has no {call.method}")
        if missing := session.era.missing(call.method, session.capabilities):
            raise NotAdvertised(f"{self._name} did not advertise {missing}, which {call.method} needs")
        if (fresh := self._config.cache.find(call.method, call.params)) is not None:
            return fresh
        try:
            result = await self._ask(session, call)
        except SessionLost as lost:
            if session.epoch == self.dispatcher.require().epoch:
                self._renewal.begin(partial(self._renew, session.epoch + 1))
            await self._renewed(call)
            if lost.may_have_run:
                raise
            result = await self._ask(self.dispatcher.require(), call)
        self.useful = True
        return result

    async def tell(self, method: str, params: Params) -> None:
        """Send a notification, if the revision has it."""
        era = self.dispatcher.require().era
        if method not in era.removed:
            await self.dispatcher.tell(method, params, era.headers(method, params))

    async def subscribe(self, uri: str, timeouts: CallTimeouts) -> None:
        """Be told of changes of the resource at *uri*, now and after every loss."""
        if self.dispatcher.require().era.listens:
            await self._subscriptions.add(uri, timeouts)
        else:
            await self.request(Call(method="resources/subscribe", params={"uri": uri}, timeouts=timeouts))
            self._config.subscriptions[uri] = None

    async def unsubscribe(self, uri: str, timeouts: CallTimeouts) -> None:
        """Be told no more."""
        if self.dispatcher.require().era.listens:
            await self._subscriptions.remove(uri, timeouts)
        else:
            self._config.subscriptions.pop(uri, None)
            await self.request(Call(method="resources/unsubscribe", params={"uri": uri}, timeouts=timeouts))

    async def set_log_level(self, level: str, timeouts: CallTimeouts) -> None:
        """Be sent messages of this level and above: from here on, or with every request."""
        if not self.dispatcher.require().era.log_level_per_request:
            await self.request(Call(method="logging/setLevel", params={"level": level}, timeouts=timeouts))
        self._config.log_level = level

    def forget(self, method: str) -> None:
        """Ask the server anew the next time, however fresh its last word on this is."""
        self._config.cache.drop(method)

    def warn(self, text: str) -> None:
        """Something that the application should know of this server, though nothing failed."""
        self._config.warn(f"{self._name}: {text}")

    # How a request is made

    async def _ask(self, session: Session, call: Call) -> Params:
        """Make the request, and make it again with what the server wants to know, until there is a result."""
        cache = self._config.cache
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
        rounds = InputRequiredLoop(call, session.inputs, self.limits)
        while not isinstance(outcome, Complete):
            with self.dispatcher.while_open():
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
        stream_broke = broken.may_have_run and self.dispatcher.alive and self.dispatcher.stream_per_request
        return stream_broke and not session.era.resumes_streams and call.repeatable

    async def _pause(self, seconds: float, call: Call) -> None:
        with self.dispatcher.while_open(), call.timeouts.bound(call.method):
            await sleep(seconds)

    async def _exchange(self, session: Session, call: Call, params: Params) -> Success:
        era = session.era
        dressed = era.prepare_params(params, self._config.wanted_log_level)
        headers = {**era.headers(call.method, params), **call.headers} if self.dispatcher.stream_per_request else {}
        try:
            reply = await self.dispatcher.ask(call.method, dressed, headers, call.timeouts, call.on_report, call=call)
        except HttpStatusError as exc:
            self._config.heed_refusal(exc)
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
        with call.timeouts.bound(f"{call.method}: a new session with {self._name}", idle=True):
            await self._renewal.wait()

    async def _renew(self, epoch: int) -> None:
        """Shake hands once more, and ask again for what the application had asked for."""
        # Calls of the last session may never end, so nothing here waits for them.
        timeouts = CallTimeouts.connecting(self.limits.connect_timeout, self.limits.input_timeout, self.dispatcher.now)
        with HandlerScope(), timeouts.scope() as scope:
            session = await self._opening.handshake.initialize(epoch, timeouts)
            self.dispatcher.begin(session)  # before the server hears so: what it asks then belongs to this session
            await self._opening.handshake.confirm(session)
            await self._establish(timeouts)
        if scope.cancelled_caught:
            raise ConnectTimeout(f"{self._name} did not take up a new session in time")

    async def _establish(self, timeouts: CallTimeouts) -> None:
        """What the application has asked for so far. The server asks for the roots by itself."""
        era = self.dispatcher.require().era
        if era.listens:
            await self._subscriptions.begin()
            return
        wanted: list[tuple[str, Params]] = [("resources/subscribe", {"uri": uri}) for uri in self._config.subscriptions]
        if self._config.log_level is not None:
            wanted.append(("logging/setLevel", {"level": self._config.log_level}))
        for method, params in wanted:
            try:
                await self._ask(self.dispatcher.require(), Call(method=method, params=params, timeouts=timeouts))
            except McpError as exc:
                self.warn(f"{method} could not be re-established: {exc}")
