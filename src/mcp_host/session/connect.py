"""How a connection begins: finding out which era the server speaks, and beginning in it.

The probe is `server/discover`. It is never a call of the application's, which a
legacy server might carry out and then carry out again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from anyio import Event, create_task_group, move_on_after

from mcp_host.concurrency import SingleFlight
from mcp_host.errors import (
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    NoCommonVersion,
    ProtocolError,
    Unauthorized,
    excerpt,
)
from mcp_host.protocol.eras import DISCOVER, INITIALIZE, INITIALIZED, SERVER_INFO, Complete, Legacy, Modern
from mcp_host.protocol.jsonrpc import Failure, Params, Response, Success
from mcp_host.protocol.negotiation import (
    EraChoice,
    ProbeReply,
    UseLegacy,
    UseModern,
    accept_version,
    choose_era,
    common_version,
)
from mcp_host.session.attempts import Attempt, NoAnswer, Offers, WrongEra
from mcp_host.session.call import CallTimeouts, server_error
from mcp_host.session.config import ClientConfig, Session
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.transports.base import quoting
from mcp_host.types import Implementation, InitializeResult, ServerCapabilities

INITIALIZED_WAIT = 1.0  # seconds, a third of `connect_timeout` at most, for a notification that nothing depends on


@dataclass(frozen=True, slots=True)
class Handshake:
    """How to shake hands with one server, the first time and after it has forgotten us."""

    name: str
    dispatcher: Dispatcher
    config: ClientConfig
    offers: Offers

    async def initialize(self, epoch: int, timeouts: CallTimeouts) -> Session:
        """Only the first half, after which the server may not be asked yet.

        Raises:
            ServerError: The server refused.
            ProtocolError: Its answer is none (`NoCommonVersion`: no revision in common).
        """
        return await self._initialize(epoch, self.config.allowed_versions.legacy[0], timeouts)

    async def _initialize(self, epoch: int, version: str, timeouts: CallTimeouts) -> Session:
        allowed_versions, offers = self.config.allowed_versions, self.offers.within(Legacy(version))
        params = {
            "protocolVersion": version,
            "capabilities": self.config.inputs.capabilities(offers),
            "clientInfo": self.config.client_info.to_wire(),
        }
        self.dispatcher.expect_handshake()
        reply: Response | HttpStatusError
        try:
            reply = await self.dispatcher.ask("initialize", params, {}, timeouts)
        except HttpStatusError as exc:
            reply = exc
        if not isinstance(reply, Success):
            if (other := common_version(reply, allowed_versions)) and other != version:
                return await self._initialize(epoch, other, timeouts)
            raise reply if isinstance(reply, HttpStatusError) else server_error("initialize", params, reply)
        result = InitializeResult.from_wire(reply.result)
        era = accept_version(result.protocol_version, allowed_versions)
        return Session(
            epoch=epoch,
            era=era,
            server_info=result.server_info,
            server_capabilities=result.capabilities,
            capabilities=reply.result["capabilities"],
            instructions=result.instructions,
            inputs=self.config.inputs.session(era, result.server_info.name, offers),
        )

    async def confirm(self, session: Session) -> None:
        """Say that we are initialized, and wait a little until the server has taken it: some refuse calls that overtake it.

        One that fumbles this may still answer calls. It hears all of it, even if nobody waits any more.
        """
        seconds = min(INITIALIZED_WAIT, self.config.limits.connect_timeout / 3)
        telling = SingleFlight(self.dispatcher.spawn)
        telling.begin(partial(self.dispatcher.tell, INITIALIZED, {}, session.era.headers(INITIALIZED, {})))
        with move_on_after(seconds) as scope:
            try:
                await telling.wait()
            except McpError as exc:
                self.config.warn(f"{self.name} did not take {INITIALIZED}: {exc}")
        if scope.cancelled_caught:
            self.config.warn(
                f"{self.name} did not answer {INITIALIZED} within {seconds:g} s: calls do not wait for that"
            )


@dataclass(frozen=True, slots=True)
class Discovery:
    """Asks one server about itself."""

    name: str
    dispatcher: Dispatcher
    config: ClientConfig
    offers: Offers

    async def ask(self, version: str, timeouts: CallTimeouts) -> ProbeReply:
        """What comes back for `server/discover` in *version*: a response, or the error in its stead."""
        era = self._era(version)
        try:
            return await self.dispatcher.ask(
                DISCOVER, era.prepare_params({}, None), era.headers(DISCOVER, {}), timeouts
            )
        except McpError as exc:
            return exc

    def recall(self) -> Session | None:
        """The session with a server that has said for how long its word holds, while it does."""
        for version in self.config.allowed_versions.modern:
            known = self.config.cache.find(DISCOVER, {"version": version})
            if known is not None:
                return self._session(version, known)
        return None

    async def begin(self, verdict: UseModern, timeouts: CallTimeouts) -> Session:
        """The session with a server that speaks *verdict*'s version. It is asked again if it did not say more."""
        said = verdict.discovered
        if said is None:
            said = await self._insist(verdict.version, timeouts)
        outcome = self._era(verdict.version).read(DISCOVER, said)
        if isinstance(outcome, Complete):
            self.config.cache.keep(DISCOVER, {"version": verdict.version}, outcome)
        self.config.remember("modern")
        return self._session(verdict.version, said)

    async def _insist(self, version: str, timeouts: CallTimeouts) -> Params:
        match await self.ask(version, timeouts):
            case Success(result=result):
                return result
            case Unauthorized() as exc:
                raise exc
            case Failure(message=message) | HttpStatusError(message=message, code=int()):
                self.config.warn(f"{self.name} says nothing of itself: {excerpt(message)}")
                return {}
            case exc:
                raise exc

    def _session(self, version: str, said: Params) -> Session:
        era = self._era(version)
        capabilities = said.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        instructions = said.get("instructions")
        info = self._server_info(said)
        return Session(
            epoch=1,
            era=era,
            server_info=info,
            server_capabilities=self._server_capabilities(capabilities),
            capabilities=capabilities,
            instructions=instructions if isinstance(instructions, str) else None,
            inputs=self.config.inputs.session(era, info.name, self.offers),
        )

    def _era(self, version: str) -> Modern:
        capabilities = self.config.inputs.capabilities(self.offers)
        return Modern.for_client(version, self.config.client_info.to_wire(), capabilities)

    def _server_info(self, said: Params) -> Implementation:
        """ "Servers SHOULD include" their name; for the others, ours for them has to do."""
        meta = said.get("_meta")
        try:
            return Implementation.from_wire(meta[SERVER_INFO] if isinstance(meta, dict) else None)
        except (KeyError, ProtocolError):
            return Implementation(name=self.name, version="")

    def _server_capabilities(self, capabilities: Params) -> ServerCapabilities:
        try:
            return ServerCapabilities.from_wire(capabilities)
        except ProtocolError as exc:  # nothing depends on them in this era
            self.config.warn(f"the capabilities of {self.name} are malformed: {exc}")
            return ServerCapabilities()


