"""When `OAuth` refreshes, logs in and registers, and how often: with many calls, many processes, and servers that refuse."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from anyio import wait_all_tasks_blocked
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host.auth import (
    AddressRefused,
    AuthorizationNeeded,
    Cimd,
    Dynamic,
    LoginFailed,
    MemoryTokens,
    OAuth,
    Registered,
    RegistrationFailed,
    TokenRequestFailed,
    TokensError,
)
from mcp_host.auth.authorization import EARLY_WAIT
from mcp_host.auth.refreshing import RETRY_TIME
from mcp_host.auth.storage.file_tokens import FileTokens
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.world import CALLBACK, SOON, Gate, World, gives_up, logged_in, rewrite, soon
from tests.extent import on_both


async def calls(world: World, auth: OAuth, count: int) -> list[int]:
    """The statuses of *count* requests at once."""
    statuses: list[int] = []

    async def one() -> None:
        statuses.append(await world.call(auth))

    async with soon() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return statuses


def refuse_refreshes(world: World, code: str, status: int = 400) -> list[bytes]:
    """Let the token endpoint refuse to refresh with *code*: "" is a token of another type. Returns the refused requests."""
    refused: list[bytes] = []

    async def token(request: Request) -> Response:
        if b"grant_type=refresh_token" not in await request.body():
            return await world.server._token(request)
        refused.append(await request.body())
        document = {"error": code} if code else {"access_token": "a", "token_type": "mac"}
        return JSONResponse(document, status, {"retry-after": "60"})  # which holds up no later request

    world.server.answers["token"] = token
    return refused


# Refreshing


async def test_a_token_is_refreshed_before_it_ends() -> None:
    world, auth = await logged_in(later=89)
    assert await world.call(auth) == 200
    assert world.refreshes == 0

    world.now += 2

    assert await world.call(auth) == 200
    assert (world.logins, world.refreshes, world.site.seen.count("")) == (1, 1, 1)
    assert len({*world.site.seen}) == 3  # none, and two tokens


@pytest.mark.fault("O13")
async def test_a_refresh_without_a_new_refresh_token_keeps_the_old_one() -> None:
    world = World(lifetime=100, rotates=False)
    auth = await world.log_in()
    world.server.gives_refresh_tokens = False

    for _ in range(3):
        world.now += 200
        assert await world.call(auth) == 200

    [refresh_token] = world.server.refresh_tokens
    assert world.server.count("token", refresh_token=refresh_token) == world.refreshes == 3
    assert world.logins == 1


@pytest.mark.parametrize(
    ("code", "ended"),
    [("invalid_grant", True), ("bad_refresh_token", True), ("invalid_scope", True), ("other", False), ("", True)],
)
async def test_a_refresh_that_is_refused_leads_to_a_login_and_is_not_tried_again(code: str, ended: bool) -> None:
    world, auth = await logged_in()
    refused = refuse_refreshes(world, code, 400 if code else 200)
    if ended:
        world.now += 200
    else:
        world.server.tokens.clear()

    assert await world.call(auth) == 200
    assert (world.logins, len(refused), world.server.count("register")) == (2, 1, 1)


@pytest.mark.parametrize(("code", "status"), [("invalid_target", 400), ("invalid_request", 400), ("", 404), ("", 403)])
async def test_a_refresh_that_is_refused_is_not_repeated_with_each_request(code: str, status: int) -> None:
    world = World(lifetime=1000)
    auth = await world.log_in()
    refused = refuse_refreshes(world, code, status)
    world.now += 975

    assert [await world.call(auth) for _ in range(10)] == [200] * 10
    assert len(refused) == 1


async def test_a_refresh_that_was_refused_is_tried_again_for_a_later_request() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    auth = world.restarted(tokens=store)
    world.server.refuse("token", 400, error="invalid_scope")
    world.now += 200
    with pytest.raises(LoginFailed):
        await world.call(auth)
    del world.server.answers["token"]
    with pytest.raises(LoginFailed):
        await world.call(auth)

    world.now += RETRY_TIME

    assert await world.call(auth) == 200
    assert (world.logins, world.refreshes) == (1, 1)


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_while_the_token_endpoint_is_down_a_good_token_is_used_and_no_one_has_to_log_in(status: int) -> None:
    world, auth = await logged_in()
    world.server.refuse("token", status)

    world.now += 95
    assert await world.call(auth) == 200
    world.now += 10
    with pytest.raises(TokenRequestFailed, match=f"refresh_token.*/token: HTTP {status}"):
        await world.call(auth)
    del world.server.answers["token"]

    assert await world.call(auth) == 200
    assert world.logins == 1


@on_both
async def test_a_good_token_is_not_refreshed_again_and_again_while_that_fails() -> None:
    world = World(lifetime=1000)
    auth = await world.log_in()
    refused = refuse_refreshes(world, "", 429)

    world.now += 975  # it ends in 25 s
    assert await calls(world, auth, 10) + await calls(world, auth, 10) == [200] * 20
    assert len(refused) == 1
    world.now += 11
    await world.call(auth)
    assert len(refused) == 2
    world.now += 20  # it has ended
    with pytest.raises(TokenRequestFailed):
        await world.call(auth)
    assert len(refused) == 3


@on_both
@pytest.mark.fake_clock
async def test_a_good_token_is_sent_while_the_token_endpoint_hangs_and_the_next_one_is_kept() -> None:
    world = World(lifetime=1000)
    auth = await world.log_in()
    gate = Gate(world.server, "token")
    world.now += 975
    begun = anyio.current_time()

    assert [await world.call(auth) for _ in range(3)] == [200] * 3
    assert gate.reached.is_set()
    assert anyio.current_time() - begun == EARLY_WAIT  # once
    gate.is_open.set()
    await wait_all_tasks_blocked()
    world.now += 100

    assert await world.call(auth) == 200
    assert (world.refreshes, world.logins) == (1, 1)


@pytest.mark.fault("O13")
@on_both
@pytest.mark.parametrize("ended", [True, False], ids=["its time is over", "refused"])
async def test_many_calls_that_need_a_refresh_cause_one(ended: bool) -> None:
    world, auth = await logged_in()
    if ended:
        world.now += 200
    else:
        world.server.tokens.clear()

    assert await calls(world, auth, 100) == [200] * 100
    assert (world.logins, world.refreshes) == (1, 1)


@pytest.mark.backends("asyncio")
async def test_requests_whose_tokens_of_different_age_are_refused_at_once_both_get_a_better_one() -> None:
    """asyncio runs the tasks in the order in which they began. So the second waits for the work of the first."""
    world, auth = await logged_in()
    refused, sent = httpx.Response(401, headers={"www-authenticate": "Bearer"}), list[str]()

    async def begun() -> AsyncGenerator[httpx.Request, httpx.Response]:
        flow = auth.async_auth_flow(httpx.Request("POST", world.site.url))
        sent.append((await anext(flow)).headers["authorization"])
        return flow

    async def goes_on(flow: AsyncGenerator[httpx.Request, httpx.Response]) -> None:
        sent.append((await flow.asend(refused)).headers["authorization"])
        await flow.aclose()

    first = await begun()
    world.server.tokens.clear()
    assert await world.call(auth) == 200
    second = await begun()
    async with soon() as tasks:
        tasks.start_soon(goes_on, first)
        tasks.start_soon(goes_on, second)

    assert sent[2] == sent[1] != sent[0]
    assert sent[3] not in sent[:3]
    assert world.refreshes == 2


async def test_a_token_whose_first_answer_was_lost_is_refreshed_like_any_other() -> None:
    world, auth = await logged_in(later=200)

    async def loses(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError("lost")

    world.apps[1002] = loses
    with pytest.raises(OSError, match="lost"):
        await world.call(auth)
    world.apps[1002] = world.site
    await world.call(auth)
    world.server.tokens.clear()

    assert await world.call(auth) == 200
    assert (world.logins, world.refreshes) == (1, 2)


@on_both
async def test_a_refresh_outlives_the_call_that_began_it() -> None:
    world, auth = await logged_in(later=200)
    gate = Gate(world.server, "token")

    async with soon() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as calling:
                calling.start_soon(world.call, auth)
                await gate.reached.wait()
                tasks.start_soon(world.call, auth)
                await wait_all_tasks_blocked()
                first.cancel()
        gate.is_open.set()

    assert (world.logins, world.refreshes, world.server.revoked) == (1, 1, [])
    assert await world.call(auth) == 200


@on_both
async def test_a_call_that_is_cancelled_before_its_refresh_begins_leaves_no_one_waiting(tmp_path: Path) -> None:
    """The store's write goes on in its thread when its caller is cancelled."""
    world = World(lifetime=100)
    auth = await world.log_in(tokens=FileTokens(tmp_path / "tokens.json"), later=200)

    with anyio.CancelScope() as leader:
        leader.cancel()
        await world.call(auth)

    with anyio.fail_after(SOON):
        assert await world.call(auth) == 200
    assert (world.logins, world.refreshes, world.server.revoked) == (1, 1, [])


