"""`Approvals`: what is allowed for the session is allowed in later loops, for that server, tool, definition and caller."""

from __future__ import annotations

from itertools import product
from typing import Any

import anyio
import pytest

from mcp_host import Allow, Approvals, Client, Deny, ProposedCall, ToolCall, run_tool_loop
from mcp_host.testing import ScriptedModel, Server
from mcp_host.types import Tool
from tests.extent import on_both
from tests.sampling.asking import Approver

X = Tool(name="x", input_schema={"type": "object"})
Y = Tool(name="x", input_schema={"type": "object"}, description="Another one.")


def proposed(tool: Tool = X, **options: Any) -> ProposedCall:
    return ProposedCall(**{"server": "a", "tool": tool, "arguments": {}, **options})


async def test_each_server_tool_definition_and_caller_is_asked_about_once() -> None:
    """A server is known by its key, if it has one: two programs may have the same name."""
    approve = Approver(Allow("session"))
    approvals = Approvals(approve)
    calls = [
        proposed(tool, server_key=key, caller=caller)
        for tool, key, caller in product((X, Y), (None, "a.py", "b.py"), (None, "ada", ("ada", 1), object()))
    ]
    for decision in (Allow("session"), Allow()):
        assert [await approvals.decide(call) for call in calls] == [decision] * len(calls)

    assert approve.asked == calls
    await approvals.decide(proposed(server="b"))
    assert len(approve.asked) == len(calls) + 1


async def test_what_an_approver_changes_in_a_tool_changes_neither_the_tool_nor_what_is_allowed() -> None:
    """Later calls are checked with the same definition."""
    asked: list[Tool] = []

    async def approve(call: ProposedCall) -> Allow:
        asked.append(call.tool)
        call.tool.input_schema.clear()
        return Allow("session")

    tool = X.model_copy(deep=True)
    approvals = Approvals(approve)
    for _ in range(2):
        await approvals.decide(proposed(tool))

    assert len(asked) == 1
    assert tool == X


async def test_only_what_is_allowed_for_the_session_is_remembered(subtests: pytest.Subtests) -> None:
    for decision in (Allow(), Allow("call"), Deny("no")):
        approve = Approver(decision)
        approvals = Approvals(approve)
        with subtests.test(repr(decision)):
            assert [await approvals.decide(proposed()) for _ in range(2)] == [decision] * 2
            assert len(approve.asked) == 2


async def test_a_function_that_cannot_decide_is_refused() -> None:
    with pytest.raises(TypeError, match="approve"):
        Approvals(5)  # type: ignore[arg-type]  # the subject
    with pytest.raises(TypeError, match="approve has to return Allow or Deny, not bool"):
        await Approvals(lambda call: True).decide(proposed())  # type: ignore[arg-type, return-value]  # the subject


async def test_forgetting_asks_again_and_what_is_being_asked_about_counts_once() -> None:
    answer, asked = anyio.Event(), list[ProposedCall]()

    async def approve(call: ProposedCall) -> Allow:
        asked.append(call)
        await answer.wait()
        return Allow("session")

    approvals = Approvals(approve)
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approvals.decide, proposed())
            await anyio.wait_all_tasks_blocked()
            approvals.forget("a")
            answer.set()
        for server in ("a", "a", "b"):
            await approvals.decide(proposed(server=server))
        assert len(asked) == 3
        approvals.forget("b")
        await approvals.decide(proposed())
        assert len(asked) == 3
        approvals.forget()
        await approvals.decide(proposed())
        assert len(asked) == 4


@on_both
async def test_a_loop_asks_once_about_a_server_of_the_hosts_name_and_a_function() -> None:
    def double(a: int) -> int:
        return 2 * a

    def server() -> Server:
        made = Server("the same")
        made.tool(name="x")(lambda: "done")
        return made

    approve = Approver(Allow("session"))
    approvals = Approvals(approve)
    for name in ("first", "second", "first"):
        async with Client(server(), name=name) as client:
            model = ScriptedModel([ToolCall("x"), ToolCall("double", {"a": 1})], "done")
            await run_tool_loop(model, "go", tools=[client, double], approve=approvals)

    assert [(call.server, call.name, call.server_key) for call in approve.asked] == [
        ("first", "x", "first"),
        ("this program", "double", None),
        ("second", "x", "second"),
    ]


def test_two_programs_without_a_name_of_the_host_have_keys_of_their_own() -> None:
    """Also where they have the same name."""
    keys = {Client(["uvx", "files", folder]).key for folder in ("/home/ada", "/home/bob")}

    assert len(keys) == 2
