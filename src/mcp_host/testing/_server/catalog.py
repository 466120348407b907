"""What a test server offers: tools, resources, prompts and completions, by name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from mcp_host.protocol.negotiation import LEGACY_VERSIONS, MODERN_VERSIONS
from mcp_host.testing._server.broadcaster import Broadcaster
from mcp_host.testing._server.functions import Function
from mcp_host.testing._server.tools import FunctionTool
from mcp_host.types import Implementation, JSONObject, Prompt, Resource, ResourceTemplate

D = TypeVar("D")

CompletionFunction: TypeAlias = Callable[[str, Mapping[str, str]], Sequence[str] | Awaitable[Sequence[str]]]
"""Takes the text typed so far and the arguments that are filled in; returns suggestions, best first."""


@dataclass(frozen=True, slots=True)
class Offer(Generic[D]):
    """A resource, a template or a prompt: its definition and its function."""

    definition: D
    function: Function


@dataclass(slots=True)
class Catalog:
    """The settings and the offers of one server. All its connections share it."""

    info: Implementation
    instructions: str | None
    versions: tuple[str, ...]
    page_size: int | None
    ttl: float
    resume_timeout: float
    max_suspended: int
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    resources: dict[str, Offer[Resource]] = field(default_factory=dict)
    resource_templates: dict[str, Offer[ResourceTemplate]] = field(default_factory=dict)
    prompts: dict[str, Offer[Prompt]] = field(default_factory=dict)
    completions: dict[tuple[str, str], CompletionFunction] = field(default_factory=dict)
    """By the prompt's name or the template's URI, and the argument."""
    broadcaster: Broadcaster = field(default_factory=Broadcaster)

    @property
    def handshake_versions(self) -> tuple[str, ...]:
        """The revisions that begin with a handshake, the preferred one first."""
        return tuple(version for version in self.versions if version in LEGACY_VERSIONS)

    @property
    def modern_versions(self) -> tuple[str, ...]:
        """The stateless revisions."""
        return tuple(version for version in self.versions if version in MODERN_VERSIONS)

    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare: logging, and each kind of which there is at least one."""
        capabilities: dict[str, Any] = {"logging": {}}
        if self.tools:
            capabilities["tools"] = {"listChanged": True}
        if self.resources or self.resource_templates:
            capabilities["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if self.completions:
            capabilities["completions"] = {}
        return capabilities

    def find(self, uri: str) -> tuple[Offer[Resource] | Offer[ResourceTemplate], JSONObject] | None:
        """The resource or the template that *uri* belongs to, and the arguments for its function."""
        if resource := self.resources.get(uri):
            return resource, {}
        for uri_template, template in self.resource_templates.items():
            if match := template_pattern(uri_template).fullmatch(uri):
                return template, {name: unquote(text) for name, text in match.groupdict().items()}
        return None


def template_pattern(template: str) -> re.Pattern[str]:
    """The URIs of *template*. ``{name}`` matches one segment, ``{+name}`` any number (RFC 6570).

    Raises:
        ValueError: It has another kind of expression, or the same name twice.
    """

    def pattern(part: str) -> str:
        if not part.startswith("{"):
            return re.escape(part)
        if not (found := re.fullmatch(r"\{(\+?)([A-Za-z_]\w*)\}", part)):
            raise ValueError(f"{part}: only {{name}} and {{+name}} are supported")
        return f"(?P<{found[2]}>{'.+' if found[1] else '[^/]+'})"

    try:
        return re.compile("".join(map(pattern, re.split(r"(\{[^}]*\})", template))))
    except re.error as exc:
        raise ValueError(f"{template}: {exc}") from exc