@on_both
async def test_a_call_does_not_wait_for_another_process_while_its_token_is_good() -> None:
    world = World(lifetime=100)
    store = MemoryTokens()
    await world.log_in(tokens=store, later=95)
    gate = Gate(world.server, "token")

    async with soon() as tasks:
        tasks.start_soon(world.call, world.restarted(tokens=store))
        await gate.reached.wait()
        assert await world.call(world.restarted(tokens=store)) == 200
        gate.is_open.set()

    assert world.refreshes == 1


@on_both
async def test_processes_with_one_file_refresh_once_and_lose_no_refresh_token(tmp_path: Path) -> None:
    world = World(lifetime=100)
    path = tmp_path / "tokens.json"
    await world.call(world.oauth(tokens=FileTokens(path)))
    processes = [world.restarted(tokens=FileTokens(path)) for _ in range(3)]

    for _ in range(3):
        world.now += 200
        async with soon() as tasks:
            for auth in processes * 3:
                tasks.start_soon(world.call, auth)

    assert (world.logins, world.refreshes, world.server.revoked) == (1, 3, [])
    assert world.site.seen.count("") == 1


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio")])
def test_one_oauth_serves_one_event_loop_after_another(backends: tuple[str, str]) -> None:
    world = World(lifetime=100)
    auth = world.oauth()

    for backend in backends * 2:
        assert anyio.run(partial(world.call, auth), backend=backend) == 200
        world.now += 200

    assert (world.logins, world.refreshes, world.server.revoked) == (1, 3, [])


