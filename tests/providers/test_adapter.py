"""What all adapters share, shown with Anthropic's, against a local server."""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import anyio
import httpx
import pytest
from anyio import create_task_group, fail_after, to_thread
from anyio.lowlevel import checkpoint
from pydantic_core import from_json

from mcp_host import Client, Sampling
from mcp_host.errors import InputRefused, ProviderError, SamplingError
from mcp_host.middleware import AnyRequest, CallNext, ServerRequest
from mcp_host.providers import AnthropicModel, Delta, ModelAnswer, ReasoningStore
from mcp_host.providers.anthropic import read_reply
from mcp_host.providers.exchange.replies import Call, CountFields, Reply, answer_of, count_of, read_counts
from mcp_host.providers.exchange.requests import Offer, Prompt, media_type
from mcp_host.sampling import CallModel, Handler, SamplingRequest, always, run_tool_loop
from mcp_host.sampling.repeated import RepeatedTools
from mcp_host.server_requests import ProgressReporter
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageResult, TextContent, ToolUseContent
from tests.providers.conftest import Serve
from tests.providers.prompts import names_of
from tests.providers.scripted import Broken, Called, Failed, Said, Stalled, Turn
from tests.providers.sdks.anthropic import AsyncAnthropic
from tests.providers.servers.anthropic import AnthropicServer
from tests.sampling.asking import ADD, assistant, request, result, text, use, user, wire

MODEL = "claude-sonnet-5"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

in_both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@asynccontextmanager
async def model_of(server: AnthropicServer, **arguments: Any) -> AsyncIterator[AnthropicModel]:
    client = AsyncAnthropic(base_url=server.url, api_key=server.key)
    with fail_after(20):
        async with AnthropicModel(client, MODEL, **arguments) as model:
            yield model


# The answer


@pytest.mark.parametrize(
    ("blocks", "texts"),
    [
        (["a\ud83d", "\ude00b"], ["a😀", "b"]),
        (["a\ud83d", None, "\ude00"], ["a😀", None]),
        (["\ud83d", "", "\ude00\ud83d", "\ude00b"], ["😀", "😀", "b"]),
        (["a\ud83d", "b\ude00", "\ude00"], ["a\ufffd", "b\ufffd", "\ufffd"]),
        (["a\ud83d", "\ud83d"], ["a\ufffd", "\ufffd"]),
    ],
    ids=["two texts", "across a call", "four texts", "halves of none", "two first halves"],
)
async def test_a_character_of_which_two_texts_have_a_half_each_is_the_same_as_in_the_pieces(
    blocks: list[str | None], texts: list[str | None]
) -> None:
    calls = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    content = []  # with a search after each block, because texts next to each other are one
    for words in blocks:
        content += [calls if words is None else {"type": "text", "text": words}, search]
    starts = [
        {"type": "content_block_start", "index": index, "content_block": block} for index, block in enumerate(content)
    ]
    pieces: list[str] = []
    model = AnthropicModel(Events(BEGIN[0], *starts, *END), MODEL, on_delta=lambda delta: pieces.append(delta.text))
    streamed = await model(request(tools=[ADD]))
    whole = answer_of(read_reply({"content": content, "model": MODEL, "stop_reason": "end_turn"}, prompt()), prompt())

    for answer in (streamed, whole):
        assert [block.text if isinstance(block, TextContent) else None for block in answer.content] == texts
    assert "".join(pieces) == "".join(filter(None, texts))


@pytest.mark.parametrize(
    ("count", "read"),
    [
        *((12, 12), (12.0, 12), (0, 0), (-0.0, 0)),
        *((count, None) for count in (12.5, -1, -1.0, True, "12", None, math.inf, math.nan)),
    ],
)
def test_a_count_of_tokens_is_a_whole_number_however_json_has_it(count: object, read: int | None) -> None:
    """JSON knows no difference between 12 and 12.0."""
    assert repr(count_of(count)) == repr(read)
    assert read_counts({"in": count}, {"in": "inputTokens"}) == ({} if read is None else {"inputTokens": read})


@pytest.mark.parametrize(
    "usage",
    [
        {"in": 3, "hit": 2, "details": {"cached": 1}},
        {"details": {"cached": 1, "more": {"in": 9}}, "hit": 2, "in": 3},
        {"in": 3, "other": 4, "details": {"cached": 1, "hit": 5}, "hit": "2"},
        {"hit": None, "details": {"cached": None, "hit": 1}, "in": 3.0},
    ],
)
def test_counts_are_read_by_the_names_of_the_provider(usage: dict[str, object]) -> None:
    """Of two names for one count the details win, then the first."""
    hit: CountFields = {"cached": "cacheReadTokens", "hit": "cacheReadTokens"}

    assert read_counts(usage, {"in": "inputTokens", **hit, "details": hit}) == {"inputTokens": 3, "cacheReadTokens": 1}


