"""Sampling registered with the clients of others, and handlers of theirs, with stand-ins for the SDK's types.

The real packages are in `make interop` (tests/interop/test_other_clients.py).
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after, from_thread
from pydantic import BaseModel, ConfigDict

from mcp_host.sampling import (
    Allow,
    Approve,
    Deny,
    Handler,
    Sampling,
    SamplingLimits,
    SamplingRequest,
    ToolCall,
    always,
    from_fastmcp,
    from_sdk,
)
from mcp_host.testing.model import ScriptedModel
from mcp_host.types import CreateMessageResult, Implementation
from tests.extent import on_both
from tests.sampling.asking import ADD, Approver, Wire, refused, said, session, text, user, wire


class Capability(BaseModel):
    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class Params(BaseModel):
    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]]


class Answer(BaseModel):
    role: str
    model: str
    stopReason: str | None = None


class PlainResult(Answer):
    content: dict[str, Any]


class ResultWithTools(Answer):
    content: list[dict[str, Any]] | dict[str, Any]


class ErrorData(BaseModel):
    code: int
    message: str
    data: object = None


class Session:
    """One connection of the SDK. Version 1 keeps no *server_info*."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            self.server_info = SimpleNamespace(name=name)


def context(server: str | None = None) -> Any:
    return SimpleNamespace(session=Session(server))


def callback_for_sdk(model: Handler, *, approve: Approve = always) -> Any:
    return Sampling(with_tools=model, approve=approve).for_sdk()["sampling_callback"]


@pytest.fixture(autouse=True)
def sdk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    types: Any = ModuleType("mcp.types")
    types.SamplingCapability, types.CreateMessageRequestParams = Capability, Params
    types.CreateMessageResult, types.CreateMessageResultWithTools = PlainResult, ResultWithTools
    types.ErrorData = ErrorData
    monkeypatch.setitem(sys.modules, "mcp.types", types)
    module: ModuleType = types
    return module


def given(params: Wire) -> Params:
    return Params.model_validate(params)


# Ours in their clients


async def test_the_arguments_for_the_sdk_are_a_callback_and_the_capability_in_its_types() -> None:
    arguments = Sampling(with_tools=ScriptedModel("3."), approve=always, context=True).for_sdk()

    answer = await arguments["sampling_callback"](context("calculator"), given(wire(tools=[ADD])))

    assert arguments.keys() == {"sampling_callback", "sampling_capabilities"}
    assert arguments["sampling_capabilities"] == Capability(tools={}, context={})
    assert answer == PlainResult(
        role="assistant", content={"type": "text", "text": "3."}, model="scripted", stopReason="endTurn"
    )


async def test_an_answer_that_calls_tools_is_a_result_with_tools() -> None:
    callback = callback_for_sdk(ScriptedModel(ToolCall("add", {"a": 1})))

    answer = await callback(context(), given(wire(tools=[ADD])))

    assert isinstance(answer, ResultWithTools)
    assert answer.model_dump()["content"]["input"] == {"a": 1}


async def test_the_arguments_for_fastmcp_are_a_handler_and_the_capability() -> None:
    arguments = Sampling(with_tools=ScriptedModel("3."), approve=always).for_fastmcp()

    params = given(wire(tools=[ADD]))
    answer = await arguments["sampling_handler"](params.messages, params, context())

    assert arguments.keys() == {"sampling_handler", "sampling_capabilities"}
    assert arguments["sampling_capabilities"] == Capability(tools={})
    assert isinstance(answer, PlainResult)


@pytest.mark.parametrize("arguments", [Sampling.for_sdk, Sampling.for_fastmcp], ids=["SDK", "fastmcp"])
def test_a_client_that_takes_no_capabilities_gets_a_callback_only(arguments: Callable[..., Wire]) -> None:
    given = arguments(Sampling(with_tools=ScriptedModel(), approve=always), capabilities=False)

    assert len(given) == 1


async def test_a_request_with_tools_is_refused_if_no_capability_was_passed() -> None:
    arguments = Sampling(with_tools=ScriptedModel("3."), approve=always).for_sdk(capabilities=False)

    with_tools = await arguments["sampling_callback"](context(), given(wire(tools=[ADD])))
    plain = await arguments["sampling_callback"](context(), given(wire()))

    assert with_tools == ErrorData(code=-32602, message="tools: this client did not declare sampling.tools")
    assert isinstance(plain, PlainResult)


async def test_a_refusal_is_error_data_with_its_code_and_reason() -> None:
    async def no(request: SamplingRequest) -> Deny:
        return Deny(f"the {request.server} may not")

    answer = await callback_for_sdk(ScriptedModel(), approve=no)(context("calculator"), given(wire()))

    assert answer == ErrorData(code=-1, message="the unnamed server may not")


