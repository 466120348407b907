"""Which functions may be registered, and what a handler may return."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp_host import (
    Allow,
    Approve,
    Client,
    Deny,
    Elicitation,
    FormHandler,
    FormRequest,
    Handler,
    OnElicitationComplete,
    OwnTools,
    RootLike,
    RootsHandler,
    RootsRequest,
    Sampling,
    SamplingRequest,
    Stdio,
    UrlHandler,
    UrlRequest,
    always,
    ask_in_terminal,
    fill_in_terminal,
    open_in_browser,
)
from mcp_host.middleware import ApproveToolCall, ClientRequest, approve_tool_calls
from mcp_host.types import CallToolResult, CreateMessageResult, ElicitResult


async def asynchronous(request: SamplingRequest) -> CreateMessageResult:
    return request.call("add", {"a": 1}, model="m")


async def text(request: SamplingRequest) -> str:
    return "It is 3."


def plain(request: SamplingRequest) -> CreateMessageResult:
    return request.reply("It is 3.")


def plain_text(request: SamplingRequest) -> str:
    return "It is 3."


class Model:
    async def __call__(self, request: SamplingRequest) -> CreateMessageResult | str:
        return "It is 3."


def number(request: SamplingRequest) -> int:
    return 3


HANDLERS: list[Handler] = [asynchronous, text, plain, plain_text, Model(), lambda request: asynchronous(request)]
NO_HANDLER: Handler = number  # type: ignore[assignment]


async def ask(request: SamplingRequest) -> Allow | Deny:
    return Deny()


def by_rule(request: SamplingRequest) -> Allow:
    return Allow()


def truth(request: SamplingRequest) -> bool:
    return True


APPROVERS: list[Approve] = [always, ask_in_terminal, ask, by_rule]
NO_APPROVER: Approve = truth  # type: ignore[assignment]


async def approve_call(request: ClientRequest) -> Allow | Deny:
    return await ask_in_terminal(request)


CALL_APPROVERS: list[ApproveToolCall] = [ask_in_terminal, approve_call, lambda request: Deny()]
NO_CALL_APPROVER: ApproveToolCall = always  # type: ignore[assignment]
ASKS_ABOUT_CALLS = [approve_tool_calls(ask_in_terminal), approve_tool_calls(approve_call)]


async def fill_in(request: FormRequest) -> ElicitResult:
    return request.accept()


def fill_in_plainly(request: FormRequest) -> ElicitResult:
    return request.accept()


def visit(request: UrlRequest) -> ElicitResult:
    return request.decline()


def done(elicitation_id: str) -> None: ...


FORMS: list[FormHandler] = [fill_in, fill_in_plainly, fill_in_terminal]
URLS: list[UrlHandler] = [visit, open_in_browser]
NO_URL: UrlHandler = fill_in_plainly  # type: ignore[assignment]
DONE: OnElicitationComplete = done


async def folders() -> Sequence[RootLike]:
    return ["/srv"]


def folders_of(request: RootsRequest) -> list[Path]:
    return [Path("/srv")]


ROOTS: list[RootsHandler] = [folders, folders_of]


def what_is_registered() -> Client:
    Sampling(with_tools=number, approve=always)  # type: ignore[arg-type]
    Sampling(basic=plain, approve=truth)  # type: ignore[arg-type]
    Sampling(with_tools=text, approve=always, check_arguments="drop")  # type: ignore[arg-type]
    Elicitation(form=visit)  # type: ignore[arg-type]
    return Client(
        Stdio(["server"]),
        sampling=Sampling(with_tools=text, basic=plain, approve=by_rule, context=True, check_arguments="retry"),
        run_own_tools=OwnTools(max_turns=3),
        elicitation=Elicitation(form=fill_in, url=visit, on_complete=done),
        roots=folders_of,
    )


async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
    return CallToolResult(content=[])


async def call_by_wire(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": []}


async def call_by_name(name: str) -> CallToolResult:
    return CallToolResult(content=[])


async def list_tools() -> list[str]:
    return ["add"]


def what_runs_own_tools(client: Client, sampling: Sampling) -> None:
    client.run_own_tools = True
    client.run_own_tools = OwnTools(timeout=60)
    client.run_own_tools = 3  # type: ignore[assignment]
    sampling.callback(server="s", call_tool=call_tool, list_tools=list_tools, own_tools=OwnTools())
    sampling.callback(server="s", call_tool=call_by_wire)
    sampling.callback(server="s", call_tool=call_by_name)  # type: ignore[arg-type]


def arguments_are_a_mapping(request: SamplingRequest) -> None:
    request.call("add", a=1, b=2)  # type: ignore[call-arg]
    request.call("add", {"a": 1}, "m")  # type: ignore[call-arg]
