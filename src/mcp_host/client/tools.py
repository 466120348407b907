"""What the last listing said of each tool, and whether calls agree with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from anyio import CapacityLimiter, to_thread
from pydantic_core import PydanticSerializationError, to_json

from mcp_host.errors import (
    CallerError,
    InvalidToolOutput,
    TooManySteps,
    UncheckableSchema,
    UnsupportedPattern,
    quoted,
)
from mcp_host.protocol.headers import ANNOTATION, ParameterHeader, parameter_headers
from mcp_host.session.call import Call
from mcp_host.types import CallToolResult, Tool

if TYPE_CHECKING:
    from mcp_host.json_schema.schema import Schema

INLINE_STEPS = 2_000  # steps of a check that are made on the event loop: about 20 milliseconds

Headers: TypeAlias = tuple[ParameterHeader, ...]


class ToolCache:
    """The tools of the last `tools/list`. Empty until somebody has listed.

    *most_steps* bounds the check of one result; None is the default of `compile_schema`.
    """

    def __init__(self, warn: Callable[[str], None], *, most_steps: int | None = None) -> None:
        self._warn = warn
        self._most_steps = most_steps
        self._tools: dict[str, Tool] = {}
        self._headers: dict[str, Headers] = {}
        self._left_out: frozenset[str] = frozenset()
        self._schemas: dict[str, Schema] = {}
        self._unchecked: set[str] = set()
        self._lane: CapacityLimiter

    def replace(self, tools: Iterable[Tool], *, mirrored: bool) -> list[Tool]:
        """Remember a whole new listing, and return it without what is left out, which a warning says.

        Of tools with one name the first counts. Where parameters are *mirrored* in headers, tools
        that annotate them wrongly do not.
        """
        self._tools, self._headers = {}, {}
        invalid: dict[str, str] = {}
        for tool in tools:
            try:
                headers = _headers(tool) if mirrored else ()
            except ValueError as exc:
                invalid.setdefault(tool.name, str(exc))
                continue
            if self._tools.setdefault(tool.name, tool) is tool:
                self._headers[tool.name] = headers
            else:
                invalid.setdefault(tool.name, "another tool of that name stands before it")
        self._tell_of(invalid)
        self._schemas = {name: kept for name, kept in self._schemas.items() if self._is_listed_still(name, kept)}
        self._unchecked &= self._tools.keys()
        self._lane = CapacityLimiter(1)  # here, for each connection begins with this, in an event loop of its own
        return list(self._tools.values())

    def annotated(self, call: Call, *, mirror: bool) -> Call:
        """*call*, a `tools/call`, with what the tool's listing says of how it may and must be made."""
        name, arguments = call.params["name"], call.params["arguments"]
        values = _mirrored(self._headers.get(name, ()) if mirror else (), arguments)
        idempotent = self._is_idempotent(name)
        return replace(call, headers=values, idempotent=idempotent) if values or idempotent else call

    def _tell_of(self, invalid: Mapping[str, str]) -> None:
        """Warn of tools that are left out, and why; not of those that the last listing had, too."""
        for name, problem in invalid.items():
            if name not in self._left_out:
                self._warn(f"the tool {quoted(name)} is left out: {problem}")
        self._left_out = frozenset(invalid)

    def _is_idempotent(self, name: str) -> bool:
        """Whether its server says that running it twice does no harm. If that is a lie, the harm is the server's."""
        tool = self._tools.get(name)
        hints = None if tool is None else tool.annotations
        return hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)

    def check_call(self, name: str) -> None:
        """Refuse a call that cannot work.

        Raises:
            CallerError: The tool runs only as a task, and this client declares no tasks.
        """
        tool = self._tools.get(name)
        if tool is not None and tool.execution is not None and tool.execution.task_support == "required":
            raise CallerError(f"the tool {name!r} runs only as a task, which this client does not offer")

    def has_output_schema(self, name: str) -> bool:
        """Whether the tool was listed with an outputSchema."""
        tool = self._tools.get(name)
        return tool is not None and tool.output_schema is not None

    async def check_result(self, name: str, result: CallToolResult) -> InvalidToolOutput | None:
        """The error for a result that contradicts the tool's outputSchema, if it does.

        "Clients SHOULD validate structured results against this schema" (2025-06-18,
        server/tools). A tool that failed owes no structure.
        """
        tool = self._tools.get(name)
        if tool is None or tool.output_schema is None or result.is_error:
            return None
        if "structured_content" not in result.model_fields_set:
            problem: str | None = "it has no structuredContent, though its outputSchema promises some"
        else:
            problem = await self._problem(name, self._schema(name, tool.output_schema), result.structured_content)
        if problem is None:
            return None
        return InvalidToolOutput(f"the result of {name!r} is not as listed: {problem}", result)

    async def _problem(self, name: str, schema: Schema, value: object) -> str | None:
        try:
            return await self._mismatch(schema, value)
        except UnsupportedPattern as exc:  # our engine's limit, and not the server's fault
            if name not in self._unchecked:
                self._unchecked.add(name)
                self._warn(f"results of the tool {name!r} pass unchecked: {exc}")
            return None
        except UncheckableSchema as exc:
            return f"its schema cannot be checked: {exc}"

    async def _mismatch(self, schema: Schema, value: object) -> str | None:
        """As `Schema.mismatch`, but what takes more than a moment holds up nobody else.

        It goes on in a thread: one at a time for a server, since each slows the event loop a little.
        """
        try:
            return schema.mismatch(value, steps=INLINE_STEPS)
        except TooManySteps:
            return await to_thread.run_sync(schema.mismatch, value, abandon_on_cancel=True, limiter=self._lane)

    def _schema(self, name: str, written: dict[str, object]) -> Schema:
        # a tenth of a second, which few clients ever need
        from mcp_host.json_schema.schema import MAX_STEPS, compile_schema

        if name not in self._schemas:
            self._schemas[name] = compile_schema(written, most_steps=self._most_steps or MAX_STEPS)
        return self._schemas[name]

    def _is_listed_still(self, name: str, schema: Schema) -> bool:
        """Whether the tool has the same schema in the new listing: then what is known of it holds."""
        tool = self._tools.get(name)
        try:
            return tool is not None and to_json(tool.output_schema) == to_json(schema.source)
        except PydanticSerializationError:  # it nests too deeply to be written, or holds what UTF-8 cannot
            return False


def _headers(tool: Tool) -> Headers:
    """The parameters that a call of *tool* repeats in headers.

    Raises:
        ValueError: "Clients using the Streamable HTTP transport MUST reject tool definitions"
            that break the rules, and why this one does.
    """
    return parameter_headers(tool.input_schema) if _may_be_annotated(tool) else ()


def _may_be_annotated(tool: Tool) -> bool:
    """Whether its schema has the word in it: to see that takes a sixth of the time that a walk does."""
    try:
        return ANNOTATION.encode() in to_json(tool.input_schema)
    except PydanticSerializationError:  # it nests too deeply to be written, or holds what UTF-8 cannot
        return True


def _mirrored(parameters: Iterable[ParameterHeader], arguments: Mapping[str, object]) -> dict[str, str]:
    """The headers that repeat *arguments*."""
    try:
        return {
            parameter.header: value for parameter in parameters if (value := parameter.value(arguments)) is not None
        }
    except ValueError as exc:
        raise CallerError(f"an argument that goes into a header cannot: {exc}") from None
