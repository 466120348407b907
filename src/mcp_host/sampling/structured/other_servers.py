"""`ServerSampling` in tools, prompts and resource templates of servers on the official SDK and on fastmcp.

Before revision 2026-07-28 a question is a request to the client. Since then it is part of a result (see `replay`).
Versions 1 and 2 of the SDK, and 3 and 4 of fastmcp, which are built on them, differ in little of what is used here.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any, TypeVar, get_args

from mcp_host.concurrency.tasks import first
from mcp_host.errors import NotDeclared
from mcp_host.handlers import CountedWarnings
from mcp_host.protocol.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY, Params
from mcp_host.protocol.negotiation import MODERN_VERSIONS
from mcp_host.sampling.loop.engine import RunTool, result_of
from mcp_host.sampling.other_clients import sdk_types, to_wire
from mcp_host.sampling.structured.replay import Questions, Replay
from mcp_host.sampling.structured.server_sampling import CreateMessage, ServerSampling
from mcp_host.types import CallToolResult, ToolUseContent

T = TypeVar("T")

CREATE_MESSAGE = "sampling/createMessage"


def sampling_for_sdk(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Give *function*, which an ``MCPServer`` of the official SDK offers, its `ServerSampling`.

    It is for a function with a parameter that is annotated with `ServerSampling`. Clients do not see that parameter.
    Version 1 of the SDK, where ``MCPServer`` is called ``FastMCP``, is served, too::

        @server.tool()
        @sampling_for_sdk
        async def classify(letter: str, sampling: ServerSampling) -> str: ...

    Since revision 2026-07-28 *function* runs again from its start for each answer of the client, with the answers so
    far: see `ServerSampling.once`.

    Raises:
        ImportError: The official SDK is not installed.
        TypeError: *function* is not async, or does not have one parameter for the `ServerSampling`.
    """
    name, signature = _sampling_parameter(function)
    context_type = _sdk_context_type()
    own = next((key for key, parameter in signature.parameters.items() if _takes(parameter, context_type)), name)

    async def run(**arguments: Any) -> Any:
        context = arguments[own] if own != name else arguments.pop(name)
        return await _run(context, lambda sampling: function(**arguments, **{name: sampling}))

    parameters = dict(signature.parameters)
    if own == name:
        parameters[name] = parameters[name].replace(annotation=context_type)
    else:
        del parameters[name]
    return _as(function, run, signature.replace(parameters=list(parameters.values())))


def sampling_for_fastmcp(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """The same as `sampling_for_sdk`, for a server on fastmcp 3 or 4."""
    name, signature = _sampling_parameter(function)
    get_context: Callable[[], Any] = import_module("fastmcp.server.dependencies").get_context

    async def run(**arguments: Any) -> Any:
        return await _run(get_context(), lambda sampling: function(**arguments, **{name: sampling}))

    parameters = [parameter for key, parameter in signature.parameters.items() if key != name]
    return _as(function, run, signature.replace(parameters=parameters))


async def _run(context: Any, function: Callable[[ServerSampling], Awaitable[Any]]) -> Any:
    """Run *function* to its end; or, since revision 2026-07-28, until the client has to answer."""
    try:
        if getattr(context.session, "protocol_version", None) in MODERN_VERSIONS:  # version 1 of the SDK has none
            return await _run_round(context, function)
        return await function(ServerSampling(_requests(context), with_tools=_takes_tools(context.session)))
    except NotDeclared as exc:
        raise _error_of_sdk(exc) from None
    except ExceptionGroup as group:
        if missing := group.subgroup(NotDeclared):
            raise _error_of_sdk(first(missing)) from None
        raise


def _error_of_sdk(missing: BaseException) -> BaseException:
    """What the SDK answers with error -32021. In version 1 the text of any exception is the result of the tool."""
    errors = import_module("mcp.shared.exceptions")
    if not isinstance(missing, NotDeclared) or not hasattr(errors, "MCPError"):
        return missing
    data = {"requiredCapabilities": missing.required}
    error: Exception = errors.MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(missing), data)
    return error


