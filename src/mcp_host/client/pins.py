"""Tool pinning: the definition of a tool is trusted on first use, and changes have to be accepted."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock
from typing import NamedTuple, TypeAlias, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import current_token
from pydantic_core import PydanticSerializationError, to_json

from mcp_host.concurrency.locked_file import LockedFile
from mcp_host.concurrency.synchronization import Event
from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import ProtocolError, ToolPinsError, quoted
from mcp_host.handlers import as_async
from mcp_host.protocol.server_names import ServerIdentity
from mcp_host.session.call import CallTimeouts
from mcp_host.types import Tool
from mcp_host.types.base import copy_of
from mcp_host.types.tool_changes import ToolChange

T = TypeVar("T")
OnToolChange: TypeAlias = Callable[[ToolChange], Awaitable[bool] | bool]

VERSION = 1
MAX_TOOLS = 2_000  # tools of one server that are pinned, including those that it no longer lists
MAX_SIZE = 8_388_608  # bytes of the pinned definitions of one server
RESTORE = "nothing was changed; restore the file"
RESTART = "restart (or make a new ToolPins) to trust the tools of all servers again"


class Pin(NamedTuple):
    """The definitions of one tool, without ``_meta``."""

    pinned: Tool | None = None
    """The one that was agreed to, if there is one yet."""
    pending: Tool | None = None
    """The one that was listed last, if it is another."""


UNPINNED = Pin()


@dataclass(slots=True)
class Pins:
    """All pins, by the key of the server."""

    servers: dict[str, dict[str, Pin]] = field(default_factory=dict)
    """By server, and by the server's name of the tool."""
    identities: dict[str, str] = field(default_factory=dict)
    """What each server that the host has named was when it was listed last, as `ServerIdentity.described`."""

    def copy(self) -> Pins:
        return Pins({server: dict(own) for server, own in self.servers.items()}, dict(self.identities))


@dataclass(slots=True)
class Comparison:
    """What the pins say of a listing, by the server's names."""

    blocked: dict[str, ToolChange | str] = field(default_factory=dict)
    """Tools that are not as pinned, and why others cannot be pinned. The rest may be used."""
    added: list[str] = field(default_factory=list)
    """Tools that are pinned from now on although the server was known."""
    changed: bool = False
    """Whether pins have changed, and are to be saved."""
    trusted: bool = False
    """Whether tools are trusted on first use, which needs to be saved: the next listing would trust others."""
    moved: tuple[str, str] | None = None
    """What a server that the host has named was before and is now, if that has changed."""
    unsaved: str | None = None
    """Why the changes that wait could not be saved. They block their tools all the same."""


class Question:
    """What *on_changed* is asked about *change*, in this event loop."""

    def __init__(self, change: ToolChange) -> None:
        self.change = change
        self.loop = current_token()
        self.done = Event()
        self.accepted = False


