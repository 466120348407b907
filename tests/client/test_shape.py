"""What a plain call costs is a matter of its shape: no task, no queue but the outbox, everything read and written once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
import sniffio
import trio

import mcp_host
from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.types import TextContent
from tests.client.rounds import wants
from tests.client.sites import DISCOVERED
from tests.client.support import INITIALIZED, QUESTION, connected, sampling
from tests.transports.children import python
from tests.transports.http_peers import CHUNKED, EVENTS, JSON, Wire, event, head, serving

ECHO = """
while True:
    request = read()
    reply(request, text(request["params"]["arguments"]["words"]))
"""
HELLO = [TextContent(text="hello")]
CODEC = {"from_json": "messages read", "validate_python": "results validated", "to_json": "messages written"}
QUEUES = ("asyncio/queues.py", "anyio/streams/memory.py", "trio/_channel.py")
INTO_THEM = {"put", "put_nowait", "send", "send_nowait"}


class Spawned(trio.abc.Instrument):
    def __init__(self, seen: Counter[str]) -> None:
        self._seen = seen

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self._seen["tasks"] += 1


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What happens inside, and everywhere in this thread: tasks that start, queues that are crossed, uses of the codec."""
    seen: Counter[str] = Counter()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        name = getattr(arg, "__name__", "")
        if event == "c_call" and name in CODEC:
            seen[CODEC[name]] += 1
        elif event == "call" and frame.f_code.co_name in INTO_THEM and frame.f_code.co_filename.endswith(QUEUES):
            seen["queues"] += 1

    with _tasks_counted(seen):
        sys.setprofile(watch)
        try:
            yield seen
        finally:
            sys.setprofile(None)


@contextmanager
def _tasks_counted(seen: Counter[str]) -> Iterator[None]:
    if sniffio.current_async_library() == "trio":
        instrument = Spawned(seen)
        trio.lowlevel.add_instrument(instrument)
        yield
        trio.lowlevel.remove_instrument(instrument)
        return

    def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        seen["tasks"] += 1
        return asyncio.Task(coroutine, loop=loop, **options)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(start)
    yield
    loop.set_task_factory(None)


async def plainly(client: Client) -> Counter[str]:
    """Call once to warm up, then five times; what these five took."""
    await client.call_tool("echo", {"words": "hello"})
    with counted() as seen:
        for _ in range(5):
            assert (await client.call_tool("echo", {"words": "hello"})).content == HELLO
    return seen


FIVE = {"messages read": 5, "messages written": 5, "results validated": 5}


async def test_a_plain_call_over_a_pipe_starts_no_task_and_validates_its_result_once() -> None:
    async with connected(Stdio(python(ECHO))) as client:
        seen = await plainly(client)

    assert seen == FIVE


async def test_a_call_through_middleware_starts_no_task_either_and_validates_once_more() -> None:
    """Middleware may change the result, so it is validated before and after."""

    async def pass_on(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        return await call_next(request)

    async with connected(Stdio(python(ECHO)), middleware=[pass_on]) as client:
        seen = await plainly(client)

    assert seen == {**FIVE, "results validated": 10}


async def test_a_plain_call_over_http_does_not_either() -> None:
    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            match heard.rpc["method"] if heard.body else heard.method:
                case "initialize":
                    await answer(wire, heard.rpc, INITIALIZED)
                case "tools/call":
                    await answer(wire, heard.rpc, {"content": [{"type": "text", "text": "hello"}]})
                case "notifications/initialized":
                    await wire.reply(202)
                case "server/discover":
                    await wire.reply(404)
                case _:
                    await wire.reply(405)

    async def answer(wire: Wire, request: dict[str, object], result: object) -> None:
        await wire.reply(200, JSON, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode())

    async with serving(script) as peer, connected(StreamableHttp(peer.url)) as client:
        seen = await plainly(client)

    assert seen == FIVE


ASK_FIRST = """
ASKS = {"resultType": "input_required", "requestState": "asked", "inputRequests": {"model": {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 100}}}}
reply(read(), {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
while True:
    reply(read(), ASKS)
    reply(read(), text("hello"))
"""


async def test_a_round_with_one_input_request_starts_no_task_either() -> None:
    async with connected(Stdio(python(ASK_FIRST, hands=False)), sampling=sampling()) as client:
        seen = await plainly(client)

    # Validated are, for each call, the input request, the model's text and answer, and the result.
    assert seen == {"messages read": 10, "messages written": 10, "results validated": 20}


SOURCE = Path(mcp_host.__file__).parent


@contextmanager
def traced() -> Iterator[tuple[set[str], set[tuple[str, str]]]]:
    """The files and the functions of this package that run inside; lambdas and comprehensions count, too."""
    files: set[str] = set()
    functions: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SOURCE}/") and "/testing/" not in code.co_filename:
            files.add(code.co_filename)
            functions.add((code.co_filename, code.co_qualname))

    sys.setprofile(watch)
    try:
        yield files, functions
    finally:
        sys.setprofile(None)


async def test_a_plain_call_over_a_pipe_passes_few_files_and_functions() -> None:
    """Upper bounds: lower them when the path gets shorter. Trio's event loop has no callbacks, so it takes more."""
    async with connected(Stdio(python(ECHO))) as client:
        for _ in range(2):
            await client.call_tool("echo", {"words": "hello"})
        with traced() as (files, functions):
            await client.call_tool("echo", {"words": "hello"})

    assert len(files) <= 11
    assert len(functions) <= (45 if sniffio.current_async_library() == "trio" else 39)


PLUS = {"name": "plus", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
ASKS = wants("asked", model={"method": "sampling/createMessage", "params": {**QUESTION, "tools": [PLUS]}})


async def test_sampling_with_tools_in_2026_over_http_passes_few_files_and_functions() -> None:
    """Upper bounds for one call, from `call_tool` to its result: two requests, and the model between them."""

    async def script(wire: Wire) -> None:
        while True:
            request = (await wire.hear()).rpc
            if request["method"] == "server/discover":
                result: dict[str, Any] = DISCOVERED
            elif "inputResponses" in request["params"]:
                answers.append(request["params"]["inputResponses"]["model"]["content"])
                result = {"resultType": "complete", "content": [{"type": "text", "text": "hello"}]}
            else:
                result = ASKS
            data = event(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode())
            await wire.say(head(200, {**EVENTS, **CHUNKED}), b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))

    answers: list[object] = []
    with anyio.fail_after(25):
        async with serving(script) as peer, Client(StreamableHttp(peer.url), sampling=sampling()) as client:
            for _ in range(2):
                await client.call_tool("ask")
            with traced() as (files, functions):
                assert (await client.call_tool("ask")).content == HELLO

    assert answers == [{"type": "text", "text": "Paris"}] * 3
    assert len(files) <= 26
    assert len(functions) <= 117  # one of them reads the sizes of chunks


async def test_the_counters_notice_a_task_a_queue_and_a_second_validation(subtests: pytest.Subtests) -> None:
    async def nothing() -> None:
        pass

    async def a_task() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(nothing)

    async def a_queue() -> None:
        sending, receiving = anyio.create_memory_object_stream[int](1)
        with sending, receiving:
            sending.send_nowait(1)

    async def a_second_look() -> None:
        TextContent.from_wire({"type": "text", "text": "hello"})

    for spoil, counter in ((a_task, "tasks"), (a_queue, "queues"), (a_second_look, "results validated")):
        with subtests.test(counter):
            with counted() as seen:
                await spoil()

            assert seen == {counter: 1}
