"""How a connection begins: the client probes for the server's era, then initializes or discovers.

The probe is `server/discover`, never a call of the application: a legacy server
might execute that, and then execute it again.
"""

from __future__ import annotations

import math
from functools import partial

from anyio import create_task_group, move_on_after

from mcp_host.concurrency.single_flight import SingleFlight
from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import (
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    McpTimeout,
    NoCommonVersion,
    ProtocolError,
    ServerError,
    Unauthorized,
    excerpt,
)
from mcp_host.protocol.eras import (
    DISCOVER,
    INITIALIZE,
    INITIALIZED,
    LISTS,
    SERVER_INFO,
    Complete,
    Modern,
    optional_capabilities,
)
from mcp_host.protocol.jsonrpc import Params, Success
from mcp_host.protocol.negotiation import (
    Attempt,
    EraChoice,
    NoAnswer,
    UseLegacy,
    UseModern,
    WrongEra,
    accept_version,
    choose_era,
    common_version,
)
from mcp_host.session.call import CallTimeouts
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.session import Session
from mcp_host.session.state import ClientState
from mcp_host.transports.base import NO_MESSAGES
from mcp_host.types import Implementation, InitializeResult, ServerCapabilities

INITIALIZED_WAIT = 1.0  # seconds, but at most a third of `connect_timeout`: nothing depends on this notification
PROBE_SILENCE = 2.0  # seconds after the server's first sign of life: a legacy server "may never answer" the probe
START = 10.0  # seconds for that first sign; a package that has to be downloaded says so on stderr well before

NAMED = frozenset({"protocolVersion", "supportedVersions", "capabilities", "serverInfo", "instructions"}).union(
    {"resultType", "ttlMs", "cacheScope"}
)
"""The members of the results of `initialize` and `server/discover`."""