PROBE_SILENCE = 2.0  # seconds from the server's first sign of life: it "may never answer" what it does not know
START = 10.0  # seconds for that sign; a package that has to be fetched says so on stderr long before


class Connector:
    """The opening of one connection to one server, as *attempt* has it."""

    def __init__(self, name: str, dispatcher: Dispatcher, config: ClientConfig, attempt: Attempt) -> None:
        self.handshake = Handshake(name, dispatcher, config, attempt.offers)
        self.timeouts = CallTimeouts.connecting(attempt.limit, config.limits.input_timeout, dispatcher.now)
        """The clock of connecting, which runs from here on. Like a call's, it stops for what our side has to answer."""
        self._discovery = Discovery(name, dispatcher, config, attempt.offers)
        self._name = name
        self._dispatcher = dispatcher
        self._config = config
        self._allowed_versions = config.allowed_versions
        self._attempt = attempt
        self._limit = attempt.limit
        self._awake = Event()
        self._probe_failure: McpError | None = None
        self._unanswered = False
        """Whether time ran out while the server had not answered `initialize`."""

    async def begin(self) -> Session:
        """Settle the first session.

        Raises:
            WrongEra: The server is gone, or was taken for what it is not.
            NoCommonVersion: It speaks nothing that the client may speak.
            ServerError, ConnectionClosed, ProtocolError: As it says itself.
        """
        self._dispatcher.spawn(self._wait_until_awake)
        if not self._allowed_versions.modern:
            return await self._shake_hands()
        if self._attempt.assumed == "legacy" and self._allowed_versions.legacy:
            return await self._shake_hands_as_assumed()
        if (known := self._discovery.recall()) is not None:
            return known
        return await self._find_out()

    def timed_out(self, last_words: str) -> ConnectTimeout:
        """The error for an opening that took too long; *last_words* are the server's."""
        text = f"{self._name} was not ready within {self._config.limits.connect_timeout:g} s"
        if self._unanswered and self._awake.is_set():
            failed = "" if self._probe_failure is None else f"; {DISCOVER} failed: {self._probe_failure}"
            return NoAnswer(f"{text}: it did not answer initialize{failed}{quoting(last_words)}")
        return ConnectTimeout(f"{text}{quoting(last_words)}")

    async def _wait_until_awake(self) -> None:
        await self._dispatcher.awake()
        self._awake.set()

    async def _shake_hands_as_assumed(self) -> Session:
        try:
            return await self._shake_hands()
        except McpError as exc:
            if isinstance(exc, HttpStatusError):
                self._config.forget()  # the next connection will find out
            if _says_nothing_of_the_era(exc):
                raise
            raise WrongEra(exc, instead=None) from exc

    async def _shake_hands(self) -> Session:
        session = await self._initialize()
        await self.handshake.confirm(session)
        self._config.remember("legacy")
        return session

    async def _initialize(self) -> Session:
        """The first half of the handshake."""
        try:
            return await self.handshake.initialize(1, self.timeouts)
        finally:
            self._unanswered = self._dispatcher.now() >= self.timeouts.end

    async def _find_out(self) -> Session:
        """Probe. Once that has met with silence, shake hands beside it: the first that says something decides."""
        race = _Race()
        async with create_task_group() as tasks:
            tasks.start_soon(self._probe, race)
            await self._wait_for(race)
            if race.judgment is None and self._allowed_versions.legacy and self._attempt.assumed != "modern":
                race.shaking = True
                tasks.start_soon(self._shake_hands_meanwhile, race)
            decision = await race.decided()
            tasks.cancel_scope.cancel()
        return await self._follow(decision)

    async def _probe(self, race: _Race) -> None:
        try:
            race.judgment = choose_era(
                await self._discovery.ask(self._allowed_versions.modern[0], self.timeouts), self._allowed_versions
            )
        except McpError as exc:
            race.judgment = exc
        race.news.set()

    async def _wait_for(self, race: _Race) -> None:
        with move_on_after(min(START, self._limit / 3)):
            await self._awake.wait()
        with move_on_after(min(PROBE_SILENCE, self._limit / 3)):
            await race.news.wait()

    async def _shake_hands_meanwhile(self, race: _Race) -> None:
        try:
            race.shaken = await self._shake_hands()
        except McpError as exc:
            race.shaken = exc
        race.news.set()

    async def _follow(self, decision: Session | EraChoice | McpError) -> Session:
        match decision:
            case UseModern():
                return await self._discovery.begin(decision, self.timeouts)
            case Session():
                return decision
            case UseLegacy(failure=ConnectionClosed() as ended) if not self._dispatcher.stream_per_request:
                raise WrongEra(ended, instead="legacy") from ended  # some exit over what they do not know
            case UseLegacy(failure=failure) if self._allowed_versions.legacy:
                return await self._shake_hands_after_the_probe(failure)
            case UseLegacy(because):
                raise NoCommonVersion(
                    f"{self._name} does not speak {self._allowed_versions}: to server/discover it said: {because}"
                )
            case ConnectionClosed() if self._allowed_versions.legacy and not self._dispatcher.stream_per_request:
                raise WrongEra(decision, instead="legacy") from decision  # before they have read a word of it
        raise decision

    async def _shake_hands_after_the_probe(self, failure: McpError | None) -> Session:
        """Shake hands with a server that gave no modern answer, but perhaps a *failure*."""
        self._probe_failure = failure
        try:
            return await self._shake_hands()
        except McpError as exc:
            if isinstance(exc, ConnectionClosed):
                if not self._dispatcher.stream_per_request:
                    raise WrongEra(exc, instead="legacy") from exc  # some say what is wrong before they exit over it
                if isinstance(failure, HttpStatusError):
                    raise _mentioning(failure, INITIALIZE, exc) from exc  # a server's word says more than its silence
            raise _mentioning(exc, DISCOVER, failure) from exc.__cause__


