"""One call at a time, where a server does not say which call its requests belong to."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from anyio import Event, Lock, create_task_group, wait_all_tasks_blocked

from mcp_host import Client, Deny, Elicitation, FormRequest, StreamableHttp
from mcp_host.proxy import Proxy, allow_tools
from mcp_host.testing import Context, Server
from mcp_host.types import ElicitResult
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, model_of, text_of, through, user

pytestmark = on_both


@pytest.mark.parametrize("over_http", [False, True], ids=["pipe", "http"])
async def test_a_server_works_on_one_call_at_a_time_where_it_does_not_say_which_one_asks(over_http: bool) -> None:
    """Over a pipe, for a host that can be asked within a call only."""
    server = Server("asking", versions=ERAS["legacy"])
    started: list[Event] = []

    @server.tool
    async def ask(context: Context, name: str) -> str:
        others = len(started)
        started.append(Event())  # of the server's event loop
        if over_http and not others:
            await started[0].wait()
        started[0].set()
        form = await context.elicit(name, {"type": "object", "properties": {"name": {"type": "string"}}})
        started.pop()
        return f"{name} {(form.content or {}).get('name')}"

    async def fill_in(request: FormRequest) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": request.message})

    async with server.http() if over_http else nullcontext() as url:
        proxy = Proxy(server if url is None else StreamableHttp(url))
        results: list[str] = []

        async def call(client: Client, name: str) -> None:
            results.append(text_of(await client.call_tool("ask", {"name": name})))

        asking = Elicitation(form=fill_in)
        async with through(proxy, "modern", elicitation=asking) as client, create_task_group() as tasks:
            for name in ("a", "b"):
                tasks.start_soon(call, client, name)
    assert sorted(results) == ["a a", "b b"]


async def test_two_calls_at_once_may_use_the_model_that_their_names_allow() -> None:
    """Over a pipe, for a host that can be asked within a call only: they wait for each other."""
    sampling = model_of("proxy", approve=allow_tools("write", otherwise=lambda request: Deny("no")))
    results: list[str] = []

    async def call(client: Client) -> None:
        results.append(text_of(await client.call_tool("write")))

    proxy = Proxy(Planner(ERAS["legacy"]), sampling=sampling)
    async with through(proxy, "modern") as client, create_task_group() as tasks:
        tasks.start_soon(call, client)
        tasks.start_soon(call, client)
    assert results == ["proxy after 0"] * 2


async def test_a_call_that_waits_for_the_hosts_answer_lets_others_go_first() -> None:
    """Such as those that the host needs for its answer. The answers of a server that asks several questions come together."""
    server = Server("asking", versions=ERAS["legacy"])

    @server.tool
    async def ask(context: Context, questions: list[str]) -> str:
        answers: list[str] = []

        async def answer(question: str) -> None:
            answers.append(str((await context.elicit(question, {"type": "object", "properties": {}})).action))

        async with create_task_group() as tasks:
            for question in questions:
                tasks.start_soon(answer, question)
        return " ".join(answers)

    async def fill_in(request: FormRequest) -> ElicitResult:
        if request.message == "outer":
            assert len(await client.list_tools()) == 1
            assert text_of(await client.call_tool("ask", {"questions": ["inner"]})) == "decline"
            return ElicitResult(action="accept", content={})
        return ElicitResult(action="decline")

    async with through(Proxy(server), "modern", elicitation=Elicitation(form=fill_in)) as client:
        assert text_of(await client.call_tool("ask", {"questions": ["outer"]})) == "accept"
        assert text_of(await client.call_tool("ask", {"questions": ["a", "b"]})) == "decline decline"


FORM: dict[str, Any] = {"type": "object", "properties": {}}


def one_after_the_other() -> Server:
    """A server with a handshake that begins no call before the last has ended; `ask` asks its questions at once."""
    server, lock = Server("sequential", versions=ERAS["legacy"]), Lock()

    @server.tool
    async def ask(context: Context, questions: list[str]) -> str:
        actions: list[str] = []

        async def elicit(question: str) -> None:
            actions.append((await context.elicit(question, FORM)).action)

        async with lock, create_task_group() as tasks:
            for question in questions:
                tasks.start_soon(elicit, question)
        return " ".join(actions)

    return server


async def test_a_call_whose_host_has_answered_waits_for_no_other() -> None:
    """The server needs the answer before it begins the next."""
    results: list[str] = []
    both_called = Event()

    async def fill_in(request: FormRequest) -> ElicitResult:
        await both_called.wait()
        return ElicitResult(action="accept", content={})

    async def call(client: Client) -> None:
        results.append(text_of(await client.call_tool("ask", {"questions": ["a"]})))

    asking = Elicitation(form=fill_in)
    async with (
        through(Proxy(one_after_the_other()), "modern", elicitation=asking) as client,
        create_task_group() as tasks,
    ):
        tasks.start_soon(call, client)
        tasks.start_soon(call, client)
        await wait_all_tasks_blocked()
        both_called.set()
    assert results == ["accept", "accept"]


async def test_questions_of_a_call_that_come_while_another_waits_for_its_host_are_asked() -> None:
    server = Server("asking", versions=ERAS["legacy"])
    asked: list[str] = []

    @server.tool
    async def ask(context: Context, questions: list[str]) -> str:
        async with create_task_group() as tasks:
            for question in questions:
                tasks.start_soon(context.elicit, question, FORM)
        return "done"

    async def fill_in(request: FormRequest) -> ElicitResult:
        asked.append(request.message)
        if request.message == "outer":
            assert text_of(await client.call_tool("ask", {"questions": ["a", "b", "c"]})) == "done"
        return ElicitResult(action="accept", content={})

    async with through(Proxy(server), "modern", elicitation=Elicitation(form=fill_in)) as client:
        assert text_of(await client.call_tool("ask", {"questions": ["outer"]})) == "done"
    assert (asked[0], sorted(asked[1:])) == ("outer", ["a", "b", "c"])


@pytest.mark.parametrize("host", ["legacy", "modern"])
async def test_after_a_call_that_was_cancelled_the_host_is_still_asked(host: str) -> None:
    planner = Planner(ERAS["legacy"])
    async with through(Proxy(planner), host, elicitation=user()) as client:
        async with create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "wait")
            await planner.started.wait()
            tasks.cancel_scope.cancel()
        assert text_of(await client.call_tool("book")) == "accept Ada"
