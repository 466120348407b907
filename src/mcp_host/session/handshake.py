"""The handshake: who we are, what we answer, and which revision both sides speak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mcp_host.errors import HttpStatusError, McpError, RequestTimeout
from mcp_host.protocol.eras import INITIALIZED, Legacy
from mcp_host.protocol.jsonrpc import Response, Success
from mcp_host.protocol.negotiation import accept, counter_offer
from mcp_host.session.attempts import Offers
from mcp_host.session.config import ClientConfig
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.errors import server_error
from mcp_host.session.negotiated import Session
from mcp_host.session.single_flight import SingleFlight
from mcp_host.session.timeouts import CallTimeouts
from mcp_host.types import InitializeResult

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
        return await self._initialize(epoch, self.config.allowed_versions.handshake[0], timeouts)

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
            if (other := counter_offer(reply, allowed_versions)) and other != version:
                return await self._initialize(epoch, other, timeouts)
            raise reply if isinstance(reply, HttpStatusError) else server_error("initialize", params, reply)
        result = InitializeResult.from_wire(reply.result)
        era = accept(result.protocol_version, allowed_versions)
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
        try:
            await telling.wait(CallTimeouts(timeout=seconds, idle_timeout=seconds), INITIALIZED)
        except RequestTimeout:
            self.config.warn(
                f"{self.name} did not answer {INITIALIZED} within {seconds:g} s: calls do not wait for that"
            )
        except McpError as exc:
            self.config.warn(f"{self.name} did not take {INITIALIZED}: {exc}")