class Connector:
    """Makes one *attempt* to begin a connection."""

    def __init__(self, dispatcher: Dispatcher, state: ClientState, attempt: Attempt) -> None:
        self.timeouts = CallTimeouts.connecting(state.limits, dispatcher.now, attempt.limit)
        """They start now. As for a call, they stop while the client handles a request of the server."""
        self._dispatcher = dispatcher
        self._state = state
        self._attempt = attempt
        self._versions = state.allowed_versions
        self._started = Event()
        self._sent = Event()
        """Set when the probe is sent, or is not going to be: middleware may take its time before that."""
        self._initialize_timed_out = False
        self._changes = 0  # of the cache, before the probe
        self._probed: EraChoice | Exception | None = None
        """What the probe has brought so far."""
        self._initialized: Session | Exception | None = None
        """What the handshake beside the probe has brought so far."""
        self._changed = Event()
        """Set when one of the two changes."""

    async def connect(self) -> Session:
        """Negotiate the first session.

        Raises:
            WrongEra: The server has ended, or does not speak the era that the attempt assumes.
            NoCommonVersion: The server speaks no version that the client may speak.
            ServerError, ConnectionClosed, ProtocolError: As the server's answer says.
        """
        self._dispatcher.spawn(self._wait_until_started)
        versions = self._versions
        if not versions.modern:
            return await self._handshake()
        if self._attempt.assumed == "legacy" and versions.legacy:
            return await self._handshake_as_assumed()
        if (known := self._known_session()) is not None:
            return known
        decision = await self._probe()
        ended = decision.failure if isinstance(decision, UseLegacy) else decision
        if isinstance(ended, ConnectionClosed) and versions.legacy and not self._dispatcher.stream_per_request:
            raise WrongEra(ended, instead="legacy") from ended  # some servers exit over an unknown method
        match decision:
            case Session():
                return decision
            case UseModern(version, discovered):
                return await self._discover(self._modern(version), discovered)
            case UseLegacy() if versions.legacy:
                return await self._handshake_after_probe(decision)
            case UseLegacy(because):
                name = self._state.name
                raise NoCommonVersion(f"{name} does not support {versions}; its answer to server/discover: {because}")
        raise decision

    async def _wait_until_started(self) -> None:
        await self._dispatcher.wait_until_started()
        self._started.set()

    def timed_out(self, other_output: str) -> ConnectTimeout:
        """The error when time is up; *other_output* is that of the channel."""
        text = f"{self._state.name} was not ready within {self._state.limits.connect_timeout:g} s"
        if not other_output.startswith(NO_MESSAGES):  # it quotes what was skipped
            other_output = self._dispatcher.skipped_since(0) + other_output
        if self._initialize_timed_out and self._started.is_set():
            failure = self._probed.failure if isinstance(self._probed, UseLegacy) else None
            failed = "" if failure is None else f"; {DISCOVER} failed: {failure}"
            return NoAnswer(f"{text}: it did not answer initialize{failed}{other_output}")
        return ConnectTimeout(f"{text}{other_output}")

    # The handshake

    async def initialize(self, epoch: int, timeouts: CallTimeouts, version: str | None = None) -> Session:
        """Send `initialize`. Requests have to wait until `notify_initialized`.

        Raises:
            ServerError: The server refused.
            ProtocolError: Its answer is invalid (`NoCommonVersion`: no revision in common).
        """
        version, features = version or self._versions.legacy[0], self._state.features
        offers = self._attempt.offers & optional_capabilities(version)
        params = {
            "protocolVersion": version,
            "capabilities": features.capabilities(offers),
            "clientInfo": self._state.client_info.to_wire(),
        }
        self._dispatcher.expect_handshake()
        try:
            reply = await self._dispatcher.request_by_itself(INITIALIZE, params, None, timeouts)
        except ServerError as exc:
            if (other := common_version(exc, self._versions)) and other != version:
                return await self.initialize(epoch, timeouts, other)
            if isinstance(exc.__cause__, HttpStatusError):
                raise exc.__cause__ from None  # its status decides what is tried next
            raise
        result = InitializeResult.from_wire(reply.result)
        era = accept_version(result.protocol_version, self._versions)
        capabilities = reply.result["capabilities"]
        warning = f"{self._state.name} advertises no tools, prompts or resources, so it is asked for none"
        if all(era.missing(method, capabilities) for method in LISTS) and warning not in self._state.warnings:
            self._state.warn(warning)
        return Session(
            epoch=epoch,
            era=era,
            server=self._state.name,
            server_info=result.server_info,
            server_capabilities=result.capabilities,
            capabilities=capabilities,
            instructions=result.instructions,
            features=features,
            sampling=features.sampling_session(era, self._state.name, result.server_info, offers),
            elicitation_share=features.elicitation_share(),
            middleware=self._state.middleware,
            others=_others(reply.result),
        )

    async def notify_initialized(self, session: Session) -> None:
        """Send `notifications/initialized` and wait briefly for its delivery: some servers refuse earlier calls.

        If that fails or takes longer, calls may still work. The notification is sent to its end in the background.
        """
        seconds = min(INITIALIZED_WAIT, self._state.limits.connect_timeout / 3)
        sending = SingleFlight(self._dispatcher.spawn)
        sending.begin(partial(self._dispatcher.notify, INITIALIZED, {}, session.era.headers(INITIALIZED, {})))
        name, warn = self._state.name, self._state.warn
        with move_on_after(seconds) as scope:
            try:
                await sending.wait()
            except McpError as exc:
                warn(f"{name} did not take {INITIALIZED}: {exc}")
        if scope.cancelled_caught:
            warn(f"{name} did not answer {INITIALIZED} within {seconds:g} s: calls do not wait for that")

    async def _handshake(self) -> Session:
        try:
            session = await self.initialize(1, self.timeouts)
        finally:
            self._initialize_timed_out = self._dispatcher.now() >= self.timeouts.end
        await self.notify_initialized(session)
        self._state.remember_era("legacy")
        return session

    async def _handshake_as_assumed(self) -> Session:
        try:
            return await self._handshake()
        except McpError as exc:
            if isinstance(exc, HttpStatusError):
                self._state.forget_era()  # the next connection probes
            if _is_independent_of_era(exc):
                raise
            raise WrongEra(exc, instead=None) from exc

    async def _handshake_after_probe(self, probed: UseLegacy) -> Session:
        """Initialize a server that gave no modern answer to the probe."""
        failure = probed.failure
        try:
            session = await self._handshake()
        except McpError as exc:
            if not _is_of_server(exc):
                raise
            if failure is not None and probed.is_guess:  # its status is what an application acts on
                raise _advising_legacy(_mentioning(failure, INITIALIZE, exc)) from exc
            if isinstance(failure, ConnectionClosed) and isinstance(exc, ServerError) and exc.code is not None:
                # The answer of a modern server to `initialize`, say: the probe, which told nothing, is made once more.
                raise _mentioning(failure, INITIALIZE, exc) from exc
            if isinstance(exc, ConnectionClosed):
                if not self._dispatcher.stream_per_request:
                    raise WrongEra(exc, instead="legacy") from exc  # some servers answer the probe and then exit
                if isinstance(failure, HttpStatusError):
                    raise _mentioning(failure, INITIALIZE, exc) from exc  # a status says more than a closed connection
            raise _mentioning(exc, DISCOVER, failure) from exc.__cause__
        if probed.is_guess:
            self._state.forget_era()  # it may be modern as soon as the gateway lets the probe pass
        return session

    # The probe

    async def _probe(self) -> Session | EraChoice | Exception:
        """Probe. If the server is silent, send `initialize` as well: the first useful answer decides."""
        attempt = self._attempt
        async with create_task_group() as tasks:
            tasks.start_soon(self._choose_era)
            await self._sent.wait()
            with self.timeouts.silence(min(START, attempt.limit / 3)):
                await self._started.wait()
            with self.timeouts.silence(min(PROBE_SILENCE, attempt.limit / 3)):
                await self._changed.wait()
            initializing = self._probed is None and bool(self._versions.legacy) and attempt.assumed != "modern"
            if initializing:
                tasks.start_soon(self._handshake_beside_probe)
            decision = await self._decision(initializing=initializing)
            tasks.cancel_scope.cancel()
        return decision

    async def _decision(self, *, initializing: bool) -> Session | EraChoice | Exception:
        """Wait for the result that decides; with *initializing* the handshake is running, too."""
        while True:
            probed, initialized = self._probed, self._initialized
            for failure in (probed, initialized):
                if isinstance(failure, Exception) and not _is_of_server(failure):
                    return failure  # a person who has denied a login is not asked again
            if isinstance(probed, UseModern) or (probed is not None and not initializing):
                return probed  # even a late modern answer: the server was slow, not silent
            failed = isinstance(initialized, Exception) and probed is None
            if initialized is not None and not failed:
                return initialized
            # A refused handshake may be the first sign of a modern server, so the probe gets more time.
            with move_on_after(PROBE_SILENCE if failed else math.inf) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and initialized is not None:
                return initialized
            self._changed = Event()

    async def _choose_era(self) -> None:
        reply: Success | McpError
        try:
            try:
                reply = await self._ask_discover(self._modern(self._versions.modern[0]))
            except McpError as exc:
                if not _is_of_server(exc):
                    raise
                reply = exc
            self._probed = choose_era(reply, self._versions)
        except Exception as exc:  # of middleware, too
            self._probed = exc
        self._sent.set()
        self._changed.set()

    async def _handshake_beside_probe(self) -> None:
        try:
            self._initialized = await self._handshake()
        except Exception as exc:  # of middleware, too
            self._initialized = exc
        self._changed.set()

    async def probe_again(self, timeouts: CallTimeouts) -> EraChoice | None:
        """Probe a server that was connected. None if its answer decides nothing."""
        try:
            version = self._modern(self._versions.modern[0])
            reply: Success | ServerError = await self._dispatcher.request_by_itself(DISCOVER, {}, version, timeouts)
        except ServerError as exc:
            reply = exc
        except Exception:  # of middleware, too: the refusal that led to this is raised
            return None
        try:
            choice = choose_era(reply, self._versions)
        except McpError:
            return None
        return None if isinstance(choice, UseLegacy) and choice.failure is not None else choice

    # Discovery

    def _known_session(self) -> Session | None:
        """The session as an earlier connection has discovered it, if that is fresh."""
        if self._dispatcher.has_logins:
            self._dispatcher.notice_login()
        cache = self._state.cache
        self._changes = cache.changes
        for version in self._versions.modern:
            if (known := cache.find(DISCOVER, {"version": version})) is not None:
                return self._modern_session(self._modern(version), known)
        return None

    async def _ask_discover(self, era: Modern) -> Success:
        return await self._dispatcher.request_by_itself(DISCOVER, {}, era, self.timeouts, on_send=self._sent.set)

    async def _discover(self, era: Modern, result: Params | None) -> Session:
        """The session of *era*; asks again if the probe had no description of the server as its *result*."""
        if result is None:
            try:
                result = (await self._ask_discover(era)).result
            except ServerError as exc:
                if exc.code is None or isinstance(exc, Unauthorized):
                    raise
                self._state.warn(f"{self._state.name} did not describe itself: {excerpt(exc.message)}")
                result = {}
        outcome = era.read(DISCOVER, result)
        assert isinstance(outcome, Complete), "discovery requires no input"
        self._state.cache.keep(DISCOVER, {"version": era.version}, outcome, since=self._changes)
        self._state.remember_era("modern")
        return self._modern_session(era, result)

    def _modern_session(self, era: Modern, discovered: Params) -> Session:
        capabilities, instructions = discovered.get("capabilities"), discovered.get("instructions")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        meta = discovered.get("_meta")
        info: Implementation | None
        try:
            info = Implementation.from_wire(meta[SERVER_INFO] if isinstance(meta, dict) else None)
        except (KeyError, ProtocolError):  # "Servers SHOULD include" it
            info = None
        try:
            server_capabilities = ServerCapabilities.from_wire(capabilities)
        except ProtocolError as exc:  # nothing depends on them in this era
            self._state.warn(f"the capabilities of {self._state.name} are malformed: {exc}")
            server_capabilities = ServerCapabilities()
        features = self._state.features
        return Session(
            era=era,
            server=self._state.name,
            server_info=info,
            server_capabilities=server_capabilities,
            capabilities=capabilities,
            instructions=instructions if isinstance(instructions, str) else None,
            features=features,
            sampling=features.sampling_session(era, self._state.name, info, self._attempt.offers),
            elicitation_share=features.elicitation_share(),
            middleware=self._state.middleware,
            others=_others(discovered),
        )

    def _modern(self, version: str) -> Modern:
        capabilities = self._state.features.capabilities(self._attempt.offers)
        return Modern.for_client(version, self._state.client_info.to_wire(), capabilities)


