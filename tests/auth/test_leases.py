"""Leases: several processes have one refresh token, which may work only once, and stores and servers are slow."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mcp_host.auth import LoginFailed, MemoryTokens, OAuth, TokenRequestFailed
from mcp_host.auth.grants import REQUEST_TIME, TokenEndpoint, refresh_grant
from mcp_host.auth.keys import Proofs, new_key
from mcp_host.auth.refreshing import LEASE, LEASE_POLL
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.metadata import AuthorizationServer
from mcp_host.auth.requests.steps import Steps
from tests.auth.world import SOON, Gate, World, rewrite, soon
from tests.extent import on_both

pytestmark = on_both


class SlowKeyring(MemoryTokens):
    """A store that stores the first claim of a refresh only when its person has unlocked it."""

    def __init__(self, until_unlocked: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._until_unlocked: Callable[[], Awaitable[object]] | None = until_unlocked

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        swapped = await super().swap(key, old, new)
        if self._until_unlocked is not None and claim(new) is not None:
            wait, self._until_unlocked = self._until_unlocked, None
            await wait()
        return swapped


def claim(text: str | None) -> float | None:
    """Until when the token in *text* is another process's to refresh."""
    found: float | None = None if text is None else json.loads(text).get("refreshing_until")
    return found


async def claim_for_another(world: World, store: MemoryTokens, until: float) -> None:
    """Another process may refresh the token in *store*."""
    await rewrite(store, world.token_key, lambda text: json.dumps({**json.loads(text), "refreshing_until": until}))


async def test_a_claim_that_is_stored_too_late_gives_way_to_another_process() -> None:
    world = World(lifetime=100)

    async def another() -> None:
        world.now += LEASE + 10
        assert await world.call(world.restarted(tokens=store)) == 200

    store = SlowKeyring(another)
    auth = await world.log_in(tokens=store, later=200)

    assert await world.call(auth) == 200

    assert (world.logins, world.refreshes, world.server.revoked) == (1, 1, [])


async def test_a_claim_that_is_stored_too_late_is_renewed_before_the_refresh_token_is_used() -> None:
    world = World(lifetime=100)
    left: list[float] = []

    async def slowly() -> None:
        world.now += LEASE / 2 + 1

    async def noted(request: Request) -> Response:
        if claim(text := await store.load(world.token_key)) is not None:
            left.append((claim(text) or 0) - world.now)
        return await world.server._token(request)

    store = SlowKeyring(slowly)
    auth = await world.log_in(tokens=store)
    world.server.answers["token"] = noted
    world.now += 200

    assert await world.call(auth) == 200

    assert (left, world.refreshes) == ([LEASE], 1)


@pytest.mark.fake_clock
async def test_the_wait_for_the_refresh_of_a_process_that_was_killed_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ends with the lease, or when a process that lives has the next token."""
    caplog.set_level(logging.INFO, "mcp_host")
    world, store = World(lifetime=100), MemoryTokens()
    await world.log_in(tokens=store, later=200)
    await claim_for_another(world, store, world.now + LEASE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.call, world.restarted(tokens=store))
        await anyio.sleep(3 * LEASE_POLL)
        assert world.refreshes == 0
        world.now += LEASE + 1

    assert world.refreshes == 1
    assert caplog.messages == [
        f"another process refreshes the token for {world.site.url}: waiting for it, for 60 s at most"
    ]


async def test_a_claim_by_a_clock_that_was_wrong_lasts_no_longer_than_a_lease() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    await world.log_in(tokens=store, later=200)
    await claim_for_another(world, store, world.now + 365 * 24 * 3600)

    world.now += LEASE + 1

    with anyio.fail_after(SOON):
        assert await world.call(world.restarted(tokens=store)) == 200
    assert world.refreshes == 1


@pytest.mark.fake_clock
async def test_a_token_request_that_is_sent_twice_ends_within_half_of_a_lease() -> None:
    posted = 0

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal posted
        posted += 1
        await anyio.sleep(REQUEST_TIME * 2 / 3)
        return httpx.Response(400, json={"error": "use_dpop_nonce"}, headers={"dpop-nonce": f"n-{posted}"})

    origin = "https://as.example.com"
    async with httpx.AsyncClient(transport=httpx.MockTransport(slow)) as http:
        endpoint = TokenEndpoint(
            AuthClient("https://mcp.example.com", client=http),
            AuthorizationServer(origin, None, f"{origin}/token"),
            "https://mcp.example.com",
            (),
            Steps(),
            proofs=Proofs(new_key()),
        )
        began = anyio.current_time()
        with pytest.raises(TokenRequestFailed, match="/token: no answer within 30 seconds") as failed:
            await endpoint.request(OAuthClient("id"), refresh_grant("token"))

    assert (posted, anyio.current_time() - began, failed.value.refused) == (2, REQUEST_TIME, False)
    assert REQUEST_TIME <= LEASE / 2


class Late:
    """Two processes, where the first waits for the new token for longer than its lease. Its request is *first*."""

    def __init__(self) -> None:
        self.world = World(lifetime=100)
        self.store = MemoryTokens()
        self.first, self.answer_first = anyio.Event(), anyio.Event()
        self.second: Callable[[Request], Awaitable[Response]] = self.world.server._token
        self.first_response: Response | None = None

    async def processes(self) -> list[OAuth]:
        await self.world.call(self.world.oauth(tokens=self.store))
        self.world.now += 200
        self.world.server.answers["token"] = self.token
        return [self.world.restarted(tokens=self.store) for _ in range(2)]

    async def token(self, request: Request) -> Response:
        if self.first.is_set():
            return await self.second(request)
        response = self.first_response or await self.world.server._token(request)
        self.first.set()
        await self.answer_first.wait()
        return response


async def test_a_new_token_is_kept_although_a_process_that_came_later_was_refused_first() -> None:
    late = Late()

    async def refuse(request: Request) -> Response:
        return JSONResponse({"error": "invalid_grant"}, 400)

    late.second = refuse
    winner, loser = await late.processes()

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.world.call, winner)
            await late.first.wait()
            late.world.now += LEASE + 1
            with pytest.raises(LoginFailed):
                await late.world.call(loser)
            late.answer_first.set()
        assert await late.world.call(loser) == 200

    assert (late.world.logins, late.world.refreshes) == (1, 1)


async def test_a_login_during_a_refresh_is_kept() -> None:
    late = Late()
    refreshing, _ = await late.processes()
    another = late.world.oauth(tokens=late.store)
    async with soon() as tasks:
        tasks.start_soon(late.world.call, refreshing)
        await late.first.wait()
        login = await another.login(late.world.site.url)
        late.answer_first.set()

    assert login == await refreshing.saved(late.world.site.url)


async def test_a_refresh_that_fails_late_leaves_the_claim_of_another_process() -> None:
    late = Late()
    late.first_response = Response(status_code=503)
    first, second = await late.processes()
    del late.world.server.answers["token"]
    late.second = gate = Gate(late.world.server, "token")
    late.world.server.answers["token"] = late.token
    claims = []

    async def fails() -> None:
        with pytest.raises(TokenRequestFailed):
            await late.world.call(first)

    async with soon() as tasks:
        async with anyio.create_task_group() as failing:
            failing.start_soon(fails)
            await late.first.wait()
            late.world.now += LEASE + 1
            tasks.start_soon(late.world.call, second)
            await gate.reached.wait()
            late.answer_first.set()
        claims.append(claim(await late.store.load(late.world.token_key)))
        gate.is_open.set()

    assert claims == [late.world.now + LEASE]
    assert late.world.refreshes == 1
