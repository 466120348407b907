"""Logins of the command: with a person at the terminal, and without one."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Event

import pytest
from anyio import create_task_group, fail_after, sleep_forever, to_thread, wait_all_tasks_blocked
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from mcp_host import Client
from mcp_host.auth import LoginFailed
from mcp_host.cli.arguments import parse
from mcp_host.cli.authorization import tokens_file
from mcp_host.cli.commands.chat import Chat
from mcp_host.cli.models import make_model
from mcp_host.cli.output import Printer
from mcp_host.cli.transcript import Transcript
from tests.asgi import serving
from tests.auth.authorization_server import AuthorizationServer, Protected, protected, read_body
from tests.auth.world import person, server
from tests.cli.bounded import IN_TIME, ctrl_c
from tests.cli.browsers import Browser, browser
from tests.cli.conftest import Run
from tests.cli.terminals import Sitting, needs_terminal, running
from tests.clock import Pauses
from tests.terminal.screens import Screen
from tests.transports.http_peers import timed

pytestmark = needs_terminal

__all__ = ["browser"]

PROMPT, PASTE, CTRL_D = "> ", "The URL that you were sent to: ", "\x04"
TOOLS = "add(a: integer, b: integer)"

# A browser that follows the redirects to their end, as a person's does.
BROWSER = """\
#!{python}
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=30) as page:
    page.read()