class FailingTokens(MemoryTokens):
    """A store that cannot write while it is *full*."""

    full = False

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        if self.full and key.startswith("token") and 'refreshing_until":null' in (new or ""):
            raise TokensError("the disk is full")
        return await super().swap(key, old, new)


async def test_a_token_that_cannot_be_stored_is_used_and_stored_later(caplog: pytest.LogCaptureFixture) -> None:
    world, store = World(lifetime=100), FailingTokens()
    auth = await world.log_in(tokens=store, later=200)
    store.full = True

    assert [await world.call(auth) for _ in range(2)] == [200, 200]
    assert caplog.messages == ["the disk is full; what cannot be stored is lost when the process ends"]
    _, token = await world.saved(auth)
    assert world.site.seen[-1] == f"Bearer {token.access_token}"

    store.full = False
    world.now += 200
    assert await world.call(auth) == 200
    assert await world.call(world.restarted(tokens=store)) == 200
    assert (world.logins, world.refreshes, world.server.revoked) == (1, 2, [])


# Logging in


@on_both
@pytest.mark.parametrize("failure", [LoginFailed("denied"), RuntimeError("the window was closed")], ids=ascii)
async def test_a_login_that_fails_fails_for_all_that_wait_for_it_and_asks_no_one_again(failure: Exception) -> None:
    world, asked, failed = World(), 0, 0

    async def fails(url: str) -> str:
        nonlocal asked
        asked += 1
        await wait_all_tasks_blocked()
        raise failure

    auth = world.oauth(login=fails)

    async def one() -> None:
        nonlocal failed
        with pytest.raises(type(failure), match=str(failure)):
            await world.call(auth)
        failed += 1

    async with soon() as tasks:
        for _ in range(20):
            tasks.start_soon(one)

    assert (asked, failed) == (1, 20)
    await one()
    assert asked == 2


