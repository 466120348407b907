"""Logins over sockets that fail or succeed: no secret is shown. What else a server may do to a login is in `tests/auth`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from traceback import TracebackException, format_exception
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from anyio import create_tcp_listener
from anyio.abc import SocketAttribute, SocketStream
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mcp_host import Client, McpError, StreamableHttp
from mcp_host.auth import MemoryTokens, OAuth, OnDevice, TokenRequestFailed
from mcp_host.middleware import Middleware, add_headers
from tests.auth.authorization_server import Protected, parameters
from tests.auth.world import CALLBACK, site
from tests.faults.fault import fault
from tests.transports.http_peers import Wire, serving

__all__ = ["site"]

PROOF = "eyJ0eXAiOiJkcG9wK2p3dCI"  # how each proof of DPoP begins


class Browser:
    """A person who says yes at each page, and where they went. The redirect's parameters may be *changed*."""

    def __init__(self, **changed: str | None) -> None:
        self.visited: list[str] = []
        self._changed = changed

    async def __call__(self, url: str) -> str:
        self.visited.append(url)
        async with httpx.AsyncClient() as browser:
            response = await browser.get(url)
        assert response.status_code == 302, response.text
        answer = {**parameters(response.headers["location"]), **self._changed}
        return f"{CALLBACK}?" + urlencode({name: value for name, value in answer.items() if value is not None})


def oauth(browser: Browser | None = None, **options: Any) -> OAuth:
    return OAuth(**{"login": browser or Browser(), "redirect_uri": CALLBACK, **options})


async def call(site: Protected, auth: OAuth, times: int = 1) -> None:
    async with Client(StreamableHttp(site.url, auth=auth)) as client, anyio.create_task_group() as tasks:
        for _ in range(times):
            tasks.start_soon(client.call_tool, "add", {"a": 2, "b": 3})


async def failure(site: Protected, auth: OAuth | None = None) -> McpError:
    """What a connect raises. It shows nothing that is secret, nor does anything else."""
    auth = auth or oauth()
    with pytest.raises(McpError) as raised:
        await Client(StreamableHttp(site.url, auth=auth)).connect()
    told = "".join(format_exception(raised.value)) + repr(raised.value) + repr(auth) + auth.explain()
    assert [secret for secret in site.server.secrets if secret in told] == []
    return raised.value


