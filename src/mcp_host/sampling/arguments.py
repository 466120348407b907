"""The arguments of a model's tool calls, checked with the input schemas of the tools before they leave."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from mcp_host.errors import UncheckableSchema, UnusableCalls, excerpt, quoted
from mcp_host.json_schema.integers import with_integers
from mcp_host.json_schema.plain import conforms
from mcp_host.types import (
    AssistantMessage,
    CreateMessageResult,
    SamplingMessage,
    Tool,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.sampling import AssistantContentBlock

if TYPE_CHECKING:
    from mcp_host.json_schema.schema import Schema

logger = logging.getLogger(__name__)

MAX_STEPS = (
    200_000  # of one check, which takes a second: enough for a tool of 64 KiB, with an argument for each of its members
)
MAX_SCHEMAS = 64  # prepared schemas that one checker keeps, the last ones used: as many as a request may offer tools

MISMATCH = "The arguments do not match the tool's inputSchema: {problem}"
NOT_RUN = "This call was not run, because another call of the same answer was not valid. Call the tool again."


@dataclass(slots=True)
class _KeptSchema:
    schema: Schema
    passes_all: bool = False
    """Whether a warning has said that it cannot be checked."""


class ArgumentChecker:
    """Checks the arguments of tool calls with the `inputSchema` of the tool: JSON Schema 2020-12, bounded, no network.

    It keeps the schemas of the last tools, because each takes a millisecond to prepare. Most calls need none of that:
    see `mcp_host.json_schema.plain`. Lines in the log begin with *subject*.
    """

    def __init__(self, *, subject: str) -> None:
        self._subject = subject
        self._kept: OrderedDict[str, _KeptSchema] = OrderedDict()
        self._lane = CapacityLimiter(1)

    async def problem(self, tool: Tool, arguments: Mapping[str, object]) -> str | None:
        """What is wrong with *arguments*: one sentence with the path, which contains none of their values.

        None if nothing is wrong, or if the schema cannot be checked. The log says so the first time.
        """
        if conforms(tool.input_schema, arguments):
            return None
        kept = self._keep(tool.input_schema)
        try:
            return await kept.schema.mismatch_async(arguments, self._lane, show_values=False)
        except UncheckableSchema as exc:  # its author checks the arguments, too
            if not kept.passes_all:
                kept.passes_all = True
                text = "%s: arguments of the tool %s go out unchecked: its inputSchema cannot be checked: %s"
                logger.warning(text, self._subject, quoted(tool.name), exc)
            return None

    async def problems(self, tools: Sequence[Tool], calls: Sequence[ToolUseContent]) -> dict[str, str]:
        """What is wrong with the arguments of *calls* of these *tools*, by the id of the call. Each problem is logged."""
        offered = {tool.name: tool for tool in tools}
        problems: dict[str, str] = {}
        for call in calls:
            if (problem := await self.problem(offered[call.name], call.input)) is not None:
                problems[call.id] = problem
                text = "%s: the model's arguments for the tool %s do not match its inputSchema: %s"
                logger.warning(text, self._subject, quoted(call.name), problem)
        return problems

    def _keep(self, source: dict[str, object]) -> _KeptSchema:
        from mcp_host.json_schema.schema import Schema  # a tenth of a second, which few clients ever need

        key = json.dumps(source)
        if (kept := self._kept.get(key)) is None:
            kept = self._kept[key] = _KeptSchema(Schema(source, max_steps=MAX_STEPS))
            if len(self._kept) > MAX_SCHEMAS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return kept


def with_integer_arguments(answer: CreateMessageResult, tools: Sequence[Tool]) -> CreateMessageResult:
    """*answer*, whose calls of *tools* have 30 for 30.0 where the inputSchema has an integer: see `with_integers`."""
    schemas = {tool.name: tool.input_schema for tool in tools}
    content: list[AssistantContentBlock] = []
    changed = False
    for block in answer.content:
        if isinstance(block, ToolUseContent):
            arguments = with_integers(schemas.get(block.name, {}), block.input)
            if arguments is not block.input:
                block, changed = block.model_copy(update={"input": arguments}), True
        content.append(block)
    return answer.model_copy(update={"content": content}) if changed else answer


def no_such_tool(name: str, tools: Sequence[Tool]) -> str:
    """What the model is told of a call of a tool that is none of *tools*."""
    return f"There is no tool {quoted(name)}. The tools are: {excerpt(', '.join([tool.name for tool in tools]))}"


def results_for(calls: Sequence[ToolUseContent], problems: Mapping[str, str]) -> UserMessage:
    """What the model is told about *calls*, none of which was run because some have *problems*, which are sentences."""
    return UserMessage([ToolResultContent.of(call, problems.get(call.id, NOT_RUN), is_error=True) for call in calls])


def turn_of(unusable: UnusableCalls) -> list[SamplingMessage]:
    """What the conversation gets of an answer whose calls cannot be read, for the model to do better."""
    answer = unusable.answer
    if answer.tool_uses:
        return [AssistantMessage(answer.content), results_for(answer.tool_uses, unusable.problems)]
    return [lost_answer(unusable)]


def lost_answer(unusable: UnusableCalls) -> UserMessage:
    """What the model is told of calls that the provider kept to itself."""
    return UserMessage(f"Your last answer was lost: {unusable}. Answer again.")
