"""A URL that a person visits: whether it is fit for a browser, how it is shown, and opening it."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from traceback import format_exception
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from anyio import move_on_after

from mcp_host.concurrency.tasks import awaited
from mcp_host.concurrency.threads import run_in_daemon

if TYPE_CHECKING:
    from mcp_host.terminal.text import Layout

logger = logging.getLogger(__name__)

# An address or a name, without the %-escapes that only browsers decode, and a port.
AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?", re.IGNORECASE)
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)

IN_TERMINAL = ("www-browser", "links", "elinks", "lynx", "w3m")
"""Browsers of the `webbrowser` module that would take this terminal."""

MAX_PORT = 65_535
KEPT = "%:/?#[]@!&()*+,;=~"  # besides letters and digits; "$", "'" and "`" mean something to shells
STARTING = 5.0  # seconds; `webbrowser` itself waits so long for browsers that it knows


def is_web_url(url: str) -> bool:
    """Whether *url* is http or https, and every program finds the same host in it.

    Programs disagree about blanks, control characters and backslashes, about what may follow an IPv6 address, and about
    numbers: browsers visit 127.0.0.1 for ``http://127.1/``. The user could consent to one host and visit another.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and _is_plain(parts.netloc.rpartition("@")[2])
    except ValueError:
        return False


def _is_plain(authority: str) -> bool:
    """Whether this is a host, perhaps with a port. https://url.spec.whatwg.org/#host-parsing

    Raises:
        ValueError: It has an address that is none.
    """
    match = AUTHORITY.fullmatch(authority)
    if match is None or int(match["port"] or 0) > MAX_PORT:
        return False
    if match["ipv6"] is not None:
        return bool(IPv6Address(match["ipv6"]))
    if NUMBER.fullmatch(match["name"].removesuffix(".").rpartition(".")[2]):  # "ends in a number": no name may
        return bool(IPv4Address(match["name"]))
    return True


def host_of(url: str) -> str:
    """The host of a web URL, in lower case, without user, password and port. International names are in Punycode."""
    return urlsplit(url).hostname or ""


def lookalike_rows(host: str, layout: Layout) -> Iterator[str]:
    """A warning if *host* has letters that may look like others."""
    if any(label.startswith("xn--") for label in host.split(".")):
        yield from layout.ours(
            "This host has letters that may look like others: is it the one that you know?", "yellow"
        )


async def is_opened(url: str, opener: Callable[[str], Awaitable[object]]) -> bool:
    """Whether *opener* opens *url*. If it fails, the log says so: of the application's opener in full, but for the URL."""
    try:
        return bool(await awaited(opener(url), "it"))
    except Exception as exc:
        problem = type(exc).__name__
        if opener is not open_default:  # the text of `webbrowser` may have the URL in another spelling
            problem = "".join(format_exception(exc)).replace(url, "(the URL)")
        logger.warning("the browser could not be opened: %s", problem)
        return False


async def open_default(url: str, *, starting: float = STARTING) -> bool:
    """Open a web URL in the default browser, unless that one would run in this terminal. Returns whether it opens.

    The default browser is that of the standard library's `webbrowser`, which knows ``$BROWSER`` and uses no shell.
    The URL is percent-encoded where it could mean something to a command that is a script. A browser that has not
    ended after *starting* seconds is open: some run as long as their window.
    """
    with move_on_after(starting):
        return await run_in_daemon(_open, url)
    return True


def _open(url: str) -> bool:
    import webbrowser  # takes a while, and few clients need it

    # `webbrowser` replaces "%action", which is also an encoded byte and a word; hex digits have no case.
    argument = quote(url, safe=KEPT).replace("%action", "%ACtion")
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    return getattr(browser, "basename", None) not in IN_TERMINAL and browser.open(argument)
