"""The command that shows, accepts and forgets the pins of tools in a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

from mcp_host.cli.options import NAME, Options
from mcp_host.cli.output import ExitCode, Printer, Report, UsageError, near
from mcp_host.client.pins import ToolPins
from mcp_host.errors import ToolChanged, excerpt, quoted
from mcp_host.types.tool_changes import ToolChange


def run(options: Options) -> Report:
    """Show the changes that wait, or do what the words after the file say.

    Raises:
        UsageError: There is no such file, server, tool or change, or no terminal to ask in.
        ToolPinsError: The file cannot be used.
    """
    if not Path(options.operand).exists():
        raise UsageError(f"there is no file {options.operand!r}")
    pins = ToolPins(file=options.operand)
    match options.words:
        case []:
            return _pinned(pins)
        case ["accept", *names]:
            return _accept(pins, _chosen(pins, names), options)
        case ["forget", server, *tools]:
            server = _server(pins, server)
            for tool in tools:
                _check_known(tool, pins.servers()[server])
            forgotten = tools or pins.servers()[server]
            pins.forget(server, *tools)
            return Report(
                document={"forgotten": {"server": server, "tools": forgotten}},
                show=lambda printer: printer.line("Forgotten: what is listed next is trusted."),
            )
        case ["forget"]:
            raise UsageError("forget what? Name a server, or some of its tools after it")
        case words:
            word = words[0]
            raise UsageError(f"{quoted(word)} is neither accept nor forget{near(word, ('accept', 'forget'))}")


def what_changed(change: ToolChange) -> str:
    """The change in one line."""
    return f"the tool {quoted(change.name)} {change.summary}"


def blocked(change: ToolChange, options: Options) -> ToolChanged:
    """The error that says where to see *change*, and of several servers, which one it is of."""
    server = "" if options.config is None else f"{change.server}: "
    return ToolChanged(f"{server}{what_changed(change)}: see {NAME} pins {options.pins}", change)


def _pinned(pins: ToolPins) -> Report:
    changes, servers, identities = pins.changes(), pins.servers(), pins.identities()

    def show(printer: Printer) -> None:
        for server, names in servers.items():
            printer.paragraph(server, "bold")
            if server in identities:
                printer.paragraph(identities[server], indent=4)
            count = "1 tool is pinned" if len(names) == 1 else f"{len(names)} tools are pinned"
            # The names tell servers apart that one program runs.
            printer.paragraph(f"{count}: {excerpt(', '.join(names))}" if names else count, indent=4)
            _print([change for change in changes if change.server == server], printer)
        if changes:
            printer.line()
            printer.line("To use tools as they are now, add to this command: accept [SERVER [TOOL ...]]")

    return Report(
        document={"servers": servers, "identities": identities, "changes": list(map(_as_json, changes))},
        show=show,
        code=ExitCode.TOOL_CHANGED if changes else ExitCode.OK,
    )


def _as_json(change: ToolChange) -> dict[str, object]:
    new = change.old is None
    return {"server": change.server, "tool": change.name, "new": new, "fields": change.fields, "diff": change.diff}


def _print(changes: Sequence[ToolChange], printer: Printer) -> None:
    for change in changes:
        printer.paragraph(what_changed(change), indent=4)
        printer.text(indent(change.diff, " " * 8))


def _chosen(pins: ToolPins, names: Sequence[str]) -> list[ToolChange]:
    """The changes of all servers, of a server, or of some of its tools."""
    changes = pins.changes()
    if names:
        server, *tools = _server(pins, names[0]), *names[1:]
        changes = [change for change in changes if change.server == server]
        for tool in tools:
            _check_known(tool, pins.servers()[server])
        changes = [change for change in changes if not tools or change.name in tools]
    if not changes:
        raise UsageError("no change waits to be accepted")
    return changes


def _accept(pins: ToolPins, changes: Sequence[ToolChange], options: Options) -> Report:
    """Accept just the changes that are shown: what the server lists meanwhile is not among them."""
    if options.json and not options.yes:
        raise UsageError("with --json no question is asked: read the changes, and pass --yes")
    if not options.json:
        _print(changes, Printer(sys.stdout))
    if not options.yes:
        if not sys.stdin.isatty():
            raise UsageError("there is no terminal to ask in: read the changes, and pass --yes")
        these = "this change" if len(changes) == 1 else f"these {len(changes)} changes"
        if input(f"Accept {these}? [y/N] ").strip().lower() not in ("y", "yes"):
            return Report(show=lambda printer: printer.line("Nothing was accepted."), code=ExitCode.TOOL_CHANGED)
    for change in changes:
        try:
            pins.accept(change)
        except ValueError as exc:  # another process was faster
            raise UsageError(str(exc)) from exc
    document = {"accepted": list(map(_as_json, changes))}
    return Report(document=document, show=lambda printer: printer.line(f"Accepted: {len(changes)}."))


def _server(pins: ToolPins, part: str) -> str:
    """The server of this identity, or the only one whose identity contains *part*."""
    servers = list(pins.servers())
    found = [server for server in servers if server == part] or [server for server in servers if part in server]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{quoted(part)} is part of {len(found)} pinned servers: {', '.join(map(quoted, found[:5]))}")
    raise UsageError(f"no pinned server is called {quoted(part)}{near(part, servers)}")


def _check_known(tool: str, names: Sequence[str]) -> None:
    if tool not in names:
        raise UsageError(f"no pinned tool of this server is called {quoted(tool)}{near(tool, names)}")
