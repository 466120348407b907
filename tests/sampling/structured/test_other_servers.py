"""`ServerSampling` in functions of other servers, with stand-ins for the SDK and for fastmcp.

The real packages are in `make interop` (tests/interop/test_sampling_servers.py).
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from mcp_host.errors import NotDeclared
from mcp_host.functions import ToolError
from mcp_host.sampling.structured import ServerLoopResult, ServerSampling, sampling_for_fastmcp, sampling_for_sdk
from tests.extent import on_both

Wire = dict[str, Any]


class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


class Params(Model):
    messages: list[Wire]


class Request(Model):
    method: str
    params: Params


class Result(Model):
    content: Wire | list[Wire]


class InputRequired(Model):
    input_requests: dict[str, Request]
    request_state: str


class Sdk2Error(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code, message, data)


class Session:
    """One of version 2 that speaks *protocol_version*, to a client with this ``sampling`` capability."""

    def __init__(self, protocol_version: str, sampling: object = None) -> None:
        self.protocol_version = protocol_version
        self.client_capabilities = SimpleNamespace(sampling=sampling)
        self.sent: list[tuple[object, object]] = []

    async def send_request(self, request: Request, result_type: type[Result], metadata: Any) -> Result:
        self.sent.append((request.model_dump(by_alias=True), metadata.related_request_id))
        [message] = request.params.messages
        return result_type.model_validate(answer(f"to {message['content']['text']}"))


class OldSession:
    """One of version 1, which knows nothing of the client if it keeps no session."""

    def __init__(self, params: object) -> None:
        self.client_params = params


class Context:
    def __init__(self, session: object, state: str | None = None, answers: dict[str, Result] | None = None) -> None:
        self.session = session
        self.request_id = "7"
        self.request_state, self.input_responses = state, answers


WITHOUT, WITH = SimpleNamespace(tools=None), SimpleNamespace(tools={})
LEGACY, MODERN = "2025-11-25", "2026-07-28"


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is imported of the SDK, in version 2, and of fastmcp."""
    contents: dict[str, dict[str, object]] = {
        "mcp.types": {
            "CreateMessageRequest": Request,
            "CreateMessageRequestParams": Params,
            "CreateMessageResultWithTools": Result,
            "InputRequiredResult": InputRequired,
        },
        "mcp.server.mcpserver": {"Context": Context},
        "mcp.shared.message": {"ServerMessageMetadata": SimpleNamespace},
        "mcp.shared.exceptions": {"MCPError": Sdk2Error},
        "fastmcp.server.dependencies": {"get_context": None},
    }
    packages = {name: ModuleType(name) for name in contents}
    for name, module in packages.items():
        vars(module).update(contents[name])
        monkeypatch.setitem(sys.modules, name, module)
    return packages


def answer(text: str) -> Wire:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


async def echo(text: str, sampling: ServerSampling, times: int = 1) -> str:
    """Ask the model."""
    for _ in range(times):
        text = (await sampling.sample(text)).text
    return text


# What a server sees of the function


def test_the_sdk_sees_its_context_in_place_of_the_sampling() -> None:
    tool = sampling_for_sdk(echo)

    assert str(inspect.signature(tool)) == f"(text: str, sampling: {__name__}.Context, times: int = 1) -> str"
    assert inspect.get_annotations(tool) == {"text": str, "sampling": Context, "times": int, "return": str}
    assert (tool.__name__, tool.__doc__, inspect.iscoroutinefunction(tool)) == ("echo", "Ask the model.", True)


async def test_the_sdk_sees_one_context_only() -> None:
    async def told(ctx: Context | None, sampling: ServerSampling) -> list[object]:
        return [ctx, (await sampling.sample("hm?")).text]

    tool = sampling_for_sdk(told)
    context = Context(Session(LEGACY, WITH))

    assert list(inspect.signature(tool).parameters) == ["ctx"]
    assert await tool(ctx=context) == [context, "to hm?"]


def test_fastmcp_does_not_see_the_sampling() -> None:
    tool = sampling_for_fastmcp(echo)

    assert str(inspect.signature(tool)) == "(text: str, times: int = 1) -> str"
    assert inspect.get_annotations(tool) == {"text": str, "times": int, "return": str}


async def no_parameter(text: str) -> None: ...


async def two_parameters(one: ServerSampling, two: ServerSampling) -> None: ...


def not_async(sampling: ServerSampling) -> None: ...


