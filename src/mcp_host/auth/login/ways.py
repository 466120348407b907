"""How a person authorizes: by a browser on this machine, by pasting a URL, or by a function of the host's."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

from anyio import Lock, create_task_group, move_on_after
from anyio.lowlevel import RunVar

from mcp_host.auth.errors import AddressRefused, LoginFailed
from mcp_host.auth.login.invitation import announcement, asks, invitation
from mcp_host.auth.login.loopback import HOSTS, LoopbackListener, LoopbackUri
from mcp_host.auth.login.redirects import check_redirect_uri, read_redirect
from mcp_host.auth.requests.addresses import Kind, kinds_of_host
from mcp_host.auth.requests.error_codes import ACCESS_DENIED
from mcp_host.auth.requests.urls import has_user, is_same_page
from mcp_host.errors import excerpt, quoted
from mcp_host.handlers import as_async
from mcp_host.limits import check_seconds
from mcp_host.secret import Secret
from mcp_host.terminal.browser import host_of, is_opened, is_web_url, lookalike_rows, open_default
from mcp_host.terminal.device import NoTerminal, checked_line, open_terminal
from mcp_host.terminal.text import Layout, Rows, clean

logger = logging.getLogger(__name__)

PASTED_FROM = "http://127.0.0.1:50517/callback"  # the browser shows it in its address bar, though nothing listens there

Opener: TypeAlias = Callable[[str], Awaitable[bool] | bool]
LoginFunction: TypeAlias = Callable[[str], Awaitable[str] | str]


class Redirection(Protocol):
    """One login: the authorization server sends the person, with the answer, to *redirect_uri*."""

    redirect_uri: str
    """For the registration and the authorization request."""

    async def authorize(self, url: str, state: str, *, server: str) -> str:
        """Send the person to *url*. Returns the URL that the authorization server redirects to, which has *state*.

        *server* is what the person knows the MCP server by.

        Raises:
            AddressRefused: *url* is not for a browser.
            LoginFailed: No answer came back. With "access_denied" as *code*, the person does not want to log in.
        """
        ...


class Login(Protocol):
    """How a person visits the authorization server, and how the redirect comes back."""

    def open(self, preferred: str | None) -> AbstractAsyncContextManager[Redirection]:
        """Prepare for one redirect. *preferred* is the redirect URI of an earlier registration: used again if it can be.

        Raises:
            LoginFailed: No redirect can be received.
        """
        ...


def in_browser(
    *,
    open: Opener | None = None,
    timeout: float = 300.0,
    port: int = 0,
    redirect_uri: str | None = None,
    hint: str | None = None,
) -> Login:
    """Open the browser of this machine, and listen on 127.0.0.1 for the redirect, for at most *timeout* seconds.

    *open* takes the URL and returns whether it could be opened; a plain function runs in a thread. By default that is
    the standard library's `webbrowser`, but no browser that would run in this terminal. If none opens, the URL is
    shown in the terminal.

    *port* is the one that the client is registered with; 0 is any, see RFC 8252, section 7.3. Several logins at one
    port wait for each other.

    *redirect_uri* is for a client that is registered with another one of this machine:
    ``http://localhost:8080/oauth/callback``. Without a port in it, the port is any. By default it is
    ``http://127.0.0.1:{port}/callback``.

    *hint* tells the person, in a sentence, how to log in with a browser on another machine. It is shown if no browser
    opens, and ends the errors. By default only the errors say something: what a host can pass as `login` instead.
    """
    opener = open_default if open is None else as_async(open, argument="open", shape="(url: str) -> bool")
    if not 0 <= port < 65536:
        raise ValueError(f"port must be from 0 to 65535, not {port!r}")
    if port and redirect_uri is not None:
        raise ValueError("redirect_uri has the port: do not pass both")
    uri = LoopbackUri(port=port) if redirect_uri is None else LoopbackUri.of(redirect_uri)
    return _InBrowser(opener, check_seconds("timeout", timeout, zero=False), uri, hint)


def paste(*, redirect_uri: str | None = None) -> Login:
    """Show the URL in the terminal, and ask for the URL that the browser was redirected to: for hosts without a browser.

    By default the redirect URI is one of 127.0.0.1. The browser, on any machine, cannot open it, and has it in its
    address bar. *redirect_uri* may be a page of yours instead that shows its URL.
    """
    if redirect_uri is not None:
        check_redirect_uri(redirect_uri)
    return _Paste(redirect_uri)


def by_function(function: LoginFunction, redirect_uri: str) -> Login:
    """Let *function* send the person to the URL that it gets. It returns the URL that they were redirected to.

    It is an async function, or a plain one, which runs in a thread. It raises `LoginFailed` if the person does not
    log in.
    """
    return _ByFunction(as_async(function, argument="login", shape="(url: str) -> str"), redirect_uri)


class _InBrowser:
    def __init__(
        self, opener: Callable[[str], Awaitable[bool]], timeout: float, uri: LoopbackUri, hint: str | None
    ) -> None:
        self._opener = opener
        self._timeout = timeout
        self._uri = uri
        self._hint = hint
        self._turns = RunVar[Lock]("turns at the port of a login")

    @asynccontextmanager
    async def open(self, preferred: str | None) -> AsyncIterator[Redirection]:
        port = self._uri.port
        ports = [port] if port else [self._uri.find_port(preferred or ""), 0]
        async with AsyncExitStack() as stack:
            if port:
                await stack.enter_async_context(self._turn())
            for each in ports:
                try:
                    listener = await stack.enter_async_context(LoopbackListener.open(replace(self._uri, port=each)))
                    break
                except OSError as exc:
                    failure = exc
            else:
                where = f"{f'port {port}' if port else 'a port'} of {' and '.join(HOSTS[self._uri.host])}"
                reason = failure.strerror or type(failure).__name__
                raise LoginFailed(f"the login cannot listen on {where} for its answer: {reason}")
            yield _BrowserRedirection(listener, self._opener, self._timeout, self._hint)

    def _turn(self) -> Lock:
        lock = self._turns.get(None)
        if lock is None:
            lock = Lock()
            self._turns.set(lock)
        return lock


class _BrowserRedirection:
    def __init__(
        self,
        listener: LoopbackListener,
        opener: Callable[[str], Awaitable[bool]],
        timeout: float,
        hint: str | None,
    ) -> None:
        self.redirect_uri = listener.redirect_uri
        self._listener = listener
        self._opener = opener
        self._timeout = timeout
        self._hint = hint

    async def authorize(self, url: str, state: str, *, server: str) -> str:
        host = check_url(url)
        knows = True

        async def invite() -> None:
            nonlocal knows
            knows = await self._invite(url, server, host)
            if not knows:
                wait.cancel()

        async with create_task_group() as tasks:
            with move_on_after(self._timeout) as wait:
                tasks.start_soon(invite)
                try:
                    return await self._listener.wait_for_redirect(state)
                finally:
                    tasks.cancel_scope.cancel()
        if not knows:
            raise LoginFailed(
                f"no browser opens for the login at {host}, and there is no terminal to show its URL in. "
                f"{self._hint or 'Pass a function as `login` that sends the person there'}"
            )
        raise LoginFailed(
            f"nothing came back from the login at {host} within {self._timeout:g} seconds: try again. "
            f"{self._hint or 'If the browser is on another machine, pass `login=paste()`'}"
        )

    async def _invite(self, url: str, server: str, host: str) -> bool:
        """Send the person to *url*. Returns whether they learn of it."""

        async def announce() -> None:
            if not await _shown(partial(announcement, server, host)):
                logger.info("%s %s: a browser shows the page", asks(server), host)

        def address(layout: Layout) -> Rows:
            yield from lookalike_rows(host, layout)
            yield from layout.ours("No browser opened. Open this URL in a browser of this machine:")
            yield from layout.url(url)
            if self._hint is not None:
                yield from layout.ours(self._hint)

        async with create_task_group() as tasks:  # the terminal may be busy with a question of another server
            tasks.start_soon(announce)
            opened = await is_opened(url, self._opener)
        return opened or await _shown(address)


async def _shown(rows: Callable[[Layout], Rows]) -> bool:
    """Show *rows* in the terminal. Returns whether there is one."""
    try:
        async with open_terminal() as terminal:
            await terminal.show(rows(terminal.layout))
    except NoTerminal:
        return False
    return True


class _Paste:
    def __init__(self, redirect_uri: str | None) -> None:
        self._redirect_uri = redirect_uri

    @asynccontextmanager
    async def open(self, preferred: str | None) -> AsyncIterator[Redirection]:
        yield _PastedRedirection(self._redirect_uri or preferred or PASTED_FROM)


@dataclass
class _PastedRedirection:
    redirect_uri: str

    async def authorize(self, url: str, state: str, *, server: str) -> str:
        host = check_url(url)
        try:
            async with open_terminal() as terminal:
                await terminal.show(self._instructions(url, server, host, terminal.layout))
                while (line := await terminal.ask("The URL that you were sent to: ")) is not None:
                    try:
                        line = Secret(line)
                        return self._check(Secret(checked_line(line)), url, state)
                    except ValueError as exc:
                        await terminal.show(terminal.layout.ours(str(exc), "yellow"))
        except NoTerminal as exc:
            raise LoginFailed(f"the URL of the login at {host} cannot be pasted: {exc}") from exc
        raise LoginFailed(f"the login at {host} was given up: no URL was pasted", ACCESS_DENIED)

    def _instructions(self, url: str, server: str, host: str, layout: Layout) -> Rows:
        yield from invitation(server, host, layout)
        yield from layout.ours("Open this URL in a browser, on any machine:")
        yield from layout.url(url)
        yield from layout.ours(
            "When you have logged in, the browser goes to a URL that begins as follows, and may say that it cannot "
            "connect. Copy the whole URL from its address bar, and paste it here. Ctrl-D gives up."
        )
        yield from layout.theirs(self.redirect_uri)

    def _check(self, pasted: str, url: str, state: str) -> str:
        """The pasted URL.

        Raises:
            ValueError: It is none that the person was redirected to. The text says why, and what to do.
        """
        if not pasted:
            raise ValueError("Paste the URL, or press Ctrl-D to give up.")
        if pasted == url:
            raise ValueError("This is the URL to open. Paste the one that you are sent to after the login.")
        if not is_same_page(pasted, self.redirect_uri):
            raise ValueError(f"The URL begins with {clean(excerpt(self.redirect_uri))}, and then has a code.")
        try:
            parameters = read_redirect(pasted, state)
        except ValueError:
            problem = "This URL is not whole, or from another login: its state is not that of this one."
            raise ValueError(problem) from None
        if not {"code", "error"} & parameters.keys():
            raise ValueError("This URL is not whole: it has no code.")
        return pasted


@dataclass
class _ByFunction:
    function: Callable[[str], Awaitable[str]]
    redirect_uri: str

    @asynccontextmanager
    async def open(self, preferred: str | None) -> AsyncIterator[Redirection]:
        yield self

    async def authorize(self, url: str, state: str, *, server: str) -> str:
        host = check_url(url)
        try:
            redirect = await self.function(url)
        except LoginFailed as exc:
            exc.code = exc.code or ACCESS_DENIED
            raise
        if not isinstance(redirect, str):
            raise TypeError(f"a login function returns a URL as text, not {type(redirect).__name__}")
        redirect = Secret(redirect)
        try:
            read_redirect(redirect, state)
        except ValueError:
            raise LoginFailed(f"the login at {host} came back with another state than it began with") from None
        return redirect


def check_url(url: str) -> str:
    """The host of an authorization request's URL.

    Raises:
        AddressRefused: It is not for a browser: "clients MUST [...] only allow http and https" (security best practices).
    """
    if not is_web_url(url):
        scheme = quoted(url.partition(":")[0], 20)
        raise AddressRefused(f"the URL of the login is not opened: it is no plain https URL, and begins with {scheme}")
    host = host_of(url)
    if has_user(url):
        raise AddressRefused(f"the login at {host} is not opened: its URL has a user, which looks like a host")
    if url.lower().startswith("http:") and kinds_of_host(host) != {Kind.LOOPBACK}:
        raise AddressRefused(f"the login at {host} is not opened: its URL is not https")
    return host
