"""Roots: the folders that servers may work in. Deprecated since revision 2026-07-28."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from mcp_host.handlers import as_async, call_handler, check_callable, inspected
from mcp_host.server_requests import OuterCall
from mcp_host.types import Implementation, ListRootsResult, Root

RootLike: TypeAlias = Root | PurePath | str
Listed: TypeAlias = Awaitable[Sequence[RootLike]] | Sequence[RootLike]

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class RootsRequest:
    """A server's request for the roots. *server* is the name that you gave it, or else that of its transport.

    *outer* is the call that the request belongs to, if known. *server_info* is what the server calls itself.
    """

    server: str
    outer: OuterCall | None = None
    server_info: Implementation | None = field(default=None, repr=False, compare=False)


RootsHandler: TypeAlias = Callable[[], Listed] | Callable[[RootsRequest], Listed]


class Roots:
    """The list of roots, which can be replaced at any time.

    Each root is a `Root`, an absolute path, or a ``file://`` URI. Instead of a list,
    *roots* may be a function that is called for each request: async, or plain, which runs
    in a thread. If it has a parameter without a default, it gets the `RootsRequest`.

    Raises:
        ValueError: A root is a relative path, another kind of URI, or contains "..".
        TypeError: *roots* is neither a list nor a function.
    """

    def __init__(self, roots: Sequence[RootLike] | RootsHandler) -> None:
        self._source: tuple[Root, ...] | Callable[[RootsRequest], Awaitable[Sequence[RootLike]]]
        self._source = _function(roots) if callable(roots) else _snapshot(roots)

    def capability(self) -> dict[str, Any]:
        """What to advertise under ``roots``."""
        return {"listChanged": True}

    def replace(self, roots: Sequence[RootLike]) -> None:
        """Answer with these roots from now on. The caller has to notify the servers.

        Raises:
            ValueError: As for `Roots`; then the old list stays.
        """
        self._source = _snapshot(roots)

    async def answer(
        self, call: OuterCall | None = None, *, server: str, server_info: Implementation | None = None
    ) -> ListRootsResult:
        """The current roots. *call* is our call that the request of *server* belongs to.

        Raises:
            InputRefused: The function that lists them failed (-32603, spec 2025-11-25, client/roots: Error Handling).
        """
        source = self._source
        if isinstance(source, tuple):
            return ListRootsResult(roots=list(source))

        async def listed() -> tuple[Root, ...]:
            return _snapshot(await source(RootsRequest(server, call, server_info)))

        roots = await call_handler(listed, subject="roots", failed="this client could not list its roots")
        return ListRootsResult(roots=list(roots))


def _function(handler: RootsHandler) -> Callable[[RootsRequest], Awaitable[Sequence[RootLike]]]:
    """*handler* as an async function, whether or not it has a parameter for the request."""
    either: Callable[..., Listed] = handler
    function = as_async(either, argument="roots")
    found = inspected(either, follow_wrapped=True)
    if found is not None and any(
        parameter.kind in POSITIONAL and parameter.default is Parameter.empty for parameter in found.parameters.values()
    ):
        check_callable(either, argument="roots", shape="(request: RootsRequest) -> list[Path]")
        return function
    return lambda _: function()


def _snapshot(roots: Sequence[RootLike]) -> tuple[Root, ...]:
    if isinstance(roots, str):
        raise ValueError(f"a list of roots, not the one root {roots!r}")
    if not isinstance(roots, Iterable):
        raise TypeError(f"roots has to be a list of roots or a function, not {type(roots).__name__}")
    return tuple([_root(root) for root in roots])


def _root(root: RootLike) -> Root:
    if isinstance(root, str):
        root = Root(uri=root) if "://" in root else PurePath(root)
    if isinstance(root, PurePath):
        root = Root(uri=_uri(root))
    url = urlsplit(root.uri)
    if url.scheme != "file" or not root.uri.lower().startswith("file://"):
        raise ValueError(f'a root "MUST be a file:// URI", not {root.uri!r}')
    if ".." in unquote(url.path).split("/"):
        # "Clients MUST [...] validate all root URIs to prevent path traversal" (2025-11-25, client/roots)
        raise ValueError(f"a root must not climb through '..': {root.uri!r}")
    return root


def _uri(path: PurePath) -> str:
    """The ``file://`` URI of a path, also of another system: Python 3.14 deprecates `PurePath.as_uri`."""
    if not path.is_absolute():
        raise ValueError(f"a root must not be a relative path: {str(path)!r}")
    whole, drive = path.as_posix(), path.drive
    if drive.endswith(":"):
        return f"file:///{drive}{quote(os.fsencode(whole.removeprefix(drive)))}"
    return ("file:" if drive else "file://") + quote(os.fsencode(whole))  # a network drive begins with its host
