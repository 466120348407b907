"""The authorization of a command for the server at a URL: where tokens are kept, and how a person logs in."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from mcp_host import auth
from mcp_host.auth.grants import Token, TokenEndpoint
from mcp_host.auth.login.device import code_rows
from mcp_host.auth.login.limits import LOG_IN
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.discovery import BASIC, WITHOUT_METADATA
from mcp_host.auth.requests.urls import shown
from mcp_host.auth.shared_work import Uncancelled
from mcp_host.cli.console import Console
from mcp_host.cli.options import NAME, Options, secret_of
from mcp_host.cli.output import Printer, UsageError, clear_status_line
from mcp_host.concurrency.locked_file import state_file
from mcp_host.errors import excerpt

OPTIONS = {
    "pass Registered": "--client-id ID",
    "pass issuer_aliases": "--issuer-alias NAME=ISSUER",
    "pass shared_resources": "--shared-resource URL",
    f"pass {BASIC}": "-H 'Authorization: Basic ...'",
    LOG_IN: f"{NAME} login URL",
}
"""What the command has for what its errors say to do with `OAuth`."""

ARGUMENTS = {
    "authorization_params": "--authorization-param",
    "redirect_uri": "--redirect-uri",
    "id": "--client-id",
    "secret": "the secret of --client-secret-env",
}
"""The options for arguments of `OAuth`, with which the errors about them begin."""

ELSEWHERE = "If your browser is on another machine, log in with --use-device-code or --paste."


def authorization(options: Options, console: Console) -> auth.OAuth:
    """The authorization for the server of a command, with what is stored of earlier logins.

    Raises:
        UsageError: The secret of a client is missing, or an option cannot be used.
    """
    secret = None
    if options.client_id and options.client_secret_env is not None:
        secret = secret_of(options.client_secret_env, "the client's secret")
    try:
        client = auth.Registered(options.client_id, secret, issuer=options.issuer) if options.client_id else None
        return auth.OAuth(
            tokens=auth.FileTokens(tokens_file()),
            registration=auth.Dynamic(NAME) if client is None else client,
            login=login_of(options, console),
            issuer_aliases=dict(options.issuer_alias),
            shared_resources=options.shared_resource,
            authorization_params=dict(options.authorization_param),
            scopes=asked_scopes(options),
        )
    except ValueError as exc:
        argument, *rest = str(exc).split(" ", 1)
        raise UsageError(" ".join([ARGUMENTS.get(argument, argument), *rest])) from exc


def asked_scopes(options: Options) -> list[str]:
    """The scopes of ``--scope``, which may have several in one text."""
    return [scope for text in options.scope for scope in text.split()]


@contextmanager
def explaining(oauth: auth.OAuth, options: Options) -> Iterator[None]:
    """For a connection with *oauth*. If it fails, the error says what to pass to the command."""
    try:
        yield
    except auth.AuthError as exc:
        text, kind = str(exc), type(exc)
        for advice, option in OPTIONS.items():
            if advice in text:
                text += f"\nWith this command, that is {option}."
        if isinstance(exc, auth.LoginFailed) and _is_never_interactive(options):
            advice = _advice(options)
            text += f"{'' if advice in text else advice}{_as_option(exc.scopes)}"
        if any(step.action == WITHOUT_METADATA for step in oauth.steps):
            kind = auth.LoginFailed
            text = (
                f"{_shown_url(options)} wants authorization, and does not say where to log in. "
                f"If you have a token for it, pass that: -H 'Authorization: Bearer ...'\n{text}"
            )
        raise kind(text) from exc


def _advice(options: Options) -> str:
    return f": run {NAME} login {_shown_url(options)}"


def _as_option(scopes: Sequence[str]) -> str:
    return f" --scope {shlex.quote(excerpt(' '.join(scopes)))}" if scopes else ""


def tokens_file() -> Path:
    """Where the tokens of all servers are."""
    return state_file("tokens.json")


def login_of(options: Options, console: Console) -> auth.Login | auth.OnDevice:
    """How a person logs in, at *console*."""
    if options.paste:
        return _InTerminal(auth.paste(redirect_uri=options.redirect_uri), console)
    if options.use_device_code:
        return _OnDevice(console)
    if _is_never_interactive(options):
        return _NoLogin(options)
    return _InTerminal(auth.in_browser(redirect_uri=options.redirect_uri, hint=ELSEWHERE), console)


def _is_never_interactive(options: Options) -> bool:
    if options.paste or options.use_device_code or options.verb == "login":
        return False
    return options.no_login or not sys.stdin.isatty()


def _shown_url(options: Options) -> str:
    assert options.url is not None, "only a URL needs a login"
    return shown(options.url)


class _OnDevice(auth.OnDevice):
    """A login on another device. The code is shown on stderr: nothing is read, so that no terminal is needed."""

    def __init__(self, console: Console) -> None:
        super().__init__(self._show_code)
        self._console = console

    async def token(
        self, endpoint: TokenEndpoint, client: OAuthClient, uncancelled: Uncancelled, *, server: str
    ) -> Token:
        async with self._console.login():
            try:
                return await super().token(endpoint, client, uncancelled, server=server)
            except auth.DiscoveryFailed as exc:
                raise auth.DiscoveryFailed(f"{exc}: without a browser, log in with --paste") from exc

    async def _show_code(self, code: auth.DeviceCode) -> None:
        clear_status_line()
        printer = Printer(sys.stderr)
        printer.rows(code_rows(code, printer.layout))


class _InTerminal:
    """A login that writes to the terminal, on a line of its own."""

    def __init__(self, login: auth.Login, console: Console) -> None:
        self._login = login
        self._console = console

    @asynccontextmanager
    async def open(self, preferred: str | None) -> AsyncIterator[auth.Redirection]:
        async with self._console.login():
            clear_status_line()
            async with self._login.open(preferred) as redirection:
                yield redirection


class _NoLogin:
    """No login. The error says which command to use, also to the host of a proxy."""

    def __init__(self, options: Options) -> None:
        self._server = "this server" if options.url is None else shown(options.url)
        self._why = "--no-login was given" if options.no_login else "there is no terminal to ask in"
        self._advice = "" if options.url is None else _advice(options)

    def open(self, preferred: str | None) -> AbstractAsyncContextManager[auth.Redirection]:
        raise auth.LoginFailed(f"{self._server} needs a login, and {self._why}{self._advice}")