class ToolPins:
    """Remembers the definitions of tools, and blocks a tool that changes: ``ToolPolicy(pins=ToolPins(file=path))``.

    The first listing of a server pins its tools: they are trusted on first use. If a definition is another one
    later, `Client.list_tools` leaves the tool out, with a line in `Client.warnings`, and `Client.call_tool` raises
    `ToolChanged`. To use it again, accept the change: by `accept`, or by *on_changed*, a function
    ``(change: ToolChange) -> bool``, async or plain. It is asked once about each tool, must not use the client,
    and pauses the timeouts of the call.

    A definition is what `Tool.fingerprint` covers: everything but ``_meta``. Tools that a known server adds are
    pinned too, with a line in `Client.warnings`; with *block_new* they have to be accepted first. Tools that it
    removes stay pinned.

    The pins are in memory, or in *file*, which several clients and processes may share. To keep them
    elsewhere, save what `export` returns as JSON, and pass it to the next `ToolPins` as *known*. A server
    is known by the name that you gave it, ``Client(server, name=...)``: then its pins hold under another command
    line or URL, and `Client.warnings` has both when that changes. Other servers are identified as for `EraCache`: by URL
    (without user, password and query) or by a digest of the command line.

    The methods may wait for the disk, and up to ten seconds for another process.

    Raises:
        TypeError: *file* is no path, or *on_changed* no function.
        ValueError: *known* is not what `export` returns, or there is a *file*, too.
        ToolPinsError: A method cannot read or write *file*. Then no pin has changed. A client raises this, too,
            instead of listing or calling a tool. A file that can be read, but not written, is enough while
            there is nothing to pin: a change that cannot be saved blocks its tool, with a line in
            `Client.warnings`, but is not among `changes`.
    """

    def __init__(
        self,
        known: Mapping[str, object] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        on_changed: OnToolChange | None = None,
        block_new: bool = False,
    ) -> None:
        if known is not None and file is not None:
            raise ValueError("pass either known pins or a file")
        if file is not None and not isinstance(file, str | os.PathLike):
            raise TypeError(f"file is the path of a file, not {type(file).__name__}")
        self._on_changed = None
        if on_changed is not None:
            self._on_changed = as_async(on_changed, argument="on_changed", shape="(change: ToolChange) -> bool")
        self._block_new = block_new
        self._lock = RLock()  # between threads; that of the file is between processes
        self._pins = Pins() if known is None else _read(known)
        self._file = None if file is None else LockedFile(file)
        self._existed = False
        self._asked: dict[tuple[str, str], Question] = {}

    def __repr__(self) -> str:
        return "ToolPins()" if self._file is None else f"ToolPins(file={str(self._file.path)!r})"

    def export(self) -> dict[str, object]:
        """All pins as JSON, with the changes that wait to be accepted."""
        return _written(self._load())

    def servers(self) -> dict[str, list[str]]:
        """The names of the pinned tools, by server."""
        return {server: list(own) for server, own in self._load().servers.items()}

    def identities(self) -> dict[str, str]:
        """What each server that you have named was when it was listed last: its program or URL, and a digest of its command line."""
        return self._load().identities

    def changes(self) -> list[ToolChange]:
        """The changes that wait to be accepted, of all servers."""
        return [
            ToolChange(server, name, pin.pinned, pin.pending)
            for server, own in self._load().servers.items()
            for name, pin in own.items()
            if pin.pending is not None
        ]

    def accept(self, change: ToolChange) -> None:
        """Pin the new definition of *change*. It is used from the next listing or call on.

        Raises:
            ValueError: What is pinned is no longer the old definition of *change*, so look at `changes` again;
                or the new one cannot be pinned.
        """
        with self._update() as pins:
            own = pins.servers.setdefault(change.server, {})
            pin = own.pop(change.name, UNPINNED)
            if _fingerprint(pin.pinned) not in (_fingerprint(change.old), change.new.fingerprint):
                raise ValueError(
                    f"the tool {quoted(change.name)} has been pinned again since: look at the change again"
                )
            if problem := _pinning_problem(change.new, len(own), _size(own)):
                raise ValueError(f"the tool {quoted(change.name)} cannot be pinned: {problem}")
            own[change.name] = Pin(change.new)
        self._asked.pop((change.server, change.name), None)

    def forget(self, server: str, *names: str) -> None:
        """Drop the pins of these tools, or of the whole *server*, whose next listing is then trusted.

        *server* is a key of `servers`. What is not pinned is ignored.
        """
        with self._update() as pins:
            for name in names:
                pins.servers.get(server, {}).pop(name, None)
            if not names:
                pins.servers.pop(server, None)  # its identity stays: pins from before it was named are not taken again
        for key in list(self._asked):
            if key[0] == server and (not names or key[1] in names):
                self._asked.pop(key, None)

    # For the client

    async def compare(self, server: ServerIdentity, tools: Sequence[Tool], timeouts: CallTimeouts) -> Comparison:
        """Compare a listing with the pins, pin what is new, and ask *on_changed*. No two of *tools* have one name.

        Raises:
            ToolPinsError: The file cannot be used.
            RequestTimeout: It could not be used in time.
        """
        with timeouts.bound(f"comparing tools with {self!r}"):
            comparison = await _in_thread(partial(self._compare, server, tools))
        for name, reason in list(comparison.blocked.items()):  # a person is asked about one at a time
            if isinstance(reason, ToolChange) and await self._agreed(reason, timeouts):
                del comparison.blocked[name]
        return comparison

    async def _agreed(self, change: ToolChange, timeouts: CallTimeouts) -> bool:
        """Whether the application accepts *change*. It is asked once, however often the server changes the tool."""
        if self._on_changed is None:
            return False
        timeouts.pause()
        try:
            key = (change.server, change.name)
            while (question := self._asked.get(key)) is not None:
                if question.done.is_set() or question.loop != current_token():  # an event is for one loop
                    return False
                await question.done.wait()
                if question.accepted:
                    return question.change.new.fingerprint == change.new.fingerprint
            self._asked[key] = question = Question(change)
            try:
                question.accepted = await self._ask(self._on_changed, change)
            finally:
                question.done.set()
            return question.accepted
        finally:
            timeouts.resume()

    async def _ask(self, on_changed: Callable[[ToolChange], Awaitable[bool]], change: ToolChange) -> bool:
        """Whether *on_changed* agrees, and the answer counts."""
        try:
            own = replace(change, old=change.old and copy_of(change.old), new=copy_of(change.new))
            agreed = await awaited(on_changed(own), "ToolPins.on_changed")
        except BaseException:
            self._asked.pop((change.server, change.name), None)
            raise
        if agreed is not True:
            return False
        try:
            await _in_thread(partial(self.accept, change))
        except ValueError:  # another process has pinned something else meanwhile
            return False
        return True

    def _compare(self, server: ServerIdentity, tools: Sequence[Tool]) -> Comparison:
        tools = [_without_meta(tool) for tool in tools]
        comparison = self._review(self._load(), server, tools)
        if comparison.changed:
            try:
                with self._update() as pins:
                    comparison = self._review(pins, server, tools)
            except ToolPinsError as exc:
                if comparison.trusted:
                    raise
                comparison.unsaved = str(exc)
        return comparison

    def _review(self, pins: Pins, server: ServerIdentity, tools: Sequence[Tool]) -> Comparison:
        """Compare *tools* with *pins*, and enter what is new there."""
        before = pins.identities.get(server.key)
        is_new = _identify(pins, server)
        known = server.key in pins.servers
        own = pins.servers.setdefault(server.key, {})
        size = _size(own)
        comparison = Comparison(changed=is_new or not known, trusted=not known)
        if is_new and known and before is not None:
            comparison.moved = (before, server.described)
        for tool in tools:
            last = own.get(tool.name, UNPINNED)
            pin = Pin(last.pinned, tool)
            if _fingerprint(last.pinned) == tool.fingerprint:
                pin = Pin(last.pinned)
            elif problem := _pinning_problem(tool, len(own) - (tool.name in own), size):
                comparison.blocked[tool.name] = problem
                continue
            elif last.pinned is None and not (known and self._block_new):
                pin = Pin(tool)
                comparison.trusted = True
                if known:
                    comparison.added.append(tool.name)
            else:
                comparison.blocked[tool.name] = ToolChange(server.key, tool.name, last.pinned, tool)
            if pin.pinned is not last.pinned or _fingerprint(pin.pending) != _fingerprint(last.pending):
                size += _size({tool.name: pin}) - _size({tool.name: last})
                own[tool.name] = pin
                comparison.changed = True
        return comparison

    # Keeping them

    def _load(self) -> Pins:
        """A copy of the pins.

        Raises:
            ToolPinsError: The file cannot be read, or contains something else.
        """
        with self._lock:
            if self._file is None:
                return self._pins.copy()
            try:
                content = self._file.read()
            except OSError as exc:
                raise ToolPinsError(f"the tool pins cannot be read: {exc}") from exc
            if content is None and self._existed:
                raise ToolPinsError(f"the tool pins in {self._file.path} have disappeared: {RESTORE}, or {RESTART}")
            if content is None:
                return Pins()
            self._existed = True
            try:
                return _read(json.loads(content))
            except (ValueError, RecursionError) as exc:
                raise ToolPinsError(
                    f"{self._file.path} does not contain tool pins ({exc}): {RESTORE}, or delete it and {RESTART}"
                ) from exc

    @contextmanager
    def _update(self) -> Iterator[Pins]:
        """Change the pins inside. They are kept if nothing is raised.

        Raises:
            ToolPinsError: As for `_load`; or the file cannot be written.
        """
        with self._lock:
            if self._file is None:
                pins = self._load()
                yield pins
                self._pins = pins
                return
            try:
                with self._file.locked():
                    pins = self._load()
                    yield pins
                    self._file.write(json.dumps(_written(pins), indent=2).encode())
            except OSError as exc:
                reason = exc.strerror or exc  # without the random name of a new file: it is also a warning
                raise ToolPinsError(f"the tool pins cannot be saved in {self._file.path}: {reason}") from exc
            self._existed = True


