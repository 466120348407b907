"""`OAuth` for several URLs of one origin: which of them share a token, and which redirect to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import httpx
import pytest
from anyio import Event
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Limits, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, DiscoveryFailed, LoginFailed, MemoryTokens, OAuth
from mcp_host.auth.login.limits import MAX_LOGINS
from mcp_host.auth.oauth import MAX_KNOWN
from mcp_host.transports._http.backend import HttpxBackend
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.world import World, soon
from tests.extent import on_both
from tests.transports.http_peers import CALL, DONE_JSON, JSON, RecordedHandle, Wire, serving

ORIGIN = "http://127.0.0.1:1002"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Gateway:
    """The servers of one origin. A request to a path in *redirects* is redirected; those to *guarded* paths need a token.

    Each path is a resource, unless *resource* is that of all. *others* has the paths with another authorization server.
    """

    def __init__(self, world: World, redirects: Mapping[str, str], *guarded: str, resource: str | None = None) -> None:
        self.seen: list[tuple[str, str]] = []
        """The path of each request, and its token."""
        self.redirects = redirects
        self.resources = dict.fromkeys(guarded, resource) if resource else {}
        self.others: dict[str, AuthorizationServer] = {}
        self.places: dict[str, str] = {}
        """Where the challenge of a path says that its metadata are. By default that is its well-known place."""
        self._server = world.server
        self._guarded = guarded
        world.apps[1002] = self

    def tokens(self, path: str) -> list[str]:
        """Of all requests to *path*."""
        return [token for each, token in self.seen if each == path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        await self._response(scope["path"], token)(scope, receive, send)

    def _response(self, path: str, token: str) -> Response:
        asked = path.removesuffix("/metadata").removeprefix(WELL_KNOWN)
        server, resource = self.others.get(asked, self._server), self.resources.get(asked, ORIGIN + asked)
        if asked != path:
            known = asked in {*self._guarded, *self.resources}
            document = {"resource": resource, "authorization_servers": [server.issuer]}
            return JSONResponse(document) if known else Response(status_code=404)
        self.seen.append((path, token))
        issued = server.tokens.get(token)
        if path in self._guarded and (issued is None or issued.resource != resource):
            challenge = f'Bearer resource_metadata="{ORIGIN}{self.places.get(path, WELL_KNOWN + path)}"'
            return Response(status_code=401, headers={"www-authenticate": challenge})
        return RedirectResponse(self.redirects[path], 307) if path in self.redirects else Response()


async def post(world: World, auth: OAuth, path: str, *, of_httpx: bool = False) -> int:
    """The status of a request that follows redirects, as those of a client do. *auth* may be that of a client of httpx."""
    http, given = (world.client(auth), None) if of_httpx else (world.client(), auth)
    backend = HttpxBackend(httpx.URL(ORIGIN + path), {}, "the server", http, given)
    async with await backend.send("POST", {}) as response:
        return response.status


async def test_the_token_goes_to_the_url_that_wants_it_also_after_a_restart() -> None:
    world, store = World(), MemoryTokens()
    gateway = Gateway(world, {"/mcp": "/mcp/"}, "/mcp/")

    assert [await post(world, world.oauth(tokens=store), "/mcp") for _ in range(2)] == [200, 200]

    [token] = world.server.tokens
    assert gateway.seen == [("/mcp", ""), ("/mcp/", ""), ("/mcp/", token), ("/mcp", ""), ("/mcp/", token)]
    assert world.logins == 1


async def test_servers_of_one_url_at_two_unix_sockets_have_a_login_each(tmp_path: Path) -> None:
    world = World()
    challenge = f'Bearer resource_metadata="{ORIGIN}{WELL_KNOWN}/mcp"'

    async def script(wire: Wire) -> None:
        try:
            while True:
                if "authorization" in (await wire.hear()).headers:
                    await wire.reply(200, JSON, DONE_JSON)
                else:
                    await wire.reply(401, {"www-authenticate": challenge})
        finally:
            hung_up.set()

    auth, sent = world.oauth(), dict[str, list[str]]()
    for socket in ("a.sock", "b.sock", "a.sock"):
        transport = StreamableHttp(world.site.url, uds=tmp_path / socket, auth=auth)
        hung_up = Event()
        async with soon(), serving(script, uds=tmp_path / socket) as peer:
            async with transport.open(Limits()) as channel:
                await channel.request(CALL, {}, RecordedHandle())
                await channel.request(CALL, {}, RecordedHandle())
            await hung_up.wait()
        (tmp_path / socket).unlink(missing_ok=True)
        saved = await auth.saved(transport.identity)
        assert saved is not None
        assert saved.token is not None
        own = f"Bearer {saved.token.access_token}"
        assert {heard.headers.get("authorization", own) for heard in peer.heard} == {own}
        sent.setdefault(own, []).append(socket)

    assert [*sent.values()] == [["a.sock", "a.sock"], ["b.sock"]]
    assert await auth.saved(world.site.url) is None
    assert world.logins == 2


async def test_a_server_that_wants_a_token_before_it_redirects_gets_one_for_both_requests() -> None:
    world = World()
    gateway = Gateway(world, {"/mcp": "/mcp/"}, "/mcp", "/mcp/", resource=f"{ORIGIN}/mcp")
    auth = world.oauth()

    assert [await post(world, auth, "/mcp") for _ in range(2)] == [200, 200]

    [token] = world.server.tokens
    assert gateway.seen == [("/mcp", ""), *[("/mcp", token), ("/mcp/", token)] * 2]


async def test_a_server_gets_no_token_of_one_that_it_redirects_to() -> None:
    world = World()
    gateway = Gateway(world, {"/evil": "/good"}, "/good")
    auth = world.oauth()
    await post(world, auth, "/good")
    await post(world, auth, "/evil")

    gateway.redirects, gateway._guarded = {}, ("/good", "/evil")
    await post(world, auth, "/evil")

    assert {*gateway.tokens("/good")} & {*gateway.tokens("/evil")} == {""}
    assert world.logins == 3  # of /good, of /evil at /good, and of /evil


async def test_a_server_that_has_a_token_redirects_it_within_its_resource_only() -> None:
    world = World()
    gateway = Gateway(world, {}, "/mcp")
    auth = world.oauth()
    await post(world, auth, "/mcp")

    gateway.redirects = {"/mcp": "/other"}
    await post(world, auth, "/mcp")

    [token] = world.server.tokens
    assert gateway.seen[-2:] == [("/mcp", token), ("/other", "")]


async def test_a_server_that_redirects_is_logged_out_by_its_own_url() -> None:
    world, store = World(), MemoryTokens()
    Gateway(world, {"/mcp": "/mcp/"}, "/mcp/")
    await post(world, world.oauth(tokens=store), "/mcp")
    auth = world.oauth(tokens=store)

    saved = await auth.saved(f"{ORIGIN}/mcp")
    assert saved is not None
    assert saved.resource.identifier == f"{ORIGIN}/mcp/"
    await auth.logout(f"{ORIGIN}/mcp")

    assert store._tokens == {}


async def test_a_login_of_a_web_host_is_for_the_url_that_wants_it_in_any_process() -> None:
    world, store = World(), MemoryTokens()
    gateway = Gateway(world, {"/mcp": "/mcp/"}, "/mcp/")
    with pytest.raises(AuthorizationNeeded, match=r"/mcp needs a login") as needed:
        await post(world, world.oauth(login=None, tokens=store), "/mcp")
    auth = world.oauth(login=None, tokens=store)

    await auth.finish(needed.value.state, await world.person(needed.value.url))
    assert await post(world, auth, "/mcp") == 200

    assert [token == "" for _, token in gateway.seen] == [True, True, True, False]


@pytest.mark.parametrize("of_httpx", [False, True])
async def test_a_server_that_redirects_to_ever_new_urls_gets_five_logins_and_one_entry(of_httpx: bool) -> None:
    world, store = World(), MemoryTokens()
    auth = world.oauth(tokens=store)

    async def redirects_to(number: int) -> None:
        Gateway(world, {"/mcp": f"/{number}"}, f"/{number}")
        assert await post(world, auth, "/mcp", of_httpx=of_httpx) == 200

    numbers = count()
    for _ in range(MAX_LOGINS):
        await redirects_to(next(numbers))
    with pytest.raises(LoginFailed, match=r"/mcp wants yet another login, after 5 within 10 minutes"):
        await redirects_to(next(numbers))

    assert world.logins == MAX_LOGINS
    assert [key for key in store._tokens if key.startswith("server")] == [f"server {ORIGIN}/mcp"]


async def test_each_of_many_servers_of_one_origin_may_have_its_login_by_one_registration() -> None:
    world = World()
    paths = [f"/{number}" for number in range(3 * MAX_LOGINS)]
    gateway = Gateway(world, {}, *paths)
    auth = world.oauth()

    assert [await post(world, auth, path) for path in paths] == [200] * len(paths)

    assert (world.server.count("register"), world.logins) == (1, len(paths))
    assert [gateway.tokens(path) for path in paths] == [["", token] for token in world.server.tokens]


# One resource


API = ("/api/one", "/api/two", "/api/three")
SHARED = (f"{ORIGIN}/api/",)  # with a slash, which makes no difference


def one_api(world: World, paths: Sequence[str] = API) -> Gateway:
    """Its paths say that they are one resource."""
    return Gateway(world, {}, *paths, resource=f"{ORIGIN}/api")


async def statuses(world: World, auth: OAuth, paths: Sequence[str]) -> list[int]:
    client = world.client(auth)
    return [(await client.post(ORIGIN + path)).status_code for path in paths]


def origin_that_is_one_resource(world: World) -> Gateway:
    """Its well-known place says so, and the challenges of /good name that place."""
    gateway = Gateway(world, {}, "/good", "/evil", resource=ORIGIN)
    gateway.places["/good"] = WELL_KNOWN
    gateway.resources[""] = ORIGIN
    return gateway


@pytest.mark.fault("O18")
@pytest.mark.parametrize("place", ["/evil/metadata", f"{WELL_KNOWN}/evil", f"{WELL_KNOWN}?tenant=evil"])
async def test_a_tenant_of_a_gateway_that_names_the_resource_of_another_gets_none_of_its_tokens(place: str) -> None:
    """Nor has its refresh token spent, even where the origin says that all of it is one resource."""
    world, store = World(), MemoryTokens()
    gateway = origin_that_is_one_resource(world)
    gateway.places["/evil"] = place
    auth = world.oauth(tokens=store)
    await statuses(world, auth, ["/good"])
    [good] = world.server.tokens

    for again in (auth, world.oauth(tokens=store)):
        assert await statuses(world, again, ["/evil", "/good"]) == [200, 200]

    assert {*gateway.tokens("/good")} & {*gateway.tokens("/evil")} == {""}
    assert {*gateway.tokens("/good")} == {"", good}
    assert (world.logins, world.refreshes) == (2, 0)


async def test_a_resource_above_a_server_counts_from_the_well_known_place_of_the_origin_alone() -> None:
    world = World()
    gateway = origin_that_is_one_resource(world)
    auth = world.oauth()
    assert await statuses(world, auth, ["/good"]) == [200]

    del gateway.resources[""]  # the origin no longer says that
    gateway.places["/evil"] = f"{WELL_KNOWN}/evil"
    with pytest.raises(DiscoveryFailed) as refused:
        await statuses(world, auth, ["/evil"])

    assert str(refused.value) == (
        f"metadata of the protected resource at {ORIGIN}{WELL_KNOWN}/evil: refused: it is of {ORIGIN}, which is not "
        f"{ORIGIN}/evil, but above it: if you know that all servers there may share one token, "
        f"pass shared_resources=['{ORIGIN}']"
    )
    assert gateway.tokens("/evil") == [""]


async def test_what_was_shared_in_another_process_is_not_unless_this_one_shares_it() -> None:
    world, store = World(), MemoryTokens()
    one_api(world)
    await statuses(world, world.oauth(tokens=store, shared_resources=SHARED), API)

    auth = world.restarted(tokens=store)

    assert await auth.saved(f"{ORIGIN}/api/one") is None
    with pytest.raises(DiscoveryFailed, match=r"/api/one, but above it: if you know"):
        await statuses(world, auth, ["/api/one"])


async def test_a_server_gets_no_token_of_another_on_its_origin_whose_resource_is_the_origin() -> None:
    world = World()
    gateway = origin_that_is_one_resource(world)
    del gateway.resources["/evil"], gateway.places["/good"]
    gateway.others["/evil"] = world.another_server()

    assert await statuses(world, world.oauth(), ["/good", "/evil"] * 2) == [200] * 4

    assert {*gateway.tokens("/good")} & {*gateway.tokens("/evil")} == {""}
    assert world.logins == 2


@on_both
async def test_requests_to_urls_of_one_resource_at_once_need_one_login() -> None:
    world = World()
    one_api(world)
    auth = world.oauth(shared_resources=SHARED)

    async def one(path: str) -> None:
        assert await statuses(world, auth, [path]) == [200]

    async with soon() as tasks:
        for path in API * 10:
            tasks.start_soon(one, path)

    assert (world.logins, world.server.count("register"), world.server.count("token")) == (1, 1, 1)


async def test_after_a_restart_their_token_is_found_and_the_one_that_needs_a_login_is_named() -> None:
    world, store = World(), MemoryTokens()
    gateway = one_api(world)
    await statuses(world, world.oauth(tokens=store, shared_resources=SHARED), ["/api/one"])

    restarted = world.restarted(tokens=store, shared_resources=SHARED)
    assert await statuses(world, restarted, ["/api/one", "/api/three"]) == [200, 200]
    assert gateway.tokens("/api/one").count("") == 1  # before it was known
    assert world.logins == 1

    world.server.forget()
    with pytest.raises(LoginFailed, match=r"/api/two needs a login"):
        await statuses(world, restarted, ["/api/two"])


async def test_a_server_may_have_any_number_of_urls_and_none_needs_another_login() -> None:
    world = World()
    paths = [f"/api/{number}" for number in range(MAX_KNOWN + 20)]
    gateway, auth = one_api(world, paths), world.oauth(shared_resources=SHARED)

    asked = [*paths, *paths[:30]]
    assert await statuses(world, auth, asked) == [200] * len(asked)

    assert len(auth._servers) == MAX_KNOWN
    assert {gateway.tokens(path).count("") for path in paths} == {1}
    assert world.logins == 1