@pytest.mark.parametrize("adapt", [sampling_for_sdk, sampling_for_fastmcp])
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (no_parameter, "no_parameter has 0 parameters annotated with ServerSampling, and needs one"),
        (two_parameters, "two_parameters has 2 parameters annotated with ServerSampling, and needs one"),
        (not_async, "<function not_async at .*> is not async"),
    ],
)
def test_a_function_that_cannot_be_filled_is_refused_at_once(
    adapt: Callable[[Any], object], function: object, problem: str
) -> None:
    with pytest.raises(TypeError, match=f"^{problem}$"):
        adapt(function)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.types", None)

    with pytest.raises(ImportError, match=r"the official SDK is not installed: pip install 'mcp>=1\.24'"):
        sampling_for_sdk(echo)


def test_version_1_has_its_context_elsewhere(monkeypatch: pytest.MonkeyPatch, packages: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.setitem(sys.modules, "mcp.server.fastmcp", packages["mcp.server.mcpserver"])

    assert inspect.signature(sampling_for_sdk(echo)).parameters["sampling"].annotation is Context


# Asking


async def test_before_2026_a_question_is_a_request_that_belongs_to_the_call() -> None:
    session = Session(LEGACY, WITHOUT)

    assert await sampling_for_sdk(echo)(text="hm?", sampling=Context(session)) == "to hm?"
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "hm?"}}], "maxTokens": 1024}
    assert session.sent == [({"method": "sampling/createMessage", "params": params}, "7")]


async def test_fastmcp_knows_the_context_itself(packages: dict[str, Any]) -> None:
    context = Context(Session(LEGACY, WITHOUT))
    packages["fastmcp.server.dependencies"].get_context = lambda: context

    assert await sampling_for_fastmcp(echo)(text="hm?", times=2) == "to to hm?"


def words(request: Request) -> str:
    text: str = request.params.messages[-1]["content"]["text"]
    return text


async def call(
    tool: Callable[..., Awaitable[object]],
    session: object,
    reply: Callable[[Request], Wire] = lambda request: answer(f"to {words(request)}"),
    **arguments: object,
) -> tuple[object, list[Request]]:
    """Call it as a client of revision 2026-07-28 does: what it returns, and what it asked."""
    state, answers, asked = None, dict[str, Result](), list[Request]()
    with fail_after(25):
        while True:
            result = await tool(sampling=Context(session, state, answers), **arguments)
            if not isinstance(result, InputRequired):
                return result, asked
            assert {request.method for request in result.input_requests.values()} == {"sampling/createMessage"}
            asked += result.input_requests.values()
            state = result.request_state
            answers = {key: Result.model_validate(reply(each)) for key, each in result.input_requests.items()}


@on_both
async def test_other_groups_of_exceptions_are_raised() -> None:
    async def tool(sampling: ServerSampling) -> None:
        raise ExceptionGroup("two", [KeyError(1), OSError(2)])

    with pytest.raises(ExceptionGroup, match="two"):
        await sampling_for_sdk(tool)(sampling=Context(Session(LEGACY, WITH)))


async def test_since_2026_a_question_is_part_of_a_result() -> None:
    result, asked = await call(sampling_for_sdk(echo), Session(MODERN, WITH), text="hm?", times=2)

    assert (result, [*map(words, asked)]) == ("to to hm?", ["hm?", "to hm?"])


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_what_is_done_once_is_not_done_again_and_returns_json(version: str) -> None:
    done: list[str] = []

    def plain() -> dict[int, tuple[int, ...]]:
        done.append("plain")
        return {1: (2, 3)}

    async def waits() -> list[int]:
        done.append("waits")
        return [2]

    async def tool(sampling: ServerSampling) -> list[object]:
        first = await sampling.once("plain", plain)
        await sampling.sample("hm?")
        second = await sampling.once("waits", waits)
        await sampling.sample("so?")
        return [first, second, await sampling.once("pair", lambda: (4, 5))]

    result, asked = await call(sampling_for_sdk(tool), Session(version, WITH))

    assert (result, done) == ([{"1": [2, 3]}, [2], [4, 5]], ["plain", "waits"])
    assert [*map(words, asked)] == (["hm?", "so?"] if version == MODERN else [])


async def test_the_tools_of_a_loop_run_once_for_each_call() -> None:
    """Also those that fail."""
    ran: list[str] = []

    def draw(card: str) -> float:
        ran.append(card)
        if card == "joker":
            raise ToolError("no joker here")
        return random.random()

    async def tool(sampling: ServerSampling) -> list[str]:
        result = await sampling.sample_loop("Draw.", tools=[draw])
        return [*[call.result.text for step in result.steps for call in step.calls], result.text]

    turns = iter([calls(("1", "ace"), ("1", "joker")), calls(("1", "ten")), answer("drawn"), answer("too many")])
    result, _ = await call(sampling_for_sdk(tool), Session(MODERN, WITH), lambda request: next(turns))

    assert isinstance(result, list)
    assert sorted(ran) == ["ace", "joker", "ten"]
    assert result[1::2] == ["no joker here", "drawn"]
    assert len(result) == 4