@pytest.mark.parametrize(("had_one", "logins", "refreshes", "requests"), [(False, 1, 0, 2), (True, 2, 1, 5)])
async def test_a_server_that_refuses_every_token_causes_one_login_and_then_the_error(
    had_one: bool, logins: int, refreshes: int, requests: int
) -> None:
    """And one refresh before, if there is a refresh token."""
    world = World(lifetime=100)
    auth = await world.log_in() if had_one else world.oauth()
    world.site.server = AuthorizationServer(origin=world.server.origin)  # it accepts no token of the other

    assert await world.call(auth) == 401
    assert (world.logins, world.refreshes, len(world.site.seen)) == (logins, refreshes, requests)
    assert await world.call(auth) == 401
    assert (world.logins, world.refreshes) == (logins, refreshes)


async def test_after_a_refresh_and_a_login_the_headers_of_requests_are_ready_again() -> None:
    world, lost = World(), [{"access_token": "refused"}]
    auth = await world.log_in()

    world.server.tokens.clear()
    world.server.change("token", lambda answer: answer | (lost.pop() if lost else {}))
    assert await world.call(auth) == 200

    assert "Bearer refused" in world.site.seen
    assert auth.ready("POST", world.site.url) == {"Authorization": world.site.seen[-1]}


async def test_the_token_of_a_url_that_is_written_otherwise_is_ready_too_and_no_requests_share_its_headers() -> None:
    world, auth = await logged_in()
    url = f"{world.site.url}?query=1"

    assert auth.ready("POST", url) is None
    assert (await world.client(auth).post(url)).status_code == 200
    for _ in range(3):
        headers: Any = auth.ready("POST", url)
        assert headers == {"Authorization": world.site.seen[-1]}
        headers.clear()


async def test_a_refresh_that_fails_for_any_reason_fails_no_call_whose_token_is_good() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    endpoint = f"{world.server.issuer}/token"
    await rewrite(store, world.token_key, lambda text: text.replace(endpoint, "http://example.com/token"))
    auth = world.restarted(tokens=store)

    world.now += 95
    assert await world.call(auth) == 200
    world.now += 10
    with pytest.raises(AddressRefused, match=r"example\.com/token is refused: it is not https"):
        await world.call(auth)


# Registering


async def test_a_registration_of_another_process_is_not_forgotten_with_an_older_one() -> None:
    world, store = World(lifetime=100), MemoryTokens()
    auth = await world.log_in(tokens=store)
    key = f"client {world.server.issuer}"
    await rewrite(store, key, lambda text: text.replace("client-0", "newer"))
    world.server.clients = {"newer": world.server.clients["client-0"]}
    world.now += 200

    assert await world.call(auth) == 200

    assert (world.server.count("register"), world.logins) == (1, 2)
    assert world.server.count("authorize", client_id="newer") == 1


async def test_a_client_that_the_server_no_longer_knows_registers_again_once() -> None:
    world, auth = await logged_in()
    world.server.clients.clear()
    world.now += 200

    assert await world.call(auth) == 200
    assert (world.server.count("register"), world.logins, world.refreshes) == (2, 2, 1)


async def test_a_client_that_is_unknown_only_when_its_code_is_exchanged_registers_again_once() -> None:
    world = World(lifetime=100, gives_refresh_tokens=False)
    auth = await world.log_in(later=200)
    world.server.refuse("token", 401, error="invalid_client")

    with pytest.raises(TokenRequestFailed, match="invalid_client"):
        await world.call(auth)

    assert (world.server.count("register"), world.logins) == (2, 3)


