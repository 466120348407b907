"""`OAuth` against authorization servers and protected servers that others wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_host import Client, StreamableHttp
from mcp_host.auth import OAuth
from tests.interop.browser import Person
from tests.interop.processes import HttpServer, authority, free_port, protected, running

IN_TIME = 60.0  # seconds for a test; each takes one or two when the machine is idle
CALLBACK = "http://127.0.0.1:50517/callback"  # nothing listens there: the person does not open it

KINDS = ["sdk", "sdk-own", "fastmcp", "short", "dpop", "fastmcp-own", "fastmcp-proxy"]
OF_VERSION_1 = ["sdk", "sdk-own"]


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """The URLs of the protected servers, by their kinds; those of version 1 of the official SDK with a 1 after them."""
    mark = f"interop-oauth-{free_port()}"
    ports = {kind: free_port() for kind in [*KINDS, *(f"{kind}1" for kind in OF_VERSION_1)]}
    issuer_port = free_port()
    issuer = f"http://127.0.0.1:{issuer_port}/"
    callback = f"http://127.0.0.1:{ports['fastmcp-proxy']}/auth/callback"
    second = {kind: ports[kind] for kind in KINDS}
    first = {kind: ports[f"{kind}1"] for kind in OF_VERSION_1}
    with (
        HttpServer(authority(issuer_port, mark, callback), issuer_port, ready="authority listens"),
        HttpServer(protected(2, issuer, second, mark), 0, ready="Uvicorn running") as newer,
        HttpServer(protected(1, issuer, first, mark), 0, ready="Uvicorn running") as older,
    ):
        newer.says("Uvicorn running", times=len(second))
        older.says("Uvicorn running", times=len(first))
        yield {kind: f"http://127.0.0.1:{port}{'/short' * (kind == 'short')}/mcp" for kind, port in ports.items()}

    assert running(mark) == []


@asynccontextmanager
async def connected(url: str, auth: Any) -> AsyncIterator[Client]:
    with anyio.fail_after(IN_TIME):
        async with Client(StreamableHttp(url, auth=auth)) as client:
            yield client


async def called(client: Client, tool: str = "who") -> list[str]:
    """Whose token a call had, and its scopes."""
    told: Any = (await client.call_tool(tool)).structured_content
    return list(told["result"])


def logging_in(person: Person, **options: Any) -> OAuth:
    return OAuth(login=person, redirect_uri=CALLBACK, **options)


async def test_a_person_logs_in_once(urls: dict[str, str]) -> None:
    for kind in ("sdk", "sdk1", "fastmcp"):
        ann = Person("ann", CALLBACK)
        auth = logging_in(ann)
        async with connected(urls[kind], auth) as client:
            first = await called(client)
        async with connected(urls[kind], auth) as client:
            second = await called(client)
        print(auth.explain())
        assert (kind, first, second, ann.logins) == (kind, ["ann", "read"], first, 1)
