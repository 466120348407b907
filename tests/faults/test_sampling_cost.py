"""What a server's sampling may cost: tools, texts and images, models at once and one after another, and time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import Event, fail_after, sleep, wait_all_tasks_blocked

from mcp_host import Client, SamplingRequest
from mcp_host.errors import RequestTimeout
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult
from tests.extent import on_both
from tests.faults.asking import PARIS, Model, Wire, answers, ask, asker, sampling, tool, user, words
from tests.faults.fault import fault

STORM = """
call = read()
for number in range(300):
    say({"id": number, "method": "sampling/createMessage", "params": {"maxTokens": 1,
        "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}]}})
heard = [read() for number in range(277)]
say({"method": "notifications/message", "params": {"level": "info", "data": "refused"}})
heard += [read() for number in range(23)]
reply(call, text(json.dumps([answer.get("error", {}).get("code", 0) for answer in heard])))
call = read()
reply(call, text("done"))
"""

LOOP = """
while True:
    call = read()
    heard = []
    while not heard or "result" in heard[-1]:
        say({"id": len(heard), "method": "sampling/createMessage", "params": call["params"]["arguments"]})
        heard.append(read())
    reply(call, text(json.dumps([len(heard), heard[-1]["error"]])))
"""

IDLE_LOOP = """
heard = []
while not heard or "result" in heard[-1]:
    say({"id": len(heard), "method": "sampling/createMessage", "params": {"maxTokens": 1,
        "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}]}})
    heard.append(read())
say({"method": "notifications/message", "params": {"level": "info", "data": [len(heard), heard[-1]["error"]]}})
while True:
    call = read()
    say({"id": "q", "method": "sampling/createMessage", "params": call["params"]["arguments"]})
    reply(call, text(json.dumps("result" in read())))
"""


class Gate:
    """A model that answers when it is opened, and knows how often it was asked at once."""

    def __init__(self) -> None:
        self.opened = Event()
        self.at_once = self.most = 0

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.opened.wait()
        finally:
            self.at_once -= 1
        return request.reply("Paris")


GIANTS: dict[str, Wire] = {
    "tools is 64, and the request has 1000": ask(tools=[tool(f"t{n}") for n in range(1_000)]),
    "text is 10000, and the request has 10001": ask(user(words("x" * 10_001))),
    "text is 10000, and the request has 10019": ask(systemPrompt="x" * 10_001),
    "text is 10000, and the request has 10026": ask(metadata={"x": "x" * 10_000}),
    "binary is 9000, and the request has 12000": ask(user({"type": "image", "mimeType": "image/png", "data": "AAAA" * 4_000})),
    "messages is 256, and the request has 1000": ask(*[user(words("a"))] * 1_000),
    "blocks is 4096, and the request has 5000": ask(user(*[words("a")] * 5_000)),
}  # fmt: skip


@fault("S10", "S11")
async def test_giant_prompts_are_refused_before_the_model_is_asked() -> None:
    """Each limit to the byte is in `tests/sampling/test_limits.py`."""
    model = Model()
    async with asker(sampling=sampling(model, text=10_000, binary=9_000)) as client:
        refused = await answers(client, *GIANTS.values())
        assert model.asked == []
        assert await answers(client, ask()) == [PARIS]

    assert refused == [{"error": {"code": -32602, "message": f"this client's limit {problem}"}} for problem in GIANTS]


@fault("S12", "R02")
async def test_of_many_requests_few_reach_the_model_at_once_and_those_beyond_the_queue_are_refused() -> None:
    """Three are with the model and twenty wait, until the server has heard that it asked for too much."""
    gate = Gate()

    async def refused(log: object) -> None:
        gate.opened.set()

    async with asker(STORM, sampling=sampling(gate, at_once_per_server=3, waiting=20), on_log=refused) as client:
        with fail_after(60):
            codes = json.loads((await client.call_tool("storm")).text)

        assert codes == [-32010] * 277 + [0] * 23
        assert gate.most == 3
        assert (await client.call_tool("again")).text == "done"


@fault("S13")
async def test_a_call_that_samples_endlessly_is_stopped() -> None:
    model = Model()
    async with asker(LOOP, sampling=sampling(model), limits=Limits(max_inputs=40)) as client:
        for _ in range(2):  # each call has its own budget
            heard = json.loads((await client.call_tool("loop", ask())).text)
            error = {"code": -32013, "message": "this client's limit max_inputs is 40 for one call"}
            assert heard == [41, error]

    assert len(model.asked) == 80


@fault("S13")
async def test_endless_unprompted_sampling_is_refused_for_an_hour() -> None:
    """A call may still have as many requests."""
    model, told = Model(), Event()
    said: list[object] = []

    async def hear(log: Any) -> None:
        said.append(log.data)
        told.set()

    async with asker(IDLE_LOOP, sampling=sampling(model), on_log=hear, limits=Limits(max_inputs=40)) as client:
        await told.wait()
        assert (await client.call_tool("once", ask())).text == "true"

    words = "this client's limit max_inputs is 40 in 3600 seconds without a call"
    assert said == [[41, {"code": -32013, "message": words}]]
    assert len(model.asked) == 41


async def asking(peer: ScriptedPeer) -> None:
    """A server in memory that asks one question in each call, and says what it heard."""
    await peer.answer_initialize(capabilities={"tools": {}})
    while True:
        call = await peer.receive("tools/call")
        answer = await peer.request("sampling/createMessage", ask())
        await peer.reply(call, {"content": [words(json.dumps(answer))]})


@asynccontextmanager
async def asked_in_memory(**options: Any) -> AsyncIterator[Client]:
    async with Client(ScriptedPeer(asking), era="legacy", **options) as client:
        yield client


async def heard(client: Client) -> Wire:
    """What the server hears from its model in one call, without the envelope."""
    answer: Wire = json.loads((await client.call_tool("ask")).text)
    return {key: value for key, value in answer.items() if key not in ("jsonrpc", "id")}


@on_both
@pytest.mark.fake_clock
@fault("S27")
async def test_the_timeouts_of_a_call_stop_while_a_person_decides() -> None:
    async def slowly(request: SamplingRequest) -> CreateMessageResult:
        await sleep(0.3)  # a person
        return request.reply("Paris")

    async with asked_in_memory(sampling=sampling(slowly), limits=Limits(idle_timeout=0.1)) as client:
        assert await heard(client) == PARIS


@on_both
@pytest.mark.fake_clock
@fault("S27")
async def test_an_approval_that_never_comes_times_out() -> None:
    async def never(request: SamplingRequest) -> CreateMessageResult:
        await sleep(60)
        return request.reply("too late")

    async with asked_in_memory(sampling=sampling(never, seconds=0.1)) as client:
        answer = await heard(client)

    assert answer == {"error": {"code": -32011, "message": "this client's limit for one answer is 0.1 seconds"}}


@on_both
@pytest.mark.fake_clock
@fault("S27")
async def test_a_call_ends_after_its_timeout_and_the_input_timeout_even_if_a_handler_continues() -> None:
    gate = Gate()
    async with asked_in_memory(sampling=sampling(gate), limits=Limits(input_timeout=0.2, timeout=0.3)) as client:
        with pytest.raises(RequestTimeout, match=r"longer than 0.3 s \(timeout\), .* 0.2 s \(input_timeout\)$"):
            await heard(client)
        gate.opened.set()
        await wait_all_tasks_blocked()  # the server has its answer
        assert await heard(client) == PARIS

    assert gate.most == 1
