"""The differences between protocol revisions.

Legacy revisions (2025-11-25 and earlier) start with a handshake, and then both sides may send
requests. Since 2026-07-28 there is no handshake: each request carries what the server has to know,
and a server asks for input in a result. Code above this module compares no versions: where the eras
differ, it asks an attribute of the era, such as `listens` or `server_requests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from mcp_host.errors import CallerError, InputRefused, ProtocolError, SamplingError, quoted
from mcp_host.protocol.headers import MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, encode_value
from mcp_host.protocol.jsonrpc import EMPTY, INTERNAL_ERROR, Params
from mcp_host.types import TextContent
from mcp_host.types.revisions import first_unknown

if TYPE_CHECKING:
    from mcp_host.types import CreateMessageResult, InputResponse

INITIALIZE = "initialize"
INITIALIZED = "notifications/initialized"
DISCOVER = "server/discover"
LISTEN = "subscriptions/listen"
ROOTS_CHANGED = "notifications/roots/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

CREATE_MESSAGE = "sampling/createMessage"
CLIENT_INPUT = frozenset({CREATE_MESSAGE, "elicitation/create", "roots/list"})
"""What a server may ask of a client, as a request or in a result."""

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
"""The server capability that each method requires."""

LISTS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})

READ_ONLY = LISTS | {"resources/read", "prompts/get", "completion/complete"}
"""Requests that change nothing on the server."""

REMOVED_REQUESTS = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})

REMOVED_METHODS = REMOVED_REQUESTS | {ROOTS_CHANGED}
"""What a client may send until 2025-11-25 only."""

IDEMPOTENT = READ_ONLY | REMOVED_REQUESTS | {INITIALIZE, DISCOVER}
"""Requests that do no harm if the server receives them twice."""

NAME_PARAMETER = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that goes into the `Mcp-Name` header. Only these methods may ask for input in their result."""

OF_A_RETRY = ("inputResponses", "requestState")
"""What the params of a retry with input have besides those of the request that it repeats."""

CACHEABLE = LISTS | {DISCOVER, "resources/read"}
"""Methods whose results may have a `ttlMs`."""

META = "io.modelcontextprotocol/"
"""The prefix of the specification's keys in ``_meta``."""
LOG_LEVEL = f"{META}logLevel"
SUBSCRIPTION_ID = f"{META}subscriptionId"
SERVER_INFO = f"{META}serverInfo"

SAMPLING_TOOLS = "sampling.tools"
SAMPLING_CONTEXT = "sampling.context"
ELICITATION_URL = "elicitation.url"
ELICITATION_FORM = "elicitation.form"
EXTENSIONS = "extensions"
OPTIONAL = (SAMPLING_TOOLS, SAMPLING_CONTEXT, ELICITATION_URL, ELICITATION_FORM, EXTENSIONS)
"""Client capabilities that some servers reject: those that 2025-11-25 added, and `elicitation` itself."""

SAMPLING_TOOLS_SINCE = "2025-11-25"  # SEP-1577; it also added `sampling.context`, and SEP-1036 `elicitation.url`

MAX_FRESH = 86_400.0  # seconds: a longer `ttlMs` counts as one day
MAX_STATE = 4 * 2**20  # characters of a `requestState` and the keys of input requests: a retry repeats both in one step


class Complete(NamedTuple):
    """The final result of a request, which may be cached for *fresh_for* seconds."""

    value: dict[str, Any]
    fresh_for: float = 0.0


class InputRequest(NamedTuple):
    """One request for input that a server needs to finish a request."""

    method: str
    params: Params


@dataclass(frozen=True, slots=True)
class InputRequired:
    """The server needs answers to *requests*, each under its key, and its *state* back unchanged."""

    requests: Mapping[str, InputRequest]
    state: str | None = field(repr=False)  # opaque, and kept out of logs


Outcome: TypeAlias = Complete | InputRequired