def _mentioning(error: McpError, method: str, other: McpError | None) -> McpError:
    """*error*, which says now how *method* failed, too, unless that was in the same way."""
    if other is not None and str(other) != str(error):
        error.args = (f"{error}; {method} failed, too: {other}",)
    return error


class _Race:
    """The probe, the handshake that may have been begun beside it, and what they have brought so far."""

    def __init__(self) -> None:
        self.judgment: EraChoice | McpError | None = None
        self.shaking = False
        self.shaken: Session | McpError | None = None
        self.news = Event()

    def decision(self) -> Session | EraChoice | McpError | None:
        """What to do, or None while it is open. A late modern answer still counts: the server was slow, not silent."""
        if isinstance(self.judgment, UseModern) or not self.shaking:
            return self.judgment
        if isinstance(self.shaken, McpError) and self.judgment is None:
            return None  # that it will not shake hands may be the first sign of a server that needs none
        return self.shaken

    async def decided(self) -> Session | EraChoice | McpError:
        while (decision := self.decision()) is None:
            with move_on_after(math.inf if self.shaken is None else PROBE_SILENCE) as waiting:
                await self.news.wait()
            if waiting.cancelled_caught and self.shaken is not None:
                return self.shaken
            self.news = Event()
        return decision


def _says_nothing_of_the_era(exc: McpError) -> bool:
    """Whether a handshake failed for a reason that any server of any era may have."""
    match exc:
        case Unauthorized():
            return True
        case HttpStatusError(status=status):
            return status >= 500
        case ConnectionClosed(may_have_run=may_have_run):
            return not may_have_run
    return False
