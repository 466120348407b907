"""What servers say about their use, for the system prompt of a host: under each server's name, as the server's words."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_host.types.texts import readable

MAX_INSTRUCTIONS = 8_192  # characters of one server: about 2,000 tokens, in every turn


def instructions_of_all(instructions: Mapping[str, str]) -> str | None:
    """The *instructions* by server, each quoted: no line of a server's can pass for ours, or for another server's."""
    quotes = {server: _quote(text) for server, text in instructions.items()}
    parts = [f"{_introduction(server)}\n\n{quote}" for server, quote in quotes.items() if quote]
    return "\n\n".join(parts) or None


def _introduction(server: str) -> str:
    return f'How the server "{server}" describes its use, in its own words:'


def _quote(text: str) -> str:
    head = readable(text[:MAX_INSTRUCTIONS].strip())  # no more is read: it is done for each turn of an agent
    if head and len(text) > MAX_INSTRUCTIONS:
        head = f"{head}…"
    return "\n".join(f"> {line}".rstrip() for line in head.splitlines())