@on_both
async def test_loops_at_the_same_time_and_in_tools_keep_their_own_results() -> None:
    """Though the ids of the calls are unique in one conversation only."""
    ran: list[str] = []

    async def tool(sampling: ServerSampling) -> dict[str, str]:
        said, bob_is_done = {}, Event()

        def result_of(loop: ServerLoopResult) -> str:
            return loop.steps[0].calls[0].result.text

        async def loop(name: str) -> None:
            async def inner(card: str) -> str:
                ran.append(name)
                if name == "alice":
                    await bob_is_done.wait()
                bob_is_done.set()
                return f"{card} of {name}"

            async def outer(card: str) -> str:
                return "report: " + result_of(await sampling.sample_loop(f"inner of {name}", tools=[inner]))

            said[name] = result_of(await sampling.sample_loop(f"outer of {name}", tools=[outer]))

        async with create_task_group() as tasks:
            for name in ("alice", "bob"):
                tasks.start_soon(loop, name)
        return said

    def reply(request: Request) -> Wire:
        if request.params.messages[1:]:
            return answer("done")
        return calls(("call_1", "ace"), name=request.model_dump()["params"]["tools"][0]["name"])

    result, _ = await call(sampling_for_sdk(tool), Session(MODERN, WITH), reply)

    assert result == {"alice": "report: ace of alice", "bob": "report: ace of bob"}
    assert sorted(ran) == ["alice", "bob"]


async def test_once_refuses_what_is_no_json_in_all_revisions(subtests: pytest.Subtests) -> None:
    async def tool(sampling: ServerSampling, value: object) -> object:
        return await sampling.once("it", lambda: value)

    no_json = r"^once\('it'\): the function returned a value that is no JSON: "
    for version, value in product(
        (LEGACY, MODERN), (datetime(2026, 1, 1), Params(messages=[]), {1}, b"a", float("nan"), [object])
    ):
        with subtests.test(version=version, value=value), pytest.raises(TypeError, match=no_json):
            await sampling_for_sdk(tool)(sampling=Context(Session(version, WITH)), value=value)


def calls(*uses: tuple[str, str], name: str = "draw") -> Wire:
    content = [{"type": "tool_use", "id": id, "name": name, "input": {"card": card}} for id, card in uses]
    return {"role": "assistant", "content": content, "model": "m", "stopReason": "toolUse"}


# What the client declared


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_client_that_does_not_sample_is_told_so(version: str) -> None:
    session = Session(version)

    with pytest.raises(Sdk2Error) as caught:
        await sampling_for_sdk(echo)(text="hm?", sampling=Context(session))

    message = "the client did not declare sampling"
    assert caught.value.args == (-32021, message, {"requiredCapabilities": {"sampling": {}}})
    assert session.sent == []


async def in_tasks(sampling: ServerSampling) -> None:
    async with create_task_group() as tasks:
        tasks.start_soon(partial(sampling.sample, "hm?", tools=[no_parameter]))


async def in_turn(sampling: ServerSampling) -> None:
    await sampling.sample("hm?", tools=[no_parameter])


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("tool", [in_turn, in_tasks])
async def test_a_client_that_takes_no_tools_is_told_so(version: str, tool: Any) -> None:

    with pytest.raises(Sdk2Error) as caught:
        await sampling_for_sdk(tool)(sampling=Context(Session(version, WITHOUT)))

    message = "the client did not declare sampling.tools"
    assert caught.value.args == (-32021, message, {"requiredCapabilities": {"sampling": {"tools": {}}}})


@pytest.mark.parametrize("params", [None, SimpleNamespace(capabilities=SimpleNamespace(sampling=None))])
async def test_version_1_gets_the_error_itself(params: object, packages: dict[str, Any]) -> None:
    del packages["mcp.shared.exceptions"].MCPError

    with pytest.raises(NotDeclared, match=r"^the client did not declare sampling$"):
        await sampling_for_sdk(echo)(text="hm?", sampling=Context(OldSession(params)))


async def test_version_1_tells_the_capability_otherwise() -> None:
    params = SimpleNamespace(capabilities=SimpleNamespace(sampling=WITH))
    session: Any = OldSession(params)
    new = Session(LEGACY)
    session.send_request = new.send_request

    await sampling_for_sdk(in_turn)(sampling=Context(session))

    sent: Any = new.sent
    assert [(request["params"]["tools"][0]["name"], related) for request, related in sent] == [("no_parameter", "7")]
