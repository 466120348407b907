"""The listed tools, and the checks that calls and their results agree with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

from anyio import CapacityLimiter
from anyio.lowlevel import checkpoint
from pydantic_core import PydanticSerializationError, to_json

from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import (
    CallerError,
    InvalidSchema,
    InvalidToolOutput,
    UncheckableSchema,
    UnsupportedPattern,
    quoted,
)
from mcp_host.protocol import conversation
from mcp_host.protocol.headers import ANNOTATION, ParameterHeader, parameter_headers
from mcp_host.session.call import Call, CallbackRaised, CallTimeouts
from mcp_host.types import CallToolResult, Tool

if TYPE_CHECKING:
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.json_schema.schema import Schema

Headers: TypeAlias = tuple[ParameterHeader, ...]

ListingVersion: TypeAlias = tuple[int, int]
"""Of a listing: the session's epoch, and how many changes the server had announced. If one differs, it is out of date."""

TOOLS_PER_TICK = 2_000  # tools that are compared with the last listing before other tasks run: a few milliseconds


class ToolCache:
    """The tools of the last `tools/list` of one connection. Empty until you list them.

    If parameters are *mirrored* in headers, tools with invalid annotations are left out.
    *max_steps* bounds the check of one result; None is the default of `Schema`.
    """

    policy: ToolPolicy | None = None

    def __init__(self, warn: Callable[[str], None], *, mirrored: bool, max_steps: int | None = None) -> None:
        self.listed: dict[str, ListedTool] = {}
        """The tools that may be called, by the names that the application uses."""
        self.as_of: ListingVersion | None = None
        """None before the first listing."""
        self.mirrored = mirrored
        self.warn = warn
        self.max_steps = max_steps
        self._valid: dict[str, ListedTool] = {}
        self._left_out: Collection[str] = ()

    @cached_property
    def lane(self) -> CapacityLimiter:
        """One thread per server for long checks, because each slows the event loop a little."""
        return CapacityLimiter(1)

    async def replace(self, tools: Iterable[Tool], as_of: ListingVersion | None = None) -> list[Tool]:
        """Replace the listing; return the tools that are kept."""
        self.listed, self.as_of = await self.read(tools), as_of
        return [each.tool for each in self.listed.values()]

    async def read(self, tools: Iterable[Tool]) -> dict[str, ListedTool]:
        """The valid tools of a listing by name. A warning names each of the others.

        Of several tools with one name, the first is kept.
        """
        valid: dict[str, ListedTool] = {}
        invalid: dict[str, str] = {}
        for position, tool in enumerate(tools, 1):
            if position % TOOLS_PER_TICK == 0:
                await checkpoint()
            try:
                headers = _headers(tool) if self.mirrored else ()
            except ValueError as exc:
                invalid.setdefault(tool.name, str(exc))
                continue
            if tool.name in valid:
                invalid.setdefault(tool.name, "another tool of that name stands before it")
            else:
                valid[tool.name] = ListedTool(tool, headers, self, self._valid.get(tool.name))
        for name, problem in invalid.items():
            if name not in self._left_out:  # else the last listing had it, too
                self.warn(f"the tool {quoted(name)} is left out: {problem}")
        self._valid, self._left_out = valid, frozenset(invalid)
        return valid

    def report_mismatch(self, problem: str, result: CallToolResult) -> None:
        """Do what `ToolPolicy.output` says with a *result* that is not as listed.

        Raises:
            InvalidToolOutput: It says "error".
        """
        if self.policy is None or self.policy.output != "warn":
            raise InvalidToolOutput(problem, result)
        self.warn(problem)


