"""The loop of a host: its model, the tools of its servers and its own functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from mcp_host.errors import ProtocolError, SamplingError
from mcp_host.handlers import as_async, check_plain
from mcp_host.limits import check_count, check_seconds
from mcp_host.protocol import conversation
from mcp_host.protocol.server_names import THIS_PROGRAM
from mcp_host.sampling.arguments import ArgumentChecker
from mcp_host.sampling.loop.approvals import Approvals, ApproveProposal, as_approvals
from mcp_host.sampling.loop.engine import MAX_TURNS, TIMEOUT, TOOL_TIMEOUT, LoopResult, Step, run_loop
from mcp_host.sampling.loop.refusals import refusal
from mcp_host.sampling.loop.results import MAX_RESULT_BYTES, Cut, for_model, head_and_tail
from mcp_host.sampling.loop.tools import MAX_TOOLS, LoopTool, read_tools
from mcp_host.sampling.request import AsyncHandler, Handler, SamplingRequest
from mcp_host.sampling.structured.prompts import Choice, Message, read_conversation
from mcp_host.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    JSONObject,
    ToolChoice,
    ToolUseContent,
)
from mcp_host.types.base import given
from mcp_host.types.texts import readable, readable_model

MAX_TOKENS = 4096  # of one answer


async def run_tool_loop(
    model: Handler,
    prompt: str | None = None,
    *,
    messages: Sequence[Message] | None = None,
    tools: Sequence[LoopTool] = (),
    tool_choice: Choice | None = None,
    system_prompt: str | None = None,
    max_tokens: int = MAX_TOKENS,
    temperature: float | None = None,
    stop_sequences: Sequence[str] | None = None,
    metadata: JSONObject | None = None,
    approve: ApproveProposal | Approvals | None = None,
    max_tools: float = MAX_TOOLS,
    max_turns: int = MAX_TURNS,
    timeout: float = TIMEOUT,
    tool_timeout: float = TOOL_TIMEOUT,
    max_result_bytes: int = MAX_RESULT_BYTES,
    cut: Cut = head_and_tail,
    check_arguments: bool = True,
    caller: object = None,
    on_turn: Callable[[Step], Awaitable[None] | None] | None = None,
) -> LoopResult:
    """Ask *model*, run the tools that it calls, give it their results, and so on until it stops.

    *model* is a sampling handler, as for `Sampling`. The conversation is *prompt*, or *messages*: ours, those of a
    server's prompt, or dicts in the shape of MCP or of OpenAI's chat completions. `LoopResult.messages` is what to go on
    with.

    *tools* are connected clients, with every tool that they list now, and typed functions or `FunctionTool`s. Plain
    functions run in a thread. All together are *max_tools* at most; `math.inf` is no limit. *tool_choice* is "auto", "required", "none" or the name of a tool that the
    model is asked to call; "required" and a name hold until the model has obeyed once. The loop does not enforce them: a
    model that answers without a call ends it, and one that calls another tool gets its result and is asked again.

    *approve* decides on each call before it is made, one after the other, such as `ask_in_terminal`. It gets a
    `ProposedCall`. `Deny` tells the model the reason. ``Allow("session")`` allows that tool for the rest of the
    loop; of `Approvals`, in their place, for as long as these live. Without *approve*, what `ClientGroup` was given for its
    tools decides about these, and every other call is made; `approve_tool_calls` of a client asks nevertheless.

    The calls of one answer run at once. A tool that is unknown, fails, is denied, takes longer than
    *tool_timeout*, or gets arguments that do not fit its `inputSchema` (unless *check_arguments* is false), is
    an error result for the model, and the loop goes on.

    The model is asked *max_turns* times at most, the last time with the tool choice "none", so that it answers.
    *timeout* is for the whole loop, after the tools are listed, *tool_timeout* for one call and for listing the tools of
    a client. Both are in seconds, and neither runs while *approve* decides. While a client answers what its server
    asks within the call, *tool_timeout* does not run.

    The model gets a result once, if its text and its structured content say the same, and cut to
    *max_result_bytes* of text by *cut*. The steps have the whole result. *on_turn* gets each `Step` when it
    has ended. *caller* is passed to `Client.call_tool`.

    If you cancel it, nothing goes on: servers are told that their calls are cancelled. A thread cannot be stopped; what
    it returns is lost.

    Raises:
        TypeError, ValueError: An argument is wrong, two tools have the same name, or there are too many. The model was not
            asked.
        McpError: A client could not list its tools; the model was not asked.
        SamplingError: The model returned no answer.
        Exception: The model, *approve*, *cut* or *on_turn* raised it. So is a TypeError if *cut* returns no result.
    """
    check_seconds("tool_timeout", tool_timeout, zero=False)
    check_count("max_result_bytes", max_result_bytes)
    check_count("max_tools", max_tools, least=0)
    check_plain(cut, argument="cut", shape=None)
    if not isinstance(check_arguments, bool):
        raise TypeError(f"check_arguments is True or False, not {type(check_arguments).__name__}")
    wanted, found = read_conversation(prompt, messages)
    if system_prompt is not None and found is not None:
        raise ValueError("the system prompt is given twice: as an argument, and in the messages")
    system = system_prompt or found
    ask: AsyncHandler = as_async(model, argument="model", shape="(request: SamplingRequest) -> CreateMessageResult")
    approvals = None if approve is None else as_approvals(approve)
    checker = ArgumentChecker(subject="tool loop") if check_arguments else None
    turn = None if on_turn is None else as_async(on_turn, argument="on_turn", shape="(step: Step) -> None")
    offered = await read_tools(tools, timeout=tool_timeout, caller=caller, most=max_tools)
    if isinstance(stop_sequences, str):
        raise TypeError("stop_sequences must be a list of str, not a str")
    definitions, choice = [tool.definition for tool in offered.values()], _choice(tool_choice)
    try:
        conversation.check_tools(definitions, choice)
    except ProtocolError as exc:
        raise ValueError(str(exc)) from None

    async def permit(use: ToolUseContent) -> CallToolResult | None:
        return await refusal(offered[use.name], use.input, caller=caller, checker=checker, approvals=approvals)

    optional = given(
        tools=definitions or None,
        tool_choice=choice,
        system_prompt=None if system is None else readable(system),
        temperature=temperature,
        stop_sequences=None if stop_sequences is None else list(stop_sequences),
        metadata=metadata,
    )
    return await run_loop(
        partial(_ask, ask),
        CreateMessageRequestParams(messages=[*map(readable_model, wanted)], max_tokens=max_tokens, **optional),
        tools={name: tool.run for name, tool in offered.items()},
        permit=permit,
        write_result=partial(for_model, max_bytes=max_result_bytes, cut=cut),
        max_turns=max_turns,
        timeout=timeout,
        on_turn=turn,
    )


async def _ask(model: AsyncHandler, params: CreateMessageRequestParams) -> CreateMessageResult:
    request = SamplingRequest(params=params, server=THIS_PROGRAM)
    answer: object = await model(request)
    if isinstance(answer, str):
        return request.reply(answer)
    if not isinstance(answer, CreateMessageResult):
        raise SamplingError(
            f"the type of the model's answer is {type(answer).__name__}, not CreateMessageResult or str"
        )
    return answer


def _choice(choice: Choice | None) -> ToolChoice | None:
    if choice is None or isinstance(choice, ToolChoice):
        return choice
    modes = ("auto", "none", "required")
    return ToolChoice.from_wire({"mode": choice} if choice in modes else {"mode": "required", "name": choice})
