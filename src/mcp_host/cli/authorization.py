"""The authorization of a command for the server at a URL: where tokens are kept, and how a person logs in."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from mcp_host.auth import Dynamic, FileTokens, Login, LoginFailed, OAuth, OnDevice, Redirection, Registered
from mcp_host.auth import in_browser as login_in_browser
from mcp_host.auth import paste as login_by_paste
from mcp_host.cli.arguments import NAME, Options
from mcp_host.cli.output import UsageError, clear_status_line


def authorization(options: Options) -> OAuth:
    """The authorization for the server of a command, with what is stored of earlier logins.

    Raises:
        UsageError: The secret of a client is missing.
    """
    client = None
    if options.client_id:
        client = Registered(options.client_id, _secret(options), issuer=options.issuer)
    return OAuth(
        tokens=FileTokens(tokens_file()),
        registration=Dynamic(NAME) if client is None else client,
        login=_login(options),
        scopes=[scope for text in options.scope for scope in text.split()],
    )


def tokens_file() -> Path:
    """Where the tokens of all servers are: in the folder of this user's programs for what they keep."""
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        folder = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(os.path.expanduser(folder), NAME, "tokens.json")


def _secret(options: Options) -> str | None:
    name = options.client_secret_env
    if name is None:
        return None
    if not (secret := os.environ.get(name)):
        raise UsageError(f"there is no environment variable {name}, which is to have the client's secret")
    return secret


def _login(options: Options) -> Login | OnDevice:
    if options.paste:
        return _AfterTheStatusLine(login_by_paste())
    if options.verb == "login" or (sys.stdin.isatty() and not options.no_login):
        return _AfterTheStatusLine(login_in_browser())
    return _NoLogin(options)


class _AfterTheStatusLine:
    """A login that writes to the terminal, on a line of its own."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def open(self, preferred: str | None) -> AbstractAsyncContextManager[Redirection]:
        clear_status_line()
        return self._login.open(preferred)


class _NoLogin:
    """No login: the person is told which command to use."""

    def __init__(self, options: Options) -> None:
        self._url = options.url
        self._why = "--no-login was given" if options.no_login else "there is no terminal to ask in"

    def open(self, preferred: str | None) -> AbstractAsyncContextManager[Redirection]:
        raise LoginFailed(f"{self._url} needs a login, and {self._why}: run {NAME} login {self._url}")
