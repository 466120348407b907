"""What `Client(...)` takes, and the transport that it means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard

from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcp_host.transports.sdk import SdkServer


class InProcessServer(Protocol):
    """A server that knows its own transport, such as `mcp_host.testing.Server`."""

    def in_process(self) -> Transport: ...


Connectable: TypeAlias = "Transport | str | Sequence[str | os.PathLike[str]] | InProcessServer | SdkServer"
"""A transport, a URL, a command line as a list, or a server object to run in this process."""

ACCEPTED = """Client takes one of:
  Client("https://example.com/mcp")             a URL, or StreamableHttp(url, headers=...)
  Client(["uvx", "some-server"])                a program and its arguments, or Stdio([...], env=...)
  Client(server)                                a server object: mcp_host.testing.Server, FastMCP, mcp.server.Server"""


def infer_transport(server: Connectable) -> Transport:
    """The transport to *server*.

    Raises:
        TypeError: It is nothing of the kind. The text shows how to write what was probably meant.
        ValueError: It is a URL that cannot be one.
    """
    if _is_transport(server):
        return server
    if isinstance(server, str):
        return _from_text(server)
    if isinstance(server, list | tuple):
        return _from_command(server)
    if callable(in_process := getattr(server, "in_process", None)) and not isinstance(server, type):
        transport: Transport = in_process()
        return transport
    from mcp_host.transports import sdk  # which most hosts never need

    if sdk.is_sdk_server(server):
        return sdk.in_process(server)
    raise TypeError(f"{_meant(server)}\n\n{ACCEPTED}")


def _is_transport(server: object) -> TypeGuard[Transport]:
    return not isinstance(server, type) and all(hasattr(server, name) for name in ("open", "identity", "restart"))


def _from_command(command: Sequence[str | os.PathLike[str]]) -> Transport:
    try:
        return Stdio(command)
    except TypeError as exc:
        raise TypeError(f"{exc}\n\n{ACCEPTED}") from None


def _from_text(text: str) -> Transport:
    scheme = text.partition(":")[0].lower()
    if scheme in ("http", "https"):
        from mcp_host.transports.http import StreamableHttp  # which hosts that speak stdio never need

        return StreamableHttp(text)
    raise TypeError(f"{_meant(text)}\n\n{ACCEPTED}")


def _meant(server: object) -> str:
    """One line on what *server* is, and how to write it. It repeats no argument and no value: they may be secrets."""
    kind = type(server).__name__
    match server:
        case str():
            return _meant_by_text(server)
        case os.PathLike():
            return f'a {kind} says not how to run it: write Client(["python", path])'
        case Mapping() if "mcpServers" in server:
            return 'a configuration holds several servers: make a Client of each entry of config["mcpServers"]'
        case Mapping() if "url" in server:
            return 'write a dict with a URL as Client(StreamableHttp(entry["url"], headers=entry.get("headers")))'
        case Mapping():
            return (
                "write a dict with a command as"
                ' Client(Stdio([entry["command"], *entry.get("args", [])], env=entry.get("env")))'
            )
    if kind == "StdioServerParameters":
        return "write StdioServerParameters as Client(Stdio([p.command, *p.args], env=p.env, cwd=p.cwd))"
    if str(server).startswith(("http://", "https://")):
        return f"write a {kind} as Client(str(url))"
    if isinstance(server, type):
        return f"{server.__name__} is a class: pass an object of it"
    return f"a {kind} is no server that Client knows how to reach"


def _meant_by_text(text: str) -> str:
    words = text.split()
    if not words:
        return "an empty text is no server"
    if words[0].lower().startswith(("http://", "https://")):
        return "the URL has space before it: write Client(url.strip())"
    if "://" in words[0]:
        return "the URL of a server begins with http:// or https://"
    if len(words) > 1:
        return f'a command line is a list, and there is no shell: write Client(["{words[0]}", ...])'
    if text.endswith((".py", ".js", ".mjs")):
        return (
            f'a script is run by a program: write Client(["{"python" if text.endswith(".py") else "node"}", "{text}"])'
        )
    if "." in text or ":" in text or "/" in text:
        return f'write a command as a list, Client(["{text}"]), and a URL in full, Client("https://...")'
    return f'a command is a list: write Client(["{text}"])'
