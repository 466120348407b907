"""The listed tools, and the checks that calls and their results agree with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    """The tools of the last `tools/list`. Empty until you list them.

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
        """Replace the listing; return the tools that are kept. A warning names each of the others.

        Of several tools with one name, the first is kept. If parameters are *mirrored* in headers,
        tools with invalid annotations are left out.
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
        for name, problem in invalid.items():
            if name not in self._left_out:  # else the last listing had it, too
                self._warn(f"the tool {quoted(name)} is left out: {problem}")
        self._left_out = frozenset(invalid)
        self._schemas = {name: kept for name, kept in self._schemas.items() if self._is_listed_still(name, kept)}
        self._unchecked &= self._tools.keys()
        self._lane = CapacityLimiter(1)  # here, because each connection begins with this, perhaps in a new event loop
        return list(self._tools.values())

    def annotated(self, call: Call, *, mirror: bool) -> Call:
        """*call*, a `tools/call`, with the headers and hints of the tool's listing; *mirror* says whether headers are due."""
        tool = self._tools.get(call.params["name"])
        if tool is None:
            return call
        # The hints are the server's own. If they are false, a repeated call harms nothing but the server.
        hints = tool.annotations
        idempotent = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
        headers: dict[str, str] = {}
        try:
            for parameter in self._headers[tool.name] if mirror else ():
                if (value := parameter.value(call.params["arguments"])) is not None:
                    headers[parameter.header] = value
        except ValueError as exc:
            raise CallerError(f"an argument that goes into a header cannot: {exc}") from None
        return replace(call, headers=headers, idempotent=idempotent) if headers or idempotent else call

    def check_call(self, name: str) -> None:
        """Reject a call that cannot work.

        Raises:
            CallerError: The tool runs only as a task, and this client declares no tasks.
        """
        tool = self._tools.get(name)
        if tool is not None and tool.execution is not None and tool.execution.task_support == "required":
            raise CallerError(f"the tool {name!r} runs only as a task, which this client does not offer")

    def has_output_schema(self, name: str) -> bool:
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
        """Like `Schema.mismatch`, but a long check runs in a thread.

        There is one thread per server, because each slows the event loop a little.
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
        """Whether the tool has the same schema in the new listing."""
        tool = self._tools.get(name)
        try:
            return tool is not None and to_json(tool.output_schema) == to_json(schema.source)
        except PydanticSerializationError:  # it nests too deeply, or cannot be encoded in UTF-8
            return False


def _headers(tool: Tool) -> Headers:
    """The parameters that a call of *tool* repeats in headers.

    Raises:
        ValueError: The tool breaks the rules: "Clients using the Streamable HTTP transport MUST reject" it.
    """
    try:
        if ANNOTATION.encode() not in to_json(tool.input_schema):  # this takes a sixth of the time of a walk
            return ()
    except PydanticSerializationError:  # it nests too deeply, or cannot be encoded in UTF-8
        pass
    return parameter_headers(tool.input_schema)
