"""Authorization: what a server, its metadata and its authorization server may send, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from traceback import format_exception
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from mcp_host import Client, McpError, StreamableHttp
from mcp_host.auth import AddressRefused, DiscoveryFailed, LoginFailed, OAuth, TokenRequestFailed, in_browser
from mcp_host.errors import HttpStatusError
from mcp_host.testing import Server
from tests.asgi import serving
from tests.auth.authorization_server import AuthorizationServer, Protected, parameters, protected
from tests.auth.world import CALLBACK
from tests.faults.fault import fault

METADATA_SERVICE = "https://169.254.169.254/latest"
ENCODED = [
    "[64:ff9b::a9fe:a9fe]",
    "[::ffff:169.254.169.254]",
    "[2002:a9fe:a9fe::]",
    "2852039166",
    "0xa9.0xfe.0xa9.0xfe",
]


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


@pytest.fixture
def site() -> Iterator[Protected]:
    server = Server("protected")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with protected(server.asgi()) as site:
        yield site


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


@pytest.mark.parametrize("name", ["token_endpoint", "registration_endpoint"])
@fault("O01")
async def test_endpoints_in_a_private_network_are_refused(name: str, site: Protected) -> None:
    site.server.metadata = {name: METADATA_SERVICE}

    error = await failure(site)

    assert isinstance(error, AddressRefused)
    assert "https://169.254.169.254/latest is refused: its address 169.254.169.254 is link-local" in str(error)


@pytest.mark.parametrize("host", ["169.254.169.254", *ENCODED])
@fault("O01", "O02")
async def test_an_authorization_server_in_a_private_network_is_refused(host: str, site: Protected) -> None:
    site.resource = {"authorization_servers": [f"https://{host}"]}

    error = await failure(site)

    assert isinstance(error, DiscoveryFailed)
    assert str(error).count("is refused: ") == 2
    assert site.server.log == []


@fault("O03")
async def test_a_client_of_the_hosts_makes_all_requests_of_oauth(site: Protected) -> None:
    paths = []

    async def note(request: httpx.Request) -> None:
        paths.append(request.url.path.rpartition("/")[2])

    async with httpx.AsyncClient(event_hooks={"request": [note]}) as http:
        await call(site, oauth(client=http))

    assert paths == ["mcp", "oauth-authorization-server", "register", "token"]


@fault("O04")
async def test_a_redirect_of_metadata_to_an_internal_host_is_refused(site: Protected) -> None:
    site.server.answers["metadata"] = answering(RedirectResponse(METADATA_SERVICE))

    error = await failure(site)

    assert isinstance(error, DiscoveryFailed)
    assert "169.254.169.254 is link-local" in str(error)


@pytest.mark.parametrize(
    "change", [lambda url: f"{url}/", str.upper, lambda url: "https://other.test"], ids=["slash", "case", "another"]
)
@fault("O05", "O06")
async def test_metadata_of_another_issuer_are_refused_before_the_login(
    change: Callable[[str], str], site: Protected
) -> None:
    site.server.metadata = {"issuer": change(site.server.issuer)}
    browser = Browser()

    error = await failure(site, oauth(browser))

    assert isinstance(error, DiscoveryFailed)
    assert f"refused: its issuer is {change(site.server.issuer)}, not {site.server.issuer}" in str(error)
    assert browser.visited == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"iss": "https://other.test"}, "comes from another issuer"),
        ({"iss": None}, "has no iss"),
        ({"state": "another"}, "another state"),
        ({"state": None}, "another state"),
        ({"code": None}, "has no code"),
    ],
    ids=["another iss", "no iss", "another state", "no state", "no code"],
)
@fault("O07", "O08")
async def test_a_redirect_that_is_not_the_answer_is_refused_before_its_code_is_used(
    changed: dict[str, str | None], problem: str, site: Protected
) -> None:
    error = await failure(site, oauth(Browser(**changed)))

    assert isinstance(error, LoginFailed)
    assert problem in str(error)
    assert site.server.count("token") == 0


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
@fault("O09")
async def test_a_server_without_pkce_is_refused_before_the_login(methods: object, site: Protected) -> None:
    site.server.metadata = {"code_challenge_methods_supported": methods}
    browser = Browser()

    error = await failure(site, oauth(browser))

    assert isinstance(error, DiscoveryFailed)
    assert str(error) == f"{site.server.issuer} does not offer PKCE with S256, without which no code is safe"
    assert browser.visited == []


@pytest.mark.parametrize("resource", ["https://other.test/mcp", "@origin/another", "@origin.other.test/mcp"])
@fault("O10")
async def test_metadata_of_another_resource_are_refused(resource: str, site: Protected) -> None:
    site.resource = {"resource": resource.replace("@origin", site.origin)}

    error = await failure(site)

    assert isinstance(error, DiscoveryFailed)
    assert f"which is not {site.url}" in str(error)
    assert site.server.log == []


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "file:///etc/passwd", "x-app://login", "http://evil.test/login"],
)
@fault("O11")
async def test_a_url_that_is_not_for_a_browser_is_not_opened(url: str, site: Protected) -> None:
    site.server.metadata = {"authorization_endpoint": url}
    opened = []

    def refuse(opened_url: str) -> bool:
        opened.append(opened_url)
        raise AssertionError

    error = await failure(site, OAuth(login=in_browser(open=refuse)))

    assert isinstance(error, DiscoveryFailed)
    assert "refused: its authorization_endpoint is no https URL" in str(error)
    assert opened == []


@fault("O12")
async def test_a_new_authorization_server_gets_nothing_of_the_old_one(site: Protected) -> None:
    old, new, auth = site.server, AuthorizationServer(methods=["client_secret_post"]), oauth()
    old.methods = ["client_secret_post"]
    await call(site, auth)
    with serving(new.app()) as new.origin:
        site.server = new
        await call(site, auth)

    shown = {value for _, fields in new.log for value in fields.values()}
    assert shown & old.secrets == set()
    assert [name for name, _ in new.log] == ["metadata", "register", "authorize", "token"]


@fault("O13")
async def test_refused_calls_at_once_refresh_once_and_a_refresh_token_that_stays_is_kept(site: Protected) -> None:
    site.server.rotates = False
    auth = oauth()
    await call(site, auth)
    site.server.gives_refresh_tokens = False

    for _ in range(2):
        site.server.tokens.clear()
        await call(site, auth, 10)

    assert (site.server.count("token", grant_type="refresh_token"), site.server.count("authorize")) == (2, 1)


@fault("O14")
async def test_a_server_that_wants_ever_more_scopes_is_given_up(site: Protected) -> None:
    scopes = iter(f"scope-{number}" for number in range(1000))
    site.needs = lambda body: next(scopes) if b"tools/call" in body else ""
    async with Client(StreamableHttp(site.url, auth=oauth())) as client:
        with pytest.raises(HttpStatusError) as raised:
            await client.call_tool("add", {"a": 2, "b": 3})

    assert raised.value.status == 403
    assert site.server.count("authorize") == 4  # the first login, and three for more


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (PlainTextResponse("secret garbage"), "HTTP 200 without a JSON object (text/plain)"),
        (Response(b"x" * (2**20 + 1), media_type="application/json"), "HTTP 200: "),
        (Response(status_code=503), "HTTP 503"),
        (JSONResponse({"access_token": "secret", "token_type": "mac"}), "its token_type is not Bearer"),
        (JSONResponse({"access_token": "secret\r\n"}), "has no access_token that can be sent"),
        (
            JSONResponse({"error": "invalid_grant", "error_description": "secret"}),
            "HTTP 200 with an error (invalid_grant)",
        ),
        (JSONResponse({"error": "secret"}, 400), "HTTP 400"),
    ],
    ids=["garbage", "too long", "busy", "another type", "a line break", "error with 200", "unknown error"],
)
@fault("O15", "O16", "O21")
async def test_a_token_endpoint_that_gives_no_token_is_named_with_what_came(
    answer: Response, problem: str, site: Protected
) -> None:
    site.server.answers["token"] = answering(answer)

    error = await failure(site)

    assert isinstance(error, TokenRequestFailed)
    assert str(error).startswith(f"token request (authorization_code) at {site.server.issuer}/token: ")
    assert problem in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("status", [500, 403, 404])
@fault("O15", "O17")
async def test_discovery_goes_on_after_an_error(status: int, site: Protected) -> None:
    site.server.answers["metadata"] = answering(Response(status_code=status))
    site.server.answers["openid"] = site.server._metadata

    await call(site, oauth())

    site.server.answers["openid"] = answering(PlainTextResponse("garbage"))
    error = await failure(site)
    assert isinstance(error, DiscoveryFailed)
    assert f"oauth-authorization-server: HTTP {status}\n" in str(error)
    assert "openid-configuration: HTTP 200 without a JSON object (text/plain)" in str(error)


@fault("O18")
async def test_a_token_is_sent_in_a_header_to_its_server_alone(site: Protected) -> None:
    auth = oauth()
    await call(site, auth)
    with protected(site.app) as other:
        await call(other, auth)

    assert {*site.queries} == {b""}
    assert {*site.seen} & {*other.seen} == {""}
    assert {issued.resource for issued in site.server.tokens.values()} == {site.url}


@fault("O19")
async def test_a_registration_that_has_ended_is_renewed_once(site: Protected) -> None:
    site.server.methods = ["client_secret_basic"]
    site.server.gives_refresh_tokens = False
    auth, register = oauth(), site.server._register

    async def ended(request: Request) -> Response:
        await register(request)
        return JSONResponse({**list(site.server.clients.values())[-1], "client_secret_expires_at": 1}, 201)

    site.server.answers["register"] = ended
    await call(site, auth)
    site.server.tokens.clear()
    site.server.answers.clear()
    await call(site, auth)

    assert site.server.count("register") == 2


@fault("O20")
async def test_the_listener_is_on_this_machine_at_a_new_port_for_one_redirect(site: Protected) -> None:
    async def visit(url: str) -> bool:
        async with httpx.AsyncClient(follow_redirects=True) as browser:
            assert (await browser.get(url)).status_code == 200
        return True

    for _ in range(2):
        await call(site, OAuth(login=in_browser(open=visit)))

    used = [urlsplit(fields["redirect_uri"]) for name, fields in site.server.log if name == "authorize"]
    assert {url.hostname for url in used} == {"127.0.0.1"}
    for url in used:
        with pytest.raises(OSError):  # noqa: PT011  # anyio's text differs between systems
            await anyio.connect_tcp("127.0.0.1", url.port or 0)


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


@fault("H12")
async def test_a_login_that_is_denied_is_not_asked_for_again(site: Protected) -> None:
    browser = Browser(code=None, error="access_denied")

    error = await failure(site, oauth(browser))

    assert (str(error), len(browser.visited)) == (f"{site.server.issuer}: the login was denied", 1)
