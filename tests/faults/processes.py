"""What the tests of processes share: a client of one, and its end."""

from __future__ import annotations

import os
from typing import Any

from anyio import wait_readable

from mcp_host import Client
from mcp_host.limits import Limits
from tests.transports.children import TimedStdio, python

SOON = 25.0  # seconds, on a busy machine; the deadlines for a connection and for calls come later
BRIEF = Limits(close_timeout=0.6)  # a third of it for each step of a shutdown


def client_of(body: str, *, hands: bool = True, limits: Limits = BRIEF, **options: Any) -> Client:
    """A client of the server that is *body*, after the handshake unless told otherwise."""
    of_transport = ("env", "on_stderr", "restart", "output_grace", "grace", "read_size")
    mine = {name: options.pop(name) for name in of_transport if name in options}
    return Client(TimedStdio(python(body, hands=hands), **mine), limits=limits, **options)


async def says(client: Client, **arguments: Any) -> str:
    """What the server's tool answers. Every server here has one tool."""
    return (await client.call_tool("x", arguments)).text


async def ended(pid: int) -> None:
    """Wait until a process has ended, whosever child it is."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(handle)
    finally:
        os.close(handle)
