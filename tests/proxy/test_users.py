"""A proxy over HTTP whose users have tokens of an authorization server."""

from __future__ import annotations

import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from anyio import fail_after
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey
from pydantic_core import from_json, to_json

from mcp_host import Client, StreamableHttp
from mcp_host.protocol.negotiation import LEGACY_VERSIONS
from mcp_host.proxy import Proxy
from mcp_host.serving import in_process
from mcp_host.serving.http.access import ProtectedResource
from mcp_host.serving.http.app import HttpApp
from mcp_host.serving.http.uvicorn_server import UvicornServer, listen, serve_at, url_of
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from tests.asgi import serving
from tests.auth.authorization_server import AuthorizationServer
from tests.auth.signing import ED25519, EDDSA, KEY, OTHER_KEY, RSA, claims, public, signed, signing_server
from tests.auth.verifying import raise_refused
from tests.auth.world import oauth
from tests.extent import on_both
from tests.proxy.servers import Planner
from tests.testing.raw import INITIALIZE, Wire, call, request, retry, with_meta
from tests.testing.raw_http import ACCEPT, Modern, Peer, repeated

pytestmark = on_both

IN_TIME = 25.0
MCP = "https://mcp.example/mcp"
DISCOVER = with_meta(request(1, "server/discover"))


@pytest.fixture
def issuer() -> Iterator[AuthorizationServer]:
    server = signing_server()
    with serving(server.app()) as server.origin:
        yield server
    raise_refused()


@asynccontextmanager
async def served(issuer: AuthorizationServer, proxy: Proxy | None = None, **options: Any) -> AsyncIterator[str]:
    """A proxy for tokens of *issuer*; the value is its URL."""
    with fail_after(IN_TIME), listen(0) as listener:
        app = (proxy or Proxy(Planner())).asgi(issuer=issuer.issuer, resource=url_of(listener), **options)
        async with serve_at(listener, app) as url:
            yield url


def bearer(issuer: AuthorizationServer, url: str, **changed: object) -> dict[str, str]:
    return {"authorization": f"Bearer {signed(claims(issuer.issuer, url, **changed))}"}


def unsigned(claims: Wire) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join([*(urlsafe_b64encode(to_json(part)).decode().rstrip("=") for part in parts), ""])


def hashed(claims: Wire) -> str:
    """Its secret is the public key."""
    secret = OctKey.import_key({"kty": "oct", "k": str(KEY.as_dict(private=False)["x"])})
    return jwt.encode({"alg": "HS256", "kid": "1"}, dict(claims), secret, algorithms=["HS256"])


IMPOSTOR = ECKey.generate_key("P-256", {"kid": "1"}, private=True)
NOW = int(time.time())
DAY = 86400

BAD: dict[str, tuple[Wire, Callable[[Wire], str]]] = {
    "another audience": ({"aud": MCP}, signed),
    "no audience": ({"aud": None}, signed),
    "another issuer": ({"iss": "https://auth.example"}, signed),
    "a slash more": ({"iss": "/"}, signed),
    "expired": ({"exp": NOW - 60}, signed),
    "no end": ({"exp": None}, signed),
    "not yet": ({"nbf": NOW + DAY}, signed),
    "issued in the future": ({"iat": NOW + DAY}, signed),
    "nobody": ({"sub": None}, signed),
    "an empty name": ({"sub": ""}, signed),
    "a name that is none": ({"sub": 1}, signed),
    "bound to a key": ({"cnf": {"jkt": "x"}}, signed),
    "another kind": ({}, lambda claims: signed(claims, typ="dpop+jwt")),
    "unsigned": ({}, unsigned),
    "signed with the public key": ({}, hashed),
    "another key of that name": ({}, lambda claims: signed(claims, IMPOSTOR)),
    "a key of its own": ({}, lambda claims: signed(claims, IMPOSTOR, jwk=public(IMPOSTOR), jku="https://evil.example")),
    "a critical header parameter": ({}, lambda claims: signed(claims, vendor="1", crit=["vendor"])),
    "an unknown key": ({}, lambda claims: signed(claims, OTHER_KEY, kid="2")),
    "cut": ({}, lambda claims: signed(claims)[:-9]),
    "garbage": ({}, lambda claims: "garbage"),
    "dots": ({}, lambda claims: ".."),
    "empty": ({}, lambda claims: ""),
}