async def test_a_client_that_is_unknown_just_after_its_registration_is_not_replaced_at_once() -> None:
    """It was registered for this login, in the place of an older one."""
    world, store = World(), MemoryTokens()
    world.site.scope = "a"
    await world.call(world.oauth(tokens=store))
    world.server.refuse("token", 401, error="invalid_client")

    with pytest.raises(TokenRequestFailed, match="invalid_client"):
        await world.oauth(tokens=store, scopes=["b"]).login(world.site.url)

    assert (world.server.count("register"), world.logins) == (2, 2)


@pytest.mark.fault("O19")
async def test_a_registration_that_has_ended_is_renewed() -> None:
    world = World(lifetime=100, gives_refresh_tokens=False, methods=["client_secret_basic"])
    auth = world.oauth()
    world.server.change("register", lambda client: client | {"client_secret_expires_at": world.now + 150})
    for _ in range(3):
        assert await world.call(auth) == 200
        world.now += 101

    assert (world.server.count("register"), world.logins, world.refreshes) == (2, 3, 0)


ELSEWHERE = Registered("id", issuer="https://other.example.com")
CIMD = Cimd("https://my-host.example/client.json")


@pytest.mark.parametrize(
    ("registration", "problem"),
    [
        (Dynamic("host"), "registers no clients by itself"),
        (CIMD, f"takes none of {CIMD!r}"),
        ([ELSEWHERE, Dynamic("host")], f"takes none of {ELSEWHERE!r} and registers no clients by itself"),
    ],
    ids=["dynamic", "cimd", "both"],
)
async def test_where_no_registration_works_the_error_says_what_to_do(registration: Any, problem: str) -> None:
    world = World(metadata={"registration_endpoint": None})

    with pytest.raises(RegistrationFailed) as raised:
        await world.call(world.oauth(registration=registration))

    what = "register a client there by hand, and pass Registered(...)"
    assert str(raised.value) == f"{world.server.issuer} {problem}: {what}"


async def test_a_registration_is_kept_if_its_login_fails() -> None:
    world, store = World(), MemoryTokens()

    with pytest.raises(LoginFailed):
        await world.call(world.oauth(login=gives_up, tokens=store))
    assert await world.call(world.oauth(tokens=store)) == 200

    assert (world.server.count("register"), world.logins) == (1, 1)


@on_both
@pytest.mark.parametrize("is_left", [True, False])
async def test_an_old_registration_is_not_used_again_after_a_login_that_got_no_answer(is_left: bool) -> None:
    """A page that says that the client is unknown redirects no one (RFC 6749, section 4.1.2.1)."""
    world, store = World(gives_refresh_tokens=False), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    world.server.forget()
    world.server.clients.clear()

    async def waits(url: str) -> str:
        assert (await world.client().get(url)).text == "unknown client"
        if is_left:
            call.cancel()
            await anyio.sleep_forever()
        raise LoginFailed("nothing came back")

    with anyio.fail_after(SOON):
        with anyio.CancelScope() as call, suppress(LoginFailed):
            await world.call(world.oauth(login=waits, tokens=store))
        assert await world.call(world.oauth(tokens=store)) == 200

    assert world.server.count("register") == 2


async def test_a_client_whose_login_got_no_answer_is_used_again_if_no_other_can_be_registered() -> None:
    """A person may have closed the page, and some authorization servers register few clients."""
    world, store = World(gives_refresh_tokens=False), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    world.server.forget()

    with pytest.raises(LoginFailed):
        await world.call(world.oauth(login=gives_up, tokens=store))
    world.server.refuse("register", 429)
    auth = world.oauth(tokens=store)

    assert await world.call(auth) == 200
    assert "the client has failed in its last login" in auth.explain()
    assert len(world.server.clients) == 1


