"""Tool names: MCP allows what no provider does, so they are mapped to names that the provider takes, and back."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from mcp_host.sampling.request import SamplingRequest


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
        """Names for the tools on offer, and for those that the conversation calls, which do not change the former."""
        provider: dict[str, str] = {}
        mcp: dict[str, str] = {}
        offered = [tool.name for tool in request.tools]
        called = [use.name for message in request.messages for use in message.tool_uses]
        used = dict.fromkeys([*offered, *called])
        if all(map(rule.pattern.fullmatch, used)):  # as nearly always
            same = {name: name for name in used}
            return cls(same, same)
        for group in (offered, called):
            new = [name for name in dict.fromkeys(group) if name not in provider]
            for name in sorted(
                new, key=lambda name: not rule.pattern.fullmatch(name)
            ):  # allowed names stay as they are
                provider[name] = written = _free_name(name, rule, mcp)
                mcp[written] = name
        return cls(provider, mcp)

    def write(self, name: str) -> str:
        """The provider's name of a tool in the request."""
        return self.provider[name]

    def back(self, name: str) -> str:
        """The name of MCP; *name* itself if the model made it up."""
        return self.mcp.get(name, name)


def _free_name(name: str, rule: NameRule, taken: Container[str]) -> str:
    plain = rule.other.sub("_", name)[: rule.max_length]
    if not rule.pattern.fullmatch(plain):  # empty, or it begins with a character that may only follow
        plain = f"tool_{plain}"[: rule.max_length]
    written, number = plain, 1
    while written in taken:
        number += 1
        written = f"{plain[: rule.max_length - len(str(number)) - 1]}_{number}"
    return written
