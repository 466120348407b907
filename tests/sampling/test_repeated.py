"""Tools that a server repeats: read once for a handler that only reads them, and never for anyone else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_host.errors import ProtocolError
from mcp_host.sampling import Allow, OwnTools, Sampling, SamplingLimits, SamplingRequest, SamplingSession, always
from mcp_host.sampling.approval import Scope
from mcp_host.sampling.own_tools import ServerTools
from mcp_host.sampling.repeated import ReadOnlyTools, RepeatedTools, reads_only
from mcp_host.sampling.request import CallModel
from mcp_host.sampling.validation import read_params
from mcp_host.types import CreateMessageResult, Tool
from tests.extent import THOROUGH
from tests.sampling.asking import ADD, MULTIPLY, Wire, wire

EXAMPLES = 5000 if THOROUGH else 100
LIMITS = SamplingLimits()


def with_schema(**schema: object) -> Wire:
    return {"name": "add", "inputSchema": {"type": "object", **schema}}


# Values that Python takes for equal, or that its parsers share. They are few, so that requests often repeat.
LEAVES = st.sampled_from([0, 1, False, True, 0.0, -0.0, 1.0, 10**30, 1e30, None, "", "1", "é", "long " * 20])
VALUES = LEAVES | st.dictionaries(st.sampled_from("ab"), LEAVES, max_size=2) | st.lists(LEAVES, max_size=2)
TOOLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["add", "multiply", ""]), "inputSchema": VALUES | st.just({"type": "object"})},
    optional={"description": LEAVES, "title": st.just("A"), "_meta": VALUES, "annotations": VALUES, "extra": VALUES},
)
REQUESTS = st.fixed_dictionaries(
    {"messages": st.just(wire()["messages"]), "maxTokens": st.sampled_from([1, 2.0, "1"])},
    optional={
        "tools": st.lists(TOOLS, max_size=2) | st.none() | st.just([ADD]) | st.just({"0": ADD}),
        "toolChoice": st.sampled_from([{"mode": "auto"}, {"mode": "required"}, {"type": "tool", "name": "add"}]),
        "metadata": st.just({"tools": [ADD]}),
        "other": VALUES,
    },
)


def outcome(sent: bytes, repeated: RepeatedTools | None) -> tuple[str, object]:
    """What is read, with its types and its order: JSON has no other."""
    try:
        params = read_params(from_json(sent), "with_tools", LIMITS, repeated=repeated)
    except ProtocolError as exc:
        return "error", str(exc)
    return json.dumps(params.to_wire()), params.model_fields_set


@settings(max_examples=EXAMPLES)
@given(st.lists(REQUESTS, min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=2, max_size=8))
def test_a_request_reads_as_if_there_were_none_before_it(requests: list[Wire], order: list[int]) -> None:
    repeated = RepeatedTools()
    for number in order:
        sent = json.dumps(requests[number % len(requests)]).encode()
        assert outcome(sent, repeated) == outcome(sent, None)


def received(*tools: Wire) -> Wire:
    """The params of a request that offers *tools*, as they come from a server."""
    params: Wire = from_json(json.dumps(wire(tools=tools)))
    return params


def read(repeated: RepeatedTools, *tools: Wire) -> list[Tool]:
    return repeated.read(received(*tools)).tools or []


def test_tools_are_the_same_list_for_as_long_as_they_are_repeated() -> None:
    repeated = RepeatedTools()
    first, again = read(repeated, ADD), read(repeated, ADD)
    plain = repeated.read(wire())
    after, other, back = read(repeated, ADD), read(repeated, ADD, MULTIPLY), read(repeated, ADD)

    assert first is again is after
    assert isinstance(first, ReadOnlyTools)
    assert plain.tools is None
    assert [tool.name for tool in other] == ["add", "multiply"]
    assert back == first
    assert back is not first


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"const": 1}, {"const": True}, id="true"),
        pytest.param({"const": 1}, {"const": 1.0}, id="float"),
        pytest.param({"const": 0.0}, {"const": -0.0}, id="minus"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, id="order"),
    ],
)
def test_tools_that_python_takes_for_equal_are_not_repeated(before: Wire, after: Wire) -> None:
    repeated = RepeatedTools()
    read(repeated, with_schema(**before))

    assert json.dumps(read(repeated, with_schema(**after))[0].input_schema) == json.dumps({"type": "object", **after})


def test_who_has_the_request_as_it_came_cannot_change_the_tools_of_a_later_one() -> None:
    repeated = RepeatedTools()
    sent = received(with_schema(properties={"a": {}}))
    repeated.read(sent)
    sent["tools"][0]["inputSchema"]["properties"]["a"]["const"] = 1

    assert read(repeated, with_schema(properties={"a": {}}))[0].input_schema["properties"] == {"a": {}}


def test_malformed_tools_are_not_kept() -> None:
    repeated = RepeatedTools()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="inputSchema: Field required"):
            read(repeated, {"name": "add"})


def test_what_only_another_client_can_pass_is_read_as_before() -> None:
    """Its params are Python's objects, and a dict may be of a class of its own."""

    class Schema(dict[str, Any]):
        pass

    params = RepeatedTools().read(wire(tools=[{"name": "add", "inputSchema": Schema(type="object")}]))

    assert [tool.input_schema for tool in params.tools or ()] == [{"type": "object"}]


