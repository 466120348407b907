"""The rules of a sampling conversation, checked before a model is called.

They are the "Message Content Constraints" of client/sampling (revision 2025-11-25, SEP-1577) and
the common rules of the providers' APIs. A broken conversation costs no tokens, and its author
learns which message is wrong:

    tool use        each with a unique id
    balance         "every assistant message containing ToolUseContent blocks MUST be
                    followed by a user message that consists entirely of
                    ToolResultContent blocks", each tool use answered exactly once
    content         at least one message, and no empty ones
    tools           unique names; at least one tool where tool use is required

Roles need not alternate: the specification does not demand it. That a tool use is the assistant's, and that
tool results are the user's and stand alone, are rules of the types: see `UserMessage` and `AssistantMessage`.

SEP-1577's first draft had one block per message, and servers written against it spread parallel
calls over several messages. `check_and_merge` merges those into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from mcp_host.errors import ProtocolError, quoted
from mcp_host.types import SamplingMessage, Tool, ToolChoice, ToolResultContent, ToolUseContent

TOOL_BLOCKS = frozenset({ToolUseContent, ToolResultContent})


def check_and_merge(messages: list[SamplingMessage]) -> list[SamplingMessage]:
    """Check a conversation, and merge parallel calls that a draft spread over several messages.

    A valid conversation is returned unchanged.

    Raises:
        ProtocolError: As `check()`, about the messages as the server sent them.
    """
    try:
        check(messages)
    except ProtocolError:
        merged = _merged(messages)
        if len(merged) < len(messages):
            with suppress(ProtocolError):  # about messages that the server did not send
                check(merged)
                return merged
        raise
    return messages


def check(messages: Sequence[SamplingMessage]) -> None:
    """Check a conversation from its first message to its last.

    Raises:
        ProtocolError: One sentence about the first broken rule, which names the message:
            ``messages[2]: tool_result 'call_9' answers no tool_use of the message before it``.
    """
    if not messages:
        raise ProtocolError("messages: there is none, and a model needs at least one")
    asked: list[str] = []  # the tool uses of the previous message, which this one has to answer
    used: set[str] = set()
    for index, message in enumerate(messages):
        content = message.content
        if content and not asked and TOOL_BLOCKS.isdisjoint(map(type, content)):
            continue  # the usual case: a message without tools
        uses = [block.id for block in content if isinstance(block, ToolUseContent)]
        results = [block.tool_use_id for block in content if isinstance(block, ToolResultContent)]
        problem = None if content else "it has no content"
        if problem is None and results != asked:
            problem = _unbalanced(results, asked, before=f"messages[{index - 1}]")
        for use in uses:
            if use in used:
                problem = problem or f"the id {quoted(use)} belongs to an earlier tool_use; each needs its own id"
            used.add(use)
        if problem is not None:
            raise ProtocolError(f"messages[{index}]: {problem}")
        asked = uses
    if asked:
        last = len(messages) - 1
        raise ProtocolError(f"messages[{last}]: tool_use {quoted(asked[0])} has no tool_result in a message after it")


def _merged(messages: list[SamplingMessage]) -> list[SamplingMessage]:
    """Merge consecutive messages of tool uses into one, and those of tool results; the others stay as they are."""
    turns: list[list[SamplingMessage]] = []
    for message in messages:
        if turns and _continues(message, turns[-1][-1]):
            turns[-1].append(message)
        else:
            turns.append([message])
    return [_joined(turn) for turn in turns]


def _continues(message: SamplingMessage, before: SamplingMessage) -> bool:
    kind = ToolUseContent if message.role == "assistant" else ToolResultContent
    kinds = set(map(type, message.content))
    return kinds == {kind} and message.role == before.role and kind in map(type, before.content)


def _joined(turn: list[SamplingMessage]) -> SamplingMessage:
    if len(turn) == 1:
        return turn[0]
    carried: dict[str, object] = {}
    meta: dict[str, object] = {}
    for message in turn:
        carried.update(message.model_extra or {})
        meta.update(message.meta or {})
    if meta:
        carried["meta"] = meta
    content = [block for message in turn for block in message.content]
    return turn[0].model_copy(update={**carried, "content": content})


def check_tools(tools: Sequence[Tool], choice: ToolChoice | None) -> None:
    """Check the tools and the tool choice of a request: names have to be unique.

    Raises:
        ProtocolError: One sentence about the first broken rule, which names the tool by its index.
    """
    first: dict[str, int] = {}
    for index, tool in enumerate(tools):
        name = tool.name
        if not name or not name.isprintable():  # `name_problem` is called only if there is one: see the test of shapes
            raise ProtocolError(f"tools[{index}]: {quoted(name)} is no name: {name_problem(name)}")
        if first.setdefault(name, index) != index:
            raise ProtocolError(f"tools[{index}]: tools[{first[name]}] has the name {quoted(name)} already")
    if not tools and choice is not None and choice.mode == "required":
        raise ProtocolError("toolChoice: a tool is required, and the request offers none")
    if choice is not None and choice.tool is not None and choice.tool not in first:
        raise ProtocolError(
            f"toolChoice: the tool {quoted(choice.tool)} is required, and the request does not offer it"
        )


def runs_only_as_task(tool: Tool) -> bool:
    """Whether a *tool* cannot be called, because this client declares no tasks."""
    return tool.execution is not None and tool.execution.task_support == "required"


def name_problem(name: str) -> str | None:
    """Why *name* is not one that a tool may have; None if it is."""
    return None if name and name.isprintable() else "it is empty or cannot be printed"


def _unbalanced(results: list[str], asked: list[str], *, before: str) -> str | None:
    if asked and not results:
        return f"tool_use {quoted(asked[0])} of {before} has to be answered here, before anything else is said"
    wanted = set(asked)
    answered: set[str] = set()
    for result in results:
        if result in answered:
            return f"tool_use {quoted(result)} has more than one tool_result"
        if result not in wanted:
            return f"tool_result {quoted(result)} answers no tool_use of the message before it"
        answered.add(result)
    missing = [use for use in asked if use not in answered]
    return f"tool_use {quoted(missing[0])} of {before} has no tool_result here" if missing else None
