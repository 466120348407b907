"""Sampling for the clients of the official SDK and of fastmcp, and handlers written for them as handlers of ours.

Their types come from ``mcp.types``, in version 1 and 2 of the SDK. It is imported here only, on demand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from mcp_host.errors import InputRefused
from mcp_host.handlers import as_async
from mcp_host.sampling.request import Handler, SamplingRequest
from mcp_host.slots import keep_slot_for_thread
from mcp_host.types import CreateMessageResult, Implementation
from mcp_host.types.base import given

Respond: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers one request of one connection, as `SamplingSession.respond` does."""

SdkCallback: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""The SDK's ``SamplingFnT``: ``async (context, params) -> CreateMessageResult | … | ErrorData``."""

UNNAMED = "unnamed server"  # the SDK's session knows neither the URL nor the program


def sdk_callback(connect: Callable[[str, Implementation | None], Respond], *, server: str | None) -> SdkCallback:
    """A ``SamplingFnT`` for any number of connections, each of which is answered by one `Respond` of *connect*."""
    types = sdk_types()
    connections: WeakKeyDictionary[object, Respond] = WeakKeyDictionary()

    async def sampling_callback(context: Any, params: Any) -> Any:
        session = context.session
        if (respond := connections.get(session)) is None:
            respond = connections[session] = connect(server or UNNAMED, _claimed(session))
        match await respond(to_wire(params)):
            case {"error": error}:
                return types.ErrorData.model_validate(error)
            case {"result": {"content": {"type": "text" | "image" | "audio"}} as result}:
                return types.CreateMessageResult.model_validate(result)
            case answer:
                return types.CreateMessageResultWithTools.model_validate(answer["result"])

    return sampling_callback


def sdk_capability(capability: dict[str, Any]) -> object:
    """The SDK's ``SamplingCapability``."""
    return sdk_types().SamplingCapability.model_validate(capability)


def fastmcp_handler(callback: SdkCallback) -> Callable[[object, Any, Any], Awaitable[Any]]:
    """The same as fastmcp's ``SamplingHandler``. fastmcp passes on an ``ErrorData`` that it returns."""

    async def sampling_handler(messages: object, params: Any, context: Any) -> Any:
        return await callback(context, params)

    return sampling_handler


def from_sdk(callback: Callable[[Any, Any], Awaitable[Any]]) -> Handler:
    """A handler of ours that calls a ``SamplingFnT`` of the official SDK: ``Sampling(with_tools=from_sdk(callback), …)``.

    *callback* is called with our `SamplingRequest` as its context, since there is no session of the SDK, and with
    the parameters in the SDK's types. An ``ErrorData`` that it returns is sent to the server.

    Raises:
        ImportError: The official SDK is not installed, or too old.
        TypeError: *callback* cannot be called.
    """
    params_type = sdk_types().CreateMessageRequestParams
    call: SdkCallback = as_async(callback, argument="callback", before_thread=keep_slot_for_thread)

    async def handler(request: SamplingRequest) -> Any:
        answer = await call(request, params_type.model_validate(request.params.to_wire()))
        if not isinstance(answer, BaseModel):
            return answer  # a text; anything else is refused as an answer of our own would be
        wire = to_wire(answer)
        if "code" in wire:
            raise InputRefused(wire["code"], wire["message"], wire.get("data"))
        return CreateMessageResult.from_wire(wire)

    return handler


def from_fastmcp(handler: Callable[[Any, Any, Any], Any]) -> Handler:
    """A handler of ours that calls one written for fastmcp: ``Sampling(with_tools=from_fastmcp(handler), …)``.

    *handler* is called with the messages and the parameters in the types of the official SDK, and with our
    `SamplingRequest` as its context, since there is no session of fastmcp. It returns text or a result in the SDK's
    types. It may be a plain function, which runs in a thread.

    Raises:
        ImportError: The official SDK is not installed, or too old.
        TypeError: *handler* cannot be called.
    """
    call = as_async(handler, argument="handler", before_thread=keep_slot_for_thread)

    async def callback(context: Any, params: Any) -> Any:
        return await call(params.messages, params, context)

    return from_sdk(callback)


def sdk_types() -> ModuleType:
    """``mcp.types``.

    Raises:
        ImportError: The official SDK is not installed, or too old.
    """
    try:
        types = import_module("mcp.types")
    except ImportError as exc:
        raise ImportError("the official SDK is not installed: pip install 'mcp>=1.24'") from exc
    if not hasattr(types, "CreateMessageResultWithTools"):
        raise ImportError("this version of the official SDK has no sampling with tools: pip install 'mcp>=1.24'")
    return types


def to_wire(model: Any) -> dict[str, Any]:
    """A model of the SDK as on the wire. The SDK writes its own messages so, too."""
    wire: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return wire


def _claimed(session: object) -> Implementation | None:
    """What the server calls itself. It need not since 2026-07-28, and version 1 of the SDK does not keep it."""
    info = getattr(session, "server_info", None)
    said = {name: getattr(info, name, None) for name in ("name", "version", "title")}
    return Implementation(**{"version": "", **given(**said)}) if said["name"] else None