@pytest.mark.parametrize("usage", [None, [], "12", {"in": {"in": 1}, "details": 7}, {"in": {}}])
def test_what_is_no_usage_has_no_counts(usage: object) -> None:
    assert read_counts(usage, {"in": "inputTokens", "details": {"in": "inputTokens"}}) == {}


def prompt(*messages: dict[str, Any], tools: tuple[str, ...] = ("add",)) -> Prompt:
    asked = request(*messages, tools=[{"name": name, "inputSchema": {}} for name in tools])
    return Prompt(asked, "claude", names_of(asked, AnthropicModel.name_rule))


def test_an_answer_has_the_names_of_the_request_and_parsed_arguments() -> None:
    reply = Reply(["So:", Call("c1", "a_b", '{"x": 1}'), Call("c2", "a_b", None)], "claude-x", "endTurn")

    assert answer_of(reply, prompt(tools=("a/b",))) == ModelAnswer(
        content=[
            TextContent(text="So:"),
            ToolUseContent(id="c1", name="a/b", input={"x": 1}),
            ToolUseContent(id="c2", name="a/b", input={}),
        ],
        model="claude-x",
        stop_reason="toolUse",
        usage=None,
    )


@pytest.mark.parametrize(("required", "problem"), [(["x"], "without its arguments"), ([], None)])
def test_a_call_without_arguments_is_one_only_if_its_tool_needs_none(required: list[str], problem: str | None) -> None:
    asked = request(tools=[{"name": "a/b", "inputSchema": {"type": "object", "required": required}}])
    written = Prompt(asked, "claude", names_of(asked, AnthropicModel.name_rule))
    reply = Reply([Call("c1", "a_b", None)], "m", "toolUse")

    if problem is None:
        assert [use.input for use in answer_of(reply, written).tool_uses] == [{}]
    else:
        with pytest.raises(SamplingError, match=f"^the model called 'a/b' {problem}$"):
            answer_of(reply, written)


@pytest.mark.parametrize(
    ("written", "registered"),
    [("image/jpg", "image/jpeg"), ("IMAGE/PNG; x=1", "image/png"), ("audio/wav", "audio/wav"), ("", ""), (None, "")],
)
def test_types_of_files_are_written_as_they_are_registered(written: str | None, registered: str) -> None:
    assert media_type(written) == registered


def test_ids_that_repeat_or_are_missing_are_made_fresh() -> None:
    history = [user(text()), assistant(use("call_0")), user(result("call_0"))]
    calls = [Call(id, "add", {}) for id in ("call_0", "call_1", "call_1", None)]

    ids = [use.id for use in answer_of(Reply(calls, "m", "toolUse"), prompt(*history)).tool_uses]

    assert ids[1] == "call_1"
    assert len({"call_0", *ids}) == 5


@pytest.mark.parametrize("stop", ["maxTokens", "refusal", "content_filter", "stopSequence"])
def test_calls_of_an_answer_that_was_cut_off_are_dropped_unread(stop: str) -> None:
    reply = Reply(["So:", Call("c1", "add", '{"x"')], "m", stop)

    assert answer_of(reply, prompt()) == ModelAnswer(
        content=[TextContent(text="So:")], model="m", stop_reason=stop, usage=None
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"x"', "arguments that are not JSON"),
        ("[1]", "arguments that are no JSON object"),
        ([1], "arguments that are no JSON object"),
    ],
)
def test_broken_arguments_are_an_error_that_names_the_tool(arguments: object, problem: str) -> None:
    with pytest.raises(SamplingError) as caught:
        answer_of(Reply([Call("c1", "add", arguments)], "m", "toolUse"), prompt())

    assert str(caught.value) == f"the model called 'add' with {problem}"


# Asking


