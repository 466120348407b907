"""A group among the tools of a loop, and what it was told to ask before a model's calls are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked as settled

from mcp_host import (
    Allow,
    Client,
    Deny,
    Elicitation,
    EraCache,
    FormRequest,
    ProposedCall,
    Sampling,
    SamplingRequest,
    ToolCall,
    always,
    run_tool_loop,
)
from mcp_host.errors import McpError
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.sampling import LoopResult
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.types import ElicitResult, Implementation
from tests.extent import on_both
from tests.group.support import Node, Seen, opened
from tests.sampling.asking import Approver

pytestmark = on_both


def results(result: LoopResult) -> list[tuple[str, bool]]:
    """What the model got of its calls, and whether that was an error."""
    return [(call.result.text, bool(call.result.is_error)) for step in result.steps for call in step.calls]


async def test_a_loop_takes_a_group_beside_other_groups_clients_and_functions() -> None:
    def double(a: int) -> int:
        """Double it."""
        return 2 * a

    approve = Approver(Allow())
    calls = [ToolCall("a__x"), ToolCall("b__x"), ToolCall("x"), ToolCall("double", {"a": 2})]
    model = ScriptedModel(calls, "done")
    async with (
        opened({"a": Node("x", name="A")}) as one,
        opened({"b": Node("x", name="B")}) as other,
        Client(Node("x", name="C"), name="c") as client,
    ):
        result = await run_tool_loop(model, "go", tools=[one, other, client, double], approve=approve)

    assert results(result) == [("A: x", False), ("B: x", False), ("C: x", False), ("4", False)]
    asked: list[ProposedCall] = approve.asked
    assert [(call.server, call.name) for call in asked] == [
        ("a", "a__x"),
        ("b", "b__x"),
        ("c", "x"),
        ("this program", "double"),
    ]
    assert [call.server_info and call.server_info.name for call in asked] == ["a", "b", "c", None]


async def test_two_groups_with_servers_of_the_same_name_are_told_apart_by_the_error() -> None:
    async with opened({"a": Node("x")}) as one, opened({"a": Node("x")}) as other:
        with pytest.raises(
            ValueError, match=r"two tools have the name 'a__x', of 'a' \(tools\[0\]\) and of 'a' \(tools\[1\]\)"
        ):
            await run_tool_loop(ScriptedModel("done"), "go", tools=[one, other])
        with pytest.raises(ValueError, match=r"tools\[0\] and tools\[1\] are the same"):
            await run_tool_loop(ScriptedModel("done"), "go", tools=[one, one])


async def test_a_server_that_goes_down_between_listing_and_call_is_an_error_for_the_model_and_others_answer() -> None:
    node, seen = Node("x"), Seen()

    async def crash(request: SamplingRequest) -> Any:
        if len(request.messages) > 1:
            return "done"
        node.up = False
        await node.crash()
        await seen.until("a", "down")
        return request.calls(ToolCall("a__x"), ToolCall("b__x"))

    async with opened({"a": node, "b": Node("x")}, on_status=seen) as group:
        result = await run_tool_loop(crash, "go", tools=[group])
        later = ScriptedModel("done")
        await run_tool_loop(later, "go", tools=[group])

    assert results(result) == [("the tool a__x failed: its server is not available", True), ("a node: x", False)]
    assert [tool.name for tool in later.requests[0].tools] == ["b__x"]


async def test_a_tool_that_its_server_removes_is_an_error_for_the_model() -> None:
    node, seen = Node("x", "y"), Seen()

    async def remove(request: SamplingRequest) -> Any:
        if len(request.messages) > 1:
            return "done"
        await node.change("y")
        await seen.until("a", "ready", 2)
        return request.calls(ToolCall("a__x"), ToolCall("a__y"))

    async with opened({"a": node}, on_status=seen) as group:
        result = await run_tool_loop(remove, "go", tools=[group])

    assert results(result) == [("the tool a__x failed", True), ("a node: y", False)]


async def test_a_loop_lists_the_tools_of_its_clients_at_once_and_raises_what_failed_first() -> None:
    listing, all_listing, fails = list[str](), anyio.Event(), False

    async def list_last(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/list":
            listing.append(request.server)
            if len(listing) == 3:
                all_listing.set()
            await all_listing.wait()
            if fails and request.server == "b":
                raise McpError("b cannot")
        return await call_next(request)

    def client(name: str) -> Client:
        return Client(Node(name), name=name, middleware=[list_last])

    with anyio.fail_after(25):
        async with client("a") as a, client("b") as b, client("c") as c:
            result = await run_tool_loop(ScriptedModel([ToolCall("b")], "done"), "go", tools=[a, b, c])
            assert results(result) == [("a node: b", False)]
            listing.clear()
            all_listing, fails = anyio.Event(), True
            with pytest.raises(McpError, match=r"^the tools of 'b' \(tools\[1\]\) cannot be listed: b cannot$"):
                await run_tool_loop(ScriptedModel("done"), "go", tools=[a, b, c])


# Approval

Asking = Callable[[ProposedCall], Awaitable[Allow | Deny]]


async def turns(group: Any, *callers: object, **options: Any) -> list[str]:
    """What the model got in as many loops, each of which calls a__x."""
    got = []
    for caller in callers:
        model = ScriptedModel([ToolCall("a__x")], "done")
        result = await run_tool_loop(model, "go", tools=[group], caller=caller, **options)
        got += [text for text, _ in results(result)]
    return got


async def test_three_turns_with_the_same_tool_ask_once_but_once_for_each_caller() -> None:
    approve, node = Approver(Allow("session")), Node("x")
    async with opened({"a": node}, approve=approve) as group:
        assert await turns(group, None, None, None) == ["a node: x"] * 3
        assert len(approve.asked) == 1
        await turns(group, "ada", "ada", "bob", "bob", "ada", object())
        assert [call.caller for call in approve.asked[:3]] == [None, "ada", "bob"]
        assert len(approve.asked) == 4
        await group.call_tool("a__x")  # our own call

    assert len(approve.asked) == 4


async def test_what_is_allowed_ends_with_the_definition_the_server_and_by_forgetting() -> None:
    approve, node, seen = Approver(Allow("session")), Node("x"), Seen()
    other = {"name": "x", "description": "Another one.", "inputSchema": {"type": "object"}}
    async with opened({"a": node, "b": Node("x")}, approve=approve, on_status=seen) as group:
        approvals = group.approvals
        assert approvals is not None

        async def asked() -> bool:
            before = len(approve.asked)
            await turns(group, None)
            return len(approve.asked) > before

        assert (await asked(), await asked()) == (True, False)
        await node.crash()
        await seen.until("a", "ready", 2)
        assert not await asked()
        await node.change(other, "y")
        await seen.until("a", "ready", 3)
        assert (await asked(), await asked()) == (True, False)
        approvals.forget("b")
        assert not await asked()
        approvals.forget("a")
        assert (await asked(), await asked()) == (True, False)
        approvals.forget()
        assert (await asked(), await asked()) == (True, False)
        await group.replace("a", Node(other, "y"))
        assert (await asked(), await asked()) == (True, False)
        await group.remove("a")
        await group.add("a", Node(other, "y"))
        assert (await asked(), await asked()) == (True, False)


async def test_the_approve_of_a_loop_comes_before_that_of_a_group() -> None:
    approve = Approver(Allow("session"))
    async with opened({"a": Node("x")}, approve=approve) as group:
        await turns(group, None)
        assert await turns(group, None, approve=Approver(Deny("no"))) == ["This call was denied: no"]
        assert await turns(group, None, approve=group.approvals) == ["a node: x"]
        assert group.approvals is not None
        async with opened({"a": Node("x")}, approve=group.approvals) as another:
            await turns(another, None)

    assert len(approve.asked) == 1


async def test_a_group_that_denies_denies_its_own_tools_only() -> None:
    async with opened({"a": Node("x")}, approve=Approver(Deny("no"))) as group, opened({"b": Node("x")}) as free:
        model = ScriptedModel([ToolCall("a__x"), ToolCall("b__x")], "done")
        result = await run_tool_loop(model, "go", tools=[group, free])

    assert results(result) == [("This call was denied: no", True), ("a node: x", False)]


# Servers that ask


async def test_one_handler_answers_all_servers_and_knows_which_one_asks_and_for_whom() -> None:
    asked = list[tuple[str, object]]()

    async def model(request: SamplingRequest) -> str:
        asked.append((request.server, request.outer and request.outer.caller))
        return f"for {request.server}"

    def asking() -> Server:
        server = Server("the same")

        @server.tool
        async def ask(context: Context) -> str:
            return (await context.sample("?")).text

        return server

    sampling = Sampling(with_tools=model, approve=always)
    async with opened({"a": asking(), "b": asking()}, sampling=sampling) as group:
        answers = [(await group.call_tool(f"{name}__ask", caller=f"user of {name}")).text for name in "ab"]

    assert answers == ["for a", "for b"]
    assert asked == [("a", "user of a"), ("b", "user of b")]


async def test_a_form_and_what_all_servers_learn_of_the_host_are_the_same_for_each() -> None:
    forms, eras = list[tuple[str, object]](), EraCache()

    async def fill(request: FormRequest) -> ElicitResult:
        forms.append((request.server, request.outer and request.outer.caller))
        return ElicitResult(action="decline")

    def asking() -> Server:
        server = Server("the same")

        @server.tool
        async def ask(context: Context) -> str:
            return (await context.elicit("?", {"type": "object", "properties": {}})).action

        @server.tool
        async def host(context: Context) -> str:
            return context.client_info.name

        return server

    info = Implementation(name="a host", version="1")
    options: dict[str, Any] = {"elicitation": Elicitation(form=fill), "client_info": info, "era_cache": eras}
    async with opened({"a": asking(), "b": asking()}, **options) as group:
        for name in "ab":
            assert (await group.call_tool(f"{name}__ask", caller=name.upper())).text == "decline"
            assert (await group.call_tool(f"{name}__host")).text == "a host"

    assert forms == [("a", "A"), ("b", "B")]
    assert eras.export() == {"a": "modern", "b": "modern"}


async def test_the_tools_of_a_server_are_run_inside_its_own_sampling_if_the_host_wants() -> None:
    server = Server("s")

    @server.tool
    async def ask(context: Context) -> str:
        return (await context.sample("?", tools=[add])).text

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    model = ScriptedModel([ToolCall("add", {"a": 1, "b": 2})], "three")
    sampling = Sampling(with_tools=model, approve=always)
    async with opened({"a": server, "b": Node("x")}, sampling=sampling, run_own_tools=True) as group:
        assert (await group.call_tool("a__ask")).text == "three"
        await settled()