async def _run_round(context: Any, function: Callable[[ServerSampling], Awaitable[Any]]) -> Any:
    answers = {key: to_wire(answer) for key, answer in (context.input_responses or {}).items()}
    replay = Replay.read(context.request_state, answers)
    sampling = _ReplayedSampling(replay, context.session)
    outcome = await replay.run(lambda: function(sampling))
    if not isinstance(outcome, Questions):
        return outcome
    requests = {key: {"method": CREATE_MESSAGE, "params": params} for key, params in outcome.requests.items()}
    # The SDK and fastmcp seal the state and bind it to this call: the client can neither read nor change it.
    return sdk_types().InputRequiredResult.model_validate({"inputRequests": requests, "requestState": outcome.state})


class _ReplayedSampling(ServerSampling):
    """Sampling in one round of a *replay*."""

    def __init__(self, replay: Replay, session: Any) -> None:
        super().__init__(_if_declared(session, replay.create_message), with_tools=_takes_tools(session))
        self._replay = replay

    async def once(self, name: str, function: Callable[[], Any]) -> Any:
        return await self._replay.once(f"once({name!r})", partial(super().once, name, function))

    def _recorded(self, run: RunTool) -> RunTool:
        async def run_once(use: ToolUseContent) -> CallToolResult:
            async def wire() -> dict[str, Any]:
                return (await result_of(run, use, CountedWarnings())).to_wire()

            what = f"the call {use.id!r} of the tool {use.name!r} with {use.input!r}"
            return CallToolResult.from_wire(await self._replay.once(what, wire))

        return run_once


def _requests(context: Any) -> CreateMessage:
    """Sends requests to the client. It does what the session's ``create_message`` does, for all parameters."""
    types, session = sdk_types(), context.session
    # Over HTTP, "related" requests are sent in the response to the call.
    metadata = import_module("mcp.shared.message").ServerMessageMetadata(related_request_id=context.request_id)

    async def create_message(params: Params) -> Params:
        fields = types.CreateMessageRequestParams.model_validate(params)
        request = types.CreateMessageRequest(method=CREATE_MESSAGE, params=fields)
        return to_wire(await session.send_request(request, types.CreateMessageResultWithTools, metadata=metadata))

    return _if_declared(session, create_message)


def _if_declared(session: Any, create_message: CreateMessage) -> CreateMessage:
    async def ask(params: Params) -> Mapping[str, Any]:
        if _capability(session) is None:
            raise NotDeclared("sampling")
        return await create_message(params)

    return ask


def _takes_tools(session: Any) -> bool:
    return getattr(_capability(session), "tools", None) is not None


def _capability(session: Any) -> object:
    """The client's ``sampling`` capability; None if it declared none, or if nothing is known of it."""
    if hasattr(session, "client_capabilities"):
        declared = session.client_capabilities
    else:  # version 1 of the SDK
        declared = getattr(session.client_params, "capabilities", None)
    return getattr(declared, "sampling", None)


def _sdk_context_type() -> type:
    sdk_types()  # raises ImportError, and says what to install
    try:
        module = import_module("mcp.server.mcpserver")
    except ImportError:
        module = import_module("mcp.server.fastmcp")  # version 1
    context_type: type = module.Context
    return context_type


def _sampling_parameter(function: Callable[..., object]) -> tuple[str, inspect.Signature]:
    """The name of the parameter to fill, and the signature."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is not async")
    signature = inspect.signature(function, eval_str=True)
    names = [name for name, parameter in signature.parameters.items() if _takes(parameter, ServerSampling)]
    if len(names) != 1:
        raise TypeError(f"{function.__name__} has {len(names)} parameters annotated with ServerSampling, and needs one")
    return names[0], signature


def _takes(parameter: inspect.Parameter, wanted: type) -> bool:
    types = (parameter.annotation, *get_args(parameter.annotation))
    return any(isinstance(member, type) and issubclass(member, wanted) for member in types)


def _as(
    function: Callable[..., object], run: Callable[..., Awaitable[Any]], signature: inspect.Signature
) -> Callable[..., Awaitable[Any]]:
    """*run*, with the name and the documentation of *function*, and this *signature*."""
    update_wrapper(run, function)
    run.__signature__ = signature  # type: ignore[attr-defined]
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    run.__annotations__ = {**annotations, "return": signature.return_annotation}
    return run
