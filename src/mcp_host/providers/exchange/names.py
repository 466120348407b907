"""Names of tools and of their arguments: MCP allows what no provider does, so they are mapped to names that it takes, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import Tool, ToolUseContent

NUMBER = 8  # characters of a long name that its number may replace


@dataclass(frozen=True, slots=True)
class NameRule:
    """The names that a provider takes: those that match *pattern* as a whole; *other* matches the characters that no name may have."""

    pattern: re.Pattern[str]
    other: re.Pattern[str]
    max_length: int

    def write(self, names: Iterable[str], before: Mapping[str, str] | None = None) -> dict[str, str]:
        """The provider's name for each of *names* and of those *before*: all differ, and allowed ones stay as they are."""
        written = dict(before or ())
        taken = set(written.values())
        others: list[str] = []
        for name in names:
            if name in written:
                continue
            if self.pattern.fullmatch(name) and name not in taken:
                written[name] = name
            else:
                others.append(name)
        if others:
            taken.update(written.values())
            numbers: dict[str, int] = {}
            for name in others:
                if name not in written:
                    written[name] = self._free(name, taken, numbers)
                    taken.add(written[name])
        return written

    def _free(self, name: str, taken: set[str], numbers: dict[str, int]) -> str:
        """A name that is not *taken*. *numbers* are the last ones, so that a thousand equal names take linear time."""
        plain = self.other.sub("_", name)[: self.max_length]
        if not self.pattern.fullmatch(plain):  # empty, or it begins with a character that may only follow
            plain = f"tool_{plain}"[: self.max_length]
        written, start = plain, plain[: self.max_length - NUMBER]
        while written in taken:
            numbers[start] = number = numbers.get(start, 1) + 1
            written = f"{plain[: self.max_length - len(str(number)) - 1]}_{number}"
        return written


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The names of a request's tools, of MCP and of the provider. Equal requests have equal names."""

    provider: dict[str, str]
    """By the name of MCP."""
    mcp: dict[str, str]
    """By the name of the provider."""

    @classmethod
    def of_offered(cls, tools: Iterable[Tool], rule: NameRule) -> ToolNames:
        """Names for the tools on offer."""
        provider = rule.write(tool.name for tool in tools)
        return cls(provider, {written: name for name, written in provider.items()})

    def and_called(self, request: SamplingRequest, rule: NameRule) -> ToolNames:
        """These names, and those of other tools that the conversation calls, which do not change them."""
        called = [
            block.name for message in request.messages for block in message.content if isinstance(block, ToolUseContent)
        ]
        if all(name in self.provider for name in called):  # as nearly always
            return self
        provider = rule.write(called, self.provider)
        return ToolNames(provider, {written: name for name, written in provider.items()})

    def write(self, name: str) -> str:
        """The provider's name of a tool in the request."""
        return self.provider[name]

    def description(self, tool: Tool) -> str | None:
        """The description of a tool, after its real name if the provider cannot have that: 天気 is not told by ``__``."""
        if self.provider[tool.name] == tool.name:
            return tool.description
        return with_name("tool", tool.name, tool.description)

    def back(self, name: str) -> str:
        """The name of MCP; *name* itself if the model made it up."""
        return self.mcp.get(name, name)


NO_TOOLS = ToolNames({}, {})


def with_name(kind: str, name: str, description: str | None) -> str:
    """*description* with the name that the provider does not get otherwise, which may say more to the model."""
    return "\n".join(filter(None, [f"The {kind}'s name: {name}", description]))
