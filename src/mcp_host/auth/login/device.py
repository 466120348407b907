"""The device flow: a person logs in on any other device, with a code (RFC 8628).

It is no part of the specification of MCP. Servers that offer it have a ``device_authorization_endpoint`` in their metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from anyio import current_time, sleep

from mcp_host.auth.errors import DiscoveryFailed, LoginFailed, TokenRequestFailed
from mcp_host.auth.grants import Token, TokenEndpoint, authenticated
from mcp_host.auth.login.invitation import invitation
from mcp_host.auth.registration import DEVICE_CODE, OAuthClient
from mcp_host.auth.requests.urls import is_web, shown
from mcp_host.auth.shared_work import Uncancelled
from mcp_host.concurrency.asking import asking_person
from mcp_host.errors import excerpt
from mcp_host.handlers import as_async
from mcp_host.secret import Secret
from mcp_host.terminal.browser import host_of
from mcp_host.terminal.device import NoTerminal, open_terminal
from mcp_host.terminal.text import Layout, Rows

CODES = ("device_code", "user_code")
MAX_CODE = 64  # characters that a person compares or types; RFC 8628 suggests eight
INTERVAL = 5.0  # seconds between polls, where the server does not say (RFC 8628, section 3.2)
SLOWER = 5.0  # seconds more after each slow_down, and each poll that fails (section 3.5)
MAX_INTERVAL = 60.0
MAX_SECONDS = 1800.0  # that a code is waited for


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a person needs to log in on another device: the *url* to visit, and the *code* to type there.

    *complete_url*, of the same host, has the code in it. None if the server gave no such URL. *server* is the MCP server
    that asks for the login. Show it with *host*, where the login is: anyone can start a login and send a URL of it.
    """

    url: str
    code: str = field(repr=False)
    complete_url: str | None = field(default=None, repr=False)
    server: str = ""

    @property
    def host(self) -> str:
        """The host of *url*, in lower case. International names are in Punycode: one with ``xn--`` may look like another."""
        return host_of(self.url)


class OnDevice:
    """A login on another device. *show* gets the `DeviceCode`; the default shows it in the terminal.

    *sleep* and *now* are for tests: how to wait, and the time, in seconds.
    """

    def __init__(
        self,
        show: Callable[[DeviceCode], Awaitable[object] | object] | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = sleep,
        now: Callable[[], float] = current_time,
    ) -> None:
        self._sleep = sleep
        self._now = now
        self._show = _show if show is None else as_async(show, argument="show", shape="(code: DeviceCode) -> None")

    async def token(
        self, endpoint: TokenEndpoint, client: OAuthClient, uncancelled: Uncancelled, *, server: str
    ) -> Token:
        """The token, once the person has logged in. *server* is what they know the MCP server by.

        Each poll is *uncancelled*: its answer may be the token, which the server gives only once.

        Raises:
            DiscoveryFailed: The server has no device flow.
            LoginFailed: The person refused, or took too long.
            TokenRequestFailed: The server gave no code, or refused to give a token.
        """
        url = endpoint.server.device_authorization_endpoint
        if url is None:
            raise DiscoveryFailed(f"{excerpt(endpoint.server.issuer)} has no device_authorization_endpoint")
        code, device_code, interval, lifetime = await self._ask(endpoint, client, url, server)
        with asking_person():
            await self._show(code)
            fields = {"grant_type": DEVICE_CODE, "device_code": device_code}

            async def poll() -> Token:
                async with uncancelled():
                    return await endpoint.request(client, fields)

            return await self._poll(poll, interval, lifetime, shown(code.url))

    async def _poll(self, poll: Callable[[], Awaitable[Token]], interval: float, lifetime: float, url: str) -> Token:
        end = self._now() + lifetime
        where = f"the login at {url}"
        while self._now() + interval <= end:
            await self._sleep(interval)
            try:
                return await poll()
            except TokenRequestFailed as exc:
                match exc.code:
                    case "authorization_pending":
                        continue
                    case "slow_down":
                        interval = min(interval + SLOWER, MAX_INTERVAL)
                    case "access_denied":
                        raise LoginFailed(f"{where} was denied", exc.code) from exc
                    case "expired_token":
                        break
                    case _ if exc.refused:
                        raise
                    case _:  # of a server, or a network, that may be better a little later
                        interval = min(interval + SLOWER, MAX_INTERVAL)
        raise LoginFailed(f"{where} took too long: its code has expired")

    async def _ask(
        self, endpoint: TokenEndpoint, client: OAuthClient, url: str, server: str
    ) -> tuple[DeviceCode, str, float, float]:
        fields = {"resource": endpoint.resource}
        if endpoint.scopes:
            fields["scope"] = " ".join(endpoint.scopes)
        fields, headers = authenticated(client, fields, endpoint.server.issuer, endpoint.key)
        answer = await endpoint.http.post_form(url, fields, headers)
        document = answer.json or {}
        codes = [Secret(document[name]) for name in CODES if isinstance(document.get(name), str) and document[name]]
        page, complete = document.get("verification_uri"), Secret(document.get("verification_uri_complete"))
        has_codes = len(codes) == len(CODES) and len(codes[-1]) <= MAX_CODE
        if answer.status != 200 or not has_codes or not isinstance(page, str) or not is_web(page):
            raise endpoint.failed("device authorization", url, answer, "no code")
        endpoint.steps.add("device authorization", url, "a code")
        is_complete = is_web(complete) and host_of(complete) == host_of(page)
        interval = _seconds(document.get("interval"), INTERVAL, MAX_INTERVAL)
        lifetime = _seconds(document.get("expires_in"), MAX_SECONDS, MAX_SECONDS)
        device_code, user_code = codes
        code = DeviceCode(page, user_code, complete if is_complete else None, server)
        return code, device_code, interval, lifetime


def _seconds(value: object, default: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return default
    return float(min(value, most))  # in this order: an integer of a JSON text may be too large for a float


def code_rows(code: DeviceCode, layout: Layout) -> Rows:
    """The rows that show *code*."""
    yield from invitation(code.server, code.host, layout)
    yield from layout.ours("Open this URL on any device:")
    yield from layout.url(code.complete_url or code.url)
    yield from layout.ours("and compare this code, or type it there:")
    yield from layout.theirs(code.code, style="bold")


async def _show(code: DeviceCode) -> None:
    try:
        async with open_terminal() as terminal:
            await terminal.show(code_rows(code, terminal.layout))
    except NoTerminal as exc:
        raise LoginFailed(f"the code of the login cannot be shown: {exc}") from exc