async def test_an_answer_comes_with_and_without_a_stream(serve: Serve) -> None:
    said = Said(text="Two words", calls=[Called("add", {"a": 1})], thinking="hm")
    answers = []
    for stream in (False, True):
        server = serve(AnthropicServer, said)
        async with model_of(server, stream=stream, options=THINKING) as model:
            answer = await model(request(tools=[ADD]))
        assert bool(server.last.get("stream")) is stream
        assert isinstance(answer, ModelAnswer)
        answers.append((answer.text, [use.input for use in answer.tool_uses], answer.stop_reason, answer.usage))

    usage = {"inputTokens": 11, "outputTokens": 7, "reasoningTokens": 3, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    assert answers == [("Two words", [{"a": 1}], "toolUse", usage)] * 2


async def test_an_answer_that_may_take_long_is_streamed_because_the_sdk_refuses_otherwise(serve: Serve) -> None:
    server = serve(AnthropicServer, Said(text="ok"))
    async with model_of(server) as model:
        answer = await model(request(maxTokens=30_000))

    assert (answer.text, server.last["stream"]) == ("ok", True)


async def test_options_win_and_none_leaves_a_field_out(serve: Serve) -> None:
    server = serve(AnthropicServer, Said(text="ok"))
    async with model_of(server, options={"max_tokens": 7, "system": None, "service_tier": "auto"}) as model:
        await model(request(systemPrompt="Be brief"))

    assert {name: server.last.get(name) for name in ("max_tokens", "system", "service_tier")} == {
        "max_tokens": 7,
        "system": None,
        "service_tier": "auto",
    }


async def test_metadata_is_refused_where_the_api_does_not_take_it_or_ignored(serve: Serve) -> None:
    server = serve(AnthropicServer, Said(text="ok"))
    async with model_of(server) as strict, model_of(server, metadata="ignore") as model:
        with pytest.raises(InputRefused):
            await strict(request(metadata={"trace": 1}))
        assert (await model(request(metadata={"trace": 1}))).text == "ok"

    assert "metadata" not in server.last


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"metadata": "drop"}, ValueError, 'metadata is "write" or "ignore", not \'drop\''),
        ({"altered_history": "ask"}, ValueError, 'altered_history is "continue" or "refuse", not \'ask\''),
        ({"progress": True, "stream": False}, ValueError, "on_delta and progress need a stream: leave stream out"),
        ({"on_delta": print, "stream": False}, ValueError, "on_delta and progress need a stream: leave stream out"),
        ({"options": "x"}, TypeError, "options has to be a dict of fields of the request, not str"),
        ({"options": ["x"]}, TypeError, "options has to be a dict of fields of the request, not list"),
        ({"on_delta": anyio.sleep}, TypeError, "on_delta must be a plain function: it is not awaited"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        AnthropicModel(Events(), MODEL, **arguments)

    assert str(caught.value) == said


# Streams


async def test_on_delta_gets_the_text_as_it_comes(serve: Serve) -> None:
    server = serve(AnthropicServer, Said(text="A long answer, in pieces", thinking="hm", calls=[Called("add")]))
    deltas: list[Delta] = []
    asked = request(tools=[ADD])
    async with model_of(server, on_delta=deltas.append, options=THINKING) as model:
        await model(asked)

    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == "A long answer, in pieces"
    assert {id(delta.request) for delta in deltas} == {id(asked)}


async def test_a_failing_on_delta_is_logged_once_and_the_answer_comes(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def on_delta(delta: Delta) -> None:
        raise ValueError("broken display")

    server = serve(AnthropicServer, Said(text="A long answer, in pieces"))
    async with model_of(server, on_delta=on_delta) as model:
        answer = await model(request())

    assert answer.text == "A long answer, in pieces"
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "on_delta failed; it is not called again for this answer"
    ]


def reporting(asked: SamplingRequest, reporter: ProgressReporter | None) -> SamplingRequest:
    return SamplingRequest(params=asked.params, server=asked.server, reporter=reporter)


async def test_with_consent_the_server_gets_the_text_as_progress(serve: Serve) -> None:
    sent: list[dict[str, Any]] = []
    first = anyio.Event()

    async def send(params: dict[str, Any]) -> None:
        sent.append(params)
        first.set()

    server = serve(AnthropicServer, Stalled(said=Said(text="A long answer, in pieces"), events=6))
    async with model_of(server, progress=True) as model, anyio.create_task_group() as tasks:
        tasks.start_soon(model, reporting(request(), ProgressReporter("t", send)))
        await to_thread.run_sync(partial(server.stalled.wait, 10))
        await first.wait()
        tasks.cancel_scope.cancel()

    assert sent[0]["progressToken"] == "t"
    assert "A long answer, in pieces".startswith("".join(report["message"] for report in sent))
    assert sent[-1]["progress"] == sum(len(report["message"]) for report in sent)


async def test_the_answer_waits_until_the_server_has_its_whole_text() -> None:
    """While the first report is under way, the rest of the text comes. It is the second report."""
    reports: list[dict[str, Any]] = []
    answers: list[str] = []
    begun, taken, heard = anyio.Event(), anyio.Event(), anyio.Event()

    async def send(params: dict[str, Any]) -> None:
        begun.set()
        await taken.wait()
        reports.append(params)

    class FromAfar(Events):
        async def __anext__(self) -> dict[str, Any]:
            if len(self.left) == len(END):
                heard.set()
            if len(self.left) == len(END) + 2:
                await begun.wait()
            return await super().__anext__()

    client = FromAfar(*BEGIN, *[text_delta(word) for word in ("one ", "two ", "three")], *END)
    model = AnthropicModel(client, MODEL, progress=True)

    async def ask() -> None:
        answer = await model(reporting(request(), ProgressReporter("t", send)))
        answers.append(answer.text)

    with fail_after(20):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await heard.wait()
            await anyio.wait_all_tasks_blocked()
            assert (reports, answers) == ([], [])
            taken.set()

    assert answers == ["one two three"]
    assert reports == [
        {"progressToken": "t", "progress": 4, "message": "one "},
        {"progressToken": "t", "progress": 13, "message": "two three"},
    ]


@pytest.mark.fake_clock
async def test_a_server_that_takes_no_progress_delays_the_answer_by_five_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def never(params: dict[str, Any]) -> None:
        await anyio.sleep_forever()

    model = AnthropicModel(Events(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True)
    begin = anyio.current_time()
    answer = await model(reporting(request(), ProgressReporter("t", never)))

    assert answer.content == [TextContent(text="Hello")]
    assert anyio.current_time() - begin == pytest.approx(5)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the server does not take the progress of an answer in time; it lacks the end"
    ]


@pytest.mark.fake_clock
async def test_an_answer_that_fails_or_is_cancelled_waits_for_no_progress() -> None:
    begun = anyio.Event()

    async def never(params: dict[str, Any]) -> None:
        begun.set()
        await anyio.sleep_forever()

    class Failing(Events):
        async def __anext__(self) -> dict[str, Any]:
            if not self.left:
                await begun.wait()
                raise OSError("gone")
            return await super().__anext__()

    def asked() -> SamplingRequest:
        return reporting(request(), ProgressReporter("t", never))

    begin = anyio.current_time()
    with pytest.raises(ProviderError):
        await AnthropicModel(Failing(*BEGIN, text_delta("Hello")), MODEL, progress=True)(asked())
    failed = anyio.current_time()
    begun = anyio.Event()
    async with create_task_group() as tasks:
        tasks.start_soon(AnthropicModel(Events(*BEGIN, text_delta("Hello"), *END), MODEL, progress=True), asked())
        await begun.wait()
        cancelled = anyio.current_time()
        tasks.cancel_scope.cancel()

    assert (failed, anyio.current_time()) == (begin, cancelled)


@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("end", "error"),
    [("broken call", SamplingError), ("no end", ProviderError), ("none of the API", ProviderError)],
)
async def test_an_answer_that_turns_out_unusable_when_it_is_read_waits_for_no_progress(
    end: str, error: type[Exception]
) -> None:
    async def never(params: dict[str, Any]) -> None:
        await anyio.sleep_forever()

    call = {"type": "tool_use", "id": "c1", "name": "add", "input": '{"x"'}
    ends = {
        "broken call": [{"type": "content_block_start", "index": 1, "content_block": call}, *END],
        "no end": [],
        "none of the API": [{"type": "message_delta", "delta": {"model": 1}}, *END],
    }
    events = Events(*BEGIN, text_delta("Hello"), *ends[end])
    begin = anyio.current_time()
    with pytest.raises(error):
        await AnthropicModel(events, MODEL, progress=True)(reporting(request(), ProgressReporter("t", never)))

    assert anyio.current_time() == begin


