"""Asking a person in the terminal whether a server may use the model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

from mcp_host.sampling.approval import Allow, Deny
from mcp_host.sampling.display import SeenBefore, describe
from mcp_host.sampling.request import SamplingRequest
from mcp_host.terminal.device import NoTerminal, Terminal, open_terminal
from mcp_host.terminal.text import Layout

ALLOW = {
    **dict.fromkeys(("y", "yes"), Allow()),
    **dict.fromkeys(("a", "all"), Allow("call")),
    **dict.fromkeys(("s", "session"), Allow("session")),
}
DENY = dict.fromkeys(("n", "no", ""), Deny())
VIEW: dict[str, Literal["view"]] = dict.fromkeys(("v", "view", "?"), "view")

_seen_before = SeenBefore()


async def ask_in_terminal(request: SamplingRequest, /) -> Allow | Deny:
    """Show the request in the terminal and ask whether the model may answer it.

    "y" allows this request, "a" everything that the same call asks for (offered if the call is known), "s"
    everything on this connection; the last two for the same tools or fewer, see `Allow`.
    "n", Enter and Ctrl-D deny. "v" shows the whole request and asks again. Anything else asks again, twice at most.

    Messages, tools and system prompt that were shown for the same call before are not shown again, only counted.

    It asks in the terminal of the standard streams, else in the controlling terminal of
    the process, like ssh and sudo. Without a terminal (a service, CI), or if
    the host runs in the background, the answer is `Deny`. Input from before the
    question does not count, nor do further lines of a paste. The host must not read from the same terminal
    meanwhile. A timeout or cancellation ends the question at once and leaves
    nothing behind that reads from the terminal.

    POSIX only. A wait for a Windows console cannot be cancelled, so there the
    answer is `Deny`; use an approver of your own.
    """
    try:
        async with open_terminal() as terminal:
            return await ask(request, terminal)
    except NoTerminal as exc:
        return Deny(str(exc))


async def ask(request: SamplingRequest, terminal: Terminal) -> Allow | Deny:
    """Ask in an open terminal."""
    scopes = ("request", "session") if request.outer is None else ("request", "call", "session")
    allow = {word: decision for word, decision in ALLOW.items() if decision.scope in scopes}
    keys = "/".join([*(word for word in allow if len(word) == 1), "v", "N"])
    await terminal.show(chain([""], describe(request, terminal.layout, seen=_seen_before.seen(request))))
    _seen_before.add(request)
    while True:
        await terminal.show(_keys(request, terminal.layout))
        answers: dict[str, Allow | Deny | Literal["view"]] = {**allow, **DENY, **VIEW}
        decision = await terminal.choose("May your model answer?", keys, answers)
        if decision != "view":
            return decision or Deny()
        await terminal.show(describe(request, terminal.layout, whole=True))


def _keys(request: SamplingRequest, layout: Layout) -> Iterator[str]:
    """What the keys mean, in rows that fit the narrowest terminal."""
    yield ""
    yield from layout.ours("y: yes, this once")
    if request.outer is not None:
        yield from layout.ours("a: yes, and all else of this call")
    yield from layout.ours("s: yes, and all on this connection")
    yield from layout.ours("v: view the whole request")
    yield from layout.ours("Other tools are asked about again.", "dim")
