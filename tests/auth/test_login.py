"""How a person authorizes: by a browser that is redirected to this machine, by pasting, by a function of the host's."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest
from anyio import CancelScope, Event, create_task_group, fail_after, wait_all_tasks_blocked
from anyio.abc import TaskGroup

from mcp_host.auth.errors import AddressRefused, LoginFailed
from mcp_host.auth.login.loopback import LoopbackListener, LoopbackUri
from mcp_host.auth.login.ways import Login, Redirection, by_function, in_browser, paste
from mcp_host.terminal import device
from tests.auth.world import SOON, new_browser, soon
from tests.clock import advance
from tests.extent import on_both
from tests.terminal.screens import Screen

SERVER = "https://mcp.example/mcp"
STATE = "st4te-of-this-login"
URL = f"https://login.example:8443/authorize?client_id=me&state={STATE}"
ANNOUNCED = ["https://mcp.example/mcp asks you to log in at", "  | login.example", "See your browser."]
PASTE = "The URL that you were sent to: "


class Browser:
    """Goes to an authorization server that redirects it at once, with *answer*, if it *opens*."""

    def __init__(self, tasks: TaskGroup, *, answer: str = f"code=c0de&state={STATE}", opens: object = True) -> None:
        self.opened: list[str] = []
        self.pages: list[httpx.Response] = []
        self._tasks = tasks
        self._answer = answer
        self._opens = opens
        self.redirect_uri = ""

    async def __call__(self, url: str) -> bool:
        self.opened.append(url)
        if isinstance(self._opens, Exception):
            raise self._opens
        if self._opens:
            self._tasks.start_soon(self.visit)
        return self._opens is True

    async def visit(self) -> None:
        async with new_browser() as client:
            self.pages.append(await client.get(f"{self.redirect_uri}?{self._answer}"))


@asynccontextmanager
async def browsing(**options: object) -> AsyncIterator[Browser]:
    async with soon() as tasks:
        yield Browser(tasks, **options)  # type: ignore[arg-type]  # they are those of a browser


@asynccontextmanager
async def in_its(browser: Browser) -> AsyncIterator[Redirection]:
    async with in_browser(open=browser).open(None) as redirection:
        browser.redirect_uri = redirection.redirect_uri
        yield redirection


async def log_in(login: Login, browser: Browser | None = None, *, url: str = URL) -> str:
    async with login.open(None) as redirection:
        if browser is not None:
            browser.redirect_uri = redirection.redirect_uri
        return await redirection.authorize(url, STATE, server=SERVER)


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "terminal_path", lambda: "/dev/null/no-terminal")


def is_closed(redirect_uri: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", httpx.URL(redirect_uri).port or 0)) != 0


async def test_the_browser_opens_and_the_redirect_comes_back(screen: Screen) -> None:
    async with browsing() as browser:
        redirect = await log_in(in_browser(open=browser), browser)

    assert redirect == f"{browser.redirect_uri}?code=c0de&state={STATE}"
    assert browser.opened == [URL]
    assert [page.status_code for page in browser.pages] == [200]
    assert is_closed(browser.redirect_uri)
    screen.rest()
    assert screen.rows == ANNOUNCED


async def test_an_opener_that_returns_when_its_window_closes_is_not_waited_for(screen: Screen) -> None:
    closed, pages = Event(), list[httpx.Response]()
    redirect_uri = ""

    async def open_and_stay(url: str) -> bool:
        async with new_browser() as client:
            pages.append(await client.get(f"{redirect_uri}?code=c0de&state={STATE}"))
        await closed.wait()
        return True

    with fail_after(SOON):
        async with in_browser(open=open_and_stay).open(None) as redirection:
            redirect_uri = redirection.redirect_uri
            redirect = await redirection.authorize(URL, STATE, server=SERVER)

    assert redirect == f"{redirect_uri}?code=c0de&state={STATE}"


@on_both
@pytest.mark.parametrize("opens", [False, OSError(f"cannot open {URL}")], ids=["returns False", "raises"])
async def test_without_a_browser_the_url_is_shown_and_the_wait_goes_on(
    opens: object, screen: Screen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")
    async with browsing(opens=opens) as browser, in_its(browser) as redirection, create_task_group() as tasks:
        tasks.start_soon(authorize, redirection)
        await screen.shows(f"{URL}\r\n")
        await browser.visit()

    assert screen.rows == [*ANNOUNCED, "No browser opened. Open this URL in a browser of this machine:", f"  {URL}"]
    assert STATE not in caplog.text


async def authorize(redirection: Redirection) -> None:
    await redirection.authorize(URL, STATE, server=SERVER)


@on_both
async def test_a_url_with_letters_of_other_alphabets_is_pointed_out(screen: Screen) -> None:
    url = f"https://xn--pple-43d.example/?state={STATE}"
    async with browsing(opens=False) as browser, in_its(browser) as redirection, create_task_group() as tasks:
        tasks.start_soon(lambda: redirection.authorize(url, STATE, server="\x1b[2Jevil"))
        await screen.shows(f"{url}\r\n")
        await browser.visit()

    assert screen.rows == [
        "\\x1b[2Jevil asks you to log in at",
        "  | xn--pple-43d.example",
        "See your browser.",
        "This host has letters that may look like others: is it the one that you know?",
        "No browser opened. Open this URL in a browser of this machine:",
        f"  {url}",
    ]


@pytest.mark.usefixtures("no_terminal")
async def test_without_a_terminal_the_browser_opens_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp_host")
    async with browsing() as browser:
        redirect = await log_in(in_browser(open=browser), browser)

    assert redirect.startswith(browser.redirect_uri)
    assert caplog.messages == ["https://mcp.example/mcp asks you to log in at login.example: a browser shows the page"]


@pytest.mark.usefixtures("no_terminal")
async def test_without_a_terminal_and_a_browser_the_login_fails_at_once() -> None:
    async with browsing(opens=False) as browser:
        with pytest.raises(LoginFailed) as failed:
            await log_in(in_browser(open=browser), browser)

    assert str(failed.value) == (
        "no browser opens for the login at login.example, and there is no terminal to show its URL in. "
        "Pass a function as `login` that sends the person there"
    )
    assert is_closed(browser.redirect_uri)


async def open_elsewhere(url: str) -> bool:
    return True


@pytest.mark.adjustable_clock
async def test_a_login_that_takes_too_long_fails_and_says_what_to_do(screen: Screen) -> None:
    async def open_for_too_long(url: str) -> bool:
        advance(60)
        return True

    async with in_browser(open=open_for_too_long, timeout=60).open(None) as redirection:
        with fail_after(60 + SOON), pytest.raises(LoginFailed) as failed:
            await redirection.authorize(URL, STATE, server=SERVER)

    assert str(failed.value) == (
        "nothing came back from the login at login.example within 60 seconds: try again. "
        "If the browser is on another machine, pass `login=paste()`"
    )
    assert is_closed(redirection.redirect_uri)


async def test_a_busy_terminal_does_not_keep_the_browser_waiting(screen: Screen) -> None:
    """A question of another server is open there."""
    async with browsing() as browser, device.open_terminal(quiet=0):
        assert (await log_in(in_browser(open=browser), browser)).endswith(STATE)


@on_both
async def test_a_cancelled_login_leaves_no_socket(screen: Screen) -> None:
    with fail_after(SOON):
        async with create_task_group() as tasks, in_browser(open=open_elsewhere).open(None) as redirection:
            with CancelScope() as scope:
                tasks.start_soon(cancel_when_idle, scope)
                await redirection.authorize(URL, STATE, server=SERVER)
            assert scope.cancelled_caught
            assert not is_closed(redirection.redirect_uri)

    assert is_closed(redirection.redirect_uri)


async def cancel_when_idle(scope: CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def test_the_redirect_uri_of_an_earlier_registration_is_used_again_if_it_is_free() -> None:
    login = in_browser(open=open_elsewhere)
    async with login.open(None) as first:
        earlier = first.redirect_uri
        async with login.open(earlier) as second:
            assert second.redirect_uri != earlier
    async with login.open(earlier) as third:
        assert third.redirect_uri == earlier
    async with login.open("https://elsewhere.example/callback") as fourth:
        assert fourth.redirect_uri.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("path", ["/oauth/callback", "/", ""])
async def test_a_redirect_uri_that_the_client_is_registered_with_is_used(path: str, screen: Screen) -> None:
    """Some authorization servers take localhost only, and some companies register one client for several hosts."""
    async with browsing() as browser:
        login = in_browser(open=browser, redirect_uri=f"http://localhost{path}")
        redirect = await log_in(login, browser)
        port = httpx.URL(redirect).port
        assert browser.redirect_uri == f"http://localhost:{port}{path}"
        assert redirect == f"http://localhost:{port}{path or '/'}?code=c0de&state={STATE}"

        async with login.open(browser.redirect_uri) as again:
            assert again.redirect_uri == browser.redirect_uri
        async with in_browser(open=browser, redirect_uri=browser.redirect_uri).open(None) as fixed:
            assert fixed.redirect_uri == browser.redirect_uri


async def test_a_fixed_port_is_the_only_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        login = in_browser(open=open_elsewhere, port=port)
        with pytest.raises(LoginFailed) as failed:
            async with login.open(f"http://127.0.0.1:{port + 1}/callback"):
                """It does not get here."""

    assert str(failed.value) == (
        f"the login cannot listen on port {port} of 127.0.0.1 for its answer: Address already in use"
    )
    async with login.open(None) as redirection:
        assert redirection.redirect_uri == f"http://127.0.0.1:{port}/callback"


@on_both
async def test_a_second_login_at_a_fixed_port_waits_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listened, listen = list[int](), LoopbackListener.open

    def noted(uri: LoopbackUri) -> AbstractAsyncContextManager[LoopbackListener]:
        listened.append(uri.port)
        return listen(uri)

    monkeypatch.setattr(LoopbackListener, "open", noted)
    login = in_browser(open=open_elsewhere, port=port)

    async def second() -> None:
        async with login.open(None) as redirection:
            assert redirection.redirect_uri == first.redirect_uri

    with fail_after(SOON):
        async with create_task_group() as tasks, login.open(None) as first:
            tasks.start_soon(second)
            await wait_all_tasks_blocked()
            assert listened == [port]

    assert listened == [port, port]


NOT_OF_THIS_MACHINE = (
    "redirect_uri has to be of http on this machine, without a query, such as http://localhost:8080/callback"
)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"port": -1}, "port must be from 0 to 65535, not -1"),
        ({"port": 65536}, "port must be from 0 to 65535, not 65536"),
        ({"port": 1, "redirect_uri": "http://localhost:1/"}, "redirect_uri has the port: do not pass both"),
        ({"redirect_uri": "https://my-app.example/"}, NOT_OF_THIS_MACHINE),
        ({"redirect_uri": "http://localhost:8080/callback?a=b"}, NOT_OF_THIS_MACHINE),
        ({"timeout": 0}, "timeout must be more than 0, not 0"),
        ({"open": "firefox"}, "open has to be a function, async or plain, not str"),
    ],
    ids=str,
)
def test_arguments_are_checked(options: dict[str, object], problem: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        in_browser(**options)  # type: ignore[arg-type]  # that is the test

    assert str(raised.value) == problem


async def refuse(url: str) -> str:
    raise AssertionError(f"{url} is not for a browser")


async def refuse_to_open(url: str) -> bool:
    raise AssertionError(f"{url} is not for a browser")


LOGINS: dict[str, Callable[[], Login]] = {
    "in_browser": lambda: in_browser(open=refuse_to_open),
    "paste": paste,
    "by_function": lambda: by_function(refuse, "app://callback"),
}
NO_WEB_URL = "the URL of the login is not opened: it is no plain https URL, and begins with "


REFUSED = {
    "javascript:alert(1)": f"{NO_WEB_URL}'javascript'",
    "data:text/html,<script>": f"{NO_WEB_URL}'data'",
    "file:///etc/passwd": f"{NO_WEB_URL}'file'",
    "vscode://open?secret": f"{NO_WEB_URL}'vscode'",
    "--new-window=https://login.example/": f"{NO_WEB_URL}'--new-window=https'",
    "\x1b[2J:": f"{NO_WEB_URL}'\\x1b[2J'",
    "": f"{NO_WEB_URL}''",
    "https://login.example/a b": f"{NO_WEB_URL}'https'",
    "https://login.example\\@evil.example/": f"{NO_WEB_URL}'https'",
    **{
        f"https://{user}@evil.example/": "the login at evil.example is not opened: its URL has a user, which looks like a host"
        for user in ("bank.example", "bank.example:443", "")
    },
    **{
        f"{scheme}{rest}": f"the login at {rest.partition('/')[0]} is not opened: its URL is not https"
        for scheme, rest in (
            *(("http://", "login.example/?secret"), ("HTTP://", "login.example/?secret")),
            *(("http://", "127.0.0.1.evil.example/"), ("http://", "192.168.0.1/")),
        )
    },
}


@pytest.mark.fault("O11")
@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
async def test_a_url_that_is_not_for_a_browser_is_refused(login: Callable[[], Login], screen: Screen) -> None:
    problems = {}
    for url in REFUSED:
        with fail_after(SOON), pytest.raises(AddressRefused) as refused:
            await log_in(login(), url=url)
        problems[url] = str(refused.value)

    assert problems == REFUSED
    assert screen.rest() == ""


async def test_a_login_on_this_machine_needs_no_https() -> None:
    for host in ("127.0.0.1:9000", "localhost:9000", "[::1]:9000", "127.8.8.8"):
        assert await log_in(by_function(visit, "app://callback"), url=f"http://{host}/") == await visit("")


class Pasting:
    """A login in a terminal, and what came of it."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self.redirect = ""
        self.error: LoginFailed | None = None

    async def __call__(self) -> None:
        try:
            self.redirect = await log_in(self._login)
        except LoginFailed as exc:
            self.error = exc