def _others(result: Params) -> Params | None:
    """The members of a *result* of connecting that no revision names, and its ``_meta`` without the name of the server."""
    others = {name: value for name, value in result.items() if name not in NAMED}
    meta = others.pop("_meta", None)
    if isinstance(meta, dict) and (kept := {key: value for key, value in meta.items() if key != SERVER_INFO}):
        others["_meta"] = kept
    return others or None


def _mentioning(error: McpError, method: str, other: McpError | None) -> McpError:
    """*error*, with how *method* failed added to its text, unless both texts are the same."""
    if other is not None and str(other) != str(error):
        error.args = (f"{error}; {method} failed, too: {other}",)
    return error


def _advising_legacy(error: McpError) -> McpError:
    """*error*, with how to connect without the probe added to its text."""
    error.args = (f'{error}; with Client(era="legacy") no {DISCOVER} is sent',)
    return error


def _is_of_server(exc: Exception) -> bool:
    """Whether *exc* is about the server, or the way to it. Others are of middleware, or of an Auth."""
    return isinstance(exc, ConnectionClosed | McpTimeout | ProtocolError | ServerError)


def _is_independent_of_era(exc: McpError) -> bool:
    """Whether a handshake failed for a reason that says nothing about the server's era."""
    if not _is_of_server(exc):
        return True
    if isinstance(exc, ConnectionClosed):
        return not exc.may_have_run
    return isinstance(exc, Unauthorized) or (isinstance(exc, HttpStatusError) and exc.status >= 500)
