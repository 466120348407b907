"""Asking a person in the terminal whether a server may use the model."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_host.sampling.approval import Allow, Deny, Scope
from mcp_host.sampling.display import SeenBefore, describe
from mcp_host.sampling.request import SamplingRequest
from mcp_host.terminal.device import NoTerminal, Terminal, open_terminal
from mcp_host.terminal.text import Layout

SCOPES: dict[str, Scope] = {
    **dict.fromkeys(("y", "yes"), "request"),
    **dict.fromkeys(("a", "all"), "call"),
    **dict.fromkeys(("s", "session"), "session"),
}
NO = ("n", "no", "")
VIEW = ("v", "view", "?")
MOST_UNCLEAR = 3  # answers that are no key; then the answer is no

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
    offered = {word: scope for word, scope in SCOPES.items() if scope != "call" or request.outer is not None}
    keys = "/".join([word for word in offered if len(word) == 1])
    await terminal.show(["", *describe(request, terminal.layout, seen=_seen_before.seen(request))])
    _seen_before.add(request)
    await terminal.show(_keys(request, terminal.layout))
    unclear = 0
    while unclear < MOST_UNCLEAR:
        answer = await terminal.ask(f"May your model answer? [{keys}/v/N] ")
        word = "n" if answer is None else answer.lower()
        if word in NO:
            return Deny()
        if word in offered:
            return Allow(offered[word])
        if word in VIEW:
            await terminal.show(describe(request, terminal.layout, whole=True))
            await terminal.show(_keys(request, terminal.layout))
        else:
            unclear += 1
            await terminal.show(
                terminal.layout.ours(f"Press one of {keys}/v/n and Enter. Enter alone means no.", "yellow")
            )
    await terminal.show(terminal.layout.ours("That was no clear answer, so it counts as no.", "yellow"))
    return Deny()


def _keys(request: SamplingRequest, layout: Layout) -> Iterator[str]:
    """What the keys mean, in rows that fit the narrowest terminal."""
    yield ""
    yield from layout.ours("y: yes, this once")
    if request.outer is not None:
        yield from layout.ours("a: yes, and all else of this call")
    yield from layout.ours("s: yes, and all on this connection")
    yield from layout.ours("v: view the whole request")
    yield from layout.ours("Other tools are asked about again.", "dim")