@pytest.mark.fault("O12")
async def test_another_authorization_server_is_shown_nothing_of_the_first_and_each_gets_one_login() -> None:
    world = World(methods=["client_secret_post"])
    auth = world.oauth(registration=None)
    world.site.scope = "files"
    await world.call(auth)
    first = world.server
    other = world.another_server(methods=["client_secret_post"])
    world.site.server, world.site.scope = other, ""

    assert await world.call(auth) == 200

    secrets = {*first.tokens, *first.refresh_tokens, *first.codes, "files"}
    secrets |= {client["client_secret"] for client in first.clients.values()}
    secrets |= {fields[name] for _, fields in first.log for name in ("state", "code_verifier") if name in fields}
    shown = {value for _, fields in other.log for value in fields.values()}
    assert secrets & shown == set()
    assert [name for name, _ in other.log] == ["metadata", "register", "authorize", "token"]
    assert world.refreshes == 0
    for server in (first, other):
        world.site.server = server
        assert await world.call(auth) == 200
    assert world.logins == 2


# More scopes


async def test_a_request_that_needs_another_scope_keeps_those_that_were_granted_unasked() -> None:
    world = World(default_scope="default")
    world.site.needs = lambda body: body.decode()
    auth = world.oauth()

    assert [await world.call(auth, body) for body in ("default", "write", "default")] == [200] * 3
    assert world.scopes == [None, "write default"]


async def test_scopes_that_are_granted_by_other_names_are_not_asked_for_by_these() -> None:
    """A short name may be that of another API's scope, or of none."""
    world = World(gives_refresh_tokens=False)
    world.site.scope = "api://my-api/read"
    auth = world.oauth()

    world.server.change("token", lambda answer: answer | {"scope": "read"})
    assert await world.call(auth) == 200
    world.server.forget()

    assert await world.call(auth) == 200
    assert world.server.count("authorize", scope="api://my-api/read") == world.logins == 2


async def test_another_login_without_scopes_gets_what_the_server_gives_by_default_then() -> None:
    world = World()
    auth = world.oauth()
    for default in ("read", "read write"):
        world.server.default_scope = default
        token = await world.log_in_again(auth)

    assert token.scopes == ("read", "write")


async def test_the_scopes_that_a_login_has_to_add_are_without_those_that_were_granted() -> None:
    world, store = World(grants="read default"), MemoryTokens()
    world.site.scope = "read"
    await world.log_in(tokens=store)
    world.site.needs = lambda body: "write"

    for tokens, scopes in ((store, ("write",)), (MemoryTokens(), ())):
        with pytest.raises(LoginFailed) as failed:
            await world.call(world.restarted(tokens=tokens))
        assert failed.value.scopes == scopes


@pytest.mark.parametrize(
    ("asked", "gives_later", "status"), [(["write"], True, 200), (["write"], False, 403), ([], False, 403)]
)
async def test_a_person_is_asked_once_more_for_a_scope_that_was_not_granted(
    asked: list[str], gives_later: bool, status: int
) -> None:
    """A person may leave out a scope that no call needs yet, and the server grants the others."""
    world = World(grants="read")
    world.site.scope = "read"
    auth = await world.log_in(scopes=asked)
    world.server.grants = None if gives_later else "read"

    world.site.needs = lambda body: "write"
    assert [await world.call(auth) for _ in range(3)] == [status] * 3
    assert world.logins == 2


@pytest.mark.parametrize("again", [OAuth.login, OAuth.logout])
async def test_a_login_that_is_asked_for_and_a_logout_forget_which_scopes_were_not_granted(
    again: Callable[[OAuth, str], Awaitable[object]],
) -> None:
    world = World(grants="read")
    world.site.scope = "read"
    auth = world.oauth(scopes=["write"])
    world.site.needs = lambda body: body.decode()
    assert await world.call(auth, "write") == 403
    assert world.logins == 2

    await again(auth, world.site.url)
    assert await world.call(auth) == 200
    assert await world.call(auth, "write") == 403
    assert world.logins == 4


async def test_a_web_host_is_not_asked_once_more_for_a_scope_that_was_not_granted() -> None:
    """Its user would be redirected without end."""
    world = World(grants="read")
    world.site.scope = "read"
    auth = world.oauth(login=None, scopes=["write"])
    await world.finish(auth, await world.needed(auth))
    world.site.needs = lambda body: "write"

    assert await world.call(auth) == 403