@dataclass(frozen=True, slots=True)
class Legacy:
    """A revision with a handshake: `initialize` once, then requests in both directions."""

    version: str

    stateless = False  # requests belong to the session that `initialize` began
    disconnect_cancels = False  # "Disconnection SHOULD NOT be interpreted as the client cancelling its request"
    resumes_streams = True
    mirrors_parameters = False
    restarts = False
    listens = False
    log_level_per_request = False
    empty_cursor_ends = True  # the specification is silent, and gateways such as Higress end their lists so
    server_requests = CLIENT_INPUT | {"ping"}
    removed = frozenset[str]()

    def prepare_params(self, params: Params, log_level: str | None) -> Params:
        """The params as this era sends them, with its ``_meta``."""
        return params

    def headers(self, method: str, params: Params) -> dict[str, str]:
        """The HTTP headers of a message. Other transports ignore them."""
        return {} if method == INITIALIZE else {PROTOCOL_VERSION: self.version}

    def read(self, method: str, result: dict[str, Any]) -> Outcome:
        """Read a result: it is complete. Of a `resultType`, which came later, others could read that it requires input."""
        if "resultType" in result:
            result = {key: value for key, value in result.items() if key != "resultType"}
        return Complete(result)

    def missing(self, method: str, capabilities: Mapping[str, Any]) -> str | None:
        """The capability that *method* requires and the server did not advertise, if any."""
        path = REQUIRED_CAPABILITY.get(method, ())
        if path == ("completions",) and self.version < "2025-03-26":
            return None  # the capability is newer than this revision
        at: object = capabilities
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
            if at is None or at is False:
                return ".".join(path)
        return None


@dataclass(frozen=True, slots=True)
class Modern:
    """A stateless revision: requests are independent, and servers ask for input in results."""

    version: str
    meta: Mapping[str, Any]
    """The ``_meta`` of each request: our version, name and capabilities."""

    stateless = True
    disconnect_cancels = True  # "Closing the SSE response stream MUST be treated [...] as cancellation"
    resumes_streams = False  # "Resumable SSE streams via `Last-Event-ID` are not supported"
    mirrors_parameters = True
    listens = True  # servers notify of changes on `subscriptions/listen` only
    log_level_per_request = True
    empty_cursor_ends = False  # "an empty string is a valid cursor and thus MUST NOT be treated as the end of results"
    restarts = True  # "If the server process exits unexpectedly, the client SHOULD restart it"
    server_requests = frozenset[str]()  # "The client MUST NOT send JSON-RPC responses"
    removed = REMOVED_METHODS

    @classmethod
    def for_client(cls, version: str, client_info: Params, capabilities: Mapping[str, Any]) -> Self:
        """The era in which each request carries this client info and these capabilities."""
        if "roots" in capabilities:
            capabilities = {**capabilities, "roots": {}}  # without `listChanged`: that notification was removed
        meta = {"protocolVersion": version, "clientInfo": client_info, "clientCapabilities": capabilities}
        return cls(version, {f"{META}{key}": value for key, value in meta.items()})

    def prepare_params(self, params: Params, log_level: str | None) -> Params:
        level = {} if log_level is None else {LOG_LEVEL: log_level}
        return {**params, "_meta": level | params.get("_meta", {}) | dict(self.meta)}

    def headers(self, method: str, params: Params) -> dict[str, str]:
        headers = {PROTOCOL_VERSION: self.version, MCP_METHOD: method}
        if (key := NAME_PARAMETER.get(method)) is not None:
            try:
                headers[MCP_NAME] = encode_value(params[key])
            except ValueError as exc:
                raise CallerError(f"{quoted(params[key])}: {exc}") from None
        return headers

    def read(self, method: str, result: dict[str, Any]) -> Outcome:
        """Read a result: it is complete, or asks for input.

        Raises:
            ProtocolError: "A `resultType` of any value unrecognized by the client MUST be considered invalid."
        """
        match result.get("resultType", "complete"):
            case "complete":
                return Complete(result, _seconds(result.get("ttlMs")) if method in CACHEABLE else 0.0)
            case "input_required" if method in NAME_PARAMETER:
                return _input_required(method, result)
            case "input_required":
                raise ProtocolError(
                    f"the result of {method} requires input, which only calls, prompts and reads may do"
                )
            case other:
                raise ProtocolError(f"the result of {method} is of an unknown type: {quoted(other)}")

    def missing(self, method: str, capabilities: Mapping[str, Any]) -> str | None:
        return None  # the server itself rejects what it does not support


Era: TypeAlias = Legacy | Modern


