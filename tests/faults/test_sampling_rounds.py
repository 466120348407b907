"""Input inside results (2026-07-28): servers that ask without end, ask what they may not, or ask in unknown ways."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import Event, create_task_group, wait_all_tasks_blocked

from mcp_host import Client, Stdio
from mcp_host.errors import NoCommonVersion, ProtocolError
from mcp_host.limits import Limits
from mcp_host.transports.stdio import StdioChannel
from mcp_host.types import CreateMessageResult
from tests.clock import advance
from tests.extent import on_both
from tests.faults.asking import DISCOVERED, PARIS, Model, ask, sampling
from tests.faults.fault import fault
from tests.transports.children import python

WANTS = """
def wants(call, count=1, state=None, method="sampling/createMessage", params=ASK):
    requests = {f"k{n}": {"method": method, "params": params} for n in range(count)}
    result = {"resultType": "input_required", "inputRequests": requests} if count else {"resultType": "input_required"}
    reply(call, result | ({} if state is None else {"requestState": state}))

def done(call, said="done"):
    reply(call, text(said) | {"resultType": "complete"})

calls = 0
def request():
    global calls
    calls += 1
    return read()
"""


@asynccontextmanager
async def modern(body: str, model: Any = None, **limits: Any) -> AsyncIterator[Client]:
    """A client of a stateless server that runs *body* once it has been discovered."""
    words = WANTS.replace("ASK", repr(ask()))
    command = python(DISCOVERED + words, hands=False)
    command[-1] += "\n" + body
    async with Client(Stdio(command), sampling=sampling(model or Model()), limits=Limits(**limits)) as client:
        assert client.protocol_version == "2026-07-28"
        yield client


async def good(client: Client) -> bool:
    """Whether a call that names no trouble gets its result."""
    return (await client.call_tool("good")).text == "done"


SERVE = """
while True:
    call = request()
    if call["params"]["name"] == "good":
        done(call)
    else:
        trouble(call)
"""


@fault("S28")
async def test_a_request_that_servers_may_not_send_is_ignored() -> None:
    body = f"""
def trouble(call):
    say({{"id": "q", "method": "sampling/createMessage", "params": {ask()!r}}})
    say({{"id": "p", "method": "ping"}})
    done(call, "asked")
{SERVE}
"""
    model = Model()
    async with modern(body, model) as client:
        assert (await client.call_tool("trouble")).text == "asked"
        assert await good(client)  # the next that the server reads is this call, and no answer

        assert client.counters == {"requests that no server may send": 2}
    assert model.asked == []


@fault("S12", "S29", "R02")
async def test_of_many_inputs_at_once_few_reach_the_model_at_once() -> None:
    gate = Counting()
    async with modern(
        f"trouble = lambda call: wants(call, count=60) if calls == 1 else done(call)\n{SERVE}", gate
    ) as c:
        assert (await c.call_tool("trouble")).text == "done"

    assert (gate.asked, gate.most) == (60, 4)


class Counting:
    """A model that counts how many ask it at once."""

    def __init__(self) -> None:
        self.asked = self.now = self.most = 0

    async def __call__(self, request: Any) -> CreateMessageResult:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await wait_all_tasks_blocked()
        self.now -= 1
        answer: CreateMessageResult = request.reply("Paris")
        return answer


STATES = ["", " ", "\0", "a\r\nb", "\U0001f642", '{"b": 1,  "a": 1.0}', "é\u0301\ufeff\u2028", "x" * 100_000]


@fault("S30")
async def test_the_request_state_is_sent_back_unchanged() -> None:
    body = (
        f"states = {STATES!r}\n"
        + """
def trouble(call):
    if "requestState" in call["params"]:
        done(call, json.dumps(call["params"]))
    else:
        wants(call, state=states[call["params"]["arguments"]["number"]])
"""
    )
    async with modern(body + SERVE) as client:
        for number, state in enumerate(STATES):
            params = json.loads((await client.call_tool("trouble", {"number": number})).text)
            assert params["requestState"] == state
            assert params["inputResponses"] == {"k0": PARIS["result"]}


@fault("S31")
async def test_a_result_of_an_unknown_type_is_an_error() -> None:
    kinds = ["partial", "Complete", "", 7, None, ["complete"]]
    body = f"kinds = iter({kinds!r})\ntrouble = lambda call: reply(call, text('success') | {{'resultType': next(kinds)}})\n"
    async with modern(body + SERVE) as client:
        for _ in kinds:
            with pytest.raises(ProtocolError, match="is of an unknown type"):
                await client.call_tool("trouble")
            assert await good(client)


HANDSHAKE = """
while (request := read())["method"] != "initialize":
    ANSWER
    print("silent", file=sys.stderr, flush=True)
reply(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "0"}})
read()
while True:
    reply(read(), text("hi"))
"""


@on_both
@pytest.mark.adjustable_clock
@pytest.mark.parametrize(
    "answer",
    [
        "pass",
        "raw('Welcome!\\n')",
        "raw('\\n\\n{}\\n[]\\n7\\n')",
        "say({'id': None, 'error': {'code': -32600, 'message': 'What?'}})",
    ],
    ids=["silence", "a banner", "garbage", "no id"],
)
@fault("S32")
async def test_a_server_that_ignores_the_probe_is_initialized_within_the_connect_timeout(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which silence takes two seconds, and they are over as soon as the client waits for a server that says no more."""
    read, silent = Event(), Event()
    wait_until_started = StdioChannel.wait_until_started

    async def wait_and_tell(channel: StdioChannel) -> None:
        await wait_until_started(channel)
        read.set()

    async def let_time_pass() -> None:
        await read.wait()
        await silent.wait()
        await wait_all_tasks_blocked()
        advance(2)

    monkeypatch.setattr(StdioChannel, "wait_until_started", wait_and_tell)
    command = python(HANDSHAKE.replace("ANSWER", answer), hands=False)
    server = Stdio(command, on_stderr=lambda line: silent.set())
    async with create_task_group() as tasks:
        tasks.start_soon(let_time_pass)
        async with Client(server, limits=Limits(connect_timeout=30)) as client:
            assert client.protocol_version == "2025-11-25"
            assert (await client.call_tool("x")).text == "hi"


@fault("S32")
async def test_a_server_without_a_common_version_fails_the_connect_with_its_versions() -> None:
    versions = ["2031-01-01", "2030-01-01"]
    body = f"""
request = read()
error = {{"code": -32022, "message": "no", "data": {{"supported": {versions}, "requested": "2026-07-28"}}}}
say({{"id": request["id"], "error": error}})
read()
"""
    with pytest.raises(NoCommonVersion, match=r"2031-01-01.*2030-01-01"):
        await Client(Stdio(python(body, hands=False))).connect()
