"""Tool names: MCP allows what no provider does, so they are mapped to names that the provider takes, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import ToolUseContent


@dataclass(frozen=True, slots=True)
class NameRule:
    """The tool names that a provider takes: those that match *pattern* as a whole; *other* matches the characters that no name may have."""

    pattern: re.Pattern[str]
    other: re.Pattern[str]
    max_length: int


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The names of a request's tools, of MCP and of the provider. Equal requests have equal names."""

    provider: dict[str, str]
    """By the name of MCP."""
    mcp: dict[str, str]
    """By the name of the provider."""

    @classmethod
    def of(cls, request: SamplingRequest, rule: NameRule) -> ToolNames:
        """Names for the tools on offer, and for those that the conversation calls."""
        used = [tool.name for tool in request.tools]
        used += [
            block.name for message in request.messages for block in message.content if isinstance(block, ToolUseContent)
        ]
        taken = {name for name in used if rule.pattern.fullmatch(name)}
        provider: dict[str, str] = {}
        for name in used:
            if name in provider:
                continue
            written, number = name, 1
            if name not in taken:
                plain = rule.other.sub("_", name)[: rule.max_length] or "_"
                written = plain
                while written in taken or not rule.pattern.fullmatch(written):
                    number += 1
                    written = (
                        f"tool_{number}"
                        if not rule.pattern.fullmatch(plain)
                        else f"{plain[: rule.max_length - 4]}_{number}"
                    )
                taken.add(written)
            provider[name] = written
        return cls(provider, {written: name for name, written in provider.items()})

    def write(self, name: str) -> str:
        """The provider's name of a tool in the request."""
        return self.provider[name]

    def back(self, name: str) -> str:
        """The name of MCP; *name* itself if the model made it up."""
        return self.mcp.get(name, name)