async def _in_thread(function: Callable[[], T]) -> T:
    """Call *function*, which uses files, in a thread. It goes on if the caller is cancelled."""
    return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=CapacityLimiter(1))


def _identify(pins: Pins, server: ServerIdentity) -> bool:
    """Enter what *server* is now in *pins*, if the host has named it. Returns whether that was not there.

    A server that is named for the first time takes over the pins that it had without a name.
    """
    before = pins.identities.get(server.key)
    if server.key == server.identity or (before is not None and server.identity in before):
        return False
    if before is None and server.identity in pins.servers:
        pins.servers.setdefault(server.key, dict(pins.servers[server.identity]))
    pins.identities[server.key] = server.described
    return True


def _without_meta(tool: Tool) -> Tool:
    if "meta" not in tool.model_fields_set:
        return tool
    return Tool.from_wire({key: value for key, value in tool.to_wire().items() if key != "_meta"})


def _fingerprint(tool: Tool | None) -> str | None:
    return None if tool is None else tool.fingerprint


def _size(pins: Mapping[str, Pin]) -> int:
    """The bytes of *pins* as JSON, without white space."""
    return sum(len(json.dumps(name)) + len(json.dumps(_written_pin(pin))) for name, pin in pins.items())


def _pinning_problem(tool: Tool, others: int, size: int) -> str | None:
    """Why *tool* cannot be pinned beside *others* other tools, where all pins have *size* bytes."""
    if others >= MAX_TOOLS:
        return f"{MAX_TOOLS} tools of this server are pinned already"
    wire = tool.to_wire()
    try:
        to_json(wire)  # refuses what nests too deeply to be read again
        text = json.dumps(wire, allow_nan=False)
    except (PydanticSerializationError, ValueError, RecursionError):
        return "its definition cannot be saved as JSON"
    if size + len(text) > MAX_SIZE:
        return f"its definition has {len(text)} bytes, and all pins of this server together may have {MAX_SIZE}"
    return None


