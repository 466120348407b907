"""Asking a person in the terminal: may a server use the model, may our client call a tool, may a server be started."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

from mcp_host.sampling.approval import Allow, Deny
from mcp_host.sampling.display import (
    SeenBefore,
    ToolCallRequest,
    describe,
    describe_call,
    describe_server,
    digests_of,
)
from mcp_host.sampling.proposed_server import ProposedServer
from mcp_host.sampling.request import SamplingRequest
from mcp_host.terminal.device import NoTerminal, Terminal, open_terminal
from mcp_host.terminal.text import Layout, Rows

ALLOW = {
    **dict.fromkeys(("y", "yes"), Allow()),
    **dict.fromkeys(("a", "all"), Allow("call")),
    **dict.fromkeys(("s", "session"), Allow("session")),
}
DENY = ("n", "no", "")
VIEW: dict[str, Literal["view"]] = dict.fromkeys(("v", "view", "?"), "view")

CALL_REFUSED = "the user refused it"
VIEW_FIRST = "Not all of it is shown here: you can agree once you have viewed it."

_seen_before = SeenBefore()


async def ask_in_terminal(request: SamplingRequest | ToolCallRequest | ProposedServer, /) -> Allow | Deny:
    """Show the request in the terminal and ask whether the model may answer it, or whether this tool may be called.

    It approves both kinds: ``Sampling(..., approve=ask_in_terminal)`` and ``approve_tool_calls(ask_in_terminal)``. Of
    ``ClientGroup.from_file(..., approve_servers=ask_in_terminal)`` it asks whether a server may be started.

    "y" allows this request or this call, "n", Enter and Ctrl-D deny it. "v" shows it whole and asks again.
    Anything else asks again, twice at most.

    For a sampling request, "a" allows everything that the same call asks for (offered if the call is known), and "s"
    everything on this connection, both for the same tools or fewer, see `Allow`.
    Messages, tools and system prompt that were shown for the same call before are not shown again, only counted.

    For a server of a file (`ProposedServer`), "y" holds until it changes. If parts were cut, it is offered after "v".

    For a tool call (`ClientRequest`), "s" allows this tool for the session (offered if the tool is listed), see
    `approve_tool_calls`.

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


async def ask(request: SamplingRequest | ToolCallRequest | ProposedServer, terminal: Terminal) -> Allow | Deny:
    """Ask in an open terminal."""
    if isinstance(request, SamplingRequest):
        digests = await digests_of(request)
        await terminal.show(chain([""], describe(request, terminal.layout, seen=_seen_before.seen(digests))))
        _seen_before.add(digests)
        return await _decide(_about_model(request), partial(describe, request, whole=True), terminal)
    if isinstance(request, ProposedServer):
        shown = list(describe_server(request, terminal.layout))
        await terminal.show(chain([""], shown))
        is_cut = shown != list(describe_server(replace(request, settings=()), terminal.layout, whole=True))
        question = _about_server(request, has_more=is_cut or bool(request.settings))
        return await _decide(question, partial(describe_server, request, whole=True), terminal, view_first=is_cut)
    await terminal.show(chain([""], describe_call(request, terminal.layout)))
    return await _decide(_about_tool(request), partial(describe_call, request, whole=True), terminal)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question, what its keys mean besides "n", a note on them, and what "n" decides."""

    text: str
    keys: Mapping[str, str]
    note: str
    deny: Deny

    def rows(self, layout: Layout) -> Iterator[str]:
        """What the keys mean, in rows that fit the narrowest terminal."""
        yield ""
        for key, meaning in self.keys.items():
            yield from layout.ours(f"{key}: {meaning}")
        yield from layout.ours(self.note, "dim")


def _about_model(request: SamplingRequest) -> _Question:
    call = {} if request.outer is None else {"a": "yes, and all else of this call"}
    keys = {"y": "yes, this once", **call, "s": "yes, and all on this connection", "v": "view the whole request"}
    return _Question("May your model answer?", keys, "Other tools are asked about again.", Deny())


def _about_tool(request: ToolCallRequest) -> _Question:
    listed = request.tool is not None
    session = {"s": "yes, this tool for the session"} if listed else {}
    keys = {"y": "yes, this call", **session, "v": "view the whole call"}
    note = "A changed tool is asked about again." if listed else "Each call of this tool is asked about."
    return _Question("May your client call it?", keys, note, Deny(CALL_REFUSED))


def _about_server(proposed: ProposedServer, *, has_more: bool) -> _Question:
    text, what = ("Start this server?", "its command") if proposed.kind == "command" else ("Connect to it?", "its URL")
    parts = f" or {what}" if proposed.env_file is None else f", {what} or the file of variables"
    view = {"v": "view the whole entry"} if has_more else {}
    keys = {"y": f"yes, until its entry{parts} changes", **view}
    return _Question(text, keys, "A refusal holds until the next start.", Deny(CALL_REFUSED))


async def _decide(
    question: _Question, whole: Callable[[Layout], Rows], terminal: Terminal, *, view_first: bool = False
) -> Allow | Deny:
    """Ask until there is a decision. With *view_first*, only what was viewed can be allowed."""
    asked = replace(question, keys={"v": question.keys["v"]}, note=VIEW_FIRST) if view_first else question
    while True:
        allow = {word: decision for word, decision in ALLOW.items() if word[0] in asked.keys}
        view = VIEW if "v" in asked.keys else {}
        answers: dict[str, Allow | Deny | Literal["view"]] = {**allow, **dict.fromkeys(DENY, asked.deny), **view}
        await terminal.show(asked.rows(terminal.layout))
        decision = await terminal.choose(asked.text, "/".join([*asked.keys, "N"]), answers)
        if decision != "view":
            return decision or asked.deny
        await terminal.show(whole(terminal.layout))
        asked = question
