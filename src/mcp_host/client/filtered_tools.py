"""The tools of one connection under a `ToolPolicy`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.client.tools import ListedTool, ListingVersion, ToolCache
from mcp_host.concurrency.synchronization import Lock
from mcp_host.errors import CallerError, ToolChanged, excerpt, quoted
from mcp_host.protocol.server_names import ServerIdentity
from mcp_host.session.call import CallTimeouts
from mcp_host.types import Tool
from mcp_host.types.tool_changes import ToolChange

if TYPE_CHECKING:
    from mcp_host.client.pins import Comparison


class FilteredTools(ToolCache):
    """The tools that *policy* lets through. *server* is what the pins are kept for."""

    def __init__(
        self, policy: ToolPolicy, server: ServerIdentity, warn: Callable[[str], None], *, mirrored: bool
    ) -> None:
        super().__init__(warn, mirrored=mirrored)
        self.policy: ToolPolicy = policy
        self.listing = Lock()
        """For calls that need a listing first: one of them lists."""
        self._server = server
        self._blocked: dict[str, ListedTool] = {}
        """What the pins do not agree to; like `listed` by the names that the application uses."""
        self._clashes: dict[str, str] = {}
        """Why others have no name, by the name that they would have."""
        self._last_warnings: set[str] = set()
        """The warnings about the last listing."""

    async def update(self, tools: Iterable[Tool], as_of: ListingVersion, timeouts: CallTimeouts) -> list[Tool]:
        """Replace the listing; return the tools that are let through. Warnings name those that clash or are blocked.

        Raises:
            ToolPinsError: The pins cannot be used. The listing before stays.
        """
        valid = await self.read(tools)
        allowed = {name: each for name, each in valid.items() if self.policy.allows(each.definition)}
        names, clashes = self.policy.rename_all(allowed)
        named = {names[name]: each.named(names[name]) for name, each in allowed.items() if name not in clashes}
        warnings = {f"the tool {_shown(name)} is left out: {problem}" for name, problem in clashes.items()}
        blocked: dict[str, ListedTool] = {}
        if self.policy.pins is not None:
            comparison = await self.policy.pins.compare(
                self._server, [each.definition for each in named.values()], timeouts
            )
            blocked = {name: each for name, each in named.items() if each.definition.name in comparison.blocked}
            warnings.update(_warnings(comparison))
        self.listed = {name: each for name, each in named.items() if name not in blocked}
        self._blocked = blocked
        self._clashes = {names[name]: problem for name, problem in clashes.items()}
        for text in sorted(warnings - self._last_warnings):
            self.warn(text)
        self._last_warnings = warnings
        self.as_of = as_of
        return [each.tool for each in self.listed.values()]

    async def find(self, name: str, timeouts: CallTimeouts) -> ListedTool | None:
        """The tool that the application calls *name*; None if it is not listed and need not be.

        Raises:
            ToolChanged: The pins block it.
            CallerError: The policy does not let it through.
        """
        while (tool := self._blocked.get(name)) is not None:
            await self._require_pinned(name, tool, timeouts)
        if (tool := self.listed.get(name)) is not None:
            return tool
        if (problem := self._clashes.get(name)) is not None:
            raise CallerError(f"the tool {name!r} is left out: {problem}")
        if self.policy.lists_first or not self.policy.allows_name(name):
            raise CallerError(f"ToolPolicy lets no tool {name!r} of this server through")
        return None

    async def _require_pinned(self, name: str, tool: ListedTool, timeouts: CallTimeouts) -> None:
        """Let *tool* through if the user has agreed to it since it was listed. Raises as `find`."""
        assert self.policy.pins is not None, "nothing else blocks"
        comparison = await self.policy.pins.compare(self._server, [tool.definition], timeouts)
        match comparison.blocked.get(tool.definition.name):
            case ToolChange() as change:
                raise ToolChanged(f"the tool {name!r} is blocked: it {change.summary}", change)
            case str() as problem:
                raise CallerError(f"the tool {name!r} is left out: {problem}")
        if self._blocked.get(name) is tool:  # else there is a later listing, which counts
            self.listed[name] = self._blocked.pop(name)


def _warnings(comparison: Comparison) -> Iterator[str]:
    for name, reason in comparison.blocked.items():
        if isinstance(reason, ToolChange):
            yield f"the tool {_shown(name)} is blocked: it {reason.summary}"
        else:
            yield f"the tool {_shown(name)} is left out: {reason}"
    if comparison.moved is not None:
        before, now = map(excerpt, comparison.moved)
        yield f"it was {before} when its tools were pinned, and is {now} now"
    if comparison.unsaved is not None:
        yield comparison.unsaved
    for name in comparison.added:
        yield f"the tool {_shown(name)} is new: it is pinned as it is listed now"


def _shown(name: str) -> str:
    """*name* in a warning, with the codes of letters that may look like others."""
    return quoted(name) if name.isascii() else f"{quoted(name)} ({excerpt(ascii(name), 80)})"