async def test_progress_that_cannot_be_sent_neither_delays_nor_fails_the_answer(serve: Serve) -> None:
    async def broken(params: dict[str, Any]) -> None:
        raise OSError("gone")

    server = serve(AnthropicServer, Said(text="A long answer, in pieces"))
    async with model_of(server, progress=True) as model:
        answer = await model(reporting(request(), ProgressReporter("t", broken)))
    assert answer.text == "A long answer, in pieces"


@pytest.mark.parametrize("progress", [False, True])
async def test_cancelling_closes_the_stream_of_the_provider(serve: Serve, progress: bool) -> None:
    async def send(params: dict[str, Any]) -> None:
        """The server gets it."""

    server = serve(AnthropicServer, Stalled(said=Said(text="A long answer, in pieces"), events=4))
    async with model_of(server, stream=True, progress=progress) as model:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model, reporting(request(), ProgressReporter("t", send)))
            await to_thread.run_sync(partial(server.stalled.wait, 10))
            tasks.cancel_scope.cancel()

        assert await to_thread.run_sync(partial(server.unfinished.wait, 10))


# Failures


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("events", [0, 1, 3, 5])
async def test_a_stream_that_is_cut_is_an_error_and_no_short_answer(serve: Serve, events: int, progress: bool) -> None:
    async def send(params: dict[str, Any]) -> None:
        """The server gets it."""

    server = serve(AnthropicServer, Broken(said=Said(text="A long answer, in pieces"), events=events))
    async with model_of(server, stream=True, progress=progress) as model:
        with pytest.raises(ProviderError) as caught:
            await model(reporting(request(), ProgressReporter("t", send)))

    assert (caught.value.provider, caught.value.status, caught.value.transient) == ("anthropic", None, True)


