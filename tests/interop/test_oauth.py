"""`OAuth` against authorization servers and protected servers that others wrote."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from mcp_host import Client, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, ClientSecret, MemoryTokens, OAuth, OnDevice
from tests.interop.browser import Person
from tests.interop.processes import CLIENTS, PYTHON, HttpServer, authority, free_port, protected, running

IN_TIME = 60.0  # seconds for a test; each takes one or two when the machine is idle
CALLBACK = "http://127.0.0.1:50517/callback"  # nothing listens there: the person does not open it
LIFETIME = 3600.0  # seconds of each token

KINDS = ["sdk", "sdk-own", "fastmcp", "dpop", "fastmcp-own", "fastmcp-proxy"]
OF_VERSION_1 = ["sdk", "sdk-own"]

MACHINE = ClientSecret("machine", "the secret of the machine")


@dataclass
class World:
    """The authorization server, and the URLs of those that are protected: of version 1 of the official SDK with a 1 after the kind."""

    authority: HttpServer
    issuer: str
    urls: Mapping[str, str]

    def granted(self, grant: str) -> int:
        """How many tokens the authorization server has given for a *grant*."""
        return self.authority.count(f"grant.success {grant}")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    mark = f"interop-oauth-{free_port()}"
    port = free_port()
    issuer = f"http://127.0.0.1:{port}/"
    newer, older = ({kind: free_port() for kind in kinds} for kinds in (KINDS, OF_VERSION_1))
    callback = f"http://127.0.0.1:{newer['fastmcp-proxy']}/auth/callback"
    ports = newer | {f"{kind}1": port for kind, port in older.items()}
    with (
        HttpServer(authority(port, mark, callback), port, ready="authority listens") as server,
        HttpServer(protected(2, issuer, newer, mark), 0, ready="Uvicorn running") as second,
        HttpServer(protected(1, issuer, older, mark), 0, ready="Uvicorn running") as first,
    ):
        second.says("Uvicorn running", times=len(newer))
        first.says("Uvicorn running", times=len(older))
        yield World(server, issuer, {kind: f"http://127.0.0.1:{port}/mcp" for kind, port in ports.items()})

    assert running(mark) == []


class Clock:
    """The time that an `OAuth` goes by, from which tests take it away from that of the servers."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


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


@pytest.mark.parametrize("kind", ["sdk", "sdk1", "sdk-own", "sdk-own1", "fastmcp", "fastmcp-own", "fastmcp-proxy"])
async def test_a_person_logs_in_once(world: World, kind: str) -> None:
    ann = Person("ann", CALLBACK)
    auth = logging_in(ann)

    async with connected(world.urls[kind], auth) as client:
        subject, *scopes = await called(client)
    async with connected(world.urls[kind], auth) as client:
        again = await called(client)

    is_its_own = "-own" in kind  # these have one person
    assert (subject == "ann" or is_its_own, scopes, ann.logins) == (True, ["read"], 1), auth.explain()
    assert again == [subject, *scopes]


async def test_many_calls_wait_for_one_refresh(world: World) -> None:
    ann, clock = Person("ann", CALLBACK), Clock()
    told: list[list[str]] = []

    async def call() -> None:
        told.append(await called(client))

    async with connected(world.urls["fastmcp"], logging_in(ann, _clock=clock)) as client:
        before = world.granted("refresh_token")
        for _ in range(2):  # the refresh token of the first is of no use any more
            clock.ahead += LIFETIME
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(call)

    assert told == 40 * [["ann", "read"]]
    assert (world.granted("refresh_token") - before, ann.logins) == (2, 1)


async def test_two_processes_with_one_store_refresh_once(world: World) -> None:
    """A refresh token that is used twice would end the whole login."""
    ann, clock, tokens = Person("ann", CALLBACK), Clock(), MemoryTokens()
    one, other = (logging_in(ann, tokens=tokens, _clock=clock) for _ in range(2))
    async with connected(world.urls["sdk"], one) as first, connected(world.urls["sdk"], other) as second:
        before = world.granted("refresh_token")
        clock.ahead = LIFETIME
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, first)
            tasks.start_soon(called, second)
        told = await called(first), await called(second)

    assert told == (["ann", "read"], ["ann", "read"])
    assert (world.granted("refresh_token") - before, ann.logins) == (1, 1)


async def test_after_a_revocation_there_is_another_login(world: World) -> None:
    """With the token its refresh token has ended."""
    ann, tokens, url = Person("ann", CALLBACK), MemoryTokens(), world.urls["fastmcp"]
    async with connected(url, logging_in(ann, tokens=tokens)) as client:
        saved = json.loads(await tokens.load(f"token {url} {world.issuer}") or "")
        async with httpx.AsyncClient() as http:
            fields = {"token": saved["token"]["access_token"], "client_id": saved["client"]["id"]}
            assert (await http.post(f"{world.issuer}token/revocation", data=fields)).status_code == 200
        told = await called(client)

    assert (told, ann.logins) == (["ann", "read"], 2)


async def test_a_call_that_needs_more_scopes_asks_the_person_for_them(world: World) -> None:
    ann = Person("ann", CALLBACK)
    async with connected(world.urls["fastmcp"], logging_in(ann)) as client:
        told = [await called(client, tool) for tool in ("who", "change", "who", "change")]

    assert told == [["ann", "read"], *3 * [["ann", "read", "write"]]]
    assert ann.logins == 2


