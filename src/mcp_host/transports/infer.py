"""The transport for what `Client(...)` is given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard

from mcp_host.transports.base import Transport
from mcp_host.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcp_host.transports.sdk import SdkServer


class InProcessServer(Protocol):
    """A server object with its own transport, such as `mcp_host.testing.Server`."""

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
        ValueError: It is not a valid URL.
    """
    if _is_transport(server):
        return server
    if isinstance(server, str) and server.lower().startswith(("http:", "https:")):
        from mcp_host.transports.http import StreamableHttp  # not needed for stdio

        return StreamableHttp(server)
    if isinstance(server, list | tuple):
        try:
            return Stdio(server)
        except TypeError as exc:
            raise TypeError(f"{exc}\n\n{ACCEPTED}") from None
    if callable(in_process := getattr(server, "in_process", None)) and not isinstance(server, type):
        transport: Transport = in_process()
        return transport
    from mcp_host.transports import sdk  # most hosts do not need it

    if sdk.is_sdk_server(server):
        return sdk.in_process(server)
    hint = _text_hint(server) if isinstance(server, str) else _object_hint(server)
    raise TypeError(f"{hint}\n\n{ACCEPTED}")


def _is_transport(server: object) -> TypeGuard[Transport]:
    return not isinstance(server, type) and all(
        hasattr(server, name) for name in ("open", "name", "identity", "restart")
    )


# The hints repeat no argument and no value: they may be secrets.


def _object_hint(server: object) -> str:
    kind = type(server).__name__
    match server:
        case os.PathLike():
            return f'a {kind} does not say how to run it: write Client(["python", path])'
        case Mapping() if "mcpServers" in server:
            return "a configuration holds several servers: write ClientGroup.from_file(path)"
        case Mapping() if "url" in server:
            return 'write a dict with a URL as Client(StreamableHttp(entry["url"], headers=entry.get("headers")))'
        case Mapping():
            stdio = 'Stdio([entry["command"], *entry.get("args", [])], env=entry.get("env"))'
            return f"write a dict with a command as Client({stdio})"
        case type():
            return f"{server.__name__} is a class: pass an instance"
    if kind == "StdioServerParameters":
        return "write StdioServerParameters as Client(Stdio([p.command, *p.args], env=p.env, cwd=p.cwd))"
    if str(server).startswith(("http://", "https://")):
        return f"write a {kind} as Client(str(url))"
    return f"Client cannot connect to a {kind}"


def _text_hint(text: str) -> str:
    words = text.split()
    if not words:
        return "an empty text is no server"
    if words[0].lower().startswith(("http://", "https://")):
        return "the URL has space before it: write Client(url.strip())"
    if words[0].startswith(("unix:", "http+unix:")):
        return 'there is no URL of a unix socket: write Client(StreamableHttp("http://localhost/mcp", uds=path))'
    if "://" in words[0]:
        return "the URL of a server begins with http:// or https://"
    if len(words) > 1:
        return f'a command line must be a list, and there is no shell: write Client(["{words[0]}", ...])'
    if text.endswith((".py", ".js", ".mjs")):
        program = "python" if text.endswith(".py") else "node"
        return f'a script needs the program that runs it: write Client(["{program}", "{text}"])'
    if "." in text or ":" in text or "/" in text:
        return f'write a command as a list, Client(["{text}"]), and a URL in full, Client("https://...")'
    return f'a command must be a list: write Client(["{text}"])'