def answering(content: str, kind: str) -> AsyncAnthropic:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, content=content.encode())

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return AsyncAnthropic(api_key="k", http_client=http)


async def test_an_error_in_the_middle_of_a_stream_is_an_error() -> None:
    start = '{"type":"message_start","message":{"id":"m","content":[],"model":"c","usage":{"input_tokens":1}}}'
    error = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    stream = f"event: message_start\ndata: {start}\n\nevent: error\ndata: {error}\n\n"

    async with AnthropicModel(answering(stream, "text/event-stream"), MODEL, stream=True) as model:
        with pytest.raises(ProviderError) as caught:
            await model(request())

    assert (caught.value.code, caught.value.status, caught.value.transient) == ("overloaded_error", None, True)


@pytest.mark.parametrize("body", ["{}", "[]", '{"stop_reason":"end_turn","content":[{"type":"text"}],"model":"m"}'])
async def test_a_reply_that_is_none_of_the_api_is_an_error(body: str) -> None:
    async with AnthropicModel(answering(body, "application/json"), MODEL) as model:
        with pytest.raises(ProviderError):
            await model(request())


async def test_a_rate_limit_says_when_to_come_back_and_the_server_of_it_nothing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(AnthropicServer, *[Failed(status=429, retry_after="7")] * 2)
    async with model_of(server) as model:
        with pytest.raises(ProviderError) as caught:
            await model(request(user(text("a secret prompt"))))
        sampling = Sampling(with_tools=model, approve=always)
        params = {"messages": [user(text("a secret prompt"))], "maxTokens": 9}
        with pytest.raises(InputRefused) as refusal:
            await sampling.session(server="s", knows_tools=True).answer(params, None)

    error = caught.value
    assert (error.status, error.code, error.retry_after, error.transient) == (429, "rate_limit_error", 7.0, True)
    assert (refusal.value.code, str(refusal.value)) == (-32603, "this client's model failed")
    why = "ProviderError: anthropic: RateLimitError (HTTP 429), rate_limit_error, try again after 7 seconds"
    failed = f"sampling for s: this client's model failed: {why}"
    assert [(line.getMessage(), line.exc_info) for line in caplog.records if line.name == "mcp_host.handlers"] == [
        (failed, None)  # no traceback: it would lead to no defect
    ]
    assert server.key not in caplog.text
    assert "secret prompt" not in caplog.text


@pytest.mark.parametrize("progress", [False, True], ids=["whole", "with progress"])
async def test_what_a_provider_says_of_a_failure_is_in_no_text_no_traceback_and_no_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, progress: bool
) -> None:
    async def send(params: dict[str, Any]) -> None:
        """The server gets it."""

    words = user(text("a secret prompt"))  # tracebacks show the lines of this test: the words are not in those
    said = '{"type": "error", "error": {"type": "invalid_request_error", "message": "sk-leaked: a secret prompt"}}'
    server = serve(AnthropicServer, *[Failed(status=400, body=said)] * 2)
    caplog.set_level(logging.DEBUG, logger="mcp_host")
    async with model_of(server, progress=progress) as model:
        with pytest.raises(ProviderError) as caught:
            await model(reporting(request(words), ProgressReporter("t", send)))
        sampling = Sampling(with_tools=model, approve=always)
        with pytest.raises(InputRefused) as refusal:
            await sampling.session(server="s", knows_tools=True).answer(wire(words), None)
    error = caught.value
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.getLogger("mcp_host").log(level, "%s %r", error, error, exc_info=error)
    printed = "".join([caplog.text, str(refusal.value), *traceback.format_exception(error)])

    assert "sk-leaked: a secret prompt" in str(error.original)  # so it can be known, and it is nowhere else
    assert (error.status, error.code, error.__cause__) == (400, "invalid_request_error", None)
    assert "anthropic: BadRequestError (HTTP 400), invalid_request_error" in printed
    assert [secret for secret in ("sk-leaked", "secret prompt", server.key) if secret in printed] == []


