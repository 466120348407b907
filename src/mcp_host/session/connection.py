"""One open connection: each request through to its result, in every revision."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from weakref import ReferenceType

from anyio import CancelScope, create_task_group, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency.single_flight import SingleFlight
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    ConnectTimeout,
    HeaderMismatch,
    McpError,
    NotAdvertised,
    RequestTimeout,
    ServerError,
    SessionLost,
    UrlElicitationRequired,
)
from mcp_host.handlers import HandlerScope, current_handler
from mcp_host.protocol.eras import CACHEABLE, NAME_PARAMETER, OF_A_RETRY, Complete, InputRequired, Outcome
from mcp_host.protocol.jsonrpc import Notification, Params, Success
from mcp_host.protocol.negotiation import (
    Attempt,
    ConnectionBroke,
    UseLegacy,
    WrongEra,
    as_connect_failure,
    is_era,
    may_be_of_other_era,
)
from mcp_host.session.call import Call, CallTimeouts, OnEvent
from mcp_host.session.connect import Connector
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.input_required import InputRequiredLoop
from mcp_host.session.notifications import NotificationQueue
from mcp_host.session.session import Session
from mcp_host.session.state import ClientState
from mcp_host.session.subscriptions import Subscriptions
from mcp_host.slots import Slot
from mcp_host.transports.base import Channel, advising

CANCEL_GRACE = 1.0  # seconds for cancelled callers to leave their streams before these are closed


class Connection:
    """One open connection to a server."""

    def __init__(
        self,
        state: ClientState,
        dispatcher: Dispatcher,
        tasks: TaskGroup,
        notifications: NotificationQueue,
        notify: OnEvent,
        attempt: Attempt,
        on_lost: ReferenceType[Callable[[], None]],
    ) -> None:
        self.dispatcher = dispatcher
        self.notifications = notifications
        self.useful = False
        """Whether any request of the application has had a result."""
        self._connected = False
        self._speaks_other_era = False
        self._listening = CancelScope()
        self._on_lost = on_lost
        self._state = state
        self._connector = Connector(dispatcher, state, attempt)
        self._renewal = SingleFlight(tasks.start_soon)
        self._context = copy_context()
        self.subscriptions = Subscriptions(dispatcher, state, notify)
        dispatcher.on_another_login = self._begin_anew

    @classmethod
    @asynccontextmanager
    async def open(
        cls, state: ClientState, attempt: Attempt, on_lost: ReferenceType[Callable[[], None]]
    ) -> AsyncIterator[Connection]:
        """Connect as *attempt* says; end everything on leaving.

        What *on_lost* refers to is called when the connection has ended, on either side.
        The application's code runs outside of the transport, so that a handler that does
        not end cannot keep the server alive.
        """
        watcher = state.list_watcher

        def notify(notification: Notification) -> None:
            state.cache.invalidate(notification)
            notifications.offer(notification)
            if watcher is not None:
                watcher.notify(notification)

        async def listen() -> None:
            with connection._listening:
                if (reason := await dispatcher.listen()) is not None:
                    connection._lose(reason)

        async with (
            HandlerTasks.open() as handlers,
            state.open_transport() as channel,
            create_task_group() as tasks,
        ):
            if not channel.keeps_cache:
                state.cache.drop()
            notifications = NotificationQueue(state, handlers)
            dispatcher = Dispatcher(channel, handlers, tasks, notify, state)
            listening = handlers.loop.start(tasks, listen, copy_context())
            try:
                connection = cls(state, dispatcher, tasks, notifications, notify, attempt, on_lost)
                await connection._begin(channel)
                connection._connected = True
                if watcher is not None:
                    watcher.start(handlers)
                if state.ping_interval is not None:
                    connection._keep_alive(state.ping_interval)
                yield connection
            finally:
                dispatcher.close(ConnectionClosed("the client was closed"), by_us=True)
                with move_on_after(CANCEL_GRACE, shield=True):
                    await dispatcher.idle()
                handlers.cancel()  # and with it everything inside
                connection._listening.cancel()
                with CancelScope(shield=True):
                    await handlers.loop.wait([listening])

    async def _begin(self, channel: Channel) -> None:
        timeouts = self._connector.timeouts
        with timeouts.scope() as scope:
            try:
                self.dispatcher.begin(await self._connector.connect())
                await self._restore(timeouts)
                self.dispatcher.require()  # the server may have ended meanwhile
            except ConnectionClosed as ended:
                failure = as_connect_failure(ended)
                if channel.stream_per_request and ended.may_have_run and not isinstance(ended, WrongEra):
                    raise ConnectionBroke(failure) from ended.__cause__
                raise failure from ended.__cause__
        if scope.cancelled_caught:
            self._state.forget_era()  # a wrong era may be the reason
            raise self._connector.timed_out(channel.other_output)

    def _lose(self, reason: ConnectionClosed) -> None:
        """The server has ended the connection, or is dead."""
        self.dispatcher.close(self._advise(reason) if self._connected else reason)
        self._listening.cancel()  # which tells the channel that this is the end
        if (lost := self._on_lost()) is not None:
            lost()

    @property
    def session(self) -> Session:
        """What connecting settled. It stays readable when the connection has ended."""
        assert self.dispatcher.session is not None, "`open` has connected"
        return self.dispatcher.session

    @property
    def restarts(self) -> bool:
        """Whether it is to be replaced when it has ended: by choice, because its revision says so, or by another era."""
        chosen = self._state.transport.restart
        return self._state.lazy or self._speaks_other_era or (self.session.era.restarts if chosen is None else chosen)

    def _advise(self, reason: ConnectionClosed) -> ConnectionClosed:
        """*reason*, with how to start the server again if nothing else does and the application has not decided so."""
        transport = self._state.transport
        if transport.restart is not None or self.restarts:
            return reason
        remedy = f"pass {type(transport).__name__}(..., restart=True), or await client.connect()"
        return advising(reason, f"to start it again, {remedy}")

    # Requests

    def request(self, call: Call) -> Awaitable[Params]:
        """Make one call and return its result; in a new session if the server has lost the old one.

        A handler of sampling or elicitation that makes it lends its slot meanwhile.

        Raises:
            ServerError: The server answered with an error.
            NotAdvertised: The server does not offer this; nothing was sent.
            CallerError: This revision has no such request.
        """
        handler = current_handler.get()
        while handler is not None and handler.ended:
            handler = handler.outer  # a callback, say, whose task goes on in the handler
        if handler is None:
            return self._request(call)
        call.nesting, call.inputs = handler.nesting, handler.inputs
        if not isinstance(handler.slot, Slot):
            return self._request(call)
        return handler.slot.lend(partial(self._request, call), within=call.timeouts.scope)

    async def _request(self, call: Call) -> Params:
        if self._renewal.flight is not None:
            await self._wait_for_renewal(call)
        session, cache = self.dispatcher.require(call.epoch), self._state.cache
        if call.method in session.era.removed:
            raise CallerError(f"revision {session.era.version} has no {call.method}")
        if missing := session.era.missing(call.method, session.capabilities):
            raise NotAdvertised(f"{self._state.name} did not advertise {missing}, which {call.method} needs")
        if call.method in CACHEABLE and (fresh := self._cached(call)) is not None:
            return fresh
        changes = cache.changes
        try:
            reply = await self._send(session, call, call.params)
        except (ServerError, SessionLost) as failure:
            if isinstance(failure, UrlElicitationRequired) and call.leaves_input is not None:
                reply = await self._visit_urls(session, call, failure)
            else:
                session = await self._session_after(failure, session, call)
                reply = await self._send(session, call, call.params)
        outcome = session.era.read(call.method, reply.result)
        if isinstance(outcome, InputRequired):
            if call.leaves_input is not None and call.leaves_input(outcome):
                outcome = Complete(reply.result)
            else:
                outcome = await self._provide_input(session, call, outcome, reply)
        elif outcome.fresh_for:
            cache.keep(call.method, call.params, outcome, call.headers, caller=call.caller, since=changes)
        self.useful = True
        return outcome.value

    def _cached(self, call: Call) -> Params | None:
        """The result of *call*, if there is a fresh one."""
        if self.dispatcher.has_logins:
            self.dispatcher.notice_login()
        return self._state.cache.find(call.method, call.params, call.headers, caller=call.caller)

    async def _session_after(self, failure: ServerError | SessionLost, session: Session, call: Call) -> Session:
        """The session to make *call* in again, which had this *failure* in *session*.

        Raises:
            ServerError, SessionLost: *failure* itself: it cannot be made again.
            ConnectionClosed: The server speaks another era now.
        """
        if isinstance(failure, ServerError):
            if self._may_be_of_other_era(session, failure):
                with suppress(McpError), call.timeouts.bound(call.method, idle=True):  # the failure says more
                    await self._check_era(session, failure)
                self.dispatcher.require()
            raise failure
        self._begin_renewal(session)
        await self._wait_for_renewal(call)
        if failure.may_have_run or call.epoch is not None:
            raise failure
        return self.dispatcher.require()

    async def _visit_urls(self, session: Session, call: Call, required: UrlElicitationRequired) -> Success:
        """Make *call* again once the user has visited the URLs, for a host whose revision asks for input in place of this error.

        Raises:
            UrlElicitationRequired: They are not visited.
        """
        rounds = InputRequiredLoop(call, self.dispatcher, session, self._state.limits)
        while call.method in NAME_PARAMETER and required.elicitations and await rounds.visit(required):
            try:
                return await self._send(session, call, call.params)
            except UrlElicitationRequired as again:
                required = again
            except SessionLost as lost:  # while the user was away
                session = await self._session_after(lost, session, call)
                return await self._send(session, call, call.params)
        raise required

    async def _provide_input(self, session: Session, call: Call, outcome: Outcome, reply: Success) -> Complete:
        """Repeat the request of *reply* with the input that the server requires, until there is a result."""
        rounds = InputRequiredLoop(call, self.dispatcher, session, self._state.limits)
        params = call.params
        if call.leaves_input is not None:  # it may be a host's retry, with the state and the answers of another round
            params = {key: value for key, value in params.items() if key not in OF_A_RETRY}
        try:
            while isinstance(outcome, InputRequired):
                answers = await rounds.collect(outcome, reply)
                try:
                    reply = await self._send(session, call, params | answers)
                except CallerError as exc:
                    rounds.check_answers(outcome, answers, exc)
                    raise
                outcome = session.era.read(call.method, reply.result)
        except (ConnectionClosed, HeaderMismatch, RequestTimeout) as exc:
            exc.may_have_run = True  # the first request has
            raise
        return outcome  # not cached: it depends on our answers

    async def _send(self, session: Session, call: Call, params: Params) -> Success:
        """Send one request and return its response.

        If only its stream breaks and repeating does no harm, it is sent again after each of
        `ClientState.retry_delays`: "A broken response stream loses the in-flight request" (2026-07-28, changelog).
        """
        era, dispatcher = session.era, self.dispatcher
        if call.caller is not None:
            session.features.has_callers = True
        headers = {**call.headers, **era.headers(call.method, params)} if dispatcher.stream_per_request else {}
        wire = era.prepare_params(params, self._state.log_level or self._state.default_log_level)
        delays = iter(self._state.retry_delays)
        lost = False
        while True:
            try:
                return await dispatcher.request(
                    call.method,
                    wire,
                    headers,
                    call.timeouts,
                    call=call,
                    stateless=era.stateless,
                    sent_ids=call.sent_ids,
                )
            except ServerError as exc:
                self._state.invalidate(exc)
                raise
            except (ConnectionClosed, RequestTimeout) as exc:
                # If nothing was sent, the channel has tried again already.
                broken = isinstance(exc, ConnectionClosed) and exc.may_have_run and dispatcher.closed is None
                repeat = broken and dispatcher.stream_per_request and not era.resumes_streams and call.repeatable
                exc.may_have_run |= lost
                if not repeat or (delay := next(delays, None)) is None:
                    raise
            lost = True
            with dispatcher.while_open(call):
                await sleep(delay)

    async def notify(self, call: Call) -> None:
        """Send a notification.

        Raises:
            CallerError: This revision has no such notification.
        """
        if self._renewal.flight is not None:
            await self._wait_for_renewal(call)
        era = self.dispatcher.require().era
        if call.method in era.removed:
            raise CallerError(f"revision {era.version} has no {call.method}")
        headers = {**call.headers, **era.headers(call.method, call.params)}
        with call.timeouts.bound(call.method):
            await self.dispatcher.notify(call.method, call.params, headers)

    def _begin_anew(self) -> None:
        """There is another login: its person may have other lists, is told of other changes, and has allowed nothing yet."""
        if self.session.sampling is not None:
            self.session.sampling.begin_anew()
        if self._state.list_watcher is not None:
            self._state.list_watcher.missed(self.session.capabilities)
        self._context.copy().run(self.subscriptions.restart)

    # A new session in the same connection

    def _keep_alive(self, interval: float) -> None:
        """Ping from now on, if the revision has ping."""
        from mcp_host.session.keepalive import KeepAlive  # few clients need it

        if "ping" not in self.session.era.removed:
            keep_alive = KeepAlive(
                self.dispatcher, self._state, interval, self._renew_after, self._check_era, self._lose
            )
            self.dispatcher.spawn(keep_alive.run)

    async def _renew_after(self, session: Session) -> None:
        """Begin a session in place of *session*, unless one has been begun, and wait for it."""
        self._begin_renewal(session)
        await self._renewal.wait()

    def _begin_renewal(self, session: Session) -> None:
        """Begin a session in place of *session*, unless one has been begun.

        It belongs to no caller, so it does not run in the context of the one that comes first.
        """
        if session.epoch == self.dispatcher.require().epoch:
            self._context.copy().run(self._renewal.begin, partial(self._renew, session.epoch + 1))

    async def _wait_for_renewal(self, call: Call) -> None:
        self._state.check_not_awaited()
        with call.timeouts.bound(f"{call.method}: a new session with {self._state.name}", idle=True):
            await self._renewal.wait()

    async def _renew(self, epoch: int) -> None:
        """Initialize again, and restore what the application has asked for."""
        # Calls of the last session may never end, so nothing here waits for them.
        timeouts = CallTimeouts.connecting(self._state.limits, self.dispatcher.now, self._state.limits.connect_timeout)
        with HandlerScope(), timeouts.scope() as scope:
            try:
                session = await self._connector.initialize(epoch, timeouts)
            except McpError as refusal:
                if self._may_be_of_other_era(self.session, refusal) and await self._ends_for_era(timeouts):
                    return
                raise
            self.dispatcher.begin(session)  # first, so that what the server sends next belongs to this session
            await self._connector.notify_initialized(session)
            await self._restore(timeouts)
        if scope.cancelled_caught:
            raise ConnectTimeout(f"{self._state.name} did not take up a new session in time")

    # A server that speaks another era now

    def _may_be_of_other_era(self, session: Session, refusal: McpError) -> bool:
        may_change = self._state.allowed_versions.both_eras and self.dispatcher.stream_per_request
        return may_change and may_be_of_other_era(refusal, session.era)

    async def _check_era(self, session: Session, refusal: ServerError) -> None:
        """End the connection if *refusal* of a request in *session* means that the server speaks another era now."""
        if not self._may_be_of_other_era(session, refusal):
            return
        self._state.check_not_awaited()
        self.dispatcher.require()
        self._context.copy().run(self._renewal.begin, self._probe_again)
        await self._renewal.wait()

    async def _probe_again(self) -> None:
        limits = self._state.limits
        timeouts = CallTimeouts.connecting(limits, self.dispatcher.now, limits.connect_timeout)
        with HandlerScope(), timeouts.scope():
            await self._ends_for_era(timeouts)

    async def _ends_for_era(self, timeouts: CallTimeouts) -> bool:
        """Probe the server. If it speaks another era, the connection ends, to be replaced by one in that era."""
        era = self.session.era
        choice = await self._connector.probe_again(timeouts)
        if choice is None or is_era(choice, era):
            return False
        self._state.cache.drop()
        self._state.remember_era("legacy" if isinstance(choice, UseLegacy) else "modern")
        self._speaks_other_era = True
        self._lose(ConnectionClosed(f"{self._state.name} no longer speaks revision {era.version}"))
        return True

    async def _restore(self, timeouts: CallTimeouts) -> None:
        """Subscribe again and set the log level: what changes after that is heard of. The server asks for the roots by itself."""
        if self.dispatcher.require().era.listens:
            await self.subscriptions.begin()
        else:
            await self._ask_again(timeouts)
        if self._state.list_watcher is not None:
            self._state.list_watcher.connected(self.session.capabilities)

    async def _ask_again(self, timeouts: CallTimeouts) -> None:
        requests: list[tuple[str, Params]] = [
            ("resources/subscribe", {"uri": uri}) for uri in self._state.subscriptions
        ]
        if self._state.log_level is not None:
            requests.append(("logging/setLevel", {"level": self._state.log_level}))
        for method, params in requests:
            try:
                await self.dispatcher.request_by_itself(method, params, self.dispatcher.require().era, timeouts)
            except Exception as exc:  # of middleware, too
                self._state.warn_about_server(f"{method} could not be re-established: {exc}")
