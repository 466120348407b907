"""The local servers of the providers' APIs: each starts once in a run of the tests, when a test first needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pytest

from tests.interop.providers.scripted import Turn
from tests.interop.providers.servers.base import Heard, ModelServer

Kind = TypeVar("Kind", bound=ModelServer)


class Serve(Protocol):
    """`serve(AnthropicServer, Said(text="hi"))` returns the running server, which says these turns and nothing else."""

    def __call__(
        self, kind: type[Kind], *turns: Turn, decide: Callable[[Heard], Turn] | None = None
    ) -> Kind: ...  # pragma: no cover


@pytest.fixture(scope="session")
def _servers() -> Iterator[tuple[ExitStack, dict[type[ModelServer], ModelServer]]]:
    with ExitStack() as stack:
        yield stack, {}


@pytest.fixture
def serve(_servers: tuple[ExitStack, dict[type[ModelServer], ModelServer]]) -> Iterator[Serve]:
    """A test whose request broke a rule of the API fails with the server's reason."""
    stack, servers = _servers
    used: list[ModelServer] = []

    def serving(kind: type[Kind], *turns: Turn, decide: Callable[[Heard], Turn] | None = None) -> Kind:
        if kind not in servers:
            servers[kind] = stack.enter_context(kind().running())
        server = servers[kind]
        assert isinstance(server, kind)
        assert server not in used or server.refusals == []  # of what it was told to say before
        server.say(*turns, decide=decide)
        used.append(server)
        return server

    yield serving

    assert [refusal for server in used for refusal in server.refusals] == []