def answering(response: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return response

    return answer


NO_TOKENS: dict[str, Response] = {
    "HTTP 200 without a JSON object (text/plain)": PlainTextResponse("secret garbage"),
    "HTTP 200: ": Response(b"x" * (2**20 + 1), media_type="application/json"),
    "HTTP 503": Response(status_code=503),
    "its token_type is not Bearer": JSONResponse({"access_token": "secret", "token_type": "mac"}),
    "has no access_token that can be sent": JSONResponse({"access_token": "secret\r\n"}),
    "HTTP 200 with an error (invalid_grant)": JSONResponse({"error": "invalid_grant", "error_description": "secret"}),
    "HTTP 400": JSONResponse({"error": "secret"}, 400),
}


@fault("O15", "O16", "O21")
async def test_a_token_endpoint_that_gives_no_token_is_named_with_what_came(site: Protected) -> None:
    for problem, answer in NO_TOKENS.items():
        site.server.answers["token"] = answering(answer)

        error = await failure(site)

        assert isinstance(error, TokenRequestFailed), problem
        assert str(error).startswith(f"token request (authorization_code) at {site.server.issuer}/token: ")
        assert problem in str(error)
        assert "secret" not in str(error)


@fault("O21")
async def test_a_login_and_a_refresh_leave_no_secret_in_log_or_repr(
    site: Protected, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    site.server.methods = ["client_secret_basic"]
    auth = oauth()
    await call(site, auth)
    site.server.tokens.clear()
    await call(site, auth)

    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("mcp_host"))
    told = ours + repr(auth) + repr(auth.steps) + auth.explain()
    assert len(site.server.secrets) >= 6
    assert [secret for secret in site.server.secrets if secret in told] == []


def variables(error: TracebackException) -> Iterator[tuple[str, str]]:
    """Where each variable of a frame of *error* and of its causes is, and its repr: as reports of errors have them."""
    for frame in error.stack:
        if "/tests/" not in frame.filename:
            for name, value in (frame.locals or {}).items():
                yield f"{frame.filename}:{frame.lineno} {name}", value
    for cause in (error.__cause__, error.__context__, *(error.exceptions or ())):
        if cause is not None:
            yield from variables(cause)


async def shown_by(
    url: str,
    auth: OAuth | None,
    secrets: Callable[[], Iterable[str]],
    middleware: Sequence[Middleware] = (),
    **options: Any,
) -> list[str]:
    """Which variables of the frames of a connect that fails show one of the *secrets* that there are afterwards."""
    with pytest.raises(McpError) as raised:
        await Client(StreamableHttp(url, auth=auth, **options), middleware=middleware).connect()
    error = TracebackException.from_exception(raised.value, capture_locals=True)
    return [where for where, value in variables(error) if any(secret in value for secret in secrets())]


async def breaking_off(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()


@fault("O21")
@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize("problem", ["HTTP 503", "HTTP 400", "its token_type is not Bearer", "broken", "closed"])
async def test_no_variable_of_a_frame_shows_a_token_a_code_or_a_verifier(
    site: Protected, method: str, problem: str
) -> None:
    site.server.methods = [method]
    store, browser = MemoryTokens(), Browser()
    await call(site, oauth(tokens=store))
    site.server.tokens.clear()  # the next request needs a refresh
    if problem in NO_TOKENS:
        site.server.answers["token"] = answering(NO_TOKENS[problem])
    async with await create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, breaking_off)
        if problem not in NO_TOKENS:
            port = listener.extra(SocketAttribute.local_port) if problem == "broken" else 1
            site.server.metadata["token_endpoint"] = f"http://127.0.0.1:{port}/token"
            store._tokens = {
                key: text.replace(f"{site.server.issuer}/token", f"http://127.0.0.1:{port}/token")
                for key, text in store._tokens.items()
            }

        shown = await shown_by(site.url, oauth(tokens=store), lambda: site.server.secrets)
        shown += await shown_by(site.url, oauth(browser), lambda: site.server.secrets)
        tasks.cancel_scope.cancel()

    assert shown == []


@fault("O21")
@pytest.mark.parametrize("dpop", [False, True])
async def test_no_variable_of_a_frame_shows_the_token_of_the_first_request_after_a_login(
    site: Protected, dpop: bool
) -> None:
    async def script(wire: Wire) -> None:
        if "authorization" not in (await wire.hear()).headers:
            metadata = f"{site.origin}/.well-known/oauth-protected-resource/mcp"
            await wire.reply(401, {"www-authenticate": f'Bearer resource_metadata="{metadata}"'})

    site.server.metadata["dpop_signing_alg_values_supported"] = ["ES256"] if dpop else []
    async with serving(script) as peer:
        site.resource["resource"] = peer.url
        shown = await shown_by(peer.url, oauth(dpop=dpop), lambda: {*site.server.secrets, PROOF})

    assert "authorization" in peer.heard[-1].headers
    assert shown == []


@fault("O21")
@pytest.mark.parametrize(
    ("endpoint", "changes"),
    [
        ("register", {"client_secret": "hidden-" * 1_000}),
        ("register", {"client_secret": "hidden-\n"}),
        ("device", {"verification_uri": "about:blank"}),
        ("device", {"user_code": "hidden-" * 10}),
        ("device", {"device_code": None}),
    ],
)
async def test_no_variable_of_a_frame_shows_a_client_secret_or_a_code_that_is_refused(
    site: Protected, endpoint: str, changes: dict[str, Any]
) -> None:
    codes = {"user_code": "hidden-", "device_code": "hidden-", "verification_uri_complete": "https://a.example/hidden-"}
    site.server.metadata["device_authorization_endpoint"] = f"{site.server.issuer}/device"
    site.server.change(endpoint, lambda answer: {**answer, **codes, **changes})

    assert await shown_by(site.url, oauth(login=OnDevice(print), redirect_uri=None), lambda: ["hidden-"]) == []


@fault("O21")
async def test_no_variable_of_a_frame_shows_what_came_back_with_another_state(site: Protected) -> None:
    url, browser = f"{site.url}?key=hidden", Browser(state="another")
    shown = await shown_by(url, oauth(browser), lambda: {*site.server.secrets, "hidden"})

    assert shown == []


@fault("O21")
async def test_no_variable_of_a_frame_shows_the_query_of_a_redirect_that_is_refused() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(307, {"location": "https://localhost/mcp/?key=hidden"})

    async with serving(script) as peer:
        shown = await shown_by(f"{peer.url}?key=hidden", None, lambda: ["hidden"])

    assert shown == []


@fault("O21")
async def test_no_variable_of_a_frame_shows_a_header_or_the_query_of_a_request_that_breaks_off() -> None:
    given = {"X-Api-Key": "hidden-b"}
    added = [add_headers({"X-Team": "hidden-c"}), add_headers(lambda request: {"X-User": "hidden-d"})]
    async with await create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, breaking_off)
        url = f"http://:hidden-a@127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp?key=hidden-e"

        shown = await shown_by(url, None, lambda: ["hidden-", "OmhpZGRlbi1h"], added, headers=given)
        shown += await shown_by(url, oauth(), lambda: ["hidden-"], added, headers=given)
        tasks.cancel_scope.cancel()

    assert shown == []
