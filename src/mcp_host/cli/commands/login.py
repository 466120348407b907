"""The commands that begin, show and end a login."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from mcp_host.auth import LoginFailed, OAuth, Saved
from mcp_host.auth.requests.urls import shown
from mcp_host.cli.authorization import asked_scopes, authorization
from mcp_host.cli.connection import connected
from mcp_host.cli.console import Console
from mcp_host.cli.options import NAME, Options
from mcp_host.cli.output import Printer, Report, UsageError, print_aside
from mcp_host.concurrency import signals
from mcp_host.errors import excerpt
from mcp_host.transports.http import StreamableHttp

UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def run(options: Options) -> Report:
    """Log in, log out, or tell who is logged in.

    Raises:
        UsageError: The URL or an option is invalid.
        LoginFailed: There is no login.
        McpError: As the client and its authorization do.
    """
    assert options.url is not None, "the arguments see to it"
    url = options.url
    try:
        transport = StreamableHttp(url, uds=options.uds)  # it checks the URL, which is not connected to by all three
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    url = url if options.uds is None else transport.identity
    auth = authorization(options, Console())
    return signals.run(RUN[options.verb], auth, url, options)


async def _who_am_i(auth: OAuth, url: str, options: Options) -> Report:
    saved = await auth.saved(url)
    if saved is None or saved.token is None:
        raise LoginFailed(f"there is no login for {shown(url)}: run {_command('login', options)}")
    return _about(url, saved)


class _Console(Console):
    """The console, and whether a person was asked to log in there."""

    has_asked = False

    def login(self) -> AbstractAsyncContextManager[None]:
        self.has_asked = True
        return super().login()


async def _log_in(auth: OAuth, url: str, options: Options) -> Report:
    heading = f"Already logged in. To log in anew, run {_command('logout', options)} first."
    console = _Console()
    saved = await auth.saved(url)
    is_wanted = saved is not None and _lacks(saved, options)
    if not is_wanted:
        async with connected(options, console=console):
            pass
        saved = await auth.saved(url)
        is_wanted = saved is None or saved.token is None
    if is_wanted or console.has_asked:
        heading = "Logged in."
    if is_wanted:  # only some tools may want a login
        try:
            saved = await auth.login(url)
        finally:
            if options.verbose:
                print_aside(auth.explain())
    if saved is None or saved.token is None:
        text = f"{shown(url)} wants no login."
        document = {"server": shown(url), "login": False}
        return Report(document=document, show=lambda printer: printer.line(text))
    return _about(url, saved, heading)


def _command(verb: str, options: Options) -> str:
    """The command for the same server."""
    at_socket = "" if options.uds is None else f" --uds {options.uds}"
    return f"{NAME} {verb} {shown(options.url or '')}{at_socket}"


def _lacks(saved: Saved, options: Options) -> bool:
    """Whether the options ask for another client or further scopes than those of the login."""
    if saved.token is None:
        return False
    scopes = set(asked_scopes(options)) - set(saved.token.scopes)
    return bool(scopes) or options.client_id not in (None, saved.client.id)


async def _log_out(auth: OAuth, url: str, options: Options) -> Report:
    saved = await auth.saved(url)
    is_revoked = await auth.logout(url)
    if options.verbose:
        print_aside(auth.explain())
    if saved is None or saved.token is None:
        text = f"There was no login for {shown(url)}."
    elif is_revoked:
        text = "Logged out. The authorization server has revoked the token."
    else:
        why = "; ".join(f"{step.action}: {step.outcome}" for step in auth.steps)
        text = f"Logged out. The token is forgotten, but not revoked ({why})."
    was_logged_in = saved is not None and saved.token is not None
    document = {"server": shown(url), "wasLoggedIn": was_logged_in, "revoked": is_revoked}
    return Report(document=document, show=lambda printer: printer.line(text))


def _about(url: str, saved: Saved, heading: str = "") -> Report:
    token = saved.token
    assert token is not None, "there is a login"
    end = None if token.expires_at is None else datetime.fromtimestamp(token.expires_at, UTC)
    left = None if end is None else (end - datetime.now(UTC)).total_seconds()
    document: dict[str, object] = {
        "server": shown(url),
        "issuer": saved.server.issuer,
        "client": saved.client.id,
        "scopes": list(token.scopes),
        "expiresAt": None if end is None else end.isoformat(timespec="seconds"),
        "expiresIn": None if left is None else round(left),
        "refreshes": token.refresh_token is not None,
    }

    def show(printer: Printer) -> None:
        if heading:
            printer.line(heading)
        printer.field("server", shown(url))
        printer.field("issuer", excerpt(saved.server.issuer))
        printer.field("client", excerpt(saved.client.id))
        printer.field("scopes", excerpt(" ".join(token.scopes)) or "those that the server gives by default")
        printer.field("expires", "the server does not say" if end is None or left is None else _when(end, left))
        if token.refresh_token is not None:
            printer.field("", "It is renewed without a login.")

    return Report(document=document, show=show)


def _when(end: datetime, left: float) -> str:
    seconds, unit = next((unit for unit in UNITS if abs(left) >= unit[0]), UNITS[-1])
    count = int(abs(left) // seconds)
    span = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{end:%Y-%m-%d %H:%M} UTC, {f'in {span}' if left > 0 else f'{span} ago'}"


RUN = {"login": _log_in, "logout": _log_out, "whoami": _who_am_i}