def _written(pins: Pins) -> dict[str, object]:
    servers = {server: {name: _written_pin(pin) for name, pin in own.items()} for server, own in pins.servers.items()}
    return {"version": VERSION, "servers": servers} | ({"identities": pins.identities} if pins.identities else {})


def _written_pin(pin: Pin) -> dict[str, object]:
    return {key: tool.to_wire() for key, tool in pin._asdict().items() if tool is not None}


def _read(known: object) -> Pins:
    """The pins in what `ToolPins.export` has returned.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(known, Mapping) or "version" not in known:
        raise ValueError('not of the form {"version": 1, "servers": {...}}')
    if known["version"] != VERSION:
        raise ValueError(f"the version is {quoted(known['version'])}, and this program reads version {VERSION}")
    servers = {
        server: {name: _read_pin(name, pin) for name, pin in _mapping(own, server).items()}
        for server, own in _mapping(known.get("servers"), "servers").items()
    }
    identities = _mapping(known.get("identities", {}), "identities")
    return Pins(servers, {server: _text(identity, server) for server, identity in identities.items()})


def _read_pin(name: str, written: object) -> Pin:
    try:
        tools = {key: Tool.from_wire(tool) for key, tool in _mapping(written, name).items()}
        pin = Pin(**tools)
    except (ProtocolError, TypeError) as exc:
        raise ValueError(f"the pin of {quoted(name)}: {exc}") from exc
    if pin == UNPINNED or any(tool.name != name for tool in tools.values()):
        raise ValueError(f"the pin of {quoted(name)} has no tool of that name")
    return pin


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the identity of {quoted(name)} is not a text")
    return value


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{quoted(name)} is not a JSON object")
    return value
