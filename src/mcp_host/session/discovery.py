"""What a stateless server says of itself when it is asked, in place of a handshake."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_host.errors import HttpStatusError, McpError, ProtocolError, Unauthorized, excerpt
from mcp_host.protocol.eras import DISCOVER, SERVER_INFO, Complete, Modern
from mcp_host.protocol.jsonrpc import Failure, Params, Success
from mcp_host.protocol.negotiation import ProbeReply, SpeakModern
from mcp_host.session.attempts import Offers
from mcp_host.session.config import ClientConfig
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.negotiated import Session
from mcp_host.session.timeouts import CallTimeouts
from mcp_host.types import Implementation, ServerCapabilities


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

    async def begin(self, verdict: SpeakModern, timeouts: CallTimeouts) -> Session:
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
        return Modern.introducing(version, self.config.client_info.to_wire(), capabilities)

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