"""


@pytest.fixture(autouse=True)
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command keeps them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "mcp-host" / "tokens.json"


@pytest.fixture
def site() -> Iterator[Protected]:
    with protected(server().asgi(), AuthorizationServer()) as site:
        site.server.metadata["revocation_endpoint"] = f"{site.server.issuer}/revoke"
        yield site


class Anywhere(list[str]):
    """The redirect URIs of a client that may be redirected to any port of this machine."""

    def __contains__(self, uri: object) -> bool:
        return str(uri).startswith("http://127.0.0.1:")


async def test_a_command_logs_in_where_a_person_is_there_and_later_ones_need_no_login(
    site: Protected, screen: Screen, tmp_path: Path
) -> None:
    program = tmp_path / "browser"
    program.write_text(BROWSER.format(python=sys.executable))
    program.chmod(0o700)
    environment = {**os.environ, "TERM": "xterm", "BROWSER": str(program)}

    for _ in range(2):
        async with running(screen, "tools", site.url, environment=environment) as process:
            await screen.shows(TOOLS)
            assert await process.wait() == 0
    screen.rest()

    assert screen.rows == [
        f"{site.url} asks you to log in at",
        "  | 127.0.0.1",
        "See your browser.",
        *[f"    {TOOLS}", "        Add."] * 2,
    ]
    assert site.server.count("authorize") == 1


def test_without_a_terminal_it_says_what_to_do(site: Protected, run: Run) -> None:
    done = run("tools", site.url)

    hint = f"mcp-host: {site.url} needs a login, and there is no terminal to ask in: run mcp-host login {site.url}\n"
    assert (done.code, done.out, done.err) == (10, "", hint)
    assert site.server.count("authorize") == 0


def test_no_login_asks_no_one(site: Protected, screen: Screen, sit: Sitting) -> None:
    async def person() -> None:
        await screen.shows("--no-login")

    assert sit(person, "tools", site.url, "--no-login") == 10

    assert site.server.count("authorize") == 0


def test_login_whoami_and_logout_tell_the_whole_story(site: Protected, run: Run) -> None:
    site.scope = "files"
    login = run("login", site.url)
    whoami = run("whoami", site.url)
    tools = run("tools", site.url)
    logout = run("logout", site.url)
    after = run("whoami", site.url)
    again = run("logout", site.url)
    elsewhere = run("whoami", site.url, "--uds", "/run/b.sock")

    lines = login.out.splitlines()
    assert (login.code, login.err) == (0, "")
    assert lines[:5] == [
        "Logged in.",
        f"    server        {site.url}",
        f"    issuer        {site.server.issuer}",
        "    client        client-0",
        "    scopes        files",
    ]
    assert lines[5].startswith("    expires       ")
    assert lines[5].endswith((" UTC, in 59 minutes", " UTC, in 1 hour"))
    assert lines[6] == "                  It is renewed without a login."
    assert whoami.out.splitlines()[:4] == lines[1:5]
    assert (tools.code, tools.err) == (0, "")
    revoked = "Logged out. The authorization server has revoked the token.\n"
    assert (logout.code, logout.out, logout.err) == (0, revoked, "")
    assert site.server.tokens == {}
    hint = f"mcp-host: there is no login for {site.url}: run mcp-host login {site.url}\n"
    assert (after.code, after.out, after.err) == (10, "", hint)
    assert (again.code, again.out) == (0, f"There was no login for {site.url}.\n")
    at_socket = f"{site.url} at /run/b.sock: run mcp-host login {site.url} --uds /run/b.sock\n"
    assert elsewhere.err == f"mcp-host: there is no login for {at_socket}"


@pytest.mark.parametrize("way", [[], ["--paste"], ["--use-device-code"]], ids=["browser", "paste", "device"])
def test_a_login_that_works_stays_and_the_command_says_how_to_begin_anew(
    way: list[str], site: Protected, run: Run
) -> None:
    first = run("login", site.url)
    second = run("login", site.url, *way)

    heading = f"Already logged in. To log in anew, run mcp-host logout {site.url} first.".split()
    assert first.out.startswith("Logged in.\n")
    assert (second.code, second.out.split()[: len(heading)]) == (0, heading)
    assert "    client        client-0\n" in second.out
    assert site.server.count("authorize") == 1


def test_a_login_for_further_scopes_is_asked_for_by_name_and_takes_the_place_of_the_first(
    site: Protected, run: Run
) -> None:
    site.scope = "a"
    site.needs = lambda body: "b" if b"tools/call" in body else ""
    add = ("call", site.url, "add", "a=1", "b=2")
    run("login", site.url)
    refused = run(*add)
    login = run("login", site.url, "--scope", "b")
    done = run(*add)

    why = f"{site.url} needs a login, and there is no terminal to ask in: run mcp-host login {site.url} --scope b"
    assert (refused.code, refused.err) == (10, f"mcp-host: {why}\n")
    assert login.out.startswith("Logged in.\n")
    assert "    client        client-1\n    scopes        a b\n" in login.out  # registered with both
    assert done.code == 0


def test_what_a_server_names_as_scopes_is_quoted_for_a_shell(site: Protected, run: Run) -> None:
    site.needs = lambda body: "$(touch x)" if b"tools/call" in body else ""
    run("login", site.url)
    refused = run("call", site.url, "add", "a=1", "b=2")

    assert refused.err.endswith(f"run mcp-host login {site.url} --scope '$(touch x)'\n")


def test_a_login_as_another_client_takes_the_place_of_the_first_only_when_it_succeeds(
    site: Protected, run: Run
) -> None:
    run("login", site.url)
    failed = run("login", site.url, "--client-id", "unknown")
    kept = run("whoami", site.url)
    site.server.clients["mine"] = {**site.server.clients["client-0"], "redirect_uris": Anywhere()}
    login = run("login", site.url, "--client-id", "mine")

    assert failed.code == 10
    assert "    client        client-0\n" in kept.out
    assert login.out.startswith("Logged in.\n")
    assert "    client        mine\n" in login.out


def test_a_client_is_redirected_to_where_it_is_registered(site: Protected, run: Run) -> None:
    run("login", site.url)
    client = site.server.clients["client-0"]
    uri = client["redirect_uris"][0].replace("127.0.0.1", "localhost").replace("/callback", "/oauth/callback")
    site.server.clients["mine"] = {**client, "redirect_uris": [uri]}

    login = run("login", site.url, "--client-id", "mine", "--redirect-uri", uri)

    assert (login.code, login.err) == (0, "")
    assert "    client        mine\n" in login.out


def test_login_logs_in_where_only_some_tools_want_it(run: Run) -> None:
    mcp = server().asgi()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await mcp(scope, receive, send)
            return
        body, replayed = await read_body(receive)
        is_open = scope["path"] == "/mcp" and b"tools/call" not in body
        await (mcp if is_open else site)(scope, replayed, send)

    with protected(mcp, AuthorizationServer()) as site, serving(app) as site.origin:
        add = ("call", site.url, "add", "a=1", "b=2")
        refused = run(*add)
        login = run("login", site.url)
        done = run(*add)

    assert refused.err.endswith(f": run mcp-host login {site.url}\n")
    assert login.out.startswith("Logged in.\n")
    assert done.code == 0


def test_a_login_that_has_ended_is_none_and_login_begins_anew(site: Protected, run: Run) -> None:
    run("login", site.url)
    site.server.tokens.clear()
    site.server.refresh_tokens.clear()
    ended = run("tools", site.url)
    whoami = run("whoami", site.url)
    login = run("login", site.url)

    assert (ended.code, whoami.code, login.code) == (10, 10, 0)
    assert login.out.startswith("Logged in.\n")


def test_a_login_that_cannot_be_renewed_does_not_say_that_it_is(site: Protected, run: Run) -> None:
    site.server.gives_refresh_tokens = False

    login = run("login", site.url)

    assert login.out.splitlines()[-1].startswith("    expires       ")


LEGACY = ("--era", "legacy")  # has a stream for messages of the server, which is opened again


CHAT = ("chat", "--model", "arithmetic")


def test_a_conversation_begins_with_the_login(site: Protected, screen: Screen, sit: Sitting) -> None:
    async def person() -> None:
        shown = await screen.asks(PROMPT)
        assert f"{site.url} asks you to log in at\r\n  | 127.0.0.1\r\nSee your browser." in shown
        screen.press(CTRL_D)

    assert sit(person, *CHAT, site.url) == 0


@pytest.mark.parametrize(("argv", "asked"), [([], "See your browser"), (["--paste"], PASTE)], ids=["browser", "paste"])
def test_ctrl_c_gives_up_the_login_that_a_conversation_begins_with(
    argv: list[str], asked: str, site: Protected, screen: Screen, sit: Sitting, browser: Browser
) -> None:
    browser.visits = False

    async def person() -> None:
        await screen.shows(asked)
        ctrl_c()

    assert sit(person, *CHAT, site.url, *argv) == 130

    assert "Traceback" not in screen.rest()


@pytest.mark.parametrize(("argv", "asked"), [([], "See your browser"), (["--paste"], PASTE)], ids=["browser", "paste"])
def test_a_login_that_the_connection_needs_waits_while_a_prompt_is_typed_and_ctrl_c_stops_it(
    argv: list[str],
    asked: str,
    screen: Screen,
    sit: Sitting,
    run: Run,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_host.transports.http.StreamableHttp", partial(timed, sleep=Pauses()))
    refused = Event()
    mcp = server()

    async def refuse(request: Request) -> Response:
        refused.set()
        return JSONResponse({"error": "invalid_grant"}, 400)

    with protected(mcp.asgi(), AuthorizationServer()) as site:

        async def person() -> None:
            await screen.asks(PROMPT)
            browser.visits = False
            site.server.tokens.clear()
            site.server.answers["token"] = refuse
            await mcp.drop_streams()
            assert await to_thread.run_sync(refused.wait, IN_TIME)  # for the stream that is opened again
            screen.press("What is 1 + 2?\n")
            await screen.shows(asked)
            ctrl_c()
            await screen.asks(PROMPT)
            screen.press(CTRL_D)

        run("login", site.url)
        assert sit(person, *CHAT, site.url, *LEGACY, *argv) == 0


async def test_a_login_waits_while_a_prompt_is_typed_and_a_prompt_waits_for_a_login_that_can_be_stopped() -> None:
    options = parse(["chat", "http://localhost/mcp", "--model", "arithmetic", "--yes"])
    chat = Chat(partial(make_model, options), Transcript(StringIO(), Printer(StringIO())), options)
    events: list[str] = []

    async def log_in() -> None:
        try:
            async with chat.login():
                events.append("asked")
                await sleep_forever()
        except LoginFailed as exc:
            events.append(f"{exc} ({exc.code})")

    async def turn() -> None:
        await chat.turn("What is 1 + 2?")
        events.append("next prompt")

    with fail_after(25):
        async with Client(server()) as chat.client, create_task_group() as tasks:
            async with chat.login():
                events.append("logged in")
            await chat.begin_prompt()
            tasks.start_soon(log_in)
            await wait_all_tasks_blocked()
            assert events == ["logged in"]
            tasks.start_soon(turn)
            await wait_all_tasks_blocked()
            assert events == ["logged in", "asked"]
            chat.stop()

    assert events == ["logged in", "asked", "the login was stopped (access_denied)", "next prompt"]


def test_with_json_the_three_print_one_document_and_never_a_token(site: Protected, run: Run) -> None:
    login = run("login", "--json", site.url)
    (token,) = site.server.tokens
    whoami = run("whoami", "--json", site.url)
    logout = run("logout", "--json", site.url)
    missing = run("whoami", "--json", site.url)

    document = json.loads(whoami.out)
    assert json.loads(login.out).keys() == document.keys()
    assert 3000 < document.pop("expiresIn") <= 3600
    assert document.pop("expiresAt").endswith("+00:00")
    about = {"server": site.url, "issuer": site.server.issuer, "client": "client-0", "scopes": [], "refreshes": True}
    assert document == about
    assert json.loads(logout.out) == {"server": site.url, "wasLoggedIn": True, "revoked": True}
    assert json.loads(missing.out)["error"]["type"] == "LoginFailed"
    assert token not in "".join([text for done in (login, whoami, logout) for text in (done.out, done.err)])


def test_a_server_that_revokes_nothing_is_told_of(site: Protected, run: Run) -> None:
    del site.server.metadata["revocation_endpoint"]
    run("login", site.url)

    done = run("logout", site.url)

    text = "Logged out. The token is forgotten, but not revoked (revocation: not offered).\n"
    assert (done.code, done.out, done.err) == (0, text, "")


def test_a_server_that_wants_no_login_is_told_of(run: Run) -> None:
    with serving(server().asgi()) as origin:
        done = run("login", f"{origin}/mcp")

    assert done == (0, f"{origin}/mcp wants no login.\n", "")


@pytest.mark.parametrize(
    ("platform", "variable", "default"),
    [("linux", "XDG_STATE_HOME", ".local/state"), ("win32", "LOCALAPPDATA", "AppData/Local")],
    ids=["", "Windows"],
)
def test_the_tokens_are_where_programs_of_the_system_keep_theirs(
    platform: str, variable: str, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, "/theirs")
    assert tokens_file() == Path("/theirs/mcp-host/tokens.json")

    monkeypatch.setenv(variable, "of-a-project")
    assert tokens_file() == Path.home() / default / "mcp-host/tokens.json"

    monkeypatch.delenv(variable)
    assert tokens_file() == Path.home() / default / "mcp-host/tokens.json"


def test_the_tokens_are_for_this_user_alone(site: Protected, run: Run, tokens: Path) -> None:
    run("login", site.url)

    assert [stat.S_IMODE(path.stat().st_mode) for path in (tokens, tokens.parent)] == [0o600, 0o700]


@pytest.mark.parametrize(
    ("offered", "method"), [("none", "client_secret_basic"), ("client_secret_post", "client_secret_post")]
)
def test_a_registered_client_has_its_secret_from_the_environment(
    site: Protected, run: Run, offered: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.server.methods = [offered]
    client = {"redirect_uris": [], "client_secret": "s3cret", "token_endpoint_auth_method": method}
    site.server.clients["mine"] = client
    asked = ["login", site.url, "--client-id", "mine", "--client-secret-env", "MINE", "--scope", "a b", "--scope", "c"]
    missing = run(*asked)

    client["redirect_uris"] = Anywhere()
    monkeypatch.setenv("MINE", "s3cret")
    elsewhere = run(*asked, "--issuer", "https://login.example")
    assert site.server.count("authorize") == site.server.count("token") == 0
    done = run(*asked, "--issuer", site.server.issuer)

    why = "there is no environment variable MINE, which is to have the client's secret"
    assert (missing.code, missing.err) == (2, f"mcp-host: {why}\n")
    assert elsewhere.code == 10
    assert (done.code, done.err) == (0, "")
    assert "    client        mine\n    scopes        a b c\n" in done.out
    assert site.server.count("register") == 0


def test_where_no_client_can_register_the_command_names_its_option(site: Protected, run: Run) -> None:
    site.server.metadata["registration_endpoint"] = None

    done = run("login", "--json", site.url)

    assert done.err == (
        f"mcp-host: {site.server.issuer} registers no clients by itself: "
        "register a client there by hand, and pass Registered(...)\n"
        "  | With this command, that is --client-id ID.\n"
    )
    assert json.loads(done.out)["error"]["type"] == "RegistrationFailed"


def test_an_issuer_by_another_name_is_passed(site: Protected, run: Run) -> None:
    issuer = site.server.issuer
    site.resource = {"authorization_servers": [f"{issuer}/"]}

    refused = run("login", site.url)
    done = run("login", site.url, "--issuer-alias", f"{issuer}/={issuer}")

    assert refused.code == 10
    assert f"its issuer is {issuer}, not {issuer}/: if you know that they are one, pass issuer_aliases=" in refused.err
    assert refused.err.endswith("  | With this command, that is --issuer-alias NAME=ISSUER.\n")
    assert (done.code, done.err) == (0, "")


def test_a_resource_above_the_server_needs_the_option_that_shares_it(site: Protected, run: Run) -> None:
    site.resource = {"resource": site.origin}

    refused = run("login", site.url)
    run("login", site.url, "--shared-resource", site.origin)
    left = run("logout", site.url, "--shared-resource", site.origin)

    assert refused.err.endswith("  | With this command, that is --shared-resource URL.\n")
    assert site.server.count("authorize", resource=site.origin) == 1
    assert left.out == "Logged out. The authorization server has revoked the token.\n"


def test_parameters_are_added_to_the_url_of_the_login(site: Protected, run: Run) -> None:
    login = ("login", site.url, "--authorization-param")

    done = run(*login, "audience=https://api.example/?a=b", "--authorization-param", "prompt=login")
    refused = run(*login, "state=mine")
    other_way = run(*login, "a=b", "--use-device-code")

    assert (done.code, done.err) == (0, "")
    assert site.server.count("authorize", audience="https://api.example/?a=b", prompt="login") == 1
    assert (refused.code, other_way.code) == (2, 2)
    assert "--authorization-param cannot have 'state': OAuth sets it" in refused.err
    assert "--use-device-code has no URL that takes it" in other_way.err


def test_on_a_machine_without_a_browser_the_url_is_pasted(site: Protected, screen: Screen, sit: Sitting) -> None:
    async def visit() -> None:
        shown = await screen.asks(PASTE)
        start = shown.index(f"{site.server.issuer}/authorize?")
        url = re.sub(r"\r\n +", "", shown[start : shown.index("\r\nWhen")])  # as browsers paste it
        screen.press(f"{await person(url)}\n")
        await screen.shows(TOOLS)

    assert sit(visit, "tools", site.url, "--paste") == 0


def test_a_long_url_of_a_login_on_another_device_is_not_wrapped_in_a_pipe(site: Protected, run: Run) -> None:
    page = f"https://login.example/{'x' * 200}"
    site.server.metadata["device_authorization_endpoint"] = f"{site.server.issuer}/device"
    site.server.change("device", lambda codes: codes | {"verification_uri_complete": None, "verification_uri": page})
    site.server.polls[:], site.server.interval = [""], 0.01

    assert f"  {page}" in run("login", site.url, "--use-device-code").err.splitlines()


def test_without_a_browser_and_a_terminal_the_person_logs_in_on_another_device(site: Protected, run: Run) -> None:
    site.server.metadata["device_authorization_endpoint"] = f"{site.server.issuer}/device"
    site.server.polls[:] = ["authorization_pending", ""]
    site.server.interval = 0.01

    done = run("login", site.url, "--use-device-code")

    assert done.err.splitlines() == [
        "",
        f"{site.url} asks you to log in at",
        "  | 127.0.0.1",
        "Open this URL on any device:",
        f"  {site.server.issuer}/device-page?user_code=WDJB",
        "and compare this code, or type it there:",
        "  | WDJB-MJHT",
    ]
    assert done.code == 0
    assert done.out.startswith("Logged in.\n")


def test_a_server_without_codes_for_devices_says_what_else_there_is(site: Protected, run: Run) -> None:
    done = run("login", site.url, "--use-device-code")

    problem = f"{site.server.issuer} has no device_authorization_endpoint: without a browser, log in with --paste"
    assert (done.code, done.out, done.err) == (10, "", f"mcp-host: {problem}\n")


ELSEWHERE = "If your browser is on another machine, log in with --use-device-code or --paste."


def test_where_no_browser_opens_the_person_is_told_what_to_do(
    site: Protected, screen: Screen, sit: Sitting, browser: Browser
) -> None:
    browser.opens = False
    rows: list[str] = []

    async def person() -> None:
        shown = await screen.shows(f"\r\n{ELSEWHERE}\r\n")
        rows.extend(shown.splitlines())
        ctrl_c()

    assert sit(person, "login", site.url) == 130

    opened = rows.index("No browser opened. Open this URL in a browser of this machine:")
    url, *rest = rows[opened + 1 :]
    assert url.startswith(f"  {site.server.issuer}/authorize?")
    assert all(row.startswith("    ") for row in rest)


def test_where_no_browser_opens_and_there_is_no_terminal_the_error_says_what_to_do(
    site: Protected, run: Run, browser: Browser
) -> None:
    browser.opens = False

    done = run("login", site.url)

    problem = "no browser opens for the login at 127.0.0.1, and there is no terminal to show its URL in"
    assert (done.code, done.err) == (10, f"mcp-host: {problem}. {ELSEWHERE}\n")


@pytest.mark.parametrize("verb", ["login", "tools"])
def test_a_server_that_wants_a_password_is_one_to_pass_that_to(verb: str, run: Run) -> None:
    with serving(Response(status_code=401, headers={"www-authenticate": "Basic realm=x"})) as origin:
        done = run(verb, f"{origin}/mcp")

    first, *_, last = done.err.splitlines()
    assert done.code == 10
    assert first.startswith(f"mcp-host: {origin}/mcp: it wants Basic, not a token: pass httpx.BasicAuth")
    assert last == "  | With this command, that is -H 'Authorization: Basic ...'."
    assert "Bearer" not in done.err


@pytest.mark.parametrize("verb", ["login", "tools"])
def test_a_server_that_refuses_and_has_no_oauth_is_one_to_pass_a_token_to(verb: str, run: Run) -> None:
    with serving(Response(status_code=401)) as origin:
        done = run(verb, f"{origin}/mcp")

    first, rest = done.err.splitlines()
    assert done.code == 10
    assert first == (
        f"mcp-host: {origin}/mcp wants authorization, and does not say where to log in. "
        "If you have a token for it, pass that: -H 'Authorization: Bearer ...'"
    )
    assert rest.startswith({"login": "  | registration at ", "tools": f"  | {origin}/mcp needs a login"}[verb])


def test_what_may_be_secret_in_a_url_is_not_shown(site: Protected, run: Run) -> None:
    secret = site.url.replace("http://", "http://me:s3cret@") + "?key=s3cret"
    verbs = ("whoami", "tools", "login", "whoami", "logout", "logout")
    dones = [run(verb, "--json", secret) for verb in verbs]
    missing = run("whoami", secret)

    assert [done.code for done in dones] == [10, 10, 0, 0, 0, 0]
    assert [done for done in dones if "s3cret" in done.out + done.err] == []
    assert [json.loads(done.out)["server"] for done in dones[2:]] == [site.url] * 4
    assert missing.err == f"mcp-host: there is no login for {site.url}: run mcp-host login {site.url}\n"


def test_an_invalid_url_is_one_sentence(run: Run) -> None:
    done = run("whoami", "http://[::1")

    assert (done.code, done.err) == (2, "mcp-host: not a URL\n")


@pytest.mark.parametrize("verbose", [[], ["--verbose"]])
def test_a_login_that_fails_says_why_and_verbose_shows_each_step(verbose: list[str], site: Protected, run: Run) -> None:
    site.server.metadata["code_challenge_methods_supported"] = ["plain"]

    done = run("login", site.url, *verbose)

    error = f"mcp-host: {site.server.issuer} does not offer PKCE with S256, without which no code is safe"
    *steps, last = done.err.splitlines()
    assert (done.code, done.out, last) == (10, "", error)
    metadata = f"{site.server.issuer}/.well-known/oauth-authorization-server"
    found = f"  | metadata of the authorization server at {metadata}: found"
    assert (found in steps) == bool(verbose)
    assert bool(steps) == bool(verbose)


def test_verbose_shows_each_step_of_a_login_for_more_and_of_a_logout(site: Protected, run: Run) -> None:
    run("login", site.url)

    login = run("login", site.url, "--scope", "b", "--verbose")
    logout = run("logout", site.url, "--verbose")

    assert f"  | request at {site.url}: a login is asked for" in login.err.splitlines()
    assert f"  | revocation (access_token) at {site.server.issuer}/revoke: revoked" in logout.err.splitlines()


def test_a_header_of_the_persons_own_is_used_in_the_place_of_a_login(
    site: Protected, screen: Screen, sit: Sitting
) -> None:
    async def person() -> None:
        await screen.shows("401")

    assert sit(person, "tools", site.url, "-H", "authorization=Bearer mine") == 5

    assert site.server.log == []


WRONG = [
    (["login"], "there is no server: give its URL"),
    (["whoami", "--", "ls"], "only a URL needs a login; a program gets its secrets by --env"),
    (["login", "http://x", "--client-secret-env", "A"], "--client-secret-env and --issuer are for a --client-id"),
    (["login", "http://x", "--redirect-uri", "http://localhost/", "--use-device-code"], "--redirect-uri is for a login in a browser: --use-device-code redirects to nowhere"),
    (["tools", "http://x", "--paste", "--no-login"], "--no-login and --paste contradict each other: use one of them"),
    (["login", "http://x", "--paste", "--use-device-code"], "--paste and --use-device-code contradict each other: use one of them"),
]  # fmt: skip  # one case on each line


def test_wrong_options_are_one_sentence(run: Run) -> None:
    done = {" ".join(argv): run(*argv) for argv, _ in WRONG}

    assert done == {
        " ".join(argv): (2, "", f"mcp-host: {problem} (see mcp-host {argv[0]} --help)\n") for argv, problem in WRONG
    }
