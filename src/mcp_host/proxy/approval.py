"""Approval of requests for the proxy's model: by the user of the host, or by the name of the tool."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from inspect import isawaitable

from anyio.lowlevel import checkpoint

from mcp_host.errors import McpError
from mcp_host.protocol.jsonrpc import Params
from mcp_host.proxy.answers import AskedHost, HostCall, asked_host
from mcp_host.proxy.translation import ELICIT, host_answers
from mcp_host.sampling import Allow, Approve, Deny, SamplingRequest
from mcp_host.sampling.display import describe
from mcp_host.slots import current_slot
from mcp_host.terminal.text import Layout
from mcp_host.types import ElicitResult

COLUMNS = 100  # of the text in the form, which hosts wrap
CANNOT_ASK = "the host of this proxy cannot ask its user whether the model may answer"
HOW_TO_ALLOW = f"{CANNOT_ASK}: allow tools by their names (--allow), or everything (--approve always)"
CALL_UNKNOWN = (
    f"{CANNOT_ASK}, and it is not known which call of a tool this is for: make one call at a time, or allow everything"
    " (--approve always)"
)
SHOW_ALL = "show all"
ANSWERS: Mapping[object, Allow | Deny] = {"once": Allow(), "for this call": Allow("call"), "no": Deny()}


async def ask_host(request: SamplingRequest) -> Allow | Deny:
    """Ask the user of the host whether the proxy's model may answer, in a form with what `ask_in_terminal` shows.

    Denied if the host shows no forms, or if its user declines or closes the form. For ``Sampling(approve=...)`` of a `Proxy`.
    """
    host = asked_host.get()
    if host is None or not host_answers(ELICIT, {}, host.capabilities):
        return Deny(CALL_UNKNOWN if request.outer is None else HOW_TO_ALLOW)
    slot = current_slot()
    assert slot is not None, "a sampling request runs in a slot"
    return await slot.lend(partial(_ask_user, host, request))  # this user may never decide, and others have their own


async def _ask_user(host: AskedHost, request: SamplingRequest) -> Allow | Deny:
    try:
        given = await _answer(host, request, [*ANSWERS, SHOW_ALL])
        if given == SHOW_ALL:
            given = await _answer(host, request, [*ANSWERS], whole=True)
    except McpError as exc:  # it answers with an error, or with what is no result of a form
        return Deny(f"the host has not asked its user: {exc}")
    return ANSWERS.get(given, Deny())


async def _answer(host: AskedHost, request: SamplingRequest, answers: list[object], *, whole: bool = False) -> object:
    answer = {"type": "string", "title": "May the model answer?", "enum": answers}
    form: Params = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    params: Params = {"mode": "form", "message": await _message(request, whole=whole), "requestedSchema": form}
    result = ElicitResult.from_wire(await host.ask(ELICIT, params))
    given = (result.content or {}).get("answer") if result.action == "accept" else None
    return given if isinstance(given, str) else None


async def _message(request: SamplingRequest, *, whole: bool) -> str:
    rows = list[str]()
    for row in describe(request, Layout(COLUMNS), whole=whole, hint=f'the answer "{SHOW_ALL}" shows it'):
        if row is None:
            await checkpoint()  # a long request is laid out in portions
        else:
            rows.append(row)
    return "\n".join(rows)


def allow_tools(*patterns: str, otherwise: Approve) -> Approve:
    """Allow requests within calls of the tools that have one of these names, such as ``plan_*``. *otherwise* decides the rest.

    They are the names that the host sees.
    """

    async def approve(request: SamplingRequest) -> Allow | Deny:
        outer = request.outer
        tool = outer.name if outer is not None and outer.method == "tools/call" else None
        if outer is not None and isinstance(outer.caller, HostCall) and tool is not None:
            tool = outer.caller.call.request.params["name"]  # the server may have another name for it
        if tool is not None and any(fnmatchcase(tool, pattern) for pattern in patterns):
            return Allow()
        decided = otherwise(request)
        return await decided if isawaitable(decided) else decided

    return approve