GOOD: dict[str, tuple[Wire, Callable[[Wire], str]]] = {
    "one of several audiences": ({}, lambda claims: signed({**claims, "aud": ["https://x.example", claims["aud"]]})),
    "an access token": ({}, lambda claims: signed(claims, typ="at+jwt")),
    "a header parameter that is not known": ({}, lambda claims: signed(claims, vendor="1")),
    "RS256": ({}, lambda claims: signed(claims, RSA, "RS256", kid="rsa")),
    "PS256": ({}, lambda claims: signed(claims, RSA, "PS256", kid="rsa")),
    "Ed25519": ({}, lambda claims: signed(claims, ED25519, "Ed25519", kid="ed")),
    "its name before RFC 9864": ({}, lambda claims: signed(claims, ED25519, "EdDSA", kid="ed")),
    "a key of that name": ({}, lambda claims: signed(claims, EDDSA, "EdDSA", kid="old")),
    "a client": ({"sub": None, "client_id": "cron"}, signed),
    "clocks that differ": ({"exp": NOW + DAY, "nbf": NOW + 5}, signed),
}


async def test_only_tokens_of_the_issuer_for_this_proxy_are_accepted(
    subtests: pytest.Subtests, issuer: AuthorizationServer
) -> None:
    body = request(0, "initialize", INITIALIZE)
    async with served(issuer) as url:
        metadata = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        challenge = f'Bearer resource_metadata="{metadata}"'
        for name, (changed, sign) in (BAD | GOOD).items():
            with subtests.test(name):
                given = claims(issuer.issuer, url, **changed)
                if changed.get("iss") == "/":
                    given["iss"] = f"{issuer.issuer}/"
                response = await Peer(url, {"authorization": f"Bearer {sign(given)}".strip()}).post(body)

                expected = None if name in GOOD else f'{challenge}, error="invalid_token"'
                assert (response.status, response.headers.get("www-authenticate")) == (
                    401 if expected else 200,
                    expected,
                )
        response = await Peer(url).post(body)
        assert (response.status, response.headers["www-authenticate"]) == (401, challenge)

        async with httpx.AsyncClient() as http:
            root = metadata.removesuffix("/mcp")
            documents = [(await http.get(each)).json() for each in (metadata, root)]
            misdirected = await http.get(metadata, headers={"host": "evil.example"})
    document = {"resource": url, "authorization_servers": [issuer.issuer], "bearer_methods_supported": ["header"]}
    assert documents == [document, document]
    assert misdirected.status_code == 421


SCOPES: dict[str, tuple[Wire, bool]] = {
    "none": ({}, False),
    "one": ({"scope": "mcp:use"}, False),
    "both, and another": ({"scope": "mcp:use openid mcp:pay"}, True),
    "as Okta writes them": ({"scp": ["mcp:pay", "mcp:use"]}, True),
    "as Entra ID writes them": ({"scp": "mcp:pay mcp:use"}, True),
    "no text": ({"scope": 7}, False),
    "no texts": ({"scp": [["mcp:pay"], {}]}, False),
}


async def test_a_token_needs_the_scopes_that_are_required(
    subtests: pytest.Subtests, issuer: AuthorizationServer
) -> None:
    """ "MCP servers SHOULD include a `scope` parameter in the `WWW-Authenticate` header" (authorization)."""
    async with served(issuer, required_scopes=["mcp:use", "mcp:pay"]) as url:
        metadata = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        challenge = f'Bearer resource_metadata="{metadata}", scope="mcp:use mcp:pay"'
        for name, (granted, good) in SCOPES.items():
            with subtests.test(name):
                response = await Peer(url, bearer(issuer, url, **granted)).post(request(0, "initialize", INITIALIZE))
                assert (response.status, response.headers.get("www-authenticate")) == (
                    (200, None) if good else (403, f'{challenge}, error="insufficient_scope"')
                )
        response = await Peer(url).post(request(0, "initialize", INITIALIZE))
        assert (response.status, response.headers["www-authenticate"]) == (401, challenge)
        async with httpx.AsyncClient() as http:
            assert (await http.get(metadata)).json()["scopes_supported"] == ["mcp:use", "mcp:pay"]


async def test_a_host_asks_for_the_scopes_that_are_required(issuer: AuthorizationServer) -> None:
    async with served(issuer, required_scopes=["mcp:use"]) as url:
        token = signed(claims(issuer.issuer, url, scope="mcp:use"))
        issuer.change("token", lambda answer: {**answer, "access_token": token})
        async with Client(StreamableHttp(url, auth=oauth())) as client:
            await client.list_tools()
    assert issuer.count("authorize", scope="mcp:use") == 1


async def test_without_the_issuer_no_token_can_be_checked(issuer: AuthorizationServer) -> None:
    issuer.refuse("metadata", 500)
    async with served(issuer) as url:
        response = await Peer(url, bearer(issuer, url)).post(request(0, "initialize", INITIALIZE))
        assert (response.status, response.headers["retry-after"]) == (503, "5")
        assert response.json()["error"]["message"] == "the authorization server cannot be reached"


