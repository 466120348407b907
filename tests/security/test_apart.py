"""Servers are kept apart: what one says or knows has no meaning for another."""

from __future__ import annotations

import json

from anyio import Event, create_task_group, fail_after, wait_all_tasks_blocked

from mcp_host import Client, SamplingRequest, StreamableHttp
from mcp_host.types import CreateMessageResult, ProgressNotificationParams
from tests.faults.asking import PARIS, ask, asker, sampling
from tests.faults.http_server import SOON, mcp, subject, tides, welcome
from tests.faults.processes import client_of
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import in_turn

MEDDLER = """
call = read()
for id in [*range(20), *map(str, range(20)), "q-1"]:
    if id != call["id"]:
        say({"id": id, "result": text("mine")})
    say({"method": "notifications/cancelled", "params": {"requestId": id}})
    say({"method": "notifications/progress", "params": {"progressToken": id, "progress": 1}})
reply(call, text("mine"))
"""
"""Answers, cancels and reports on every request id that any server or client here may have used."""

WORKER = """
call, ping = read(), read()
reply(ping, {})
reply(call, text("theirs"))
"""


async def test_a_server_that_answers_every_id_answers_no_call_to_another() -> None:
    """Ids and tokens of all clients begin alike, and mean something on their own connection only."""
    said: list[str] = []
    progress: list[ProgressNotificationParams] = []

    async def note(report: ProgressNotificationParams) -> None:
        progress.append(report)

    async def call() -> None:
        said.append((await worker.call_tool("x", on_progress=note)).text)

    with fail_after(SOON):
        async with client_of(WORKER) as worker, client_of(MEDDLER) as meddler, create_task_group() as tasks:
            tasks.start_soon(call)
            await wait_all_tasks_blocked()
            assert (await meddler.call_tool("x")).text == "mine"
            assert said == []
            await worker.ping()

    assert (said, progress) == (["theirs"], [])


async def test_a_server_cannot_cancel_or_answer_the_requests_of_another() -> None:
    asked, meddled = Event(), Event()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        asked.set()
        await meddled.wait()
        return request.reply("Paris")

    answers: list[object] = []

    async def call() -> None:
        answers.extend(json.loads((await worker.call_tool("ask", {"asks": [ask()]})).text))

    host = sampling(model)
    with fail_after(SOON):
        async with (
            asker(sampling=host) as worker,
            asker(MEDDLER, sampling=host) as meddler,
            create_task_group() as tasks,
        ):
            tasks.start_soon(call)
            await asked.wait()
            await meddler.call_tool("x")
            meddled.set()

    assert answers == [{"jsonrpc": "2.0", "id": "q-1", **PARIS}]


async def test_clients_of_one_url_have_separate_sessions() -> None:
    ids = {"a": ["a-1", "a-2"], "b": ["b-1"]}
    scripts = {name: mcp(initialize=in_turn(*map(welcome, each))) for name, each in ids.items()}
    async with serving(scripts["a"]) as a, serving(scripts["b"]) as b:
        one = StreamableHttp(a.url)
        with fail_after(SOON):
            async with (
                Client(one, era="legacy") as first,
                Client(one, era="legacy") as second,
                Client(StreamableHttp(b.url), era="legacy") as other,
            ):
                for client in (first, other, second, first):
                    await tides(client)

    calls = [[heard.headers["mcp-session-id"] for heard in peer.heard if subject(heard) == "call"] for peer in (a, b)]
    assert calls == [["a-1", "a-2", "a-1"], ["b-1"]]
    told = [{heard.headers.get("mcp-session-id") for heard in peer.heard} for peer in (a, b)]
    assert told == [{None, *ids["a"]}, {None, *ids["b"]}]
