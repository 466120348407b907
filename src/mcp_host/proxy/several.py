"""Several servers as one: the names of their tools, and which server a URI, a method or a token is of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.group.names import SEPARATOR, group_name, server_prefix
from mcp_host.protocol.eras import REQUIRED_CAPABILITY
from mcp_host.protocol.jsonrpc import Params
from mcp_host.proxy.translation import ELICIT
from mcp_host.types import Tool

MAX_LINK = 4096  # characters of a URI in a result; a longer one is not remembered
MAX_LINKED = 10_000  # URIs in results that no server lists; beyond that, the oldest are forgotten
URI = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}
"""What a resource or template is known by, by the method that lists it."""


def policy_of(server: str, own: ToolPolicy | None, common: ToolPolicy | None) -> ToolPolicy:
    """That of one of several servers: the tools that its *own* and the *common* one let through, under their names in a group.

    The common one sees these names, too.
    """
    policies = [policy for policy in (own, common) if policy is not None]

    def named(name: str) -> str:
        return group_name(server, name if own is None else own.rename_all([name])[0][name])

    def allow(tool: Tool) -> bool:
        if own is not None and not own.allows(tool):
            return False
        return common is None or common.allows(tool.model_copy(update={"name": named(tool.name)}))

    return ToolPolicy(
        allow=allow,
        rename=named,
        output=next((policy.output for policy in policies if policy.output != "auto"), "auto"),
        pins=next((policy.pins for policy in policies if policy.pins is not None), None),
    )


def unique_id(server: str, own: str | int) -> str:
    """What a host gets for a progress token or the id of an elicitation, of which *server* has chosen its *own*.

    "Progress tokens [...] MUST be unique across all active requests", and others may choose the same.
    """
    return f"{server_prefix(server)}{SEPARATOR}{'' if isinstance(own, int) else ':'}{own}"


def split_id(given: str) -> tuple[str, str | int]:
    """The prefix of a server, and its own token, of what `unique_id` has made.

    Raises:
        ValueError: It has not.
    """
    prefix, _, own = given.partition(SEPARATOR)
    return prefix, own[1:] if own.startswith(":") else int(own)


def for_host(server: str, method: str, params: Mapping[str, Any]) -> Params:
    """The *params* of a request of *server* to a host, which knows the proxy only: a form or URL begins with the server's name."""
    changed: Params = {}
    match params.get("_meta"):
        case {"progressToken": str() | int() as token, **others}:
            changed["_meta"] = {**others, "progressToken": unique_id(server, token)}
    if method == ELICIT and "message" in params:
        changed["message"] = f"{server}: {params['message']}"
    if method == ELICIT and isinstance(own := params.get("elicitationId"), str):
        changed["elicitationId"] = unique_id(server, own)
    return {**params, **changed}


class ResourceOwners:
    """The servers of resources and templates, which keep their URIs. Of two with the same, the first in their order has it."""

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, str]] = {method: {} for method in URI}
        self._linked: dict[str, str] = {}

    def keep(self, method: str, lists: Mapping[str, list[Params]]) -> list[Params]:
        """The items of all *lists*, which are by server, without those that another one has.

        A server without a list may be down: what it has listed does not become that of another, whose template fits.
        """
        key = URI[method]
        owners = {uri: server for uri, server in self._listed[method].items() if server not in lists}
        self._listed[method] = owners
        return [
            each for server, some in lists.items() for each in some if owners.setdefault(each[key], server) == server
        ]

    def link(self, server: str, result: Params) -> None:
        """Remember the links in the *result* of a tool of *server*: they need not be listed."""
        content = result.get("content")
        for block in content if isinstance(content, list) else ():
            match block:
                case {"type": "resource_link", "uri": str(uri)} if len(uri) <= MAX_LINK:
                    self._linked.setdefault(uri, server)
        while len(self._linked) > MAX_LINKED:
            del self._linked[next(iter(self._linked))]

    def of(self, uri: str) -> str | None:
        """The server that lists *uri* or that template, or has linked to it; or else whose template begins most like it."""
        resources, templates = self._listed.values()
        if (owner := resources.get(uri) or templates.get(uri) or self._linked.get(uri)) is not None:
            return owner
        beginnings = {template: template.partition("{")[0] for template in templates}
        fitting = [template for template, beginning in beginnings.items() if uri.startswith(beginning)]
        return templates[max(fitting, key=lambda template: len(beginnings[template]))] if fitting else None


def declares(capabilities: Params, method: str) -> bool:
    """Whether a server with these *capabilities* may know *method*, by what is before its slash.

    That is a capability, an experimental one, or the end of the name of an extension: ``io.example/echo`` for ``echo/now``.
    """
    name, *_ = REQUIRED_CAPABILITY.get(method, (method.removeprefix("notifications/").partition("/")[0],))
    if name in capabilities or name in (capabilities.get("experimental") or {}):
        return True
    return any(name in (extension, extension.rpartition("/")[2]) for extension in capabilities.get("extensions") or {})
