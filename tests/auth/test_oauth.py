"""`OAuth` against an authorization server and an MCP server that it protects, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, StreamableHttp
from mcp_host.auth.oauth import OAuth
from mcp_host.testing import Server
from tests.auth.authorization_server import Protected, protected

CALLBACK = "http://127.0.0.1:1/callback"


async def person(url: str) -> str:
    """A person whose browser is redirected at once. It does not open the redirect: there is no one who listens."""
    async with httpx.AsyncClient() as browser:
        response = await browser.get(url)
    assert response.status_code == 302, response.text
    return response.headers["location"]


def oauth(**options: Any) -> OAuth:
    return OAuth(**{"login": person, "redirect_uri": CALLBACK, **options})


def server() -> Server:
    server = Server("protected")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


@pytest.fixture
def site() -> Iterator[Protected]:
    with protected(server().asgi()) as site:
        yield site


async def call(site: Protected, auth: Any) -> None:
    with anyio.fail_after(20):
        async with Client(StreamableHttp(site.url, auth=auth)) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}


async def test_a_server_that_wants_a_token_gets_one(site: Protected) -> None:
    await call(site, oauth())

    assert [name for name, _ in site.server.log] == ["metadata", "register", "authorize", "token"]
    assert site.seen[0] == ""
    assert len({*site.seen[1:]}) == 1


async def test_the_token_is_for_the_server_alone_and_its_code_is_bound_to_us(site: Protected) -> None:
    await call(site, oauth())

    asked, exchanged = (dict(fields) for name, fields in site.server.log if name in ("authorize", "token"))
    assert asked["resource"] == exchanged["resource"] == site.url
    assert asked["code_challenge_method"] == "S256"
    assert "scope" not in asked


async def test_later_clients_need_no_login(site: Protected) -> None:
    auth = oauth()

    await call(site, auth)
    await call(site, auth)

    assert site.server.count("authorize") == 1
    assert site.seen.count("") == 1