def optional_capabilities(version: str) -> frozenset[str]:
    """Those of `OPTIONAL` that a client may declare in *version*."""
    return frozenset(OPTIONAL if version >= SAMPLING_TOOLS_SINCE else (ELICITATION_FORM, EXTENSIONS))


def write_answer(answer: InputResponse, version: str, *, with_tools: bool = False) -> dict[str, Any]:
    """Write an answer to the server in the spelling of *version*.

    *with_tools* means that the request offered tools. Then the server implements a draft of
    SEP-1577 and understands tool use, even in an older revision.

    Raises:
        InputRefused: The answer contains something that this revision does not allow.
    """
    if version < SAMPLING_TOOLS_SINCE:
        from mcp_host.types import CreateMessageResult  # here, because few clients answer so

        if isinstance(answer, CreateMessageResult):
            answer = one_block(answer)
        version = SAMPLING_TOOLS_SINCE if with_tools else version
    if problem := first_unknown(answer, version):
        reason = "this client's answer does not fit this protocol revision"
        raise InputRefused(INTERNAL_ERROR, reason) from ValueError(problem)
    return answer.to_wire()


def one_block(answer: CreateMessageResult) -> CreateMessageResult:
    """Join several texts into one block: before 2025-11-25 a sampling result could hold only one."""
    texts = [block.text for block in answer.content if isinstance(block, TextContent)]
    if len(answer.content) == 1 or len(texts) < len(answer.content):
        return answer
    return answer.model_copy(update={"content": [TextContent(text="\n\n".join(texts))]})


def is_first_draft(params: Params) -> bool:
    """Whether a sampling request is in the form of SEP-1577 until October 2025, where a message had one block.

    Its marks are ``tool_choice``, and the result of a tool as an object. A server of a later draft may send both names.
    """
    if "tool_choice" in params and "toolChoice" not in params:
        return True
    match params.get("messages"):
        case [*_, {"content": {"type": "tool_result", "content": dict()}}]:
            return True
    return False


def lone_block(answer: CreateMessageResult) -> CreateMessageResult:
    """The answer to a request of the first draft, or without tools: the first of its tool calls, or else its texts, joined.

    The official SDKs for Python and TypeScript refuse a list in answer to a request without tools, in 2025-11-25, too.

    Raises:
        SamplingError: It has several blocks, and not only texts.
    """
    uses = answer.tool_uses
    lone = answer.model_copy(update={"content": uses[:1]}) if uses else one_block(answer)
    if len(lone.content) > 1:
        raise SamplingError("it holds several blocks, and the server expects one")
    return lone


def _input_required(method: str, result: dict[str, Any]) -> InputRequired:
    prefix = f"the result of {method} requires input"
    raw, state = result.get("inputRequests"), result.get("requestState")
    if raw in EMPTY and state is None:
        raise ProtocolError(f"{prefix}, but has neither inputRequests nor requestState")
    if not (isinstance(raw, dict) or raw in EMPTY) or not isinstance(state, str | None):
        raise ProtocolError(f"{prefix}, but its inputRequests or requestState is malformed")
    if (returned := sum(map(len, (state or "", *(raw or ()))))) > MAX_STATE:
        text = f"but its requestState and keys have {returned:,} characters, more than {MAX_STATE:,}"
        raise ProtocolError(f"{prefix}, {text}")
    requests = {}
    for key, value in (raw or {}).items():
        match value:
            case {"method": str(wanted), "params": dict(params)}:
                requests[key] = InputRequest(wanted, params)
            case {"method": str(wanted), **rest} if rest.get("params") in EMPTY:
                requests[key] = InputRequest(wanted, {})
            case _:
                raise ProtocolError(f"{prefix}, but its input request {quoted(key)} is malformed")
    return InputRequired(requests, state)


def _seconds(ttl_ms: object) -> float:
    """How many seconds a result is fresh: "If `ttlMs` is negative, clients SHOULD ignore it"; absent means 0."""
    if not isinstance(ttl_ms, int | float) or isinstance(ttl_ms, bool) or not ttl_ms > 0:
        return 0.0
    return min(ttl_ms, MAX_FRESH * 1000) / 1000  # in this order: dividing a number of 400 digits would overflow
