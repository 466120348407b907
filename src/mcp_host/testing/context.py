"""What a function of a test server can do with the client that called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from anyio.lowlevel import checkpoint
from pydantic import BaseModel, ValidationError

from mcp_host.errors import ProtocolError
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.testing._server.functions import AnyFunction, Injected, PlainSchema
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.tool_loop import Prompt, Tools, as_messages, run_tools, tools_by_name
from mcp_host.testing._server.tools import function_tool
from mcp_host.testing.errors import NotDeclared, ToolError
from mcp_host.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationForm,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    Implementation,
    JSONObject,
    ListRootsResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    ModelPreferences,
    ProgressNotificationParams,
    Root,
    SamplingMessage,
    Tool,
    ToolChoice,
)

MAX_TOKENS = 1024
MAX_TURNS = 64  # as many as a host lets pass with the defaults

SEVERITY: Mapping[str, int] = {level: rank for rank, level in enumerate(get_args(LoggingLevel))}


@dataclass(frozen=True, slots=True)
class Caller:
    """The client on the other side, as its handshake or its request says."""

    info: Implementation
    capabilities: ClientCapabilities
    dialect: RevisionWriter


@dataclass(slots=True)
class Call:
    """One request of the client, and how what belongs to it reaches the client.

    How that is, is nobody's business but the conversation's: *ask* returns the answer,
    whether it came as a response or, in another revision, with the next request. It is
    that next request which *id*, *meta* and *client* speak of from then on.
    """

    id: Id
    meta: Mapping[str, Any]
    client: Caller
    ask: Callable[[str, Params], Awaitable[Params]]
    tell: Callable[[str, Params], None]
    least_severity: Callable[[], int]
    """The rank of the least severe level that the client wants to hear of, as of now."""


class Context(Injected):
    """The client that made the call, for the function that answers it.

    A function gets one by annotating a parameter with this class. What the client did
    not declare raises `NotDeclared` ("servers MUST NOT" ask for it); what it answers with
    an error raises `ClientError`. Both end an unsuspecting tool with an error result that
    says so. `request` and `notify` send anything to anybody.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def request_id(self) -> Id:
        """The id of the client's request: after an answer in revision 2026-07-28, of the one it came with."""
        return self._call.id

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta``; empty if it had none."""
        return self._call.meta

    @property
    def client_info(self) -> Implementation:
        """What the client calls itself: nothing, with both fields empty, if it does not say (since 2026-07-28)."""
        return self._call.client.info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared."""
        return self._call.client.capabilities

    @property
    def protocol_version(self) -> str:
        """The revision of this conversation."""
        return self._call.client.dialect.version

    # Sampling

    async def sample(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = MAX_TOKENS,
        system_prompt: str | None = None,
        tools: Sequence[Tool | AnyFunction] | None = None,
        tool_choice: ToolChoice | Literal["auto", "required", "none"] | None = None,
        model_preferences: ModelPreferences | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: JSONObject | None = None,
    ) -> CreateMessageResult:
        """Ask the host's model for one answer: text, or, with *tools*, perhaps the tools it wants to be run.

        Raises:
            NotDeclared: The client has no model, takes no tools, or takes no ``includeContext``.
            ClientError: It refused, or its model failed.
        """
        self._require_sampling(tools is not None or tool_choice is not None, include_context)
        choice = ToolChoice(mode=tool_choice) if isinstance(tool_choice, str) else tool_choice
        optional = given(
            system_prompt=system_prompt,
            tools=None if tools is None else [_definition(tool) for tool in tools],
            tool_choice=choice,
            model_preferences=model_preferences,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            include_context=include_context,
            metadata=metadata,
        )
        params = CreateMessageRequestParams(messages=as_messages(prompt), max_tokens=max_tokens, **optional)
        return CreateMessageResult.from_wire(
            await self.request("sampling/createMessage", self._call.client.dialect.write(params))
        )

    async def sample_loop(
        self,
        prompt: Prompt,
        *,
        tools: Tools,
        max_tokens: int = MAX_TOKENS,
        max_turns: int = MAX_TURNS,
        system_prompt: str | None = None,
    ) -> CreateMessageResult:
        """Ask the host's model, run the *tools* it asks for, tell it what they returned, and so on to its last word.

        *tools* are typed functions, run here: all that one answer asks for at the same time.
        One that fails, or that does not exist, is told to the model like any other result.

        Raises:
            ToolError: After *max_turns* answers the model still asks for tools.
            NotDeclared, ClientError: As `sample`.
        """
        offered = tools_by_name(tools)
        messages = as_messages(prompt)
        for _ in range(max_turns):
            answer = await self.sample(
                messages,
                tools=[tool.definition for tool in offered.values()],
                max_tokens=max_tokens,
                system_prompt=system_prompt,
            )
            if not (uses := answer.tool_uses):
                return answer
            messages.append(SamplingMessage(role=answer.role, content=answer.content))
            messages.append(await run_tools(uses, offered, self))
        raise ToolError(f"the model still asks for tools after {max_turns} answers")

    # Elicitation and roots

    async def elicit(self, message: str, schema: JSONObject | type[BaseModel]) -> ElicitResult:
        """Ask the user to fill in a form, given as a JSON Schema or as a pydantic model of flat, simple fields.

        Raises:
            NotDeclared: The client shows no forms.
            ToolError: A model was given, and what the user filled in does not fit it.
            ValueError: The model holds something that no form has a field for.
        """
        elicitation = self.client_capabilities.elicitation
        if elicitation is None or (elicitation.form is None and elicitation.url is not None):
            raise NotDeclared("elicitation", "form")
        form = schema if isinstance(schema, dict) else _form(schema)
        result = await self._elicit(ElicitRequestFormParams(mode="form", message=message, requested_schema=form))
        if not isinstance(schema, dict) and result.action == "accept":
            try:
                schema.model_validate(result.content or {})
            except ValidationError as exc:
                raise ToolError(f"what was filled in does not fit {schema.__name__}") from exc
        return result

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> ElicitResult:
        """Ask the user to visit *url*. `elicit_complete` says later that they are done there.

        Since revision 2026-07-28 an elicitation has no id: that the client asks again says enough.

        Raises:
            NotDeclared: The client opens no URLs.
        """
        elicitation = self.client_capabilities.elicitation
        if elicitation is None or elicitation.url is None:
            raise NotDeclared("elicitation", "url")
        named = given(elicitation_id=elicitation_id if self._call.client.dialect.names_elicitations else None)
        return await self._elicit(ElicitRequestURLParams(message=message, url=url, **named))

    async def elicit_complete(self, elicitation_id: str) -> None:
        """Tell the client that the user is done at the URL of that elicitation; nothing, since 2026-07-28."""
        if self._call.client.dialect.names_elicitations:
            await self.notify("notifications/elicitation/complete", {"elicitationId": elicitation_id})

    async def list_roots(self) -> list[Root]:
        """The folders that the host lets us work in.

        Raises:
            NotDeclared: The client has no roots.
        """
        if self.client_capabilities.roots is None:
            raise NotDeclared("roots")
        return ListRootsResult.from_wire(await self.request("roots/list", {})).roots

    # Notifications

    async def report_progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call has come. Does nothing if the client did not ask for reports."""
        if (token := self.meta.get("progressToken")) is None:
            return
        optional = given(total=total, message=message)
        params = ProgressNotificationParams(progress_token=token, progress=done, **optional)
        await self.notify("notifications/progress", self._call.client.dialect.write(params))

    async def log(self, level: LoggingLevel, data: object, *, logger: str | None = None) -> None:
        """Send a log message, unless it is less severe than what the client has asked for."""
        if SEVERITY[level] < self._call.least_severity():
            return
        params = LoggingMessageNotificationParams(level=level, data=data, **given(logger=logger))
        await self.notify("notifications/message", params.to_wire())

    # Anything else

    async def request(self, method: str, params: Params) -> Params:
        """Send any request, in the wire's own spelling, and return its result as it came. Nothing is checked.

        Since revision 2026-07-28 the request travels in the result, and the function waits
        here until the client comes back with the answer, for as long as its `Server` lets it.

        Raises:
            ClientError: The client answered with an error (which it cannot since 2026-07-28).
        """
        return await self._call.ask(method, params)

    async def notify(self, method: str, params: Params) -> None:
        """Send any notification, in the wire's own spelling. Nothing is checked.

        Since revision 2026-07-28 nobody hears it while the client is away with a question.
        """
        self._call.tell(method, params)
        await checkpoint()  # a function that only reports must still let others run

    async def _elicit(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        return ElicitResult.from_wire(await self.request("elicitation/create", self._call.client.dialect.write(params)))

    def _require_sampling(self, with_tools: bool, include_context: str | None) -> None:
        sampling = self.client_capabilities.sampling
        if sampling is None:
            raise NotDeclared("sampling")
        if with_tools and sampling.tools is None:
            raise NotDeclared("sampling", "tools")
        asks_context = include_context not in (None, "none")
        if asks_context and sampling.context is None and self._call.client.dialect.declares_context:
            raise NotDeclared("sampling", "context")


def _definition(tool: Tool | AnyFunction) -> Tool:
    return tool if isinstance(tool, Tool) else function_tool(tool).definition


def _form(model: type[BaseModel]) -> JSONObject:
    schema = model.model_json_schema(schema_generator=PlainSchema)
    schema.pop("description", None)  # "requestedSchema" has properties and nothing to say about itself
    try:
        ElicitationForm.from_wire(schema)
    except ProtocolError as exc:
        raise ValueError(f"{model.__name__} is no form: {exc}") from None
    return schema