async def test_a_session_is_of_one_user(issuer: AuthorizationServer) -> None:
    async with served(issuer) as url:
        ada, bob = (bearer(issuer, url, sub=name) for name in ("ada", "bob"))
        begun = await Peer(url, ada).post(request(0, "initialize", INITIALIZE))
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}
        ping = request(1, "ping")

        stolen = Peer(url, bob | session)
        refused = [await stolen.post(ping), await stolen.send("GET"), await stolen.send("DELETE")]
        assert [response.status for response in refused] == [404, 404, 404]
        client = Peer(url, bearer(issuer, url, sub=None, client_id="ada") | session)  # another, of the same name
        assert (await client.post(ping)).status == 404
        renewed = bearer(issuer, url, sub="ada", jti="2")
        assert (await Peer(url, renewed | session).post(ping)).status == 200


async def test_a_parked_call_is_of_one_user(issuer: AuthorizationServer) -> None:
    async with served(issuer) as url:
        ada, bob = (Modern(url, bearer(issuer, url, sub=name)) for name in ("ada", "bob"))
        [asked] = [m for m in await ada.ask(with_meta(call(1, "book"))) if "result" in m]
        key, state = next(iter(asked["result"]["inputRequests"])), asked["result"]["requestState"]
        again = request(2, "tools/call", retry("book", {key: {"action": "decline"}}, state))
        refused = from_json((await bob.post(with_meta(again))).body.removeprefix(b"data: "))
        assert refused["error"]["message"] == "requestState is unknown, or has been used already"
        *_, answered = await ada.ask(with_meta(again))
        assert answered["result"]["content"] == [{"type": "text", "text": "decline None"}]


async def test_each_user_has_a_connection_to_the_server(issuer: AuthorizationServer) -> None:
    """Hosts of 2026-07-28 with the same capabilities share that of their user."""
    planner, connections = Planner(), list[Inbox]()

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        connections.append(inbox)
        await in_process.serve(planner._catalog, inbox, outbox.send_nowait)

    async with served(issuer, Proxy(InProcess(serve), era="modern")) as url:
        for user, count in (("ada", 1), ("ada", 1), ("bob", 2), ("ada", 2)):
            async with Client(StreamableHttp(url, headers=bearer(issuer, url, sub=user)), era="modern") as client:
                await client.list_tools()
            assert len(connections) == count


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_host_logs_in(issuer: AuthorizationServer, era: str) -> None:
    async with served(issuer) as url:
        issuer.change("token", lambda answer: {**answer, "access_token": signed(claims(issuer.issuer, url))})
        async with Client(StreamableHttp(url, auth=oauth()), era=era) as client:
            assert "plan" in [tool.name for tool in await client.list_tools()]
    assert [name for name, _ in issuer.log if name in ("authorize", "token")] == ["authorize", "token"]
    assert issuer.count("authorize", resource=url) == 1


@pytest.mark.parametrize(("options", "resource"), [({}, ""), ({"host": "0.0.0.0", "resource": MCP}, MCP)])
def test_by_default_the_resource_is_the_url_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: dict[str, Any], resource: str
) -> None:
    served = list[object]()

    async def serve(server: UvicornServer, listeners: list[socket.socket]) -> None:
        app: Any = server.config.app
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            served.append((await http.get("/.well-known/oauth-protected-resource")).json()["resource"])

    monkeypatch.setattr(UvicornServer, "serve", serve)
    Proxy(Planner()).run_http(issuer="https://auth.example", **options)
    out, err = capsys.readouterr()
    assert (served, err) == ([resource or out.strip()], "")


async def by_name(token: str) -> str:
    return token


BY_NAME = ProtectedResource(MCP, "https://auth.example", ["https://mcp.example/x"], by_name)


async def post(app: HttpApp, user: str, body: Wire, headers: Wire | None = None) -> httpx.Response:
    """Send a request as a *user*, who may be anybody."""
    given = {"authorization": f"Bearer {user}", "accept": ACCEPT, **(headers or {})}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        return await http.post("/mcp", headers=given, json=body)


