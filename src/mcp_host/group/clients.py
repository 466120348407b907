"""The clients of a group's servers: what they have in common, and what each has by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from mcp_host.client.client import Client
from mcp_host.group.options import OnServerChange, OnServerLog, OnServerStderr, ServerOptions
from mcp_host.handlers import as_async, check_plain
from mcp_host.limits import Limits
from mcp_host.session.list_changed import ListChanged
from mcp_host.transports.infer import infer_transport
from mcp_host.transports.stdio import Stdio


class Clients:
    """Makes the client of each server. *options* are the arguments of `Client` for all servers, and may change: later clients get the new ones."""

    def __init__(
        self,
        options: dict[str, Any],
        *,
        limits: Limits | None,
        on_log: OnServerLog | None,
        on_change: OnServerChange | None,
        on_stderr: OnServerStderr | None,
    ) -> None:
        self.options = options
        self.limits = limits
        self._on_log = None if on_log is None else as_async(on_log, argument="on_log")
        self._on_change = None if on_change is None else as_async(on_change, argument="on_change")
        self._on_stderr = on_stderr
        if on_stderr is not None:
            check_plain(on_stderr, argument="on_stderr", shape=None)

    def new(self, name: str, server: ServerOptions, list_changed: ListChanged) -> Client:
        """The client of the *server* that the host calls *name*.

        Raises:
            TypeError, ValueError: As for `Client`.
        """
        transport = infer_transport(server.server)
        if isinstance(transport, Stdio):
            transport = replace(transport, restart=False)  # a process that has ended is started again by the group
            if transport.on_stderr is None and self._on_stderr is not None:
                transport = replace(transport, on_stderr=partial(self._on_stderr, name))
        return Client(
            transport,
            name=name,
            tools=server.tools,
            limits=self.limits if server.limits is None else server.limits,
            list_changed=list_changed,
            on_log=None if self._on_log is None else partial(self._on_log, name),
            on_change=None if self._on_change is None else partial(self._on_change, name),
            **self.options,
        )