async def test_a_refusal_that_names_no_scopes_is_the_answer() -> None:
    world = World()

    async def forbid(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=403)(scope, receive, send)

    auth = await world.log_in()
    world.apps[1002] = forbid

    assert await world.call(auth) == 403
    assert (world.logins, world.refreshes) == (1, 0)


@pytest.mark.fault("O14")
async def test_a_server_that_wants_ever_more_scopes_gets_three_logins_a_request_and_five_in_ten_minutes() -> None:
    world = World()
    wanted = iter(f"scope-{number}" for number in range(100))
    world.site.needs = lambda body: next(wanted)
    auth = world.oauth()
    assert await world.call(auth) == 403
    assert world.logins == 3

    with pytest.raises(LoginFailed) as raised:
        await world.call(auth)
    assert world.logins == 5
    refused, way_out = str(raised.value).split(" s. ")
    assert refused.endswith("/mcp wants yet another login, after 5 within 10 minutes: refused for the next 600")
    assert way_out == "To log in all the same, call OAuth.login(url)"

    await auth.login(world.site.url)
    assert world.logins == 6

    world.now += 600
    assert await world.call(auth) == 403
    assert world.logins == 9


async def test_a_server_that_wants_too_many_scopes_gets_no_login() -> None:
    world = World()
    world.site.resource["scopes_supported"] = [f"scope-{number}" for number in range(1000)]

    with pytest.raises(LoginFailed, match="/mcp wants 9,889 characters of scopes, and 8,192 are the most"):
        await world.call(world.oauth())
    assert world.logins == 0


async def test_scopes_that_were_granted_unasked_do_not_make_a_login_too_long() -> None:
    world = World(metadata={"scopes_supported": ["offline_access"]})
    world.server.grants = " ".join(["offline_access", *(f"{number}{'x' * 2000}" for number in range(4))])
    auth = await world.log_in()
    world.server.grants = None
    world.site.needs = lambda body: "y" * 2000

    assert await world.call(auth) == 200
    assert world.server.log[-2][1]["scope"] == "y" * 2000 + " offline_access"


async def test_web_hosts_get_five_urls_for_a_server_that_wants_ever_more_scopes() -> None:
    world = World()
    wanted = iter(range(100))
    auth = world.oauth(login=None)

    async def wants_more() -> None:
        world.site.scope = f"scope-{next(wanted)}"
        await world.call(auth)

    for _ in range(5):
        with pytest.raises(AuthorizationNeeded):
            await wants_more()
    with pytest.raises(LoginFailed, match="wants yet another login"):
        await wants_more()


@on_both
async def test_a_call_with_a_good_token_does_not_wait_for_the_login_of_another() -> None:
    world = World()
    world.site.needs = lambda body: body.decode()
    auth = await world.log_in()
    gate = Gate(world.server, "authorize")

    async with soon() as tasks:
        tasks.start_soon(world.call, auth, "write")
        await gate.reached.wait()
        assert await world.call(auth) == 200
        gate.is_open.set()

    assert world.logins == 2


# Web hosts


async def test_a_web_host_is_told_where_to_send_the_person_and_any_process_can_finish_once() -> None:
    world, store = World(), MemoryTokens()
    asking, finishing, late = (world.oauth(login=None, tokens=store) for _ in range(3))
    needed = await world.needed(asking)
    redirected = await world.person(needed.url)
    await finishing.finish(needed.state, redirected)

    with pytest.raises(LoginFailed, match="no login waits with this state"):
        await late.finish(needed.state, redirected)
    assert [await world.call(auth) for auth in (finishing, asking)] == [200, 200]
    assert (world.logins, world.server.count("token")) == (1, 1)


@on_both
async def test_many_calls_need_one_visit() -> None:
    world = World()
    auth, urls = world.oauth(login=None), set()

    async def one() -> None:
        urls.add((await world.needed(auth)).url)

    async with soon() as tasks:
        for _ in range(20):
            tasks.start_soon(one)

    assert (len(urls), world.server.count("register")) == (1, 1)


