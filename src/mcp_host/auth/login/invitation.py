"""What a person reads before they log in: which server asks for it, and at which host."""

from __future__ import annotations

from mcp_host.errors import excerpt
from mcp_host.terminal.browser import lookalike_rows
from mcp_host.terminal.text import Layout, Rows, clean


def asks(server: str) -> str:
    """Who asks for a login."""
    return f"{clean(excerpt(server))} asks you to log in at"


def invitation(server: str, host: str, layout: Layout) -> Rows:
    """The rows above a URL to open."""
    yield ""
    yield from layout.ours(asks(server), "bold")
    yield from layout.theirs("", lead=host)
    yield from lookalike_rows(host, layout)


def announcement(server: str, host: str, layout: Layout) -> Rows:
    """The rows about a page that a browser opens."""
    yield from layout.ours(asks(server))
    yield from layout.theirs(host)
    yield from layout.ours("See your browser.")
