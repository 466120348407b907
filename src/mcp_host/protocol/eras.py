"""What differs between protocol revisions, and nothing else.

Handshake revisions (2025-11-25 and earlier) shake hands once, and then both
sides may send requests. Everything above this module works in neutral terms
and never asks which revision it speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp_host.errors import InputRefused
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Params
from mcp_host.protocol.revisions import first_unknown
from mcp_host.types import CreateMessageResult, ElicitResult, ListRootsResult, TextContent

CLIENT_INPUT = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""What a server may ask of a client, whichever way its revision asks."""

ADVERTISED_AS = {
    "tools/list": ("tools",),
    "tools/call": ("tools",),
    "resources/list": ("resources",),
    "resources/templates/list": ("resources",),
    "resources/read": ("resources",),
    "resources/subscribe": ("resources", "subscribe"),
    "resources/unsubscribe": ("resources", "subscribe"),
    "prompts/list": ("prompts",),
    "prompts/get": ("prompts",),
    "completion/complete": ("completions",),
    "logging/setLevel": ("logging",),
}
"""The server capability that each request presupposes."""


Answer: TypeAlias = CreateMessageResult | ElicitResult | ListRootsResult
"""What we may answer to a server's request for input."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The server's final word on a request."""

    value: dict[str, Any]


Outcome: TypeAlias = Complete


@dataclass(frozen=True, slots=True)
class Legacy:
    """A handshake revision: `initialize` once, then a connection both sides may speak on."""

    version: str

    disconnect_cancels = False  # "Disconnection SHOULD NOT be interpreted as the client cancelling its request"
    server_requests = CLIENT_INPUT | {"ping"}

    @property
    def samples_with_tools(self) -> bool:
        """Whether a sampling request may offer tools (SEP-1577)."""
        return self.version >= "2025-11-25"

    def dress(self, method: str, params: Params) -> Params:
        """The params as this era sends them."""
        return params

    def headers(self, method: str) -> dict[str, str]:
        """The HTTP headers that go with a message. Transports without headers ignore them."""
        return {} if method == "initialize" else {"MCP-Protocol-Version": self.version}

    def read(self, result: dict[str, Any]) -> Outcome:
        """What a result means for the request."""
        return Complete(result)

    def missing(self, method: str, capabilities: Mapping[str, Any]) -> str | None:
        """The capability that *method* presupposes and the server did not advertise, if any."""
        path = ADVERTISED_AS.get(method, ())
        if path == ("completions",) and self.version < "2025-03-26":
            return None  # the capability came with 2025-03-26; before, servers could not advertise it
        at: object = capabilities
        for key in path:
            at = at.get(key) if isinstance(at, Mapping) else None
            if at is None or at is False:
                return ".".join(path)
        return None

    def write(self, answer: Answer) -> dict[str, Any]:
        """Our answer to the server as this revision spells it.

        Raises:
            InputRefused: The answer holds something that this revision has no words for.
        """
        if isinstance(answer, CreateMessageResult) and not self.samples_with_tools:
            answer = _one_block(answer)
        if problem := first_unknown(answer, self.version):
            raise InputRefused(
                INTERNAL_ERROR, "this client's answer does not fit this protocol revision"
            ) from ValueError(problem)
        return answer.to_wire()


Era: TypeAlias = Legacy


def _one_block(answer: CreateMessageResult) -> CreateMessageResult:
    """One content block: before 2025-11-25 a sampling result could not hold more."""
    texts = [block.text for block in answer.content if isinstance(block, TextContent)]
    if len(answer.content) == 1 or len(texts) < len(answer.content):
        return answer
    return answer.model_copy(update={"content": [TextContent(text="\n\n".join(texts))]})
