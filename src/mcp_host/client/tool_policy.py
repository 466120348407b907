"""What a host lets through of a server's tools: which of them, under which names, and how their results are checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from mcp_host.errors import quoted
from mcp_host.handlers import as_async, check_plain
from mcp_host.types import CallToolResult, Tool

if TYPE_CHECKING:
    from mcp_host.client.pins import ToolPins

CheckOutput: TypeAlias = Callable[[Tool, CallToolResult], Awaitable[None] | None]
OutputMode: TypeAlias = Literal["auto", "error", "warn", "off"]

LONGEST_NAME = 64  # characters of a tool's name that the providers of models take
DIGEST = 8  # characters that keep shortened names apart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """What a `Client` lets through of its server's tools: ``Client(server, tools=ToolPolicy(allow={"search"}))``.

    *allow*: the names of the tools to offer, as the server writes them, or a function ``(tool: Tool) -> bool``.
    `Client.list_tools` leaves out the others, and calling them raises `CallerError`.

    *rename*: a mapping of the server's names to yours, or a function ``(name: str) -> str``, such as
    ``lambda name: f"github_{name}"``. `Client.list_tools` returns your names, and `Client.call_tool` takes them.
    Tools that would get the same name are all left out, with a line in `Client.warnings`.
    `safe_tool_name` makes names that every provider of models takes.

    *output*: what happens to a result that does not match the tool's `outputSchema`. "error" raises
    `InvalidToolOutput`, "warn" adds a line to `Client.warnings`, "off" checks nothing. "auto" is "error" in a `Client`,
    and "off" in a `Proxy`. A function ``(tool: Tool, result: CallToolResult) -> None``, async or plain, is called
    instead with every result of a listed tool that did not fail; what it raises reaches the caller of `Client.call_tool`.

    *pins*: remembers the definitions of tools, and blocks a tool that changes; see `ToolPins`.

    With *rename*, *pins*, or a function for *allow*, calls depend on the listing. Then the first call lists the
    tools, and so does the first one in a new connection or session, and after the server announced a change.

    The functions for *allow* and *rename* are called for each tool of each listing. They must be plain and quick.

    Raises:
        TypeError, ValueError: An argument is something else, or *rename* maps two names to one.
    """

    allow: Collection[str] | Callable[[Tool], bool] | None = None
    rename: Mapping[str, str] | Callable[[str], str] | None = None
    output: OutputMode | CheckOutput = "auto"
    pins: ToolPins | None = None

    check: Callable[[Tool, CallToolResult], Awaitable[None]] | None = field(init=False, repr=False, compare=False)
    """*output*, if it is a function."""

    def __post_init__(self) -> None:
        if callable(self.allow):
            check_plain(self.allow, argument="allow", shape="(tool: Tool) -> bool")
        elif self.allow is not None:
            object.__setattr__(self, "allow", _names(self.allow))
        if callable(self.rename):
            check_plain(self.rename, argument="rename", shape="(name: str) -> str")
        elif self.rename is not None:
            object.__setattr__(self, "rename", _renamings(self.rename))
        if not callable(self.output) and self.output not in get_args(OutputMode):
            raise ValueError(f'output is "error", "warn", "off" or a function, not {self.output!r}')
        check = as_async(self.output, argument="output") if callable(self.output) else None
        object.__setattr__(self, "check", check)
        if self.pins is not None:
            from mcp_host.client.pins import ToolPins

            if not isinstance(self.pins, ToolPins):
                raise TypeError("pins is ToolPins(), or ToolPins(file=...)")

    @property
    def lists_first(self) -> bool:
        """Whether a call needs the listing."""
        return callable(self.allow) or self.rename is not None or self.pins is not None

    def allows(self, tool: Tool) -> bool:
        """Whether to offer *tool*, as the server defines it."""
        if not callable(self.allow):
            return self.allows_name(tool.name)
        allowed: object = self.allow(tool)
        if not isinstance(allowed, bool):  # a coroutine, for one, is true
            raise TypeError(f"allow has to return True or False, not {type(allowed).__name__}")
        return allowed

    def allows_name(self, name: str) -> bool:
        """Whether *allow* has the server's *name*, if it is a set of names."""
        return self.allow is None or callable(self.allow) or name in self.allow

    def rename_all(self, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The application's name for each of the server's *names*, and what is wrong with those that clash."""
        new = {name: self._renamed(name) for name in names}
        count = Counter(new.values())
        clashes = {}
        for name, renamed in new.items():
            if count[renamed] > 1:
                others = [quoted(other) for other, its in new.items() if its == renamed and other != name]
                more = f" and {len(others) - 3} more" if len(others) > 3 else ""
                clashes[name] = f"ToolPolicy.rename gives {', '.join(others[:3])}{more} the same name {quoted(renamed)}"
        return new, clashes

    def _renamed(self, name: str) -> str:
        if self.rename is None:
            return name
        renamed: object = self.rename(name) if callable(self.rename) else self.rename.get(name, name)
        if not isinstance(renamed, str):
            raise TypeError(f"rename has to return text, not {type(renamed).__name__}")
        return renamed


def safe_tool_name(name: str) -> str:
    """*name* as all providers of models take it: letters, digits, ``_`` and ``-`` of ASCII, 64 at most.

    Other characters become ``_``. A name that changes gets a digest at its end, so that "a.b" and "a/b" stay apart.
    For `ToolPolicy.rename`: ``rename=safe_tool_name``, or ``rename=lambda name: safe_tool_name(f"github_{name}")``.
    """
    return safe_name(name, LONGEST_NAME)


def safe_name(name: str, longest: int) -> str:
    """The same, with *longest* characters at most."""
    if re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name):
        return name
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name[: longest - DIGEST - 1])}_{name_digest(name)}"


def name_digest(name: str) -> str:
    """What keeps a shortened *name* apart from others."""
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:DIGEST]


def _names(allow: object) -> frozenset[str]:
    if isinstance(allow, str) or not isinstance(allow, Collection) or not all(isinstance(name, str) for name in allow):
        raise TypeError('allow is a set of names, like {"search"}, or a function (tool: Tool) -> bool')
    return frozenset(allow)


def _renamings(rename: object) -> dict[str, str]:
    if not isinstance(rename, Mapping) or not all(isinstance(name, str) for pair in rename.items() for name in pair):
        raise TypeError('rename is a mapping of names, like {"search": "web_search"}, or a function (name: str) -> str')
    if twice := [name for name, count in Counter(rename.values()).items() if count > 1]:
        raise ValueError(f"rename gives two tools the name {quoted(twice[0])}")
    return dict(rename)