@pytest.mark.parametrize(
    ("argument", "server", "shown"),
    [
        (None, "calculator", ("unnamed server", Implementation(name="calculator", version=""))),
        ("ours", "calculator", ("ours", Implementation(name="calculator", version=""))),
        ("ours", None, ("ours", None)),
    ],
    ids=["its own", "the host's", "unknown"],
)
async def test_the_approver_sees_the_hosts_name_for_the_server_and_its_own_as_a_claim(
    argument: str | None, server: str | None, shown: object
) -> None:
    approve = Approver(Allow())
    callback = Sampling(with_tools=ScriptedModel("3."), approve=approve).for_sdk(server=argument)["sampling_callback"]

    await callback(context(server), given(wire()))

    assert [(request.server, request.server_info) for request in approve.asked] == [shown]


async def test_an_approval_for_the_session_holds_for_the_connection_it_was_given_for() -> None:
    approve = Approver(Allow("session"))
    callback = callback_for_sdk(ScriptedModel(*["3."] * 4), approve=approve)

    first, second = context("first"), context("second")
    for connection in (first, second, first, second):
        await callback(connection, given(wire(tools=[ADD])))

    assert [request.server_info and request.server_info.name for request in approve.asked] == ["first", "second"]


async def test_a_connection_that_is_gone_is_forgotten() -> None:
    callback, connection = callback_for_sdk(ScriptedModel("3.")), context()
    await callback(connection, given(wire()))

    gone = weakref.ref(connection.session)
    del connection
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("arguments", [Sampling.for_sdk, Sampling.for_fastmcp], ids=["SDK", "fastmcp"])
def test_without_the_sdk_the_error_says_what_to_install(
    arguments: Callable[[Sampling], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.types", None)

    with pytest.raises(ImportError, match=r"^the official SDK is not installed: pip install 'mcp>=1.24'$"):
        arguments(Sampling(with_tools=ScriptedModel(), approve=always))


def test_an_sdk_without_sampling_with_tools_is_an_error(sdk: ModuleType) -> None:
    del sdk.CreateMessageResultWithTools

    with pytest.raises(ImportError, match=r"has no sampling with tools: pip install 'mcp>=1.24'$"):
        Sampling(with_tools=ScriptedModel(), approve=always).for_sdk()


# Theirs as our handlers


async def test_a_handler_of_fastmcp_gets_messages_parameters_and_our_request() -> None:
    seen: list[object] = []

    async def handler(messages: list[Wire], params: Params, context: SamplingRequest) -> ResultWithTools:
        seen.extend([messages, params.model_dump()["tools"], context.server])
        content = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
        return ResultWithTools(role="assistant", content=[content], model="m", stopReason="toolUse")

    answer = await session(from_fastmcp(handler)).answer(wire(user(text("1 + 2?")), tools=[ADD]))

    assert seen == [[{"role": "user", "content": text("1 + 2?")}], [ADD], "calculator"]
    assert (answer.stop_reason, [use.name for use in answer.tool_uses]) == ("toolUse", ["add"])


async def test_a_handler_of_fastmcp_may_be_plain_and_return_text() -> None:
    def handler(messages: object, params: object, context: object) -> str:
        return "3."

    answer = await session(from_fastmcp(handler)).answer(wire())

    assert answer == CreateMessageResult(content=[text("3.")], model="unknown", stop_reason="endTurn")  # type: ignore[list-item]  # pydantic reads it


@on_both
async def test_a_plain_handler_of_fastmcp_counts_until_its_thread_ends() -> None:
    started, end = Event(), threading.Event()

    def handler(messages: object, params: object, context: object) -> str:
        from_thread.run_sync(started.set)
        end.wait(60)
        return "3."

    asked = session(from_fastmcp(handler), limits=SamplingLimits(at_once=1, waiting=0))
    try:
        with fail_after(25):
            async with create_task_group() as tasks:
                tasks.start_soon(asked.answer, wire())
                await started.wait()
                tasks.cancel_scope.cancel()
            refusal = await refused(asked, wire())
    finally:
        end.set()

    assert said(refusal) == (-32010, "this client's limit waiting is 0 requests")


async def test_a_handler_of_fastmcp_that_fails_tells_the_server_only_that(caplog: pytest.LogCaptureFixture) -> None:
    def fails(messages: object, params: object, context: object) -> str:
        raise RuntimeError("the key is hunter2")

    failed = await refused(session(from_fastmcp(fails)), wire())
    no_answer = await refused(session(from_fastmcp(lambda messages, params, context: 3)), wire())

    assert said(failed) == (-32603, "this client's model failed")
    assert said(no_answer) == (-32603, "this client's model gave an answer that the request does not allow")
    assert "its type is int, not CreateMessageResult or str" in caplog.text


async def test_error_data_of_a_callback_of_the_sdk_refuses_the_request() -> None:
    async def callback(context: object, params: Params) -> ErrorData:
        return ErrorData(code=-1, message="User rejected sampling request")

    refusal = await refused(session(from_sdk(callback)), wire())

    assert said(refusal) == (-1, "User rejected sampling request")


def test_a_handler_that_cannot_be_called_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"^handler has to be a function, async or plain, not str$"):
        from_fastmcp("a handler")  # type: ignore[arg-type]
