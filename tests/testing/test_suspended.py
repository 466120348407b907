"""Functions that request input in 2026-07-28: suspended with a result, and resumed by a retry."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
from anyio import Event, create_task_group, move_on_after, sleep, sleep_forever, to_thread
from anyio.lowlevel import checkpoint

from mcp_host.testing import Context, RequestError, Server, ToolError
from tests.extent import on_both
from tests.testing.raw import Wire, answer, calls, failed, modern, retry, text, use

pytestmark = on_both


def question(prompt: str) -> Wire:
    return {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": prompt}}], "maxTokens": 1024},
    }


def interviewer() -> Server:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context, prompt: str = "Why?") -> str:
        return (await ctx.sample(prompt)).text

    @server.tool
    async def twice(ctx: Context) -> str:
        return (await ctx.sample("First?")).text + (await ctx.sample("Second?")).text

    @server.tool
    async def both(ctx: Context) -> list[str]:
        answers: dict[str, str] = {}

        async def one(prompt: str) -> None:
            answers[prompt] = (await ctx.sample(prompt)).text

        async with create_task_group() as tasks:
            tasks.start_soon(one, "a?")
            tasks.start_soon(one, "b?")
        return [answers["a?"], answers["b?"]]

    return server


def ending(**options: Any) -> tuple[Server, Event]:
    """A server with a tool that asks, and an event that is set when the tool ends."""
    server, ended = Server("s", **options), Event()

    @server.tool
    async def ask(ctx: Context, last: bool = True) -> str:
        try:
            return (await ctx.sample("Why?")).text
        finally:
            if last:
                ended.set()

    return server, ended


async def test_an_input_request_is_a_result_and_its_answer_comes_with_the_retry() -> None:
    async with modern(interviewer()) as raw:
        asked = await raw.result("tools/call", {"name": "ask"})
        result = await raw.last_round("ask", {"sampling-1": answer("So.")}, asked["requestState"])

    state = asked.pop("requestState")
    assert "ask" not in state
    assert asked == {
        "resultType": "input_required",
        "inputRequests": {"sampling-1": question("Why?")},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"}},
    }
    assert result == text("So.")


async def test_each_input_request_has_a_name_and_each_round_a_state() -> None:
    async with modern(interviewer()) as raw:
        first = await raw.round("twice")
        second = await raw.round("twice", {"sampling-1": answer("a")}, first.state)
        result = await raw.last_round("twice", {"sampling-2": answer("b")}, second.state)

    assert first.requests == {"sampling-1": question("First?")}
    assert second.requests == {"sampling-2": question("Second?")}
    assert first.state != second.state
    assert result == text("ab")


async def test_concurrent_input_requests_are_one_round() -> None:
    async with modern(interviewer()) as raw:
        asked = await raw.round("both")
        by_prompt = {asked.requests[key]["params"]["messages"][0]["content"]["text"]: key for key in asked.requests}
        answers = {by_prompt["a?"]: answer("A"), by_prompt["b?"]: answer("B")}
        result = await raw.last_round("both", answers, asked.state)

    assert sorted(asked.requests) == ["sampling-1", "sampling-2"]
    assert result["structuredContent"] == {"result": ["A", "B"]}


async def test_input_requests_a_few_steps_apart_are_one_round() -> None:
    server = Server("s")

    @server.tool
    async def stairs(ctx: Context) -> None:
        async def climb(steps: int) -> None:
            for _ in range(steps):
                await checkpoint()
            await ctx.sample(f"{steps}?")

        async with create_task_group() as tasks:
            for steps in (0, 10, 20, 30):
                tasks.start_soon(climb, steps)

    async with modern(server) as raw:
        asked = await raw.round("stairs")

    assert len(asked.requests) == 4


async def test_a_slower_task_asks_in_the_next_round() -> None:
    server, go, done = Server("s"), Event(), Event()

    @server.tool
    async def uneven(ctx: Context) -> str:
        async def slow() -> None:
            await go.wait()
            await ctx.report_progress(1)  # lost: no request is open
            done.set()
            await ctx.sample("slow?")

        async with create_task_group() as tasks:
            tasks.start_soon(slow)
            await ctx.sample("quick?")
        return "done"

    async with modern(server) as raw:
        raw.meta["progressToken"] = "t"
        first = await raw.round("uneven")
        go.set()
        await done.wait()
        assert await raw.nothing_more()
        second = await raw.round("uneven", {"sampling-1": answer("q")}, first.state)
        result = await raw.last_round("uneven", {"sampling-2": answer("s")}, second.state)

    assert first.requests == {"sampling-1": question("quick?")}
    assert second.requests == {"sampling-2": question("slow?")}
    assert result == text("done")


async def test_a_task_that_waits_for_the_answer_of_another_does_not_delay_the_round() -> None:
    server = Server("s")

    @server.tool
    async def relay(ctx: Context) -> str:
        answered = Event()

        async def first() -> None:
            await ctx.sample("a?")
            answered.set()

        async with create_task_group() as tasks:
            tasks.start_soon(first)
            await answered.wait()
        return "done"

    async with modern(server) as raw:
        asked = await raw.round("relay")

        assert await raw.last_round("relay", {"sampling-1": answer("A")}, asked.state) == text("done")


async def test_a_function_may_wait_for_a_thread_before_it_asks() -> None:
    server = Server("s")

    @server.tool
    async def late(ctx: Context) -> str:
        prompt = await to_thread.run_sync(lambda: "late?")
        return (await ctx.sample(prompt)).text

    async with modern(server) as raw:
        asked = await raw.round("late")
        result = await raw.last_round("late", {"sampling-1": answer("x")}, asked.state)

    assert asked.requests == {"sampling-1": question("late?")}
    assert result == text("x")


async def test_unanswered_requests_are_repeated_and_unknown_answers_are_ignored() -> None:
    async with modern(interviewer()) as raw:
        first = await raw.round("both")
        answers = {"sampling-1": answer("x"), "sampling-9": answer("unasked")}
        second = await raw.round("both", answers, first.state)
        third = await raw.round("both", {}, second.state)
        result = await raw.last_round("both", {"sampling-2": answer("x")}, third.state)

    assert second.requests == third.requests == {"sampling-2": first.requests["sampling-2"]}
    assert result["structuredContent"] == {"result": ["x", "x"]}


async def test_answers_without_a_state_are_ignored() -> None:
    async with modern(interviewer()) as raw:
        asked = await raw.result("tools/call", {"name": "ask", "inputResponses": {"sampling-1": {"odd": True}}})

    assert asked["inputRequests"] == {"sampling-1": question("Why?")}


@pytest.mark.parametrize("answers", [[], {"sampling-1": "text"}, None], ids=["a list", "a text in it", "null"])
async def test_malformed_answers_are_refused_and_the_state_stays_valid(answers: object) -> None:
    async with modern(interviewer()) as raw:
        asked = await raw.round("ask")
        error = await raw.error("tools/call", retry("ask", answers, asked.state))
        result = await raw.last_round("ask", {"sampling-1": answer("x")}, asked.state)

    assert error == {"code": -32602, "message": "inputResponses has to be an object of objects"}
    assert result == text("x")


async def test_an_answer_of_the_wrong_kind_fails_the_call() -> None:
    async with modern(interviewer()) as raw:
        asked = await raw.round("ask")
        result = await raw.last_round("ask", {"sampling-1": {"action": "accept"}}, asked.state)

    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("malformed CreateMessageResult")


async def test_a_function_without_a_retry_is_cancelled() -> None:
    server, ended = ending(resume_timeout=0)
    async with modern(server) as raw:
        asked = await raw.round("ask")
        await ended.wait()
        error = await raw.error("tools/call", retry("ask", {}, asked.state))

    assert error == {"code": -32602, "message": "requestState has expired"}


async def test_the_number_of_suspended_functions_is_limited() -> None:
    server, ended = ending(max_suspended=2)
    async with modern(server) as raw:
        first = await raw.round("ask", last=False)
        await raw.round("ask", last=False)
        error = await raw.error("tools/call", {"name": "ask"})
        await ended.wait()
        await raw.last_round("ask", {"sampling-1": answer("x")}, first.state, last=False)
        await raw.round("ask")  # there is room again

    assert error == {"code": -32603, "message": "2 calls wait for input already (max_suspended)"}


@pytest.mark.fake_clock
async def test_ended_functions_do_not_count_as_suspended() -> None:
    server, ended = Server("s", max_suspended=1), Event()

    @server.tool
    async def impatient(ctx: Context) -> str:
        with move_on_after(0.01):
            await ctx.sample("Why?")
        ended.set()
        return "too late"

    async with modern(server) as raw:
        first = await raw.round("impatient")
        await ended.wait()

        assert await raw.last_round("impatient", {"sampling-1": answer("x")}, first.state) == text("too late")
        await raw.round("impatient")


async def test_a_function_that_fails_while_suspended_fails_the_retry() -> None:
    server, go, left = Server("s"), Event(), Event()

    @server.tool
    async def fail(ctx: Context) -> None:
        async def later() -> None:
            await go.wait()
            left.set()
            raise ToolError("no use")

        async with create_task_group() as tasks:
            tasks.start_soon(later)
            await ctx.sample("Why?")

    async with modern(server) as raw:
        asked = await raw.round("fail")
        go.set()
        await left.wait()
        result = await raw.last_round("fail", {"sampling-1": answer("x")}, asked.state)

    assert result == failed("no use")


@pytest.mark.fake_clock
async def test_what_came_of_a_suspended_function_is_kept_until_its_state_expires() -> None:
    server, kept = Server("s", resume_timeout=2), list[ref[RequestError]]()

    @server.tool
    async def impatient(ctx: Context) -> None:
        with move_on_after(0.5):
            await ctx.sample("Why?")
        kept.append(ref(error := RequestError(-31999, "too late")))
        raise error

    async with modern(server) as raw:
        await raw.round("impatient")
        for seconds, is_kept in ((1.5, True), (1.0, False)):
            await sleep(seconds)
            gc.collect()
            assert [each() is not None for each in kept] == [is_kept]


async def test_cancelling_the_retry_ends_the_function() -> None:
    server, resumed, ended = Server("s"), Event(), Event()

    @server.tool
    async def stay(ctx: Context) -> None:
        try:
            await ctx.sample("Why?")
            resumed.set()
            await sleep_forever()
        finally:
            ended.set()

    async with modern(server) as raw:
        asked = await raw.round("stay")
        id = await raw.request("tools/call", retry("stay", {"sampling-1": answer("x")}, asked.state))
        await resumed.wait()
        await raw.notify("notifications/cancelled", {"requestId": id})
        await ended.wait()

        assert await raw.nothing_more()


async def test_closing_the_connection_cancels_suspended_functions() -> None:
    server, ended = ending()
    async with modern(server) as raw:
        await raw.round("ask")
        await raw.close()

    assert ended.is_set()


async def test_notifications_of_a_resumed_function_belong_to_the_retry() -> None:
    server, seen = Server("s"), []

    @server.tool
    async def report(ctx: Context) -> None:
        for number in (1, 2):
            seen.append(ctx.request_id)
            await ctx.report_progress(number)
            await ctx.log("info", number)
            if number == 1:
                await ctx.sample("Why?")

    async with modern(server) as raw:
        raw.meta |= {"progressToken": "one"}
        first = await raw.start("report")
        progress, asked = await raw.receive(), await raw.receive()
        raw.meta |= {"progressToken": "two", "io.modelcontextprotocol/logLevel": "info"}
        state = asked["result"]["requestState"]
        second = await raw.request("tools/call", retry("report", {"sampling-1": answer("x")}, state))
        told = [await raw.receive() for _ in range(3)]

    assert progress["params"] == {"progressToken": "one", "progress": 1}
    assert [message.get("params") for message in told[:2]] == [
        {"progressToken": "two", "progress": 2},
        {"level": "info", "data": 2},
    ]
    assert told[2]["id"] == second
    assert seen == [first, second]


async def test_a_tool_loop_is_one_round_a_turn() -> None:
    """A capability that one of its tools misses is a result for the model."""
    server = Server("s")

    async def double(n: int) -> int:
        return n * 2

    async def look(ctx: Context) -> int:
        return len(await ctx.list_roots())

    @server.tool
    async def solve(ctx: Context) -> str:
        return (await ctx.sample_loop("2 * 2 * 2?", tools=[double, look])).text

    wanted = calls(use("1", "double", n=2), use("2", "double", n=4), use("3", "look"))
    async with modern(server, capabilities={"sampling": {"tools": {}}}) as raw:
        first = await raw.round("solve")
        second = await raw.round("solve", {"sampling-1": wanted}, first.state)
        result = await raw.last_round("solve", {"sampling-2": answer("8")}, second.state)

    assert [tool["name"] for tool in first.requests["sampling-1"]["params"]["tools"]] == ["double", "look"]
    results = second.requests["sampling-2"]["params"]["messages"][-1]["content"]
    assert [(block["toolUseId"], block["content"], block.get("isError")) for block in results] == [
        ("1", text("4")["content"], None),
        ("2", text("8")["content"], None),
        ("3", text("the client did not declare roots")["content"], True),
    ]
    assert result == text("8")


async def test_a_cancelled_input_request_is_not_sent() -> None:
    server, go = Server("s"), Event()

    @server.tool
    async def fickle(ctx: Context) -> str:
        async with create_task_group() as tasks:
            tasks.start_soon(ctx.sample, "never mind")
            await checkpoint()
            await checkpoint()
            tasks.cancel_scope.cancel()
        await go.wait()
        return "done"

    async with modern(server) as raw:
        id = await raw.start("fickle")
        assert await raw.nothing_more()
        go.set()
        answered = await raw.receive()

    assert (answered["id"], answered["result"]["content"]) == (id, text("done")["content"])


async def test_elicitation_and_roots_are_input_requests_too() -> None:
    server = Server("s")

    @server.tool
    async def everything(ctx: Context) -> list[str]:
        form = await ctx.elicit("Sure?", {"type": "object", "properties": {}})
        visit = await ctx.elicit_url("Go", "https://example.com", "e")
        await ctx.elicit_complete("e")
        roots = await ctx.list_roots()
        return [form.action, visit.action, roots[0].uri]

    async with modern(server) as raw:
        first = await raw.round("everything")
        second = await raw.round("everything", {"elicitation-1": {"action": "decline"}}, first.state)
        third = await raw.round("everything", {"elicitation-2": {"action": "accept"}}, second.state)
        result = await raw.last_round("everything", {"roots-3": {"roots": [{"uri": "file:///a"}]}}, third.state)

    form = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    visit = {"mode": "url", "message": "Go", "url": "https://example.com"}
    assert first.requests == {"elicitation-1": {"method": "elicitation/create", "params": form}}
    assert second.requests == {"elicitation-2": {"method": "elicitation/create", "params": visit}}
    assert third.requests == {"roots-3": {"method": "roots/list", "params": {}}}
    assert result["structuredContent"] == {"result": ["decline", "accept", "file:///a"]}


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        (
            "resources/read",
            {"uri": "r://a"},
            {"contents": [{"uri": "r://a", "text": "x"}], "ttlMs": 0, "cacheScope": "private"},
        ),
        ("prompts/get", {"name": "why"}, {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]}),
    ],
)
async def test_resources_and_prompts_can_request_input_too(method: str, params: Wire, result: Wire) -> None:
    server = Server("s")

    @server.resource("r://a")
    @server.prompt(name="why")
    async def why(ctx: Context) -> str:
        return (await ctx.sample("Why?")).text

    async with modern(server) as raw:
        asked = await raw.result(method, params)
        answers = {"inputResponses": {"sampling-1": answer("x")}, "requestState": asked["requestState"]}

        assert asked["inputRequests"] == {"sampling-1": question("Why?")}
        assert not {"ttlMs", "cacheScope"} & asked.keys()
        assert await raw.complete(method, {**params, **answers}) == result
