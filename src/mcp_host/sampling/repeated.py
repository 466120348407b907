"""What a request shares with others: tools that a server repeats, read once, and copies for code that may change them."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, TypeVar

from mcp_host.errors import ProtocolError
from mcp_host.types import CreateMessageRequestParams, Tool

CallT = TypeVar("CallT", bound=Callable[..., object])


class ReadOnlyTools(list[Tool]):
    """The tools of a request that only a handler with `reads_only` gets: the same list for as long as the server repeats it.

    The schemas in it are dicts, which anyone else could change in place: an approver gets a copy. *written* are the tools
    as `marshal` writes their JSON.
    """

    def __init__(self, tools: Iterable[Tool], written: bytes) -> None:
        super().__init__(tools)
        self.written = written


def copied(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request of another client, which may change its own while a person decides on them.

    Raises:
        ProtocolError: They are no JSON, or nest too deeply.
    """
    try:
        read: dict[str, Any] = marshal.loads(marshal.dumps(params))
    except ValueError:  # a text that is an enum, for example, or more levels than JSON may have
        try:
            return deepcopy(params)
        except Exception as exc:  # of any type that the client has put there
            raise ProtocolError(f"the parameters cannot be copied: {type(exc).__name__}") from exc
    return read


def reads_only(call: CallT) -> CallT:
    """Mark the ``__call__`` of a handler that never changes a request, and never passes it on to code that might.

    A class that overrides ``__call__`` loses the mark.
    """
    call.__dict__["reads_only"] = True
    return call


def is_read_only(handler: object) -> bool:
    """Whether *handler* has the mark of `reads_only`."""
    return hasattr(type(handler).__call__, "reads_only")


class RepeatedTools:
    """Reads the requests of one connection, and keeps the tools of the last one that had any.

    They are compared as `marshal` writes them, which takes less time than to read them. If its bytes are equal, then
    so are values, types and order: Python itself takes 1 for True. Equal values may have different bytes, because a text
    that is in several places is written once. Then they are read anew.
    """

    def __init__(self) -> None:
        self._last = ReadOnlyTools((), b"")

    def read(self, wire: dict[str, Any]) -> CreateMessageRequestParams:
        """The request in *wire*, with `ReadOnlyTools` if it has tools.

        Raises:
            ProtocolError: It is malformed.
        """
        tools = wire.get("tools")
        if not tools or not isinstance(tools, list):
            return CreateMessageRequestParams.from_wire(wire)
        try:
            written = marshal.dumps(tools)
        except ValueError:  # no JSON, which only another client can pass
            return CreateMessageRequestParams.from_wire(wire)
        is_known = written == self._last.written
        # A copy, because others may have the request as it came: middleware, or another client.
        params = CreateMessageRequestParams.from_wire({**wire, "tools": None if is_known else marshal.loads(written)})
        if not is_known:
            self._last = ReadOnlyTools(params.tools or (), written)
        vars(params)["tools"] = self._last  # as `model_copy` does, but no other code has these params yet
        return params