async def test_a_login_of_one_user_is_none_of_another() -> None:
    world = World()
    user, attacker = (world.oauth(login=None, tokens=MemoryTokens()) for _ in range(2))
    of_user, of_attacker = await world.needed(user), await world.needed(attacker)
    redirected = await world.person(of_user.url)

    with pytest.raises(LoginFailed, match="no login waits with this state"):
        await attacker.finish(of_user.state, redirected)
    with pytest.raises(LoginFailed, match="another state"):
        await user.finish(of_user.state, await world.person(of_attacker.url))
    assert world.server.count("token") == 0

    await user.finish(of_user.state, redirected)
    assert await world.call(user) == 200
    with pytest.raises(AuthorizationNeeded):
        await world.call(attacker)


async def test_a_login_that_took_too_long_is_not_finished() -> None:
    world = World()
    auth = world.oauth(login=None)
    needed = await world.needed(auth)
    redirected = await world.person(needed.url)

    world.now += 601

    with pytest.raises(LoginFailed, match="took too long"):
        await auth.finish(needed.state, redirected)
    again = await world.needed(auth)
    assert again.state != needed.state


async def test_a_url_whose_login_another_process_has_finished_is_not_given_again() -> None:
    world, store = World(gives_refresh_tokens=False), MemoryTokens()
    asking, finishing = (world.oauth(login=None, tokens=store) for _ in range(2))
    needed = await world.needed(asking)
    await world.finish(finishing, needed)
    world.server.tokens.clear()

    again = await world.needed(asking)

    assert again.state != needed.state


async def test_a_login_that_is_denied_leaves_the_authorization_server_of_before() -> None:
    world = World()
    other = world.another_server()
    auth, needed = world.oauth(login=None), []
    for server in (other, world.server):
        world.site.server = server
        needed.append(await world.needed(auth))
    await auth.finish(needed[1].state, await world.person(needed[1].url))
    denied = {"state": needed[0].state, "iss": other.issuer, "error": "access_denied"}

    with pytest.raises(LoginFailed, match="denied"):
        await auth.finish(needed[0].state, f"{CALLBACK}?{urlencode(denied)}")

    assert await world.call(auth) == 200
    assert world.site.seen.count("") == len(needed)


async def test_a_store_that_keeps_no_login_is_an_error() -> None:
    class Forgetful(MemoryTokens):
        """It keeps none."""

        async def swap(self, key: str, old: str | None, new: str | None) -> bool:
            return not key.startswith("login ") and await super().swap(key, old, new)

    world = World()

    with pytest.raises(TokensError, match="the store has kept no login"):
        await world.call(world.oauth(login=None, tokens=Forgetful()))


async def test_logins_that_no_one_has_finished_in_time_are_deleted() -> None:
    world, store = World(), MemoryTokens()

    for _ in range(3):
        needed = await world.needed(world.oauth(login=None, tokens=store))  # as in a process that began again
        world.now += 601

    assert [key for key in store._tokens if key.startswith("login ")] == [f"login {needed.state}"]


async def test_a_web_host_registers_again_after_a_login_that_no_one_has_finished() -> None:
    """The page may have said that the client is unknown: no redirect tells it."""
    world, store = World(gives_refresh_tokens=False), MemoryTokens()
    await world.call(world.oauth(tokens=store))
    world.server.forget()
    world.server.clients.clear()
    auth = world.oauth(login=None, tokens=store)
    needed = await world.needed(auth)
    assert (await world.client().get(needed.url)).text == "unknown client"
    world.now += 601

    await world.finish(auth, await world.needed(auth))

    assert await world.call(auth) == 200


async def test_all_processes_of_a_web_host_send_a_user_to_the_same_url() -> None:
    world, store, urls = World(), MemoryTokens(), []

    for redirect_uri in (CALLBACK, CALLBACK, f"{CALLBACK}/2"):
        auth = world.oauth(login=None, redirect_uri=redirect_uri, tokens=store)
        urls.append((await world.needed(auth)).url)

    assert urls[0] == urls[1] != urls[2]