@asynccontextmanager
async def pasting(screen: Screen, login: Login) -> AsyncIterator[Pasting]:
    outcome = Pasting(login)
    async with soon() as tasks:
        tasks.start_soon(outcome)
        await screen.shows(PASTE)
        yield outcome
    screen.rest()


REDIRECT = "https://host.example/redirected"
PASTED = f"{REDIRECT}?code=c0de&state={STATE}"


async def test_the_url_is_shown_and_the_redirect_is_pasted(screen: Screen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")
    async with pasting(screen, paste(redirect_uri=REDIRECT)) as outcome:
        screen.press(f"{PASTED}\n")

    assert outcome.redirect == PASTED
    assert screen.rows == [
        "",
        "https://mcp.example/mcp asks you to log in at",
        "  | login.example",
        "Open this URL in a browser, on any machine:",
        f"  {URL}",
        "When you have logged in, the browser goes to a URL that begins as follows, and",
        "may say that it cannot connect. Copy the whole URL from its address bar, and",
        "paste it here. Ctrl-D gives up.",
        f"  | {REDIRECT}",
        f"{PASTE}{PASTED}"[:80],
        f"{PASTE}{PASTED}"[80:],
    ]
    assert STATE not in caplog.text
    assert "c0de" not in caplog.text


BEGINS = f"The URL begins with {REDIRECT}, and then has a code."
OF_ANOTHER = "This URL is not whole, or from another login: its state is not that of this one."
PROBLEMS = {
    "": "Paste the URL, or press Ctrl-D to give up.",
    URL: "This is the URL to open. Paste the one that you are sent to after the login.",
    "c0de": BEGINS,
    "https://[c0de": BEGINS,
    f"{REDIRECT.replace('://', '://user@')}?state={STATE}&code=1": BEGINS,
    f"{REDIRECT}/?state={STATE}&code=1": BEGINS,
    f"{REDIRECT}?code=1": OF_ANOTHER,
    f"{REDIRECT}?code=1&state=other": OF_ANOTHER,
    f"{REDIRECT}?state={STATE}": "This URL is not whole: it has no code.",
    f"{REDIRECT}?\x1b[A": "This has a control character, such as that of an arrow key.",
    f"{REDIRECT}?{'x' * 5000}": "This is too long for one line of the terminal, which has cut it.",
}


async def test_anything_else_is_asked_for_again(screen: Screen) -> None:
    async with pasting(screen, paste(redirect_uri=REDIRECT)) as outcome:
        for pasted, problem in PROBLEMS.items():
            await screen.paste(f"{pasted}\n")
            assert problem in (await screen.shows(PASTE)).replace("\r\n", " "), pasted
        screen.press(f"{REDIRECT}?error=access_denied&state={STATE}\n")

    assert outcome.redirect == f"{REDIRECT}?error=access_denied&state={STATE}"


@pytest.mark.parametrize(
    ("redirect_uri", "shown"),
    [
        ("http://127.0.0.1:80/callback", "http://127.0.0.1/callback?"),
        ("https://Host.example:443", "https://host.example/?"),
        ("com.example.app:/callback", "com.example.app:/callback?"),
        (f"{REDIRECT}?tenant=1", f"{REDIRECT}?tenant=1&"),
    ],
)
async def test_a_browser_may_write_the_redirect_uri_in_another_way(
    redirect_uri: str, shown: str, screen: Screen
) -> None:
    async with pasting(screen, paste(redirect_uri=redirect_uri)) as outcome:
        screen.press(f"{shown}code=1&state={STATE}\n")

    assert outcome.redirect == f"{shown}code=1&state={STATE}"


async def test_ctrl_d_gives_the_login_up(screen: Screen) -> None:
    async with pasting(screen, paste()) as outcome:
        screen.press("\x04")

    assert str(outcome.error) == "the login at login.example was given up: no URL was pasted"
    assert isinstance(outcome.error, LoginFailed)
    assert outcome.error.code == "access_denied"


@pytest.mark.usefixtures("no_terminal")
async def test_without_a_terminal_nothing_can_be_pasted() -> None:
    with pytest.raises(LoginFailed) as failed:
        await log_in(paste())

    assert str(failed.value) == (
        "the URL of the login at login.example cannot be pasted: this client has no terminal to ask its user in"
    )


async def test_pasting_can_use_any_redirect_uri() -> None:
    earlier = "http://127.0.0.1:5/callback"
    for given, preferred, used in (
        (None, None, "http://127.0.0.1:50517/callback"),
        (None, earlier, earlier),
        (REDIRECT, earlier, REDIRECT),
    ):
        async with paste(redirect_uri=given).open(preferred) as redirection:
            assert redirection.redirect_uri == used


async def visit(url: str) -> str:
    return f"app://callback?code=1&state={STATE}"


def visit_in_thread(url: str) -> str:
    return f"app://callback?code=1&state={STATE}"


@pytest.mark.parametrize("function", [visit, visit_in_thread])
async def test_a_function_of_the_host_gets_the_url_and_returns_the_redirect(
    function: Callable[[str], Awaitable[str] | str],
) -> None:
    login = by_function(function, "app://callback")
    async with login.open("app://earlier") as redirection:
        assert redirection.redirect_uri == "app://callback"
        assert await redirection.authorize(URL, STATE, server=SERVER) == f"app://callback?code=1&state={STATE}"


async def test_a_function_that_returns_the_answer_to_another_login_fails() -> None:
    async def mix_up(url: str) -> str:
        return "app://callback?code=c0de&state=other"

    with pytest.raises(LoginFailed) as failed:
        await log_in(by_function(mix_up, "app://callback"))

    assert str(failed.value) == "the login at login.example came back with another state than it began with"


async def test_a_function_that_returns_no_url_is_a_type_error() -> None:
    def forget(url: str) -> str:
        return None  # type: ignore[return-value]  # that is the test

    with pytest.raises(TypeError, match="a login function returns a URL as text, not NoneType"):
        await log_in(by_function(forget, "app://callback"))