# Reasoning, in loops of servers


def looping_server(turns: int, *, drops_meta: bool) -> Server:
    """Its tool runs a loop by hand, so that it may drop ``_meta``."""
    server = Server("looping")

    @server.tool
    async def add_up(ctx: Context) -> str:
        messages: list[dict[str, Any]] = [user(text("Add up"))]
        for _ in range(turns):
            params = {"messages": messages, "maxTokens": 100, "tools": [ADD]}
            answer = await ctx.request("sampling/createMessage", params)
            content = answer["content"] if isinstance(answer["content"], list) else [answer["content"]]
            assert "usage" not in answer
            calls = [block for block in content if block["type"] == "tool_use"]
            if not calls:
                return str(content[0]["text"])
            for block in calls if drops_meta else ():
                del block["_meta"]
            messages = [*messages, assistant(*content), user(*[result(call["id"], text("3")) for call in calls])]
        return "no answer"

    return server


def calling(number: int) -> Turn:
    """The ids repeat, as those of some servers that speak this API do."""
    return Said(thinking=f"thought {number}", calls=[Called("add", {"a": number}), Called("add", {"b": number})])


@in_both_eras
@pytest.mark.parametrize("drops_meta", [False, True], ids=["keeps _meta", "drops _meta"])
async def test_a_loop_of_twenty_turns_has_its_thinking_in_each(serve: Serve, era: Any, drops_meta: bool) -> None:
    model_server = serve(AnthropicServer, *[calling(number) for number in range(19)], Said(text="57"))
    async with model_of(model_server, options=THINKING, altered_history="refuse") as model:
        sampling = Sampling(with_tools=model, approve=always)
        async with Client(looping_server(20, drops_meta=drops_meta), era=era, sampling=sampling) as client:
            assert (await client.call_tool("add_up")).text == "57"

    assert model_server.last["thinking"] == THINKING["thinking"]
    thoughts = [message["content"][0]["thinking"] for message in model_server.last["messages"][1::2]]
    assert thoughts == [f"thought {number}" for number in range(19)]