async def test_users_share_no_connection_to_the_server_and_sessions_no_cookie() -> None:
    """What a server says too much over a kept connection is read as the answer to the next request."""
    served, heard, users = Planner(LEGACY_VERSIONS).asgi(json_response=True), list[tuple[str, int, str]](), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        heard.append((users[-1], scope["client"][1], headers.get(b"cookie", b"").decode()))
        if scope["method"] == "GET":  # a stream would keep a connection
            await send({"type": "http.response.start", "status": 405, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return

        async def send_with_cookie(event: Any) -> None:
            if event["type"] == "http.response.start" and b"mcp-session-id" not in headers:
                event["headers"] = [*event["headers"], (b"set-cookie", b"session=%d" % len(users))]
            await send(event)

        await served(scope, receive, send_with_cookie)

    with serving(app) as origin:
        proxy = Proxy(f"{origin}/mcp", era="legacy")
        host = HttpApp(proxy._service, json_response=True, path="/mcp", protected=BY_NAME)
        with fail_after(IN_TIME):
            for user in ("ada", "ada", "bob"):
                users.append(user)
                begun = await post(host, user, request(0, "initialize", INITIALIZE))
                session = {"mcp-session-id": begun.headers["mcp-session-id"]}
                assert (await post(host, user, request(1, "tools/list"), session)).status_code == 200
                assert {cookie for _, _, cookie in heard[-2:]} == {f"session={len(users)}"}
            requests = [*heard]  # those that end the sessions come in any order
            await host.aclose()

    by_user = {name: {connection for user, connection, _ in requests if user == name} for name in users}
    assert by_user["ada"].isdisjoint(by_user["bob"])
    assert [cookie for _, _, cookie in requests].count("") == len(users)


async def test_users_are_forgotten_when_they_are_idle_and_others_come() -> None:
    for idle, statuses in ((1000.0, [200, 503, 200]), (0.0, [200, 200, 200])):
        app = HttpApp(Planner()._catalog, json_response=True, path="/mcp", protected=BY_NAME, max_sessions=1, idle=idle)
        with fail_after(IN_TIME):
            answers = [await post(app, user, DISCOVER, repeated(DISCOVER)) for user in ("ada", "bob", "ada")]
            assert [answer.status_code for answer in answers] == statuses


async def test_a_user_whose_sessions_have_ended_takes_no_place() -> None:
    app = HttpApp(Planner()._catalog, json_response=True, path="/mcp", protected=BY_NAME, max_sessions=1)
    with fail_after(IN_TIME):
        for user in ("ada", "bob"):
            begun = await post(app, user, request(0, "initialize", INITIALIZE))
            assert begun.status_code == 200
            session = {"mcp-session-id": begun.headers["mcp-session-id"], "authorization": f"Bearer {user}"}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
                assert (await http.delete("/mcp", headers=session)).status_code == 204


async def test_no_user_has_all_sessions() -> None:
    """Another takes the place of the one that has been idle for longest, until both have as many."""
    app = HttpApp(Planner()._catalog, json_response=True, path="/mcp", protected=BY_NAME, max_sessions=3)
    begun = list[tuple[str, httpx.Response]]()
    with fail_after(IN_TIME):
        for user in ("ada", "ada", "ada", "ada", "bob", "ada", "bob", "cid", "cid"):
            begun.append((user, await post(app, user, request(0, "initialize", INITIALIZE))))
        alive = [
            (
                await post(app, user, request(1, "ping"), {"mcp-session-id": answer.headers["mcp-session-id"]})
            ).status_code
            for user, answer in begun
            if answer.status_code == 200
        ]
        await app.aclose()
    assert [answer.status_code for _, answer in begun] == [200, 200, 200, 503, 200, 503, 503, 200, 503]
    assert alive == [404, 404, 200, 200, 200]  # three of Ada, of which one is left, then Bob and Cid


def test_an_issuer_needs_a_resource_and_no_token(subtests: pytest.Subtests) -> None:
    issuer, resource = "https://auth.example", MCP
    wrong: list[dict[str, Any]] = [
        {"issuer": issuer},
        {"resource": resource},
        {"issuer": issuer, "resource": resource, "token": "a"},
    ]
    for options in wrong:
        with subtests.test(str(options)), pytest.raises(ValueError, match="an issuer needs a resource"):
            Proxy(Planner()).asgi(**options)
    with pytest.raises(ValueError, match="an issuer needs a resource"):
        Proxy(Planner()).run_http(host="0.0.0.0", issuer=issuer)
    proxy: Any = Proxy(Planner())
    with pytest.raises(ValueError, match="required_scopes are for an issuer"):
        proxy.asgi(required_scopes=["a"])
    with pytest.raises(TypeError, match="required_scopes is a list of scopes"):
        proxy.asgi(issuer=issuer, resource=resource, required_scopes="mcp")
    with pytest.raises(ValueError, match="'a b' is no scope"):
        proxy.asgi(issuer=issuer, resource=resource, required_scopes=["a b"])
