"""What a function of a test server can do with the client that called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from anyio.lowlevel import checkpoint
from pydantic import BaseModel, ValidationError

from mcp_host import types
from mcp_host.errors import ProtocolError
from mcp_host.functions import AnyFunction, FunctionTool, Injected, PlainSchema, ToolError
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.testing._server.remote_client import SEVERITY, ReceivedRequest, meta_of
from mcp_host.testing._server.tools import Tools, run_tools, tools_by_name
from mcp_host.testing.errors import NotDeclared
from mcp_host.types.base import given

MAX_TOKENS = 1024
MAX_TURNS = 64  # as many as a host allows by default

Prompt: TypeAlias = str | types.SamplingMessage | Sequence[types.SamplingMessage]
"""The question for the model: a text, one message, or the conversation so far."""


class Context(Injected):
    """The client that made the call, for the function that answers it.

    A function gets one by annotating a parameter with this class. If the client did not
    declare a capability, using it raises `NotDeclared`; if it answers with an error, that
    raises `ClientError`. A tool that does not catch them ends with an error result.
    `request` and `notify` send anything.
    """

    def __init__(self, call: ReceivedRequest, request: Callable[[str, Params], Awaitable[Params]]) -> None:
        self._call = call
        self._request = request

    @property
    def request_id(self) -> Id:
        """The id of the client's request. In revision 2026-07-28, after an answer: the id of the retry."""
        return self._call.request.id

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta``; empty if it had none."""
        return meta_of(self._call.request.params)

    @property
    def client_info(self) -> types.Implementation:
        """The client's name and version; both are empty if it does not send them (since 2026-07-28)."""
        return self._call.client.info

    @property
    def client_capabilities(self) -> types.ClientCapabilities:
        """The capabilities that the client declared."""
        return self._call.client.capabilities

    @property
    def protocol_version(self) -> str:
        """The negotiated revision."""
        return self._call.client.version

    # Sampling

    async def sample(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = MAX_TOKENS,
        system_prompt: str | None = None,
        tools: Sequence[types.Tool | AnyFunction] | None = None,
        tool_choice: types.ToolChoice | Literal["auto", "required", "none"] | None = None,
        model_preferences: types.ModelPreferences | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: types.JSONObject | None = None,
    ) -> types.CreateMessageResult:
        """Ask the host's model for one answer. With *tools*, the answer may be a request to run some.

        Raises:
            NotDeclared: The client has no model, takes no tools, or takes no ``includeContext``.
            ClientError: It refused, or its model failed.
        """
        self._require("sampling")
        if tools is not None or tool_choice is not None:
            self._require("sampling", "tools")
        if include_context not in (None, "none") and self._call.client.declares_context:
            self._require("sampling", "context")
        optional = given(
            system_prompt=system_prompt,
            tools=None
            if tools is None
            else [FunctionTool(tool).definition if callable(tool) else tool for tool in tools],
            tool_choice=types.ToolChoice(mode=tool_choice) if isinstance(tool_choice, str) else tool_choice,
            model_preferences=model_preferences,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            include_context=include_context,
            metadata=metadata,
        )
        params = types.CreateMessageRequestParams(messages=_messages(prompt), max_tokens=max_tokens, **optional)
        return types.CreateMessageResult.from_wire(
            await self.request("sampling/createMessage", self._call.client.write(params))
        )

    async def sample_loop(
        self,
        prompt: Prompt,
        *,
        tools: Tools,
        max_tokens: int = MAX_TOKENS,
        max_turns: int = MAX_TURNS,
        system_prompt: str | None = None,
    ) -> types.CreateMessageResult:
        """Ask the host's model, run the *tools* it asks for, send it the results, and so on until it answers.

        *tools* are typed functions. The calls in one answer run at the same time. If one
        fails, or there is no such tool, the model gets an error result.

        Raises:
            ToolError: After *max_turns* answers the model still asks for tools.
            NotDeclared, ClientError: As `sample`.
        """
        offered = tools_by_name(tools)
        messages = _messages(prompt)
        for _ in range(max_turns):
            answer = await self.sample(
                messages,
                tools=[tool.definition for tool in offered.values()],
                max_tokens=max_tokens,
                system_prompt=system_prompt,
            )
            if not (uses := answer.tool_uses):
                return answer
            messages.append(types.SamplingMessage(role=answer.role, content=answer.content))
            messages.append(await run_tools(uses, offered, self))
        raise ToolError(f"the model still asks for tools after {max_turns} answers")

    # Elicitation and roots

    async def elicit(self, message: str, schema: types.JSONObject | type[BaseModel]) -> types.ElicitResult:
        """Ask the user to fill in a form, given as a JSON Schema or as a pydantic model of flat, simple fields.

        Raises:
            NotDeclared: The client shows no forms.
            ToolError: A model was given, and the user's input does not fit it.
            ValueError: The model has a field that forms do not support.
        """
        elicitation = self.client_capabilities.elicitation
        if elicitation is None or (elicitation.form is None and elicitation.url is not None):
            raise NotDeclared("elicitation", "form")
        form = schema if isinstance(schema, dict) else _form(schema)
        result = await self._elicit(types.ElicitRequestFormParams(mode="form", message=message, requested_schema=form))
        if not isinstance(schema, dict) and result.action == "accept":
            try:
                schema.model_validate(result.content or {})
            except ValidationError as exc:
                raise ToolError(f"the user's input does not fit {schema.__name__}") from exc
        return result

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> types.ElicitResult:
        """Ask the user to visit *url*. Call `elicit_complete` when they are done there.

        Since revision 2026-07-28 elicitations have no id, and *elicitation_id* is not sent.

        Raises:
            NotDeclared: The client opens no URLs.
        """
        self._require("elicitation", "url")
        id = given(elicitation_id=None if self._call.client.stateless else elicitation_id)
        return await self._elicit(types.ElicitRequestURLParams(message=message, url=url, **id))

    async def elicit_complete(self, elicitation_id: str) -> None:
        """Tell the client that the user is done at the URL. Does nothing since 2026-07-28."""
        if not self._call.client.stateless:
            await self.notify("notifications/elicitation/complete", {"elicitationId": elicitation_id})

    async def list_roots(self) -> list[types.Root]:
        """The folders that the server may work in.

        Raises:
            NotDeclared: The client has no roots.
        """
        self._require("roots")
        return types.ListRootsResult.from_wire(await self.request("roots/list", {})).roots

    # Notifications

    async def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the call. Does nothing if the client did not ask for progress."""
        if (token := self.meta.get("progressToken")) is None:
            return
        optional = given(total=total, message=message)
        params = types.ProgressNotificationParams(progress_token=token, progress=done, **optional)
        await self.notify("notifications/progress", self._call.client.write(params))

    async def log(self, level: types.LoggingLevel, data: object, *, logger: str | None = None) -> None:
        """Send a log message, unless it is less severe than the level that the client has set."""
        if SEVERITY[level] < self._call.client.min_severity:
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, **given(logger=logger))
        await self.notify("notifications/message", params.to_wire())

    # Anything else

    async def request(self, method: str, params: Params) -> Params:
        """Send any request, spelled as on the wire, and return its raw result. Nothing is checked.

        Since revision 2026-07-28 the request travels in a result. The function is suspended here
        until the client retries with the answer, for up to the server's *resume_timeout*.

        Raises:
            ClientError: The client answered with an error (which it cannot since 2026-07-28).
        """
        return await self._request(method, params)

    async def notify(self, method: str, params: Params) -> None:
        """Send any notification, spelled as on the wire. Nothing is checked.

        Since revision 2026-07-28 it is lost while the function is suspended.
        """
        self._call.notify(method, params)
        await checkpoint()  # a function that only reports lets other tasks run, too

    def _require(self, *capability: str) -> None:
        """Raise `NotDeclared` unless the client has declared this."""
        declared: object = self.client_capabilities
        for name in capability:
            declared = getattr(declared, name, None)
        if declared is None:
            raise NotDeclared(*capability)

    async def _elicit(self, params: types.ElicitRequestFormParams | types.ElicitRequestURLParams) -> types.ElicitResult:
        return types.ElicitResult.from_wire(await self.request("elicitation/create", self._call.client.write(params)))


def _messages(prompt: Prompt) -> list[types.SamplingMessage]:
    match prompt:
        case str():
            return [types.SamplingMessage(role="user", content=types.TextContent(text=prompt))]
        case types.SamplingMessage():
            return [prompt]
    return list(prompt)


def _form(model: type[BaseModel]) -> types.JSONObject:
    schema = model.model_json_schema(schema_generator=PlainSchema)
    schema.pop("description", None)  # "requestedSchema" has none
    try:
        types.ElicitationForm.from_wire(schema)
    except ProtocolError as exc:
        raise ValueError(f"{model.__name__} is no form: {exc}") from None
    return schema