@in_both_eras
async def test_two_loops_at_once_have_their_own_thinking(serve: Serve, era: Any) -> None:
    def decide(heard: Any) -> Turn:
        turns = len(heard.body["messages"]) // 2
        return Said(text="done") if turns == 5 else calling(turns)

    model_server = serve(AnthropicServer, decide=decide)
    store = ReasoningStore()
    async with model_of(model_server, options=THINKING, altered_history="refuse", reasoning=store) as model:
        sampling = Sampling(with_tools=model, approve=always)
        async with (
            Client(looping_server(6, drops_meta=True), era=era, sampling=sampling) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(2):
                tasks.start_soon(client.call_tool, "add_up")

    assert [len(heard.body["messages"]) for heard in model_server.heard].count(11) == 2


async def test_a_loop_goes_on_without_thinking_that_was_forgotten(serve: Serve) -> None:
    now = 0.0
    server = serve(AnthropicServer, calling(1), calling(2), Said(text="ok"))
    store = ReasoningStore(max_age=10, clock=lambda: now)
    async with model_of(server, options=THINKING, reasoning=store) as model:
        history = [user(text())]
        for _ in range(2):
            answer = (await model(request(*history, tools=[ADD]))).to_wire()["content"]
            assert isinstance(answer, list)
            history += [assistant(*answer), user(*[result(call["id"], text("3")) for call in answer])]
            now += 11
        answer = await model(request(*history, tools=[ADD]))

    assert (answer.text, server.last["thinking"]) == ("ok", {"type": "disabled"})


# Usage


async def test_the_usage_of_a_loop_is_the_sum_of_its_answers(serve: Serve) -> None:
    def add(a: int) -> int:
        return a

    server = serve(AnthropicServer, Said(calls=[Called("add", {"a": 1})]), Said(text="ok", tokens=(20, 5), cached=10))
    async with model_of(server) as model:
        done = await run_tool_loop(model, "Add", tools=[add])

    assert done.usage == {"inputTokens": 31, "outputTokens": 12, "cacheReadTokens": 10, "cacheWriteTokens": 0}


@in_both_eras
async def test_usage_reaches_middleware_and_never_the_server(serve: Serve, era: Any) -> None:
    usages: list[object] = []

    async def around(asked: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
        answer = await call_model()
        assert isinstance(answer, ModelAnswer)
        usages.append(answer.usage)
        return answer.model_copy(update={"content": [TextContent(text="seen")]})

    async def middleware(asked: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        passed = await call_next(asked.wrap_model(around) if isinstance(asked, ServerRequest) else asked)
        assert "usage" not in passed
        return passed

    model_server = serve(AnthropicServer, Said(text="ok"))
    async with model_of(model_server) as model:
        sampling = Sampling(with_tools=model, approve=always)
        server = looping_server(1, drops_meta=False)
        async with Client(server, era=era, sampling=sampling, middleware=[middleware]) as client:
            assert (await client.call_tool("add_up")).text == "seen"

    assert usages == [{"inputTokens": 11, "outputTokens": 7, "cacheReadTokens": 0, "cacheWriteTokens": 0}]


def test_usage_is_part_of_the_answer_and_never_of_its_json() -> None:
    answer = ModelAnswer(content=TextContent(text="ok"), model="m", usage={"inputTokens": 1})

    assert answer.model_copy(update={"stop_reason": "endTurn"}).usage == {"inputTokens": 1}
    assert answer.to_wire() == {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"}


# Bounds


class Events:
    """The SDK's client and its stream: *events*, all there at once."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.messages: Any = self
        self.left: list[dict[str, Any]] = list(reversed(events))

    async def create(self, **body: object) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()


BEGIN: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"model": MODEL, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
]
END: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def text_delta(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


async def test_a_stream_of_more_than_64_million_characters_is_an_error() -> None:
    piece = text_delta("x" * 2**20)
    client = Events(*BEGIN, *[piece] * 100, *END)

    with fail_after(20), pytest.raises(ProviderError) as raised:
        await AnthropicModel(client, MODEL, stream=True)(request())

    assert str(raised.value) == "anthropic: the stream has more than 64,000,000 characters"
    assert len(client.left) == 40  # of 104


async def test_other_tasks_run_while_a_stream_has_many_events_at_once() -> None:
    turns = 0
    seen: list[int] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    client = Events(*BEGIN, *[text_delta("x")] * 1000, *END)
    model = AnthropicModel(client, MODEL, on_delta=lambda delta: seen.append(turns))
    async with create_task_group() as group:
        group.start_soon(others)
        answer = await model(request())
        group.cancel_scope.cancel()

    assert answer.text == "x" * 1000
    assert seen[-1] - seen[0] >= 30


class Answering:
    """The SDK's client: says nothing, and keeps the *bodies* of its requests."""

    def __init__(self) -> None:
        self.messages: Any = self
        self.bodies: list[Any] = []

    async def create(self, **body: Any) -> Any:
        self.bodies.append(body)
        return {"content": [], "model": MODEL, "stop_reason": "end_turn"}


async def test_the_tools_that_a_server_repeats_are_written_once() -> None:
    """Equal offers, whoever built them. A change of a tool, or of how the tools may be used, is written anew."""

    def asked(description: str, **fields: Any) -> SamplingRequest:
        schema = {"type": "object", "oneOf": [{"required": ["a"]}], "description": description}
        return request(tools=[{"name": "add/2", "inputSchema": schema}], **fields)

    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    for again in (asked("A"), asked("A"), asked("B"), asked("B", toolChoice={"mode": "required"}), asked("A")):
        await model(again)

    bodies = sdk.bodies
    assert bodies[0]["tools"] is bodies[1]["tools"]
    assert ["A" in body["tools"][0]["input_schema"]["description"] for body in bodies] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert [body.get("tool_choice") for body in bodies] == [None, None, None, {"type": "any"}, None]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"const": 1}, {"const": True}), ({"enum": [0]}, {"enum": [False]}), ({"a": {}, "b": {}}, {"b": {}, "a": {}})],
    ids=["const", "enum", "order"],
)
async def test_tools_that_python_takes_for_equal_are_not(before: dict[str, Any], after: dict[str, Any]) -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    for schema in (before, after):
        await model(request(tools=[{"name": "add", "inputSchema": {"type": "object", **schema}}]))

    assert json.dumps(sdk.bodies[1]["tools"][0]["input_schema"]) == json.dumps({"type": "object", **after})