class Model:
    """A handler that only reads requests. It keeps the tools of each."""

    def __init__(self) -> None:
        self.tools: list[list[Tool]] = []

    @reads_only
    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.tools.append(request.tools)
        return request.reply("ok")


class Overridden(Model):
    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        return await super().__call__(request)


async def around(request: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
    return await call_model()


def alone(model: Model) -> Sampling:
    return Sampling(with_tools=model, approve=always)


def inside_a_handler(model: Model) -> Sampling:
    async def handler(request: SamplingRequest) -> CreateMessageResult:
        return await model(request)

    return Sampling(with_tools=handler, approve=always)


async def not_called(*arguments: object) -> Any:
    raise AssertionError("the model calls no tool")


def open_session(sampling: Sampling, server_tools: ServerTools | None = None) -> SamplingSession:
    return sampling.session(server="calculator", knows_tools=True, server_tools=server_tools)


async def test_a_model_that_nobody_stands_before_gets_the_same_tools_again() -> None:
    model = Model()
    asked = open_session(alone(model), ServerTools(not_called, not_called, None))
    for _ in range(2):
        await asked.answer(received(ADD))

    assert model.tools[0] is model.tools[1]


async def test_connections_share_no_tools() -> None:
    model = Model()
    sampling = alone(model)
    for asked in (open_session(sampling), open_session(sampling)):
        await asked.answer(received(ADD))

    assert model.tools[0] == model.tools[1]
    assert model.tools[0] is not model.tools[1]


@pytest.mark.parametrize(
    ("sampling", "model"), [(inside_a_handler, Model), (inside_a_handler, Overridden), (alone, Overridden)]
)
async def test_tools_that_the_hosts_code_may_change_are_read_anew(
    sampling: Callable[[Model], Sampling], model: type[Model]
) -> None:
    asking = model()
    asked = open_session(sampling(asking))
    for _ in range(2):
        await asked.answer(received(ADD))

    first, second = asking.tools
    assert type(first) is type(second) is list
    assert first[0].input_schema is not second[0].input_schema


@pytest.mark.parametrize("scope", ["request", "session"])
async def test_tools_that_are_approved_are_the_same_list(scope: Scope) -> None:
    """An approver gets its own."""
    model = Model()
    questions: list[list[Tool]] = []

    async def approve(request: SamplingRequest) -> Allow:
        questions.append(request.tools)
        request.tools[0].input_schema["title"] = "changed"
        return Allow(scope)

    asked = open_session(Sampling(with_tools=model, approve=approve))
    other = {**ADD, "description": "Adds."}
    for tool in (ADD, ADD, other, other, ADD):
        await asked.answer(received(tool))

    descriptions = [None, "Adds."] if scope == "session" else [None, None, "Adds.", "Adds.", None]
    assert [[tool.description for tool in tools] for tools in questions] == [[each] for each in descriptions]
    assert {type(tools) for tools in questions} == {list}
    assert {type(tools) for tools in model.tools} == {ReadOnlyTools}
    first, second, third, fourth, last = model.tools
    assert first is second
    assert third is fourth
    assert first == last
    assert [tools[0].input_schema for tools in model.tools] == [{"type": "object"}] * 5


async def test_middleware_around_the_model_sees_tools_that_are_read_anew() -> None:
    model = Model()
    asked = open_session(alone(model))
    for middleware in ([], [around], []):
        await asked.answer(received(ADD), around_model=middleware)

    assert [type(tools) for tools in model.tools] == [ReadOnlyTools, list, ReadOnlyTools]


async def test_a_loop_that_runs_the_servers_tools_has_tools_that_are_read_anew() -> None:
    model = Model()
    await open_session(alone(model), ServerTools(not_called, not_called, OwnTools())).answer(received(ADD))

    assert [type(tools) for tools in model.tools] == [list]