class ListedTool:
    """A listed tool: what its calls need besides their arguments, and the check of their results.

    *last* is the tool of that name in the listing before.
    """

    def __init__(self, tool: Tool, headers: Headers, cache: ToolCache, last: ListedTool | None) -> None:
        self.tool = tool
        """As the application sees it."""
        self.definition = tool
        """As the server listed it."""
        self._headers = headers
        self._cache = cache
        self._unchecked: bool = last is not None and last._unchecked
        """Whether a warning has said that its results pass unchecked."""
        self._schema: Schema | None = None
        if last is not None and last._schema is not None and _same(tool.output_schema, last.tool.output_schema):
            self._schema = last._schema

    def named(self, name: str) -> Self:
        """This tool, with the name that the application uses."""
        if name != self.definition.name:
            self.tool = self.tool.model_copy(update={"name": name})
        return self

    @property
    def runs_only_as_task(self) -> bool:
        """Whether it cannot be called, because this client declares no tasks."""
        return conversation.runs_only_as_task(self.tool)

    def prepare(self, call: Call) -> Call:
        """*call*, a `tools/call`, with the server's name, and the headers and hints of this listing.

        Raises:
            CallerError: The tool runs only as a task, and this client declares no tasks; or an argument cannot be a header.
        """
        tool = self.tool
        if self.runs_only_as_task and not call.relayed:  # a host of a proxy may ask for the task
            raise CallerError(f"the tool {tool.name!r} runs only as a task, which this client does not offer")
        # The hints are the server's own. If they are false, a repeated call harms nothing but the server.
        hints = tool.annotations
        idempotent = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
        headers: dict[str, str] = {}
        try:
            for parameter in self._headers:
                if (value := parameter.value(call.params.get("arguments") or {})) is not None:
                    headers[parameter.header] = value
        except ValueError as exc:
            raise CallerError(f"an argument that goes into a header cannot: {exc}") from None
        if tool.name != self.definition.name:
            call = replace(call, params={**call.params, "name": self.definition.name})
        if not headers and not idempotent:
            return call
        return replace(call, headers={**call.headers, **headers}, idempotent=idempotent)

    async def mismatch(self, result: CallToolResult, timeouts: CallTimeouts) -> str | None:
        """Why *result* contradicts the tool's outputSchema, or cannot be checked within the *timeouts* of the call.

        "Clients SHOULD validate structured results against this schema" (2025-06-18,
        server/tools). A tool that failed owes no structure. If `ToolPolicy.output` is a function, that checks instead.

        Raises:
            CallbackRaised: That function raised.
        """
        policy = self._cache.policy
        output, check = ("error", None) if policy is None else (policy.output, policy.check)
        if result.is_error or output == "off" or (self.tool.output_schema is None and check is None):
            return None
        problem: str | None = f"the result of {self.tool.name!r} could not be checked within the call's timeout"
        with timeouts.scope():
            if check is None:
                problem = await self._problem(result)
            else:
                try:
                    await awaited(check(self.tool, result), "ToolPolicy.output")
                except Exception as exc:  # the tool has run: no middleware may take it for a lost connection
                    raise CallbackRaised(exc) from None
                problem = None
        return problem

    async def _problem(self, result: CallToolResult) -> str | None:
        assert self.tool.output_schema is not None, "`mismatch` has looked"
        problem: str | None = "it has no structuredContent, though its outputSchema promises some"
        if "structured_content" in result.model_fields_set:
            problem = await self._mismatch(self.tool.output_schema, result.structured_content)
        return None if problem is None else f"the result of {self.tool.name!r} is not as listed: {problem}"

    async def _mismatch(self, written: dict[str, object], value: object) -> str | None:
        # a tenth of a second, which few clients ever need
        from mcp_host.json_schema.schema import MAX_STEPS, Schema

        if self._schema is None:
            self._schema = Schema(written, max_steps=self._cache.max_steps or MAX_STEPS)
        try:
            return await self._schema.mismatch_async(value, self._cache.lane)
        except (
            UnsupportedPattern,
            InvalidSchema,
        ) as exc:  # our engine's limit, or a mistake that says nothing of results
            if not self._unchecked:
                self._unchecked = True
                self._cache.warn(f"results of the tool {quoted(self.tool.name)} pass unchecked: {exc}")
            return None
        except UncheckableSchema as exc:
            return f"its schema cannot be checked: {exc}"


def _same(schema: object, other: object) -> bool:
    try:
        return to_json(schema) == to_json(other)
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