async def test_a_schema_that_changed_in_place_is_written_and_checked_anew() -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    asked = request(tools=[{"name": "add", "inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}]}}])
    await model(asked)
    asked.tools[0].input_schema["title"] = "Sum"
    await model(asked)
    asked.tools[0].input_schema["minimum"] = math.inf

    assert sdk.bodies[1]["tools"][0]["input_schema"]["title"] == "Sum"
    with pytest.raises(InputRefused):
        await model(asked)


def asking(handler: Handler) -> Callable[..., Awaitable[object]]:
    """Asks *handler* as a server does, over one connection. Takes the schema of the tool on offer."""
    session = Sampling(with_tools=handler, approve=always).session(server="calculator", knows_tools=True)

    async def ask(**schema: object) -> object:
        tool = {"name": "add", "inputSchema": {"type": "object", **schema}}
        return await session.answer(from_json(json.dumps(wire(tools=[tool]))))

    return ask


async def test_each_request_of_a_connection_gets_its_own_tools() -> None:
    sdk = Answering()
    ask = asking(AnthropicModel(sdk, MODEL))
    for value in (1, 1, True, True, 1.0, 1):
        await ask(const=value)

    assert [json.dumps(body["tools"][0]["input_schema"]["const"]) for body in sdk.bodies] == [
        *("1", "1", "true", "true", "1.0", "1"),
    ]
    assert sdk.bodies[0]["tools"] is sdk.bodies[1]["tools"]
    assert sdk.bodies[2]["tools"] is sdk.bodies[3]["tools"]


def test_tools_that_only_the_model_has_are_not_compared_by_value() -> None:
    """As nobody changes them in place, it shows only here."""
    rule = AnthropicModel.name_rule
    asked = SamplingRequest(params=RepeatedTools().read(wire(tools=[ADD])), server="calculator")
    offer = Offer.of(asked, rule, None)
    asked.tools[0].input_schema["title"] = "Sum"

    assert Offer.of(asked, rule, offer) is offer
    assert Offer.of(request(tools=[ADD]), rule, offer) is offer
    assert Offer.of(request(tools=[ADD], toolChoice={"mode": "none"}), rule, offer) is not offer


async def test_a_handler_that_changes_tools_before_it_asks_a_model_changes_one_request() -> None:
    sdk = Answering()
    model = AnthropicModel(sdk, MODEL)
    notes = iter([None, "again", None])

    async def handler(request: SamplingRequest) -> CreateMessageResult:
        if (note := next(notes)) is not None:
            request.tools[0].input_schema["properties"]["a"]["description"] = note
        return await model(request)

    ask = asking(handler)
    for _ in range(3):
        await ask(properties={"a": {}})

    offered = [body["tools"][0]["input_schema"]["properties"]["a"] for body in sdk.bodies]
    assert offered == [{}, {"description": "again"}, {}]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("temperature", -math.inf),
        ("temperature", math.nan),
        ("metadata", math.inf),
        ("the tool 'add'", math.nan),
        ("messages[1]", math.inf),
        ("messages[1]", "\ud800"),
        ("messages[2]", math.inf),
        ("messages[2]", "\ud800"),
    ],
)
async def test_what_json_cannot_have_is_refused_before_a_provider_is_asked(where: str, value: Any) -> None:
    def value_in(place: str) -> Any:
        return value if where == place else 1

    asked = request(
        user(text()),
        assistant(use("c1", a=value_in("messages[1]"))),
        user(result("c1", text("3"), structuredContent={"a": value_in("messages[2]")})),
        tools=[{"name": "add", "inputSchema": {"minimum": value_in("the tool 'add'")}}],
        temperature=value_in("temperature"),
        metadata={"user_id": value_in("metadata")},
    )

    with pytest.raises(InputRefused) as refusal:
        await AnthropicModel(Events(), MODEL)(asked)

    says = f"{where}: this model takes no numbers and no texts that JSON cannot have"
    assert (refusal.value.code, str(refusal.value)) == (-32602, says)


async def test_a_temperature_that_no_sdk_can_write_is_refused() -> None:
    with pytest.raises(InputRefused) as refusal:
        await AnthropicModel(Events(), MODEL)(request(temperature=10**4000))

    assert (refusal.value.code, str(refusal.value)) == (-32602, "temperature: this model takes 1000 at most")


@pytest.mark.parametrize(
    "arguments", ['{"a": NaN}', '{"a": 1e999}', '{"a": "\ud800"}', {"a": math.inf}, {"a": "\ud800"}]
)
def test_arguments_that_json_cannot_have_are_an_error_that_names_the_tool(arguments: object) -> None:
    with pytest.raises(SamplingError) as raised:
        answer_of(Reply([Call("c1", "add", arguments)], "claude-x", "toolUse"), prompt())

    assert str(raised.value) == "the model called 'add' with arguments that are not JSON"
