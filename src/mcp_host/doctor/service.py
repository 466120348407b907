"""The server that a host calls: one tool, which carries out the check-up."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mcp_host.doctor.checkup import Checkup
from mcp_host.doctor.report import text
from mcp_host.doctor.seen import Host
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Notification, Params, Response
from mcp_host.serving.errors import RequestError, read
from mcp_host.serving.remote_client import ReceivedRequest, RemoteClient, meta_of
from mcp_host.serving.service import Ask, Handler, Peer, Service
from mcp_host.types import CallToolRequestParams

TOOL = "check_host"
INSTRUCTIONS = (
    f"This server checks the host that it runs under. Call the tool {TOOL}, without arguments and one call at a time,"
    " again and again until its result says that the check-up is complete. An error is no reason to stop: it may be"
    " what was to be seen. The user will be asked to answer forms: do as they say."
)
DEFINITION: Params = {
    "name": TOOL,
    "title": "Check this host",
    "description": "Check how this host answers a server, a few exchanges in each call. Call it again, also after an"
    " error, until `complete` is true; then show the report to the user.",
    "inputSchema": {"type": "object", "properties": {}},
    "outputSchema": {
        "type": "object",
        "properties": {"complete": {"type": "boolean"}, "remaining": {"type": "integer"}},
        "required": ["complete", "remaining"],
    },
}


@dataclass(slots=True, kw_only=True, eq=False)
class CheckupService(Service):
    """Serves any number of connections of one host, in one or both eras."""

    timeout: float
    changed: Callable[[], object]
    """Called after each call of the tool."""
    checkups: dict[str, Checkup] = field(default_factory=dict)
    """By revision."""

    def begin(self, peer: Peer | None, principal: Hashable = None) -> CheckupService:
        return replace(self, subscriptions=[])  # the session's own is the first

    def notified(self, notification: Notification) -> None:
        for checkup in self.checkups.values():
            checkup.host.notifications.append(notification)

    def unexpected(self, response: Response) -> None:
        for checkup in self.checkups.values():
            checkup.host.unexpected.append(response)

    def capabilities(self) -> dict[str, Any]:
        return {"tools": {"listChanged": True}}

    def find(self, method: str, params: Params, client: RemoteClient) -> Params | Handler:
        match method:
            case "tools/list":
                return {"tools": [DEFINITION]}
            case "tools/call":
                if (name := read(CallToolRequestParams, params).name) != TOOL:
                    raise RequestError(INVALID_PARAMS, f"Unknown tool: {name}")
                return partial(self._call)
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")

    async def _call(self, call: ReceivedRequest, ask: Ask) -> Params:
        checkup = self._checkup(call)
        await checkup.proceed(call, ask)
        self.changed()
        remaining = len(checkup.remaining)
        said = f"{remaining} exchanges remain: call {TOOL} again." if remaining else text([checkup])
        structured = {"complete": not remaining, "remaining": remaining}
        return {"content": [{"type": "text", "text": said}], "structuredContent": structured}

    def _checkup(self, call: ReceivedRequest) -> Checkup:
        """The check-up of the host in its revision, with what this call shows."""
        client, params = call.client, call.request.params
        if (checkup := self.checkups.get(client.version)) is None:
            host = Host(
                name=client.info.name,
                version=client.info.version,
                revision=client.version,
                stateless=client.stateless,
                capabilities=client.capabilities.to_wire(),
            )
            if not client.stateless:
                host.initialized = bool(self.subscriptions[0].lists)
            checkup = self.checkups[client.version] = Checkup(host, self.timeout)
        host = checkup.host
        if "progressToken" in meta_of(params):
            host.tokens.append(meta_of(params)["progressToken"])
        if "inputResponses" in params:  # with a requestState, the call that it belongs to would have continued
            host.retries_without_state += 1
        return checkup