@pytest.mark.parametrize("kind", ["sdk-own", "sdk-own1"])
async def test_a_login_for_more_scopes_than_the_client_was_registered_with(world: World, kind: str) -> None:
    """These refuse them: the client registers again."""
    ann, tokens, url = Person("ann", CALLBACK), MemoryTokens(), world.urls[kind]
    with anyio.fail_after(IN_TIME):
        await logging_in(ann, tokens=tokens).login(url)
        auth = logging_in(ann, tokens=tokens, scopes=["write"])
        await auth.login(url)
    async with connected(url, auth) as client:
        _, *scopes = await called(client)

    assert (scopes, ann.logins) == (["read", "write"], 2), auth.explain()


async def test_after_a_logout_there_is_another_login(world: World) -> None:
    ann, url = Person("ann", CALLBACK), world.urls["sdk"]
    auth = logging_in(ann)
    async with connected(url, auth) as client:
        before = await called(client)
        await auth.logout(url)
        after = await called(client)

    assert (before, after, ann.logins) == (["ann", "read"], ["ann", "read"], 2)


@pytest.mark.parametrize("kind", ["sdk", "sdk-own", "sdk-own1", "fastmcp-own"])
async def test_a_logout_revokes_the_token(world: World, kind: str) -> None:
    url, auth = world.urls[kind], logging_in(Person("ann", CALLBACK))
    with anyio.fail_after(IN_TIME):
        saved = await auth.login(url)
        assert saved is not None
        assert saved.token is not None
        is_revoked = await auth.logout(url)
        headers = {"Authorization": f"Bearer {saved.token.access_token}"}
        async with httpx.AsyncClient(headers=headers) as http:
            response = await http.post(url, json={})

    assert (is_revoked, response.status_code) == (True, 401), auth.explain()


async def test_fastmcps_proxy_takes_the_revocation_of_a_public_client(world: World) -> None:
    """Its handler wants a field for the secret that such a client does not have."""
    url, auth = world.urls["fastmcp-proxy"], logging_in(Person("ann", CALLBACK))
    with anyio.fail_after(IN_TIME):
        await auth.login(url)

        assert await auth.logout(url) is True, auth.explain()


@pytest.mark.parametrize("kind", ["sdk", "dpop", "fastmcp-proxy"])
async def test_two_users_of_a_web_host(world: World, kind: str) -> None:
    """Each is redirected to a route of the host, whose process has been started anew meanwhile."""
    stores = {name: MemoryTokens() for name in ("ann", "bob")}
    needs: dict[str, AuthorizationNeeded] = {}

    def oauth(tokens: MemoryTokens) -> OAuth:
        return OAuth(redirect_uri=CALLBACK, tokens=tokens, dpop=kind == "dpop")

    for name, tokens in stores.items():
        with pytest.raises(AuthorizationNeeded) as raised:
            async with connected(world.urls[kind], oauth(tokens)):
                raise AssertionError("connected without a login")
        needs[name] = raised.value
    told = {}
    for name, need in needs.items():
        auth = oauth(stores[name])
        await auth.finish(need.state, await Person(name, CALLBACK)(need.url))
        async with connected(world.urls[kind], auth) as client:
            told[name] = await called(client)

    assert told == {"ann": ["ann", "read"], "bob": ["bob", "read"]}


async def test_tokens_that_are_bound_to_a_key(world: World) -> None:
    """The authorization server wants a nonce in each proof, and the protected server looks at each proof."""
    ann, clock = Person("ann", CALLBACK), Clock()
    async with connected(world.urls["dpop"], logging_in(ann, dpop=True, _clock=clock)) as client:
        before = await called(client), world.granted("refresh_token")
        clock.ahead = LIFETIME
        after = await called(client), world.granted("refresh_token")

    assert (before[0], after[0], ann.logins) == (["ann", "read"], ["ann", "read"], 1)
    assert after[1] - before[1] == 1


@pytest.mark.parametrize(("kind", "dpop"), [("sdk", False), ("fastmcp", False), ("dpop", True)])
async def test_a_machine_needs_no_person(world: World, kind: str, dpop: bool) -> None:
    clock = Clock()
    auth = OAuth.machine(MACHINE, dpop=dpop, _clock=clock)
    before = world.granted("client_credentials")
    async with connected(world.urls[kind], auth) as client:
        first = await called(client)
        clock.ahead = LIFETIME
        second = await called(client)

    assert (first, second) == (["machine", "read"], ["machine", "read"])
    assert world.granted("client_credentials") - before == 2


async def test_a_person_logs_in_on_another_device(world: World) -> None:
    ann, clock = Person("ann", CALLBACK), Clock()
    auth = OAuth(login=OnDevice(ann.on_device, sleep=_at_once), _clock=clock)
    async with connected(world.urls["sdk"], auth) as client:
        first = await called(client)
        clock.ahead = LIFETIME
        second = await called(client)

    assert (first, second, ann.logins) == (["ann", "read"], ["ann", "read"], 1)


async def _at_once(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_sdks_oauth_over_our_own_pool(world: World, backend: str) -> None:
    """Its `OAuthClientProvider` logs a person in, and each call has the token."""
    kinds = ["sdk-own", "fastmcp-own"]
    command = [PYTHON, str(CLIENTS / "official_oauth.py"), backend, *(world.urls[kind] for kind in kinds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=IN_TIME, check=False)

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert [(calls[0][1:], len(calls), logins) for calls, logins in told] == 2 * [(["read"], 6, 1)]
