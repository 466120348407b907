"""What a test server offers: tools, resources, prompts and completions, by name."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

from mcp_host.protocol.eras import ADVERTISED_AS
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.protocol.negotiation import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from mcp_host.testing._server.functions import Function
from mcp_host.testing._server.revision import given
from mcp_host.testing._server.tools import FunctionTool
from mcp_host.testing.errors import RequestError
from mcp_host.types import Implementation, Prompt, Resource, ResourceTemplate

T = TypeVar("T")

CompletionFunction: TypeAlias = Callable[[str, Mapping[str, str]], Sequence[str] | Awaitable[Sequence[str]]]
"""Takes what was typed so far and the arguments that are settled; returns the suggestions, best first."""


@dataclass(frozen=True, slots=True)
class FunctionResource:
    """A resource, and the function that reads it."""

    definition: Resource
    function: Function


@dataclass(frozen=True, slots=True)
class FunctionTemplate:
    """A resource template, and the function that reads what it stands for."""

    definition: ResourceTemplate
    function: Function
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class FunctionPrompt:
    """A prompt, and the function that fills it in."""

    definition: Prompt
    function: Function


@dataclass(slots=True)
class Catalog:
    """Everything on offer. One server has one, which all its conversations look into."""

    info: Implementation
    instructions: str | None
    versions: tuple[str, ...]
    page_size: int | None
    ttl: float
    resume_timeout: float
    max_suspended: int
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    resources: dict[str, FunctionResource] = field(default_factory=dict)
    templates: dict[str, FunctionTemplate] = field(default_factory=dict)
    prompts: dict[str, FunctionPrompt] = field(default_factory=dict)
    completions: dict[tuple[str, str], CompletionFunction] = field(default_factory=dict)
    """By the prompt's name or the template's URI, and the argument."""

    @property
    def handshake(self) -> tuple[str, ...]:
        """The revisions that begin with a handshake, the preferred one first."""
        return tuple(version for version in self.versions if version in HANDSHAKE_VERSIONS)

    @property
    def modern(self) -> tuple[str, ...]:
        """The revisions in which every request stands for itself."""
        return tuple(version for version in self.versions if version in MODERN_VERSIONS)

    def capabilities(self) -> dict[str, Any]:
        """What to declare: what there is at least one of, and logging."""
        capabilities: dict[str, Any] = {"logging": {}}
        if self.tools:
            capabilities["tools"] = {"listChanged": True}
        if self.resources or self.templates:
            capabilities["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts:
            capabilities["prompts"] = {"listChanged": True}
        if self.completions:
            capabilities["completions"] = {}
        return capabilities

    def missing(self, method: str) -> str | None:
        """The capability that *method* presupposes, if there is nothing of that on offer."""
        path = ADVERTISED_AS.get(method)
        return path[0] if path and path[0] not in self.capabilities() else None

    def page(self, items: Sequence[T], cursor: str | None) -> tuple[list[T], dict[str, Any]]:
        """One page of *items*, and the `next_cursor` argument of its result if there are more."""
        start = self._position(cursor, len(items))
        end = len(items) if self.page_size is None else start + self.page_size
        return list(items[start:end]), given(next_cursor=str(end) if end < len(items) else None)

    def find(self, uri: str) -> tuple[Function, dict[str, object], str | None] | None:
        """The function that reads *uri*, what to call it with, and the MIME type it was registered with, if any."""
        if found := self.resources.get(uri):
            return found.function, {}, found.definition.mime_type
        for template in self.templates.values():
            if match := template.pattern.fullmatch(uri):
                values: dict[str, object] = {name: unquote(text) for name, text in match.groupdict().items()}
                return template.function, values, template.definition.mime_type
        return None

    def _position(self, cursor: str | None, count: int) -> int:
        if cursor is None:
            return 0
        if self.page_size is None or not cursor.isdecimal() or not 0 < int(cursor) < count:
            raise RequestError(INVALID_PARAMS, f"Invalid cursor: {cursor}")
        return int(cursor)


def template_pattern(template: str) -> re.Pattern[str]:
    """What a URI of *template* looks like. ``{name}`` stands for one segment, ``{+name}`` for any number (RFC 6570).

    Raises:
        ValueError: Another kind of expression, or a name twice.
    """
    parts = re.split(r"(\{[^}]*\})", template)
    try:
        return re.compile("".join(_piece(part) for part in parts))
    except re.error as exc:
        raise ValueError(f"{template}: {exc}") from exc


def _piece(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    if not (found := re.fullmatch(r"\{(\+?)([A-Za-z_]\w*)\}", part)):
        raise ValueError(f"{part}: only {{name}} and {{+name}} are understood")
    return f"(?P<{found[2]}>{'.+' if found[1] else '[^/]+'})"
