"""What differs between the two sides of a proxy: capabilities, what belongs to one connection, error codes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from mcp_host.errors import CallerError, McpError, NotAdvertised, ResourceNotFound, ServerError
from mcp_host.protocol.eras import (
    CREATE_MESSAGE,
    DISCOVER,
    INITIALIZE,
    LISTEN,
    META,
    NAME_PARAMETER,
    REMOVED_REQUESTS,
    SERVER_INFO,
)
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Notification,
    Params,
    encode,
)
from mcp_host.serving.errors import RequestError, read
from mcp_host.serving.remote_client import RemoteClient
from mcp_host.types import ClientCapabilities, JSONObject
from mcp_host.types.messages import RequestParams
from mcp_host.types.requests import ResourceRequestParams, SetLevelRequestParams

ELICIT = "elicitation/create"
ROOTS = "roots/list"
URL: Params = {"mode": "url"}
TASKS = "io.modelcontextprotocol/tasks"
"""An extension whose results the client does not take."""

OF_A_CONNECTION = frozenset({INITIALIZE, DISCOVER, LISTEN})
"""Requests that each side makes on its own connection."""

READ_HERE: Mapping[str, type[RequestParams]] = {
    "logging/setLevel": SetLevelRequestParams,
    "resources/subscribe": ResourceRequestParams,
    "resources/unsubscribe": ResourceRequestParams,
}
"""Requests that the proxy makes by itself, in place of the host."""

OF_THE_OTHER_ERA: Mapping[bool, frozenset[str]] = {
    True: REMOVED_REQUESTS | {INITIALIZE},
    False: frozenset({DISCOVER, LISTEN}),
}
"""Requests that a host of a stateless revision (True), or of one with a handshake, does not have. The server may have them."""

OF_ONE_CONNECTION = frozenset(
    f"{META}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities", "subscriptionId")
)
"""Keys of ``_meta`` that describe one side, as the progress token does: they are not passed on."""

OF_ONE_SIDE = frozenset({HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION})
"""Errors about one connection, which the other side could only misunderstand."""

MODERN_MEMBERS = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Members of results since 2026-07-28."""


def check_method(method: str, host: RemoteClient) -> None:
    """Raise `RequestError` if the revision of *host* does not have this request."""
    if method in OF_THE_OTHER_ERA[host.stateless] or method.startswith("notifications/"):
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")


def check_params(method: str, params: Params) -> None:
    """Check what is read of the params of a host's request to pass it on. The server checks the rest.

    Raises:
        RequestError: They are malformed.
    """
    if (model := READ_HERE.get(method)) is not None:
        read(model, params)
    key = NAME_PARAMETER.get(method)
    if key is not None and not isinstance(params.get(key), str):
        raise RequestError(INVALID_PARAMS, f"{key} has to be text")
    if not isinstance(params.get("_meta", {}), dict):
        raise RequestError(INVALID_PARAMS, "_meta has to be an object")


