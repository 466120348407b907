"""What differs between protocol revisions, and nothing else.

Handshake revisions (2025-11-25 and earlier) shake hands once, and then both
sides may send requests. Since 2026-07-28 there is no handshake: each request
says what a server has to know, and a server asks for input inside a result.
Everything above this module works in neutral terms and never asks which
revision it speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from mcp_host.errors import CallerError, InputRefused, ProtocolError, quoted
from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, encode_value
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Params
from mcp_host.types import CreateMessageResult, TextContent
from mcp_host.types.revisions import first_unknown

if TYPE_CHECKING:
    from mcp_host.types import ElicitResult, ListRootsResult

INITIALIZE = "initialize"
INITIALIZED = "notifications/initialized"
DISCOVER = "server/discover"
LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

CLIENT_INPUT = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""What a server may ask of a client, whichever way its revision asks."""

REQUIRED_CAPABILITY = {
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

READ_ONLY = frozenset(
    {
        *("tools/list", "resources/list", "resources/templates/list", "prompts/list"),
        *("resources/read", "prompts/get", "completion/complete"),
    }
)
"""Requests that change nothing, so that making one twice does no harm."""

IDEMPOTENT = READ_ONLY | {
    *(INITIALIZE, DISCOVER, "ping"),
    *("logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
}
"""All requests of which it does no harm if a server reads one twice."""

NAME_PARAMETER = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter names the thing that a request is about. These are also the requests that may ask for input."""

CACHEABLE = frozenset(
    {
        DISCOVER,
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""Whose results say for how long they are fresh."""

REMOVED_METHODS = frozenset(
    {
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "notifications/roots/list_changed",
    }
)
"""What a client could say until 2025-11-25, and no longer."""

META = "io.modelcontextprotocol/"
"""What the specification's own keys of ``_meta`` begin with."""
LOG_LEVEL = f"{META}logLevel"
SUBSCRIPTION_ID = f"{META}subscriptionId"
SERVER_INFO = f"{META}serverInfo"

SAMPLING_TOOLS_SINCE = "2025-11-25"  # SEP-1577: sampling with tools

MAX_FRESH = 86_400.0  # seconds: a longer `ttlMs` counts as one day


Answer: TypeAlias = "CreateMessageResult | ElicitResult | ListRootsResult"
"""What we may answer to a server's request for input."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The server's final word on a request, *fresh_for* so many seconds."""

    value: dict[str, Any]
    fresh_for: float = 0.0


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One thing that a server wants of us before it will finish a request."""

    method: str
    params: Params


@dataclass(frozen=True, slots=True)
class InputRequired:
    """The server wants these answered, each under its key, and its *state* back unchanged."""

    requests: Mapping[str, InputRequest]
    state: str | None = field(repr=False)  # the server's own, and what is in it is nobody's who reads a log


Outcome: TypeAlias = Complete | InputRequired


@dataclass(frozen=True, slots=True)
class Legacy:
    """A handshake revision: `initialize` once, then a connection both sides may speak on."""

    version: str

    disconnect_cancels = False  # "Disconnection SHOULD NOT be interpreted as the client cancelling its request"
    resumes_streams = True
    mirrors_parameters = False
    restarts = False
    listens = False
    log_level_per_request = False
    server_requests = CLIENT_INPUT | {"ping"}
    removed = frozenset[str]()

    @property
    def samples_with_tools(self) -> bool:
        """Whether a sampling request may offer tools (SEP-1577)."""
        return self.version >= SAMPLING_TOOLS_SINCE

    @property
    def declares_context_support(self) -> bool:
        """Whether a sampling request may ask for context only of a client that declared it (SEP-1577)."""
        return self.version >= SAMPLING_TOOLS_SINCE

    @property
    def declares_elicitation_modes(self) -> bool:
        """Whether a client says in which modes it can be asked (SEP-1036); before, there was one."""
        return self.version >= "2025-11-25"

    def prepare_params(self, params: Params, log_level: str | None) -> Params:
        """The params as this era sends them."""
        return params

    def headers(self, method: str, params: Params) -> dict[str, str]:
        """The HTTP headers that go with a message. Transports without headers ignore them."""
        return {} if method == "initialize" else {PROTOCOL_VERSION: self.version}

    def read(self, method: str, result: dict[str, Any]) -> Outcome:
        """What a result means for the request."""
        return Complete(result)

    def missing(self, method: str, capabilities: Mapping[str, Any]) -> str | None:
        """The capability that *method* presupposes and the server did not advertise, if any."""
        path = REQUIRED_CAPABILITY.get(method, ())
        if path == ("completions",) and self.version < "2025-03-26":
            return None  # the capability came with 2025-03-26; before, servers could not advertise it
        at: object = capabilities
        for key in path:
            at = at.get(key) if isinstance(at, Mapping) else None
            if at is None or at is False:
                return ".".join(path)
        return None

    def write(self, answer: Answer, *, with_tools: bool = False) -> dict[str, Any]:
        """Our answer to the server as this revision spells it.

        *with_tools* says that the request offered tools: then the server knows how their use is spelled,
        be its revision older, for it is of a draft.

        Raises:
            InputRefused: The answer holds something that this revision has no words for.
        """
        if isinstance(answer, CreateMessageResult) and not self.samples_with_tools:
            answer = _one_block(answer)
        return _written(answer, SAMPLING_TOOLS_SINCE if with_tools else self.version)


@dataclass(frozen=True, slots=True)
class Modern:
    """A stateless revision: every request stands for itself, and input is asked for inside results."""

    version: str
    meta: Mapping[str, Any]
    """What each request says of us."""

    disconnect_cancels = True  # "Closing the SSE response stream MUST be treated [...] as cancellation"
    resumes_streams = False  # "Resumable SSE streams via `Last-Event-ID` are not supported"
    mirrors_parameters = True
    listens = True  # changes are told of to those who listen, and not unprompted
    log_level_per_request = True  # each request says which log messages it wants
    restarts = True  # "If the server process exits unexpectedly, the client SHOULD restart it"
    server_requests = frozenset[str]()  # "The client MUST NOT send JSON-RPC responses"
    removed = REMOVED_METHODS
    samples_with_tools = True
    declares_context_support = True
    declares_elicitation_modes = True

    @classmethod
    def for_client(cls, version: str, client_info: Params, capabilities: Mapping[str, Any]) -> Self:
        """The era in which each request introduces us in full."""
        if "roots" in capabilities:
            capabilities = {**capabilities, "roots": {}}  # there is no way left to tell that they have changed
        meta = {"protocolVersion": version, "clientInfo": client_info, "clientCapabilities": capabilities}
        return cls(version, {f"{META}{key}": value for key, value in meta.items()})

    def prepare_params(self, params: Params, log_level: str | None) -> Params:
        level = {} if log_level is None else {LOG_LEVEL: log_level}
        return {**params, "_meta": level | params.get("_meta", {}) | dict(self.meta)}

    def headers(self, method: str, params: Params) -> dict[str, str]:
        headers = {PROTOCOL_VERSION: self.version, MCP_METHOD: method}
        if (key := NAME_PARAMETER.get(method)) is not None:
            headers[MCP_NAME] = _header_value(params[key])
        return headers

    def read(self, method: str, result: dict[str, Any]) -> Outcome:
        """What a result means for the request.

        Raises:
            ProtocolError: "A `resultType` of any value unrecognized by the client MUST be considered invalid."
        """
        match result.get("resultType", "complete"):
            case "complete":
                return Complete(result, _seconds(result.get("ttlMs")) if method in CACHEABLE else 0.0)
            case "input_required" if method in NAME_PARAMETER:
                return _input_required(method, result)
            case "input_required":
                raise ProtocolError(f"the result of {method} asks for input, which only calls, prompts and reads may")
            case other:
                raise ProtocolError(f"the result of {method} is of an unknown type: {quoted(other)}")

    def missing(self, method: str, capabilities: Mapping[str, Any]) -> str | None:
        return None  # what a server did not advertise it may serve all the same; it says so if not

    def write(self, answer: Answer, *, with_tools: bool = False) -> dict[str, Any]:
        return _written(answer, self.version)


Era: TypeAlias = Legacy | Modern


def _written(answer: Answer, version: str) -> dict[str, Any]:
    if problem := first_unknown(answer, version):
        raise InputRefused(INTERNAL_ERROR, "this client's answer does not fit this protocol revision") from ValueError(
            problem
        )
    return answer.to_wire()


def _one_block(answer: CreateMessageResult) -> CreateMessageResult:
    """One content block: before 2025-11-25 a sampling result could not hold more."""
    texts = [block.text for block in answer.content if isinstance(block, TextContent)]
    if len(answer.content) == 1 or len(texts) < len(answer.content):
        return answer
    return answer.model_copy(update={"content": [TextContent(text="\n\n".join(texts))]})


def _input_required(method: str, result: dict[str, Any]) -> InputRequired:
    requests, state = result.get("inputRequests"), result.get("requestState")
    if requests is None and state is None:
        raise ProtocolError(f"the result of {method} requires input, and says neither which nor gives a state")
    if not isinstance(requests, dict | None) or not isinstance(state, str | None):
        raise ProtocolError(f"the result of {method} requires input, and says so in a wrong shape")
    return InputRequired({key: _input_request(method, key, value) for key, value in (requests or {}).items()}, state)


def _input_request(method: str, key: str, value: object) -> InputRequest:
    match value:
        case {"method": str(wanted), "params": dict(params)}:
            return InputRequest(wanted, params)
        case {"method": str(wanted), **rest} if "params" not in rest:
            return InputRequest(wanted, {})
    raise ProtocolError(f"the result of {method} requires input, and what it wants under {quoted(key)} is no request")


def _header_value(name: str) -> str:
    try:
        return encode_value(name)
    except ValueError as exc:
        raise CallerError(f"{quoted(name)}: {exc}") from None


def _seconds(ttl_ms: object) -> float:
    """How long a result is fresh: "If `ttlMs` is negative, clients SHOULD ignore it"; absent means 0."""
    if not isinstance(ttl_ms, int | float) or isinstance(ttl_ms, bool) or not ttl_ms > 0:
        return 0.0
    return min(ttl_ms, MAX_FRESH * 1000) / 1000  # in this order: a quotient of 400 digits is no float