def params_upstream(params: Params) -> Params:
    """The params of a host's request for the server. What the server says of itself is passed on in the same way."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params
    kept = {key: value for key, value in meta.items() if key not in OF_ONE_CONNECTION and key != "progressToken"}
    without = {key: value for key, value in params.items() if key != "_meta"}
    return without | ({"_meta": kept} if kept else {})


def is_writable(member: object) -> bool:
    """Whether a *member* of a result, as it was read, can be written: no number in it is infinite, and it does not nest too deeply."""
    try:
        encode(Notification("", {"": member}))
    except CallerError:
        return False
    return True


def amount_of(progress: Params) -> float:
    """How far it is, which some servers write as text."""
    amount: float | str = progress["progress"]
    return float(amount) if isinstance(amount, str) else amount


def result_downstream(method: str, result: Params) -> Params:
    """The result of *method* of a server since 2026-07-28, for a host with a handshake."""
    kept = {key: value for key, value in result.items() if key not in MODERN_MEMBERS}
    if isinstance(meta := kept.get("_meta"), dict) and SERVER_INFO in meta:
        meta = {key: value for key, value in meta.items() if key != SERVER_INFO}
        kept = {key: value for key, value in kept.items() if key != "_meta"} | ({"_meta": meta} if meta else {})
    if method == "tools/list" and isinstance(tools := kept.get("tools"), list):
        kept["tools"] = [_with_objects_only(tool) for tool in tools]
    structured = kept.get("structuredContent", {})
    if method == "tools/call" and not isinstance(structured, dict) and is_writable(structured):
        text = to_json(kept.pop("structuredContent")).decode()
        kept["content"] = kept.get("content") or [{"type": "text", "text": text}]
    return kept


def _with_objects_only(tool: object) -> object:
    """A tool without an output schema that is not of objects: until 2025-11-25, structured content is an object."""
    match tool:
        case {"outputSchema": schema, **others} if not (isinstance(schema, dict) and schema.get("type") == "object"):
            return others
    return tool


def error_downstream(error: McpError, *, stateless: bool) -> RequestError:
    """The error for a host of a *stateless* revision, or of one with a handshake."""
    code = error.code if isinstance(error, ServerError) else None
    is_known = stateless or code != MISSING_REQUIRED_CLIENT_CAPABILITY  # which came with 2026-07-28
    if isinstance(error, ServerError) and code is not None and code not in OF_ONE_SIDE and is_known:
        if code == RESOURCE_NOT_FOUND or isinstance(error, ResourceNotFound):
            code = INVALID_PARAMS if stateless else RESOURCE_NOT_FOUND  # "replaced by -32602" (2026-07-28, basic)
        return RequestError(code, error.message, error.data)
    return RequestError(METHOD_NOT_FOUND if isinstance(error, NotAdvertised) else INTERNAL_ERROR, str(error))


def extensions_upstream(declared: ClientCapabilities) -> JSONObject:
    """The extensions that the host has *declared*, for the server."""
    return {name: value for name, value in (declared.extensions or {}).items() if name != TASKS}


def capabilities_downstream(capabilities: Params, *, stateless: bool, host_stateless: bool) -> Params:
    """Those of the *capabilities* of a server, *stateless* or not, that a host gets to see."""
    kept = dict(capabilities)
    if stateless or host_stateless:
        kept.pop("tasks", None)  # those of 2025-11-25
    if isinstance(extensions := kept.get("extensions"), dict):
        kept["extensions"] = {name: value for name, value in extensions.items() if name != TASKS}
    return kept


def capabilities_of_all(declared: Sequence[Params]) -> Params:
    """Those of several servers, as one: what any of them has. Tasks only of a single one, since nothing says whose a task is."""
    joined: Params = {}
    for capabilities in declared:
        joined = _joined(joined, capabilities)
    if sum("tasks" in capabilities for capabilities in declared) > 1:
        del joined["tasks"]
    return joined


def _joined(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one or other
    return {**one, **{key: _joined(one.get(key, value), value) for key, value in other.items()}}


def host_answers(method: str, params: Mapping[str, Any], capabilities: ClientCapabilities) -> bool:
    """Whether a host with these *capabilities* answers a server's request."""
    if method == CREATE_MESSAGE:
        sampling = capabilities.sampling
        with_tools = not {"tools", "toolChoice"}.isdisjoint(params)
        return sampling is not None and (sampling.tools is not None or not with_tools)
    if method == ELICIT:
        elicitation = capabilities.elicitation
        if elicitation is None or params.get("mode") == "url":
            return elicitation is not None and elicitation.url is not None
        return elicitation.form is not None or elicitation.url is None
    return capabilities.roots is not None if method == ROOTS else True


KINDS: Sequence[tuple[str, Params]] = (
    (CREATE_MESSAGE, {}),
    (CREATE_MESSAGE, {"tools": []}),
    (ELICIT, {}),
    (ELICIT, URL),
    (ROOTS, {}),
)
"""The kinds of requests of a server that a host has to declare, as method and params."""


def answers_of(capabilities: ClientCapabilities) -> tuple[bool, ...]:
    """Which of the `KINDS` a host with these *capabilities* answers."""
    return tuple(host_answers(method, params, capabilities) for method, params in KINDS)


NOT_ANSWERED = {
    CREATE_MESSAGE: "neither the host nor this proxy has a model for this request",
    ELICIT: "the host cannot ask its user",
    ROOTS: "the host has no roots",
}
"""What a server is told that asks in vain, by method."""
